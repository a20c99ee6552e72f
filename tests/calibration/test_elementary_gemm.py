"""Matrix products: the Cube's time against published pipe times, and whole rows against loops and published times."""

import math
from dataclasses import replace
from typing import Any

import pytest

from ascend_jax.calibration.elementary import elementary
from ascend_jax.calibration.gemm_rows import Product, cube_busy_seconds, gemm_seconds
from ascend_jax.calibration.rows import Row
from ascend_jax.hardware import load_chip

A2, A5 = load_chip("910b2"), load_chip("950pr")

# Microseconds of the Cube, mean of the cores. A2: mirror-cann/asc-devkit@82b89a15 (its 24 cores may run at 1.80 or 1.85 GHz);
# 950: hicann/cann-samples@a934ed96.
MAC = [
    ("910B1", (8192, 8192, 8192), 3081.7),
    ("910B2", (8192, 8192, 8192), 3081.7),
    ("950PR", (8192, 8192, 8192), 2564.8),
    ("950PR", (1024, 2048, 4096), 40.2),
]
# Microseconds of whole kernels: [M, K, N]; asc-devkit and cann-samples as above, hicann/cann-bench@d59d44ca.
WHOLE = [
    ("910B2", (8192, 8192, 8192), 4121.16),
    ("910B2", (4096, 4096, 4096), 525.95),
    ("910B2", (2048, 4096, 2048), 156.5),
    ("910B2", (1, 4096, 4096), 29.93),
    ("950PR", (8192, 8192, 8192), 2572.0),
]


def gemm(sizes: tuple[int, int, int], **changes: Any) -> Row:
    m, k, n = sizes
    given: dict[str, Any] = {"category": "gemm", "op": "GEMM", "dtype": "fp16", "input_shape": ((m, k), (k, n))}
    return Row(id="g", value=1.0, unit="us", **(given | changes))


@pytest.mark.parametrize(("chip", "sizes", "measured_us"), MAC)
def test_the_cube_is_busy_as_long_as_measured_within_three_percent(
    chip: str, sizes: tuple[int, int, int], measured_us: float
) -> None:
    assert cube_busy_seconds(load_chip(chip), Product(*sizes, 2, 2)) * 1e6 == pytest.approx(measured_us, rel=0.03)


@pytest.mark.parametrize(("chip", "sizes", "measured_us"), WHOLE)
def test_whole_products_take_what_was_measured(chip: str, sizes: tuple[int, int, int], measured_us: float) -> None:
    assert elementary(gemm(sizes), load_chip(chip)).seconds * 1e6 == pytest.approx(measured_us, rel=0.1)


def test_the_busy_time_is_a_count_of_fractals() -> None:
    macs = sum(1 for _ in range(0, 96, 16) for _ in range(0, 200, 16) for _ in range(0, 320, 16))
    steps = math.ceil(96 / 128) * math.ceil(320 / 128) * math.ceil(208 / 128)
    own = (macs + 6 * steps) / A2.cube_clock_hz / A2.cube_cores
    assert cube_busy_seconds(A2, Product(96, 200, 320, 2, 2)) == pytest.approx(own)


def test_one_block_on_free_memory_is_its_steps_one_after_the_other() -> None:
    """With all paths far faster than the Cube only its formula, the launch and the way in and out are left."""
    paths = ("gm", "l2", "gm_to_l1", "l1_to_l0a", "l1_to_l0b", "l0c_to_gm")
    free = replace(A2, **{f"{path}_bytes_per_s": 1e18 for path in paths}, gm_latency_s=0.0, dma_startup_s=0.0)
    cycles = sum(6 + 8 * 8 * 8 for _ in range(0, 1024, 128))
    found = gemm_seconds(free, Product(128, 1024, 128, 2, 2), (128, 128))
    assert found.bound_by == "Cube"
    assert found.seconds == pytest.approx(A2.launch_s + cycles / A2.cube_clock_hz, rel=1e-6)


def test_a_last_wave_with_one_block_takes_as_long_as_a_full_one() -> None:
    wide = replace(A2, gm_bytes_per_s=1e15, l2_bytes_per_s=1e15)
    full, one_more, two = (gemm_seconds(wide, Product(128 * n, 8192, 128, 2, 2), (128, 128)).seconds for n in (24, 25, 48))
    assert one_more == pytest.approx(two, rel=0.01)
    assert one_more - A2.launch_s == pytest.approx(2 * (full - A2.launch_s), rel=0.05)


def test_large_tasks_that_a_row_states_leave_cores_idle() -> None:
    chip = load_chip("950pr_957x")
    whole = elementary(gemm((8192, 8192, 8192)), chip).seconds
    tasks = elementary(gemm((8192, 8192, 8192), tiling="256x256x64 single 1024x1024x8192"), chip).seconds
    assert tasks / whole == pytest.approx(3 * 16 / math.ceil(1024 / 28), rel=0.01)  # 64 tasks of 16 blocks on 28 cores


def test_one_slot_in_l1_is_slower_than_two_and_both_are_slower_than_the_cube() -> None:
    sizes = (1024, 2048, 4096)
    one = elementary(gemm(sizes, op="GEMM matmul no DB"), A5).seconds
    two = elementary(gemm(sizes), A5).seconds
    assert one > 1.3 * two
    assert two > cube_busy_seconds(A5, Product(*sizes, 2, 2)) + A5.launch_s


def test_a_single_row_is_bound_by_the_weights() -> None:
    found = elementary(gemm((1, 4096, 14336)), A2)
    assert found.bound_by == "GM and L2"
    weights = 4096 * 14336 * 2
    assert weights / A2.gm_bytes_per_s + A2.launch_s < found.seconds < 1.25 * (weights / A2.gm_bytes_per_s + A2.launch_s)


def test_a_result_in_float32_takes_longer_to_store() -> None:
    sizes = (8192, 256, 8192)
    assert elementary(gemm(sizes, dtype="fp16->fp32"), A5).seconds > elementary(gemm(sizes), A5).seconds
