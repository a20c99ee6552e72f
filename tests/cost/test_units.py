"""Seconds of one transfer, multiplication or Vector piece: against loops over the steps and arithmetic by hand."""

from dataclasses import replace
from math import ceil
from typing import Any

import jax
import numpy as np
import pytest
from cost_cases import attention
from hypothesis import given
from hypothesis import strategies as st

from ascend_jax import EXACT, NpuSpec, VectorCosts, load_chip
from ascend_jax._pytree import as_arrays
from ascend_jax.cost.units import MatmulTime, matmul_time, transfer_seconds, vector_seconds
from ascend_jax.kernels import parts
from ascend_jax.kernels.geometry import Geometry
from ascend_jax.kernels.kernel import Matmul, Transfer, VectorOps

CHIP = load_chip("910B3")
HAND = replace(
    CHIP,
    cube_clock_hz=1e9,
    vector_clock_hz=1e9,
    gm_to_l1_bytes_per_s=100e9,
    l1_to_l0a_bytes_per_s=400e9,
    l1_to_l0b_bytes_per_s=200e9,
    dma_startup_s=50e-9,
    dma_burst_gap_bytes=12.0,
    nd2nz_burst_gap_bytes=32.0,
    cube_mac_cycles=1.0,
    cube_mac_cycles_fp32=2.0,
    cube_issue_cycles=6.0,
    vector_repeat_bytes=256.0,
    vector_cores_per_cube=2.0,
    vector=VectorCosts(
        scale=1,
        row_max=2,
        subtract=3,
        exp=5,
        row_sum=7,
        cast=11,
        select=13,
        multiply=17,
        add=19,
        divide=23,
        head=10,
        tail=20,
        round_trip=12,
    ),
)
"""Round rates, and a different prime for each Vector instruction."""

_matmul = jax.jit(
    lambda spec, m, k, n, depth, element_bytes: matmul_time(spec, Matmul(m=m, k=k, n=n), element_bytes, depth, EXACT),
    static_argnums=5,
)


def timed(spec: NpuSpec, m: float, k: float, n: float, *, element_bytes: int = 2, depth: int = 2) -> MatmulTime:
    return _matmul(*as_arrays((spec, m, k, n, depth)), element_bytes)


