"""How long simple kernels take: the roofline of the chip's numbers. The slowest unit counts, and the launch comes on top.

It knows no start-up of pipes, no L2 and no bank conflicts, so it is a lower bound; attention has the cost model instead.
"""

from collections.abc import Mapping
from math import ceil

from ascend_jax.hardware.peak import peak_flops
from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.runtime.ops.operator import Cost

CUBE_BLOCK = (128, 256)
"""Rows and columns of one core's part of a matrix product: what fills L0C with float32."""
VECTOR_BYTES = 8192
"""Bytes of float32 below which a further vector core is not worth its launch; an assumption."""
LANE_BYTES = 4
"""The Vector counts its repeats in float32 operands."""


def vector_blocks(spec: NpuSpec, elements: int) -> int:
    """Vector cores that share ``elements``: at least 8 KiB of float32 each, all of them at most."""
    most = int(spec.cube_cores) * int(spec.vector_cores_per_cube)
    return max(1, min(most, ceil(elements * LANE_BYTES / VECTOR_BYTES)))


def vector_cost(spec: NpuSpec, elements: int, operations: Mapping[str, float], read_bytes: int, written_bytes: int) -> Cost:
    """An operator of the Vector.

    Args:
      elements: what the operations work on.
      operations: names of ``VectorCosts`` and how often each is done for an element.
      read_bytes, written_bytes: between GM and UB.

    >>> from ascend_jax.hardware import load_chip
    >>> cost = vector_cost(load_chip("910B3"), 1 << 24, {"add": 1}, 2 << 25, 1 << 25)
    >>> cost.cores, f"{cost.seconds * 1e6:.0f} us"
    (40, '73 us')
    """
    cores = vector_blocks(spec, elements)
    repeats = ceil(elements / cores * LANE_BYTES / float(spec.vector_repeat_bytes))
    cycles = repeats * sum(
        max(float(getattr(spec.vector, name)), float(spec.vector.round_trip)) * n for name, n in operations.items()
    )
    limits = (
        cycles / float(spec.vector_clock_hz),
        read_bytes / (cores * float(spec.gm_to_ub_bytes_per_s)),
        written_bytes / (cores * float(spec.ub_to_gm_bytes_per_s)),
        (read_bytes + written_bytes) / float(spec.gm_bytes_per_s),
    )
    return Cost(float(spec.launch_s) + max(limits), cores)


def matmul_blocks(m: int, n: int, batch: int = 1) -> int:
    """Blocks of 128 × 256 that a product of ``m × n`` is cut into."""
    return batch * ceil(m / CUBE_BLOCK[0]) * ceil(n / CUBE_BLOCK[1])


def matmul_cost(spec: NpuSpec, sizes: tuple[int, int, int, int], dtype: str, element_bytes: int) -> Cost:
    """A matrix product of the Cube. ``sizes``: batch, m, k, n.

    Each block is whole: a product of 1 row takes as long as one of 128 rows on its core, apart from the bytes.

    >>> from ascend_jax.hardware import load_chip
    >>> cost = matmul_cost(load_chip("910B3"), (1, 8192, 8192, 8192), "float16", 2)
    >>> cost.cores, f"{cost.seconds * 1e3:.2f} ms"
    (20, '3.75 ms')
    """
    batch, m, k, n = sizes
    blocks = max(1, matmul_blocks(m, n, batch))
    cores = min(int(spec.cube_cores), blocks)
    rounds = ceil(blocks / cores)
    rows, columns = (min(size, whole) for size, whole in zip((16 * ceil(m / 16), 16 * ceil(n / 16)), CUBE_BLOCK, strict=True))
    of_one_core = float(peak_flops(spec, dtype)) / float(spec.cube_cores)
    fed = rounds * k * (rows + columns) * element_bytes  # both operands of each block pass GM → L1
    limits = (
        rounds * 2 * rows * columns * k / of_one_core,
        fed / float(spec.gm_to_l1_bytes_per_s),
        batch * (m * k + k * n + m * n) * element_bytes / float(spec.gm_bytes_per_s),
    )
    return Cost(float(spec.launch_s) + max(limits), cores)
