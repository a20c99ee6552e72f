"""Vector operators: instruction costs against published cycles, kernels against loops, rows against published times."""

import math
from typing import Any

import pytest

from ascend_jax.calibration.elementary import elementary
from ascend_jax.calibration.rows import Row
from ascend_jax.calibration.vector_rows import Kernel, Manner, Tensor, kernel_seconds
from ascend_jax.cost.units import vector_seconds
from ascend_jax.hardware import load_chip
from ascend_jax.kernels.kernel import VectorOps

A2, A5 = load_chip("910b2"), load_chip("950pr")
SOFTMAX = ("scale", "row_max", "subtract", "exp", "row_sum", "cast")

# hw-native-sys/pto-isa@3186c381: cycles of one instruction on a tile of float32, a slope an element and a constant (910B3).
# Operations that are several instructions (TROWMAX, TROWSUM, TDIVS, ...): test_tile_ops.py.
FITS_A2 = {
    "scale": (0.0156, 0.0),
    "multiply": (0.0312, 0.0),
    "subtract": (0.0312, 0.0),
    "exp": (0.0314, 30.0),
}
# The same source, 950: a slope a repeat and a constant; whether operands stay in registers.
FITS_950 = {"add": (1.247, 55.0, False), "exp": (1.967, 62.7, True), "divide": (1.908, 64.5, True)}
# hicann/cann-samples@a934ed96: softmax of 128 × 256 float32 in one vector function, reduced across rows or along them.
SOFTMAX_CYCLES, SOFTMAX_ALONG_ROWS = 2498.0, 3849.0

TILE = 8192


def cycles(chip: Any, steps: tuple[str, ...], elements: int, fused: bool = False) -> float:
    ops = VectorOps(elements=dict.fromkeys(steps, float(elements)), instructions=1.0, fused=fused)
    return float(vector_seconds(chip, ops)) * chip.vector_clock_hz


@pytest.mark.parametrize("step", FITS_A2)
def test_instructions_of_a2_cost_what_tiles_cost_less_what_calibration_took_off(step: str) -> None:
    """Attention says 0.83 of the published slopes; with the start of an instruction a tile is within 18 %."""
    slope, constant = FITS_A2[step]
    assert cycles(A2, (step,), TILE) == pytest.approx(slope * TILE + constant, rel=0.18)


@pytest.mark.parametrize("step", FITS_950)
def test_instructions_of_950_cost_what_tiles_cost(step: str) -> None:
    slope, constant, fused = FITS_950[step]
    assert cycles(A5, (step,), TILE, fused) == pytest.approx(slope * TILE / 64 + constant, rel=0.15)


def test_a_fused_softmax_of_950_takes_the_measured_cycles() -> None:
    found = cycles(A5, SOFTMAX, 128 * 256, fused=True)
    assert found == pytest.approx(SOFTMAX_CYCLES, rel=0.05)
    assert found < 0.7 * SOFTMAX_ALONG_ROWS  # the catalogue has costs of the faster layout only


def vector(op: str, shape: tuple[int, ...], **changes: Any) -> Row:
    given: dict[str, Any] = {"dtype": "fp32", "category": "vector", "op": f"vector {op}", "input_shape": (shape,)}
    return Row(id="v", value=1.0, **(given | changes))


# Microseconds; hicann/cann-bench@d59d44ca, Add: mirror-cann/asc-devkit@82b89a15.
MEASURED = [
    ("910B2", vector("exp", (2048, 2048), attrs={"scale": 1.5}, note="baseline_kernels: AutomaticBufferFusionOp×1"), 29.06),
    ("910B2", vector("exp", (11, 13, 17, 67, 67), note="baseline_kernels: Mul×2 + Add×1 + Exp×1"), 92.263),
    ("910B2", vector("softmax", (4096, 4096), dtype="bf16", note="baseline_kernels: SoftmaxV2×1"), 91.76),
    ("910B2", vector("Add", (8192, 8192), dtype="fp16", tiling="double buffer"), 264.02),
    ("950PR", vector("exp", (4096, 4096), dtype="bf16", note="baseline_kernels: AutomaticBufferFusionOp×1"), 32.08),
    ("950PR", vector("exp", (363, 367, 373), dtype="bf16", note="baseline_kernels: Muls×1 + Add×1 + Exp×1"), 115.655),
    ("950PR", vector("softmax", (1000003, 2), dtype="fp16", note="baseline_kernels: SoftmaxV2×1"), 20.23),
]