def step_sizes(spec: NpuSpec, m: int, k: int, n: int, *, element_bytes: int, depth: int) -> tuple[int, int, int]:
    """The largest step along m, then n, then k, by trying sizes one fractal after the other."""
    whole_m, whole_k, whole_n = ceil(m / 16) * 16, ceil(k * element_bytes / 32) * (32 // element_bytes), ceil(n / 16) * 16
    step_m = min(whole_m, 128)
    step_n = step_k = 0
    while step_n + 16 <= min(whole_n, 128) and step_m * (step_n + 16) * 4 * depth <= spec.l0c_bytes:
        step_n += 16
    room = min(spec.l0a_bytes / step_m, spec.l0b_bytes / step_n)
    while step_k < whole_k and (step_k + 32 // element_bytes) * element_bytes * depth <= room:
        step_k += 32 // element_bytes
    return step_m, step_k, step_n


def by_steps(spec: NpuSpec, m: int, k: int, n: int, *, element_bytes: int, depth: int) -> tuple[float, float, int]:
    """Cube seconds, MTE1 seconds and steps, by a loop over the steps; a left operand that lies in L0A stays there."""
    step_m, step_k, step_n = step_sizes(spec, m, k, n, element_bytes=element_bytes, depth=depth)
    mac = spec.cube_mac_cycles_fp32 if element_bytes == 4 else spec.cube_mac_cycles
    cycles, mte1_s, steps, in_l0a = 0.0, 0.0, 0, (-1, -1)
    for top in range(0, m, step_m):
        for left in range(0, n, step_n):
            for deep in range(0, k, step_k):
                rows = ceil(min(step_m, m - top) / 16)
                columns = ceil(min(step_n, n - left) / 16)
                depths = ceil(min(step_k, k - deep) * element_bytes / 32)
                cycles += spec.cube_issue_cycles + mac * rows * columns * depths
                if in_l0a != (top, deep):
                    mte1_s += rows * 16 * depths * 32 / spec.l1_to_l0a_bytes_per_s
                mte1_s += depths * 32 * columns * 16 / spec.l1_to_l0b_bytes_per_s
                steps, in_l0a = steps + 1, (top, deep)
    return cycles / spec.cube_clock_hz, mte1_s, steps


@given(
    dims=st.tuples(*[st.integers(1, 40) | st.integers(1, 600)] * 3),
    element_bytes=st.sampled_from([2, 4]),
    depth=st.integers(1, 3),
    chip=st.sampled_from(["910B3", "950PR", "910A"]),
)
def test_matmul_time_equals_a_loop_over_its_steps(
    dims: tuple[int, int, int], element_bytes: int, depth: int, chip: str
) -> None:
    spec = load_chip(chip)
    time = timed(spec, *dims, element_bytes=element_bytes, depth=depth)
    cube_s, mte1_s, _ = by_steps(spec, *dims, element_bytes=element_bytes, depth=depth)
    np.testing.assert_allclose(time.cube_s, cube_s, rtol=1e-12)
    np.testing.assert_allclose(time.mte1_s, mte1_s, rtol=1e-12)
    np.testing.assert_allclose(time.stage_s, max(cube_s, mte1_s) if depth > 1 else cube_s + mte1_s, rtol=1e-12)


@pytest.mark.parametrize(
    ("dims", "element_bytes", "depth", "cycles"),
    [
        ((128, 128, 128), 2, 2, 6 + 8 * 8 * 8),  # one step
        ((128, 128, 128), 4, 1, 6 + 2 * 8 * 16 * 8),  # one step of float32, which fills L0A
        ((128, 128, 128), 4, 2, 2 * 6 + 2 * 8 * 16 * 8),  # two slots leave room for half of k
        ((16, 16, 16), 2, 2, 6 + 1),
        ((1, 1, 1), 2, 2, 6 + 1),
        ((17, 17, 17), 2, 2, 6 + 2 * 2 * 2),
        ((128, 128, 256), 2, 2, 2 * 6 + 8 * 8 * 16),  # two steps along n
        ((128, 256, 128), 2, 2, 2 * 6 + 8 * 16 * 8),  # two steps along k
    ],
)
def test_cube_cycles_by_hand(dims: tuple[int, int, int], element_bytes: int, depth: int, cycles: int) -> None:
    time = timed(HAND, *dims, element_bytes=element_bytes, depth=depth)
    np.testing.assert_allclose(time.cube_s * 1e9, cycles, rtol=1e-12)


def test_mte1_seconds_by_hand() -> None:
    """128 × 128 × 256 in two steps along n: the left operand once, each half of the right one once."""
    left, right = 128 * 128 * 2, 128 * 256 * 2
    np.testing.assert_allclose(timed(HAND, 128, 128, 256).mte1_s, left / 400e9 + right / 200e9, rtol=1e-12)


def test_a_long_product_takes_what_the_silicon_takes() -> None:
    """8192³ on 24 cores at 1.85 GHz: 3022.9 µs without any overhead; 1.9 % more measured (cores/c220.toml)."""
    spec = load_chip("910B1")
    seconds = float(timed(spec, 8192, 8192, 8192).cube_s) / spec.cube_cores
    ideal = 2 * 8192**3 / (24 * 16 * 16 * 16 * 2 * 1.85e9)
    assert ideal == pytest.approx(3022.9e-6, rel=1e-4)
    assert ideal <= seconds <= 1.02 * ideal


def test_one_slot_of_l0_alternates_and_two_hide_the_loads() -> None:
    once, twice = timed(HAND, 128, 256, 128, depth=1), timed(HAND, 128, 256, 128, depth=2)
    np.testing.assert_allclose(once.stage_s, once.cube_s + once.mte1_s, rtol=1e-12)
    np.testing.assert_allclose(twice.stage_s, max(twice.cube_s, twice.mte1_s), rtol=1e-12)


def transferred(**changes: Any) -> float:
    return float(transfer_seconds(*as_arrays((HAND, Transfer(stream="kv", **changes)))))


def test_a_transfer_from_gm_pays_startup_and_a_gap_for_each_burst() -> None:
    np.testing.assert_allclose(
        transferred(path="gm_to_l1", bursts=64, burst_bytes=256), 50e-9 + 64 * (256 + 32) / 100e9, rtol=1e-12
    )
    np.testing.assert_allclose(
        transferred(path="gm_to_l1", bursts=1, burst_bytes=64 * 256, instructions=3),
        3 * 50e-9 + (64 * 256 + 32) / 100e9,
        rtol=1e-12,
    )


def test_a_transfer_on_chip_pays_its_bytes_only() -> None:
    spec = replace(HAND, ub_to_l1_bytes_per_s=128e9)
    transfer = Transfer(path="ub_to_l1", stream="chip", bursts=32, burst_bytes=512)
    np.testing.assert_allclose(transfer_seconds(*as_arrays((spec, transfer))), 32 * 512 / 128e9, rtol=1e-12)


def test_vector_cycles_by_hand() -> None:
    """10 repeats of exp, 3 of add, two starts on a drained pipe."""
    ops = VectorOps(elements={"exp": 640, "add": 192}, instructions=2, fused=True)
    np.testing.assert_allclose(vector_seconds(*as_arrays((HAND, ops))) * 1e9, 5 * 10 + 19 * 3 + 2 * (10 + 20), rtol=1e-12)


def test_outside_of_a_fused_function_each_repeat_goes_through_ub() -> None:
    ops = VectorOps(elements={"exp": 640, "add": 192}, instructions=2)
    cycles = 12 * 10 + 19 * 3 + 2 * (10 + 20)  # at least 12 a repeat, where exp by itself takes 5
    np.testing.assert_allclose(vector_seconds(*as_arrays((HAND, ops))) * 1e9, cycles, rtol=1e-12)


def shape_of(rows: float, keys: float, partial: float) -> Geometry:
    values: dict[str, Any] = dict.fromkeys(Geometry._fields, 0.0)
    values.update(rows=2 * rows, keys=keys, vector_rows=rows, partial=partial)
    return as_arrays(Geometry(**values))


@pytest.mark.parametrize(("dtype", "casts"), [("float16", 128), ("float32", 0)])
def test_the_instructions_of_an_online_softmax_by_hand(dtype: str, casts: int) -> None:
    """64 rows × 128 keys are 128 repeats; the rows' state of 8 columns are 8 repeats; a quarter of the tiles is masked."""
    ops = parts.softmax(attention(dtype=dtype), shape_of(64, 128, 0.25), 8.0, fused=True)
    tile = 128 * (1 + 2 + 3 + 5 + 7) + 128 // 4 * 13 + casts * 11
    state = 8 * (3 + 5 + 17 + 2 * 19)
    np.testing.assert_allclose(vector_seconds(*as_arrays((HAND, ops))) * 1e9, tile + state + 8 * 30, rtol=1e-12)


@pytest.mark.parametrize(("dtype", "cast"), [("float16", 11), ("float32", 0)])
def test_rescale_and_finalise_by_hand(dtype: str, cast: int) -> None:
    """64 rows × 96 columns are 96 repeats."""
    work, shape = as_arrays(attention(dtype=dtype, value_dim=96)), shape_of(64, 128, 0)
    rescale, finalise = parts.rescale(work, shape, 2.0, True), parts.finalise(work, shape, 1.0, True)
    np.testing.assert_allclose(vector_seconds(*as_arrays((HAND, rescale))) * 1e9, 96 * (17 + 19) + 2 * 30, rtol=1e-12)
    np.testing.assert_allclose(vector_seconds(*as_arrays((HAND, finalise))) * 1e9, 96 * (23 + cast) + 30, rtol=1e-12)
