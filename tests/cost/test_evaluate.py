"""``evaluate`` and its report: shapes, batches, counts against loops, edge cases, and what must hold between workloads."""

from dataclasses import fields, replace
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cost_cases import CHIPS, SENSIBLE, assert_reports_equal, attention, pipelined, reports, verdict_of
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import count_blocks, kept

from ascend_jax import (
    EXACT,
    KERNELS,
    OVERLAPS,
    Attention,
    Mask,
    Report,
    Tiling,
    Verdict,
    evaluate,
    evaluate_batch,
    load_chip,
    load_preset,
    peak_flops,
)
from ascend_jax._pytree import as_arrays
from ascend_jax.cost.evaluate import model
from ascend_jax.workload.problem import Problem, problem

TILING = SENSIBLE["separated"]


def separated(work: Attention, tiling: Tiling = TILING, chip: str = "910B3") -> Report:
    return pipelined(chip, work, tiling, "separated")


def stack(tilings: list[Tiling]) -> Tiling:
    return jax.tree.map(lambda *leaves: np.stack(leaves), *map(as_arrays, tilings))


CANDIDATES = [
    TILING,
    Tiling(block_q=64, block_kv=512, vector_rows=8, ub_depth=1, preload=2),
    Tiling(block_q=1024, block_kv=1024),
    Tiling(block_q=100, block_kv=256),
    Tiling(block_q=16, block_kv=16, kv_depth=1, l0_depth=1, kv_split=4, preload=0),
]


def test_leaves_of_a_report_have_rank_0() -> None:
    found = evaluate(load_chip("910B3"), attention("causal"), TILING)
    assert found.bounds.shape == (len(found.limits),)
    chex.assert_rank(jax.tree.leaves(replace(found, bounds=found.seconds)), 0)
    assert {leaf.dtype for leaf in jax.tree.leaves(found)} == {jnp.result_type(float)}


def test_a_batch_equals_a_loop_over_its_tilings_and_chips() -> None:
    work = attention("causal", q_len=1000, kv_len=1500, q_heads=8, kv_heads=2)
    chips = [load_chip(name) for name in CHIPS["separated"]]
    together = evaluate_batch(chips, work, stack(CANDIDATES))
    assert together.seconds.shape == (len(chips), len(CANDIDATES))
    for row, chip in enumerate(chips):
        for column, tiling in enumerate(CANDIDATES):
            one = jax.tree.map(lambda leaf, place=(row, column): leaf[place], together)
            assert_reports_equal(one, evaluate(chip, work, tiling))


def test_a_batch_on_one_chip_has_no_axis_of_chips() -> None:
    work = attention(q_len=1000, kv_len=1500, q_heads=8, kv_heads=2)
    one = evaluate_batch(load_chip("910A"), work, stack(CANDIDATES), overlap="roofline")
    assert one.seconds.shape == (len(CANDIDATES),)
    alone = [float(reports("910A", work, tiling, "coupled")["roofline"].seconds) for tiling in CANDIDATES]
    np.testing.assert_allclose(one.seconds, alone, rtol=1e-12)


def test_many_chips_and_many_batches_share_one_trace() -> None:
    @jax.jit
    @chex.assert_max_traces(n=1)
    def seconds(spec: Any, given: Problem, tilings: Tiling) -> jax.Array:
        kernel, overlap = KERNELS["direct"], OVERLAPS["roofline"]
        return jax.vmap(lambda tiling: model(spec, given, tiling, kernel, overlap, EXACT).seconds)(tilings)

    batch = stack([Tiling(block_q=64, block_kv=128), Tiling(block_q=128, block_kv=128)])
    other = stack([Tiling(block_q=32, block_kv=512, preload=2), Tiling(block_q=16, block_kv=16, kv_split=4)])
    times = set()
    for name in ("950PR_957x", "950PR_958x", "950DT_957x", "950DT_958x"):
        for work in (attention("causal"), attention("causal", batch=7, q_len=1, kv_heads=2)):
            for tilings in (batch, other):
                times.add(tuple(seconds(as_arrays(load_chip(name)), problem(work), tilings).tolist()))
    assert len(times) > 8