@pytest.mark.parametrize(("chip", "row", "measured_us"), MEASURED)
def test_operators_take_what_was_measured_within_fifteen_percent(chip: str, row: Row, measured_us: float) -> None:
    assert elementary(row, load_chip(chip)).seconds * 1e6 == pytest.approx(measured_us, rel=0.15)


def test_a_lean_kernel_is_a_loop_over_its_tiles() -> None:
    """Copies set the pace: every tile's bytes over GM and L2, and the instructions of one tile besides."""
    tensor = Tensor(1, 48 * 8192 * 5, 4, native=True)
    moved = missed = 0.0
    for _ in range(5):
        moved += 48 * 8192 * 4 * 2
        missed += 48 * 8192 * 4
    shared_s = missed / A2.gm_bytes_per_s + (moved - missed) / A2.l2_bytes_per_s
    tile_s = (8192 / 64 * A2.vector.exp + A2.vector.head + A2.vector.tail) / A2.vector_clock_hz
    own = A2.launch_s + 2 * A2.gm_latency_s + shared_s + tile_s
    found = kernel_seconds(A2, tensor, Kernel(("exp",)), Manner(fused=False, overlapped=True, head=False))
    assert found.seconds == pytest.approx(own)
    assert found.bound_by in ("GM and L2", "launch")


def test_the_busiest_core_reduces_whole_rows() -> None:
    kernel, manner = Kernel(("row_max",) * 60, wide=True), Manner(fused=True, overlapped=True, head=False)
    one = kernel_seconds(A5, Tensor(64 * 100, 512, 4, native=True), kernel, manner).seconds
    more = kernel_seconds(A5, Tensor(64 * 100 + 1, 512, 4, native=True), kernel, manner).seconds
    next_full = kernel_seconds(A5, Tensor(64 * 101, 512, 4, native=True), kernel, manner).seconds
    assert one < more == pytest.approx(next_full, rel=1e-3)


def test_a_chain_pays_each_launch_and_reads_from_l2_what_it_has_just_written() -> None:
    chain = elementary(vector("exp", (1024, 1024), note="baseline_kernels: Mul×1 + Add×1 + Exp×1"), A2).seconds
    bytes_moved = 2**20 * 4
    first, later = bytes_moved / A2.gm_bytes_per_s, bytes_moved / A2.l2_bytes_per_s
    assert chain > 3 * A2.launch_s + first + 5 * later
    assert chain < 3 * (A2.launch_s + 2 * A2.gm_latency_s) + 2 * first + 5 * later


def test_short_rows_that_do_not_fill_blocks_of_ub_are_moved_one_by_one() -> None:
    ragged = elementary(vector("softmax", (2**20, 7), dtype="fp16"), A5).seconds
    even = elementary(vector("softmax", (2**20, 16), dtype="fp16"), A5).seconds
    assert ragged > 1.2 * even * 7 / 16
    gap = 1 + math.ceil(A5.dma_burst_gap_bytes) / 14
    assert ragged > 2**20 * 14 * gap / A5.gm_bytes_per_s


def test_memory_base_costs_the_round_trips_that_a_vector_function_saves() -> None:
    shape = (64 * 4, 2**16)
    fused = elementary(vector("softmax", shape, tiling="vf_fused"), A5)
    apart = elementary(vector("softmax", shape, tiling="membase"), A5)
    assert apart.seconds > fused.seconds
