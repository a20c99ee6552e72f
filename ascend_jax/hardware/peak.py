"""Peaks that follow from a chip's numbers, as pure formulas of ``NpuSpec``."""

from ascend_jax.hardware.spec import NpuSpec, Number

FRACTAL_ROWS = 16
FRACTAL_BYTES = 32
OPERAND_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "int8": 1, "uint8": 1, "float8_e4m3fn": 1, "float8_e5m2": 1}


def peak_flops(spec: NpuSpec, dtype: str = "float16") -> Number:
    """Multiplications and additions per second of all Cubes: cores × 2·16·16·(32 B / operand bytes) / cycles × clock.

    Args:
      spec: the chip; may be traced.
      dtype: operand type. The formula does not know which types a chip's Cube accepts: float8 needs a 950, and the first
        generation multiplies no float32.

    Returns:
      Operations per second, a scalar of the spec's number type.

    Raises:
      ValueError: a type that no Cube multiplies at one fractal a step.

    Source: ``cube_m/k/n_size`` = 16, 16, 16 and ``DtypeMKN`` of CANN 8.1's platform_config.

    >>> from ascend_jax.hardware import load_chip
    >>> f"{peak_flops(load_chip('910B3')) / 1e12:.1f} TFLOPS"
    '294.9 TFLOPS'
    """
    if dtype not in OPERAND_BYTES:
        raise ValueError(f"dtype={dtype!r} must be one of {', '.join(OPERAND_BYTES)}")
    operand_bytes = OPERAND_BYTES[dtype]
    cycles = spec.cube_mac_cycles_fp32 if operand_bytes == 4 else spec.cube_mac_cycles
    flop = 2 * FRACTAL_ROWS * FRACTAL_ROWS * (FRACTAL_BYTES // operand_bytes)
    return spec.cube_cores * flop / cycles * spec.cube_clock_hz
