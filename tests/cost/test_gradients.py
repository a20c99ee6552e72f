"""Gradients of the seconds: against finite differences, finite everywhere, and through the rounding of blocks."""

from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cost_cases import CHIPS, SENSIBLE, attention, pipelined, verdict_of

from ascend_jax import EXACT, KERNELS, OVERLAPS, SMOOTH, STRAIGHT_THROUGH, NpuSpec, Tiling, Verdict, evaluate, load_chip
from ascend_jax._compile import SELDOM, quick_jit
from ascend_jax._pytree import as_arrays
from ascend_jax.cost.evaluate import model
from ascend_jax.kernels.kernel import Kernel
from ascend_jax.rounding import Rounding
from ascend_jax.workload.attention import Attention
from ascend_jax.workload.problem import Problem, problem


def _seconds(spec: NpuSpec, tiling: Tiling, given: Problem, kernel: Kernel, rounding: Rounding) -> jax.Array:
    return model(spec, given, tiling, kernel, OVERLAPS["pipelined"], rounding).seconds


_seconds_jit = quick_jit(_seconds, static_argnums=(3, 4), wanted=SELDOM)
_gradient_jit = quick_jit(jax.value_and_grad(_seconds, argnums=(0, 1)), static_argnums=(3, 4), wanted=SELDOM)

Case = tuple[NpuSpec, Tiling, Attention]


def seconds(case: Case, kernel: str, rounding: Rounding = EXACT) -> float:
    """Exact ones by the compilation that other tests use."""
    spec, tiling, work = case
    if rounding is SMOOTH:
        return float(_seconds_jit(*as_arrays((spec, tiling)), problem(work), KERNELS[kernel], rounding))
    return float(pipelined(spec, work, tiling, kernel).seconds)


def gradient(case: Case, kernel: str, rounding: Rounding) -> tuple[float, NpuSpec, Tiling]:
    spec, tiling, work = case
    value, (by_spec, by_tiling) = _gradient_jit(*as_arrays((spec, tiling)), problem(work), KERNELS[kernel], rounding)
    return float(value), by_spec, by_tiling


def named(tree: Any) -> dict[str, Any]:
    return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


@cache
def random_chip(name: str, seed: int) -> NpuSpec:
    """A chip with every rate and latency some percent off, so that no two limits are equal."""
    rng = np.random.default_rng(seed)
    leaves = {path: float(leaf) for path, leaf in named(load_chip(name)).items()}
    moved = [value * rng.uniform(0.9, 1.1) if smooth_in(path) else value for path, value in leaves.items()]
    return jax.tree.unflatten(jax.tree.structure(load_chip(name)), moved)


def smooth_in(path: str) -> bool:
    """Whether time has a slope by this number: not by core counts or sizes, which decide how many tasks or steps there are."""
    return path.endswith(("_per_s", "_hz", "_s", "_cycles", "_gap_bytes")) or path.startswith((".vector.", ".cube_mac"))


WORKS = [
    attention("causal", q_len=2000, kv_len=3000),
    attention("causal", q_heads=32, kv_heads=4, q_len=1, kv_len=8192, batch=4),
    attention("causal", q_len=400, kv_len=4000, head_dim=72, value_dim=200, q_heads=2, kv_heads=2),
]
COMPILED = [("separated", "910B3", EXACT), ("direct", "950PR", SMOOTH), ("coupled", "910A", STRAIGHT_THROUGH)]
"""One compilation a kernel. By the chip's rates, exact and straight-through gradients are the same."""


@pytest.mark.parametrize(
    ("kernel", "chip", "rounding"),
    [pytest.param(*one, marks=pytest.mark.slow if number else ()) for number, one in enumerate(COMPILED)],
)
def test_gradients_by_rates_clocks_and_latencies_equal_finite_differences(kernel: str, chip: str, rounding: Rounding) -> None:
    slopes = set()
    for seed, work in enumerate(WORKS):
        spec = random_chip(chip, seed)
        tiling = replace(SENSIBLE[kernel], preload=seed, kv_split=1 + seed % 2)
        value, by_spec, _ = gradient((spec, tiling, work), kernel, rounding)
        leaves, structure = jax.tree.flatten(spec)
        for place, (path, slope) in enumerate(named(by_spec).items()):
            if not smooth_in(path) or leaves[place] == 0:  # no part of it to step by
                continue
            step = leaves[place] * 1e-6
            either = [
                jax.tree.unflatten(structure, [*leaves[:place], leaves[place] + sign * step, *leaves[place + 1 :]])
                for sign in (1, -1)
            ]
            above, below = (seconds((moved, tiling, work), kernel, rounding) for moved in either)
            # In parts of the seconds a part of the number: differences of doubles resolve about 1e-9 of it.
            share = leaves[place] / value
            expected = (above - below) / (2 * step) * share
            np.testing.assert_allclose(float(slope) * share, expected, rtol=1e-4, atol=1e-8, err_msg=f"{path} of case {seed}")
            if slope != 0:
                slopes.add(path)
    assert {".vector_clock_hz", ".launch_s", ".task_s", ".gm_bytes_per_s"} <= slopes
    assert len(slopes) > 12


