"""Calls at the edge of what makes sense: rows without keys, keys that nobody sees, empty sequences, tilings of nothing."""

from dataclasses import replace

import numpy as np
import pytest
from cost_cases import CHIPS, SENSIBLE, attention, pipelined, reports

from ascend_jax import EXACT, KERNELS, OVERLAPS, Tiling, evaluate, load_chip
from ascend_jax._pytree import as_arrays
from ascend_jax.cost.prepare import prepare
from ascend_jax.workload.problem import problem

TILING = SENSIBLE["separated"]


@pytest.mark.parametrize("kernel", CHIPS)
def test_one_task_takes_serially_the_plain_sum_of_its_stages(kernel: str) -> None:
    spec, tiling = load_chip(CHIPS[kernel][0]), SENSIBLE[kernel]
    work = attention(q_heads=1, kv_heads=1, q_len=tiling.block_q, kv_len=64 * tiling.block_kv)
    costs = prepare(as_arrays(spec), problem(work), as_arrays(tiling), KERNELS[kernel], OVERLAPS["serial"], EXACT).costs
    graph = KERNELS[kernel].graph
    whole = {name: float(seconds + costs.latency_s[name]) for name, seconds in costs.seconds.items()}
    tile_s = sum(whole[stage.name] for stage in graph.tile_stages)
    tile_s += 2 * sum(flow.handoff for flow in graph.flows) * spec.handoff_s
    row_s = sum(whole[stage.name] for stage in graph.row_stages)
    expected = spec.launch_s + spec.task_s + 64 * tile_s + row_s
    np.testing.assert_allclose(reports(spec, work, tiling, kernel)["serial"].seconds, expected, rtol=1e-12)


def test_rows_without_keys_keep_the_order_of_the_overlaps() -> None:
    work = attention("causal", batch=8, q_heads=1, kv_heads=1, q_len=8192, kv_len=1)
    found = reports("910A", work, Tiling(block_q=256, block_kv=256, ub_depth=1), "coupled")
    assert found["roofline"].seconds <= found["pipelined"].seconds <= found["serial"].seconds


@pytest.mark.parametrize("mask", ["causal", "band:-40000,40000"])
def test_rows_without_keys_still_load_and_store(mask: str) -> None:
    spec = load_chip("950PR")
    work = attention(mask, q_heads=64, kv_heads=8, q_len=32768, kv_len=1)
    found = pipelined(spec, work, Tiling(block_q=256, block_kv=512), "direct")
    assert found.path_bytes["gm"] / spec.gm_bytes_per_s <= found.seconds


def test_a_key_that_nobody_sees_makes_nothing_faster() -> None:
    works = (attention("left-up-causal", batch=64, q_len=128, kv_len=length) for length in (256, 257))
    once, more = (reports("910A", work, TILING, "coupled")["pipelined"] for work in works)
    assert more.blocks_computed == once.blocks_computed
    assert more.seconds >= once.seconds


def test_an_empty_sequence_costs_nothing() -> None:
    chip = load_chip("910B3")
    alone = evaluate(chip, attention(q_len=(16,), kv_len=(16,), layout="TND"), TILING)
    beside = evaluate(chip, attention(q_len=(0, 16), kv_len=(1000, 16), layout="TND"), TILING)
    np.testing.assert_allclose(beside.seconds, alone.seconds)


@pytest.mark.parametrize("field", ["block_q", "block_kv", "vector_rows", "ub_depth", "kv_depth"])
def test_a_tiling_of_nothing_is_too_small_and_has_finite_seconds(field: str) -> None:
    found = pipelined("910B3", attention("causal"), replace(TILING, **{field: 0}), "separated")
    assert int(found.occupancy.verdict) == 1
    assert np.isfinite(found.seconds) and np.all(np.isfinite(found.bounds))


def test_no_flops_are_plus_zero() -> None:
    assert not np.signbit(pipelined("910B3", attention(q_len=0), TILING, "separated").flops)


def test_ragged_and_dense_calls_name_their_limits_alike() -> None:
    chip, lengths = load_chip("910B3"), (1024,) * 3
    dense = evaluate(chip, attention("causal", batch=3, q_len=1024, kv_len=1024, layout="TND"), TILING)
    ragged = evaluate(chip, attention("causal", q_len=lengths, kv_len=lengths, layout="TND"), TILING)
    assert dense.limits == ragged.limits
    np.testing.assert_allclose(ragged.bounds, dense.bounds, rtol=1e-9)