def test_chips_of_different_architectures_do_not_share_a_batch() -> None:
    with pytest.raises(ValueError, match="one architecture"):
        evaluate_batch([load_chip("910B3"), load_chip("950PR")], attention(), stack(CANDIDATES))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kernel": "fast"}, "must be auto or one of"),
        ({"kernel": "direct"}, "direct"),
        ({"overlap": "perfect"}, "must be one of serial, roofline, pipelined"),
    ],
)
def test_a_wrong_name_is_told_before_anything_is_compiled(changes: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        evaluate(load_chip("910B3"), attention(), TILING, **changes)  # pyright: ignore[reportArgumentType]


def test_evaluate_takes_the_kernel_of_the_architecture_and_the_pipelined_model() -> None:
    found = evaluate(load_chip("910B3"), attention("causal"), TILING)
    assert_reports_equal(found, separated(attention("causal")))


def test_flops_of_long_sequences_do_not_wrap() -> None:
    """4 · 32 · 8192 · 8192 · 128 is 2^40, which is 0 in int32."""
    work = attention(q_heads=32, kv_heads=32, q_len=8192, kv_len=8192)
    assert float(separated(work).flops) == 4 * 32 * 8192**2 * 128


def test_float32_gives_the_same_counts_and_times() -> None:
    work = attention("causal", q_heads=32, kv_heads=8, q_len=8192, kv_len=8192)
    exact = separated(work)
    with jax.enable_x64(False):
        found = evaluate(load_chip("910B3"), work, TILING)
    assert found.seconds.dtype == jnp.float32
    for name in ("seconds", "flops", "blocks_computed", "blocks_partial", "tasks", "period_s"):
        np.testing.assert_allclose(float(getattr(found, name)), float(getattr(exact, name)), rtol=1e-6, err_msg=name)


masks = st.sampled_from(["none", "causal", "left-up-causal", "band:100,20", "band:-7,40", "prefix:33"])
COUNTED = {"none": "separated", "causal": "separated", "band": "separated", "left_up_causal": "coupled", "prefix": "direct"}
"""A kernel that other tests have compiled for the mask."""


def packs(q_heads: int, kv_heads: int, q_len: int, block_q: int) -> int:
    """How many blocks of rows the heads of one row block fill: as many of one key/value head lie in it as fit."""
    group, filled = q_heads // kv_heads, 0
    while group > 0:
        group, filled = group - max(block_q // q_len, 1), filled + 1
    return kv_heads * filled


@given(
    mask=masks,
    lengths=st.tuples(*[st.integers(1, 200)] * 2),
    blocks=st.tuples(*[st.sampled_from([16, 32, 48, 64, 112])] * 2),
    heads=st.sampled_from([(1, 1), (8, 2), (6, 1)]),
    batch=st.integers(1, 3),
)
@settings(max_examples=40)
def test_counts_equal_cutting_the_mask_of_every_head(
    mask: str, lengths: tuple[int, int], blocks: tuple[int, int], heads: tuple[int, int], batch: int
) -> None:
    work = attention(mask, q_len=lengths[0], kv_len=lengths[1], q_heads=heads[0], kv_heads=heads[1], batch=batch)
    kernel = COUNTED[work.mask.kind]
    found = pipelined(CHIPS[kernel][0], work, Tiling(block_q=blocks[0], block_kv=blocks[1]), kernel)
    matrix = kept(work.mask.kind, *lengths, work.mask.pre, work.mask.next, work.mask.prefix)
    every, computed, full = (count * packs(*heads, lengths[0], blocks[0]) * batch for count in count_blocks(matrix, *blocks))
    counts = tuple(map(float, (found.blocks_computed, found.blocks_partial, found.blocks_skipped)))
    assert counts == (computed, computed - full, every - computed)
    assert float(found.flops) == 2 * int(matrix.sum()) * heads[0] * batch * (128 + 128)


def test_tasks_are_blocks_of_rows_and_short_sequences_share_one() -> None:
    assert separated(attention(q_len=1000)).tasks == 8 * 8
    assert separated(attention(q_len=1000), replace(TILING, kv_split=2)).tasks == 8 * 8 * 2
    assert separated(attention(q_heads=32, kv_heads=8, q_len=1)).tasks == 8  # four heads lie in one block
    assert separated(attention(q_heads=32, kv_heads=8, q_len=100)).tasks == 32  # one alone fills it
    assert separated(attention(q_heads=32, kv_heads=8, q_len=1)).active_cores == 8
    assert separated(attention(q_heads=32, kv_heads=8, q_len=1000)).active_cores == 20


def finite(report: Report) -> bool:
    return all(bool(np.isfinite(leaf).all()) for leaf in jax.tree.leaves(report))


EDGES = {
    "one query": {"q_len": 1, "kv_len": 4097},
    "one query and one key": {"q_len": 1, "kv_len": 1},
    "one head": {"q_heads": 1, "kv_heads": 1},
    "more keys than rows": {"q_len": 300, "kv_len": 1000},
    "more rows than keys": {"q_len": 1000, "kv_len": 300},
    "a key more than a block": {"kv_len": 257},
    "a key less than a block": {"kv_len": 255},
    "value_dim": {"head_dim": 192, "value_dim": 128},
    "a million": {"q_len": 1_000_003, "kv_len": 1 << 20},
    "65,536 heads": {"batch": 8192},
    **{f"head_dim {dim}": {"head_dim": dim, "value_dim": dim} for dim in (72, 80, 88, 192, 200)},
}


@pytest.mark.parametrize("mask", ["none", "causal"])
@pytest.mark.parametrize("edge", EDGES)
def test_edge_cases_give_finite_numbers(edge: str, mask: str) -> None:
    found = reports("910B3", attention(mask, **EDGES[edge]), TILING, "separated")
    seconds = [float(found[name].seconds) for name in ("roofline", "pipelined", "serial")]
    assert all(map(finite, found.values()))
    assert all(np.isfinite(seconds))
    assert float(found["pipelined"].launch_s) < seconds[1]
    assert seconds[0] <= seconds[1]
    if edge != "more rows than keys":
        assert seconds[1] <= seconds[2]
    assert 0 < found["pipelined"].utilisation <= 1
    assert found["pipelined"].bound_by in (*found["pipelined"].limits, "MTE1")


@pytest.mark.parametrize("mask", ["none", "causal"])
@pytest.mark.parametrize("changes", [{"q_len": 0}, {"batch": 0}, {"q_len": 0, "kv_len": 0}, {"batch": 0, "kv_len": 0}])
def test_nothing_to_do_takes_no_time(changes: dict[str, int], mask: str) -> None:
    for name, found in reports("910B3", attention(mask, **changes), TILING, "separated").items():
        assert finite(found), name
        assert found.seconds == found.launch_s == found.flops == found.blocks_computed == found.tasks == 0
        assert float(found.tflops) == float(found.utilisation) == 0
        assert verdict_of(found) is Verdict.FITS


def test_rows_without_any_key_take_a_launch() -> None:
    found = separated(attention(kv_len=0))
    assert finite(found)
    assert found.flops == 0
    assert found.seconds >= load_chip("910B3").launch_s


def test_causal_rows_beyond_the_keys_cost_no_tiles() -> None:
    """Right-down causal with 1,024 rows and 512 keys: the first 512 rows see nothing, the others what 512 × 512 would."""
    square, tall = (separated(attention("causal", q_len=rows, kv_len=512)) for rows in (512, 1024))
    assert (tall.flops, tall.blocks_computed) == (square.flops, square.blocks_computed)
    assert tall.blocks_skipped > square.blocks_skipped


def test_dimensions_are_padded_to_fractals_and_no_further() -> None:
    cycles = {dim: float(separated(attention(head_dim=dim, value_dim=dim)).cycles["Cube"]) for dim in (64, 72, 80, 88, 96)}
    assert cycles[64] < cycles[72] == cycles[80] < cycles[88] == cycles[96]


def test_a_tiling_that_does_not_fit_still_has_its_time() -> None:
    found = separated(attention(), Tiling(block_q=1024, block_kv=1024))
    assert verdict_of(found) is Verdict.UB_OVERFLOW
    assert finite(found)
    assert found.seconds > 0


@pytest.mark.parametrize("kernel", CHIPS)
def test_the_bound_is_a_limit_that_takes_most_of_the_time(kernel: str) -> None:
    found = reports(CHIPS[kernel][0], attention(q_len=4096, kv_len=4096), SENSIBLE[kernel], kernel)
    for name, report in found.items():
        assert report.bound_by in (*report.limits, "MTE1"), name
        assert 0.5 < np.max(report.bounds) <= 1 + 1e-12, name
        assert min(report.bounds) >= 0, name
    assert found["serial"].bound_by == "serial execution"


@pytest.mark.parametrize(
    ("slower", "bound"),
    [
        ({"vector_clock_hz": 1e8}, {"Vector"}),
        ({"cube_clock_hz": 1e8}, {"Cube"}),
        ({"l1_to_l0b_bytes_per_s": 1e9}, {"MTE1"}),
        ({"gm_bytes_per_s": 1e10}, {"GM and L2", "MTE2"}),
        ({"l0c_to_gm_bytes_per_s": 1e9}, {"FixPipe"}),
        ({"launch_s": 10.0}, {"launch"}),
        ({"task_s": 10.0}, {"task start"}),
        ({"handoff_s": 1e-2}, {"latency"}),
    ],
)
def test_what_is_slow_is_the_bound(slower: dict[str, float], bound: set[str]) -> None:
    spec = replace(load_chip("910B3"), **slower)
    found = pipelined(spec, attention(q_len=4096, kv_len=4096), TILING, "separated")
    assert found.bound_by.split(" of ")[0].split(" from ")[0] in bound


@pytest.mark.parametrize("kernel", CHIPS)
def test_pipes_are_busy_no_longer_than_the_call_takes(kernel: str) -> None:
    spec = load_chip(CHIPS[kernel][0])
    found = reports(spec, attention(q_len=4096, kv_len=4096), SENSIBLE[kernel], kernel)["pipelined"]
    for pipe, cycles in found.cycles.items():
        clock = spec.vector_clock_hz if pipe.startswith("Vector") else spec.cube_clock_hz
        assert cycles / clock <= found.seconds, pipe
        assert cycles > 0 or (kernel, pipe) == ("direct", "Vector MTE2")  # it loads masks only


def test_utilisation_is_flops_over_the_peak_of_the_cube() -> None:
    found = separated(attention("causal"))
    peak = peak_flops(load_chip("910B3"))
    np.testing.assert_allclose(found.utilisation, found.flops / found.seconds / peak, rtol=1e-12)
    np.testing.assert_allclose(found.tflops, found.flops / found.seconds / 1e12, rtol=1e-12)


def test_more_work_takes_longer() -> None:
    times = [float(separated(attention("causal", **changes)).seconds) for changes in ({}, {"batch": 2}, {"batch": 16})]
    assert times == sorted(times)
    assert times[0] < times[2]
    long, longer = (separated(attention("causal", q_len=n, kv_len=n)).seconds for n in (8192, 16384))
    assert 3 < longer / long < 4.2


def test_float32_operands_take_longer() -> None:
    half, full = (
        reports("910B3", attention(dtype=dtype), Tiling(block_q=64, block_kv=128), "separated")["roofline"]
        for dtype in ("float16", "float32")
    )
    assert full.peak_flops_per_s < half.peak_flops_per_s
    assert full.seconds > half.seconds
    assert full.cycles["Cube"] > 3.5 * half.cycles["Cube"]


def test_a_causal_call_of_32k_takes_about_half_as_long_as_a_dense_one() -> None:
    for kernel in ("separated", "direct"):
        dense, causal = (
            pipelined(
                CHIPS[kernel][0], attention(mask, q_heads=32, q_len=32768, kv_len=32768), SENSIBLE[kernel], kernel
            ).seconds
            for mask in ("none", "causal")
        )
        assert 0.5 <= causal / dense <= 0.6, kernel


def prefill(chip: str, kernel: str) -> float:
    preset = load_preset("llama3-8b-prefill-8k")
    found = pipelined(chip, replace(preset, dtype="float16"), SENSIBLE[kernel], kernel)
    assert verdict_of(found) is Verdict.FITS
    return float(found.seconds)


def test_chips_rank_as_they_should_on_a_prefill_of_8k() -> None:
    times = {chip: prefill(chip, "separated") for chip in ("910B1", "910B2", "910B3", "910B4")}
    assert times["910B1"] <= times["910B3"] < times["910B4"]
    assert prefill("950PR", "direct") < times["910B2"]


@given(
    q_len=st.integers(1, 600),
    kv_len=st.integers(1, 600),
    heads=st.sampled_from([1, 8]),
    mask=st.sampled_from(["none", "causal"]),
)
@settings(max_examples=30)
def test_twice_the_batch_takes_at_most_twice_as_long(q_len: int, kv_len: int, heads: int, mask: str) -> None:
    work = attention(mask, q_len=min(q_len, kv_len), kv_len=kv_len, q_heads=8, kv_heads=heads)
    once, twice = (separated(replace(work, batch=batch)).seconds for batch in (4, 8))
    assert once * (1 - 1e-12) <= twice <= 2 * once


def test_every_field_of_a_tiling_and_of_a_mask_is_a_leaf() -> None:
    """So that no value of it compiles anew."""
    assert len(jax.tree.leaves(TILING)) == len(fields(Tiling))
    assert len(jax.tree.leaves(Mask.parse("band:1,2"))) == 3


def test_single_numbers_serve_a_whole_batch_and_shapes_that_do_not_fit_are_told() -> None:
    chip, work = load_chip("910B3"), attention("causal")
    many = Tiling(block_q=jnp.array([64.0, 128.0]), block_kv=256)
    found = evaluate_batch(chip, work, many)
    each = [float(evaluate(chip, work, replace(many, block_q=rows)).seconds) for rows in (64, 128)]
    np.testing.assert_allclose(found.seconds, each, rtol=1e-12)
    assert found.tflops.shape == found.utilisation.shape == (2,)
    with pytest.raises(ValueError, match="take one report out of the batch"):
        _ = found.bound_by
    with pytest.raises(ValueError, match=r"block_q.*evaluate takes one tiling, evaluate_batch takes many"):
        evaluate(chip, work, many)
    with pytest.raises(ValueError, match=r"shape \(\) together"):
        evaluate_batch(chip, work, Tiling(block_q=64, block_kv=256))
    with pytest.raises(ValueError, match="no chips"):
        evaluate_batch([], work, many)
    with pytest.raises(TypeError, match="load_chip"):
        evaluate("910b3", work, TILING)  # type: ignore[arg-type]