def test_evaluate_itself_is_differentiable_by_a_chip_of_plain_numbers() -> None:
    work, tiling = attention(), SENSIBLE["direct"]
    by_spec = jax.grad(lambda spec: evaluate(spec, work, tiling, overlap="serial").seconds)
    slopes = jax.eval_shape(by_spec, load_chip("950PR"))
    assert jax.tree.structure(slopes) == jax.tree.structure(load_chip("950PR"))


HARD_CASES = {
    "no rows": (attention("causal", q_len=0), {}),
    "no batch": (attention("causal", batch=0), {}),
    "no keys": (attention("causal", kv_len=0), {}),
    "nothing": (attention("causal", q_len=0, kv_len=0), {}),
    "rows without keys": (attention("causal", q_len=3000, kv_len=100), {}),
    "one element": (attention("causal", q_heads=1, kv_heads=1, q_len=1, kv_len=1, head_dim=1, value_dim=1), {}),
    "too large": (attention("causal"), {"block_q": 1024, "block_kv": 4096}),
    "not aligned": (attention("causal"), {"block_q": 100, "block_kv": 177}),
    "no slot for keys": (attention("causal"), {"kv_depth": 0, "score_depth": 0, "prob_depth": 0, "out_depth": 0}),
    "far ahead": (attention("causal"), {"preload": 9, "score_depth": 1, "prob_depth": 1}),
    "split": (attention("causal"), {"kv_split": 64}),
}


@pytest.mark.parametrize(
    ("kernel", "chip", "rounding"), [COMPILED[0], *(pytest.param(*one, marks=pytest.mark.slow) for one in COMPILED[1:])]
)
def test_no_gradient_is_nan(kernel: str, chip: str, rounding: Rounding) -> None:
    """Not for an empty workload, and not for a tiling that does not fit or cannot run."""
    for name, (work, changes) in HARD_CASES.items():
        value, *gradients = gradient((load_chip(chip), replace(SENSIBLE[kernel], **changes), work), kernel, rounding)
        assert np.isfinite(value), name
        for path, leaf in named(gradients).items():
            assert np.isfinite(leaf), f"{path}, {name}"


def test_the_hard_cases_are_what_they_are_called() -> None:
    def verdict(name: str) -> Verdict:
        work, changes = HARD_CASES[name]
        return verdict_of(pipelined("910A", work, replace(SENSIBLE["coupled"], **changes), "coupled"))

    assert verdict("too large") is Verdict.UB_OVERFLOW
    assert verdict("not aligned") is Verdict.BLOCK_NOT_ALIGNED
    assert verdict("no slot for keys") is Verdict.BLOCK_TOO_SMALL
    assert verdict("far ahead") is Verdict.PIPELINE_DEADLOCK


def test_straight_through_has_the_exact_value_and_a_slope_by_the_blocks() -> None:
    kernel, chip = "coupled", "910A"
    for work in WORKS:
        for tiling in (SENSIBLE[kernel], Tiling(block_q=48, block_kv=80)):
            case = (load_chip(chip), tiling, work)
            value, _, by_tiling = gradient(case, kernel, STRAIGHT_THROUGH)
            assert value == pytest.approx(seconds(case, kernel), rel=1e-12)
            assert np.isfinite(by_tiling.block_q)
            assert np.isfinite(by_tiling.block_kv)
            assert by_tiling.block_kv != 0
            assert by_tiling.block_q != 0 or work.q_len == 1  # a single row lies in one block of any size


def test_exact_has_no_slope_by_the_rows_of_a_block() -> None:
    _, _, by_tiling = gradient((load_chip("910B3"), SENSIBLE["separated"], WORKS[0]), "separated", EXACT)
    assert by_tiling.block_q == 0


@pytest.mark.parametrize("blocks", [(100.3, 181.7), (70.1, 90.9), (33.3, 300.1)])
def test_smooth_gradients_by_the_blocks_equal_finite_differences(blocks: tuple[float, float]) -> None:
    spec, work = random_chip("950PR", 5), WORKS[0]
    tiling = replace(as_arrays(SENSIBLE["direct"]), block_q=jnp.asarray(blocks[0]), block_kv=jnp.asarray(blocks[1]))
    _, _, by_tiling = gradient((spec, tiling, work), "direct", SMOOTH)
    for name, size in zip(("block_q", "block_kv"), blocks, strict=True):
        above, below = (
            seconds((spec, replace(tiling, **{name: jnp.asarray(size + step)}), work), "direct", SMOOTH)
            for step in (1e-4, -1e-4)
        )
        np.testing.assert_allclose(getattr(by_tiling, name), (above - below) / 2e-4, rtol=1e-4, err_msg=name)


def test_smooth_stays_close_to_exact_where_blocks_divide_the_lengths() -> None:
    case = (load_chip("950PR"), SENSIBLE["direct"], attention("causal", q_len=4096, kv_len=4096))
    assert seconds(case, "direct", SMOOTH) == pytest.approx(seconds(case, "direct"), rel=0.05)


def test_every_kernel_has_a_chip_in_these_tests() -> None:
    assert set(CHIPS) == set(KERNELS)
