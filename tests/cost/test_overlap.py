"""Serial, roofline and pipelined: their order, what serial adds up, and what slots and preload do to the pace."""

from dataclasses import fields, replace

import numpy as np
import pytest
from cost_cases import (
    CHIPS,
    SENSIBLE,
    attention,
    chips,
    pipelined,
    reports,
    tilings,
    verdict_of,
    workloads,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from ascend_jax import EXACT, KERNELS, Attention, NpuSpec, Tiling, Verdict, load_chip
from ascend_jax._pytree import as_arrays
from ascend_jax.cost.overlap import SERIAL
from ascend_jax.cost.prepare import prepare
from ascend_jax.workload.problem import problem

KINDS = [
    ("separated", "none"),
    ("separated", "causal"),
    ("separated", "band"),
    ("direct", "causal"),
    ("direct", "prefix"),
    ("coupled", "none"),
    ("coupled", "left_up_causal"),
    ("ub_resident", "none"),
]
DEPTHS = ("kv_depth", "score_depth", "prob_depth", "out_depth", "ub_depth")
ROUNDING_ERROR = 1 + 1e-12

few = settings(max_examples=25)


@pytest.mark.parametrize(("kernel", "kind"), KINDS)
@given(data=st.data())
@few
def test_roofline_is_never_slower_than_pipelined_nor_pipelined_than_serial(kernel: str, kind: str, data: st.DataObject) -> None:
    """All masks, GQA, decode, every head dimension; tilings that fit and such that do not."""
    spec, work, tiling = data.draw(chips(kernel)), data.draw(workloads(kind)), data.draw(tilings())
    found = reports(spec, work, tiling, kernel)
    seconds = {name: float(report.seconds) for name, report in found.items()}
    assert 0 < seconds["roofline"] <= seconds["pipelined"] * ROUNDING_ERROR
    assert seconds["pipelined"] <= seconds["serial"] * ROUNDING_ERROR


@pytest.mark.parametrize(("kernel", "kind"), [("separated", "causal"), ("direct", "causal"), ("coupled", "none")])
@given(data=st.data())
@few
def test_no_overlap_beats_the_chip(kernel: str, kind: str, data: st.DataObject) -> None:
    """Not its peak, and not the bytes that have to pass GM: Q and the keys that the last row sees, once each."""
    spec, work, tiling = data.draw(chips(kernel)), data.draw(workloads(kind)), data.draw(tilings())
    found = reports(spec, work, tiling, kernel)["roofline"]
    columns = (work.head_dim + work.value_dim) * 2
    compulsory = work.batch * (work.q_heads * work.q_len * work.head_dim * 2 + work.kv_heads * work.kv_len * columns)
    seconds = float(found.seconds) * ROUNDING_ERROR
    assert float(found.flops / found.peak_flops_per_s) <= seconds
    assert compulsory / spec.gm_bytes_per_s <= seconds
    assert float(found.path_bytes["gm"]) >= compulsory / ROUNDING_ERROR


@pytest.mark.parametrize(("kernel", "kind"), [("separated", "causal"), ("direct", "causal"), ("coupled", "none")])
@given(data=st.data())
@few
def test_one_more_slot_is_never_slower(kernel: str, kind: str, data: st.DataObject) -> None:
    spec, work, tiling = data.draw(chips(kernel)), data.draw(workloads(kind)), data.draw(tilings())
    depth = data.draw(st.sampled_from(DEPTHS))
    deeper = replace(tiling, **{depth: getattr(tiling, depth) + 1})
    slower, faster = pipelined(spec, work, tiling, kernel), pipelined(spec, work, deeper, kernel)
    assert faster.seconds <= slower.seconds * ROUNDING_ERROR


@pytest.mark.parametrize("kernel", CHIPS)
def test_the_serial_period_is_the_sum_of_all_stages_and_flags(kernel: str) -> None:
    """A tile's stages, its share of its task's, and a flag each way for each hand-off between cores."""
    spec = load_chip(CHIPS[kernel][0])
    given_ = problem(attention(q_len=384, kv_len=2048))
    chip, tiling = as_arrays((spec, SENSIBLE[kernel]))
    prepared = prepare(chip, given_, tiling, KERNELS[kernel], SERIAL, EXACT)
    graph, costs = KERNELS[kernel].graph, prepared.costs
    seconds = {name: float(busy + costs.latency_s[name]) for name, busy in costs.seconds.items()}
    tile = sum(float(seconds[stage.name]) for stage in graph.stages if not stage.per_row)
    task = sum(float(seconds[stage.name]) for stage in graph.stages if stage.per_row)
    flags = 2 * sum(flow.handoff for flow in graph.flows) * spec.handoff_s
    tiles = 2048 / SENSIBLE[kernel].block_kv
    found = reports(spec, attention(q_len=384, kv_len=2048), SENSIBLE[kernel], kernel)["serial"]
    np.testing.assert_allclose(found.period_s, tile + task / tiles + flags, rtol=1e-12)


@pytest.mark.parametrize("kernel", CHIPS)
def test_a_lone_tile_takes_the_same_serial_or_pipelined_but_for_what_overlaps_inside_it(kernel: str) -> None:
    """One task of one tile: launch, start of the task, and the way of the tile through the stages."""
    spec, tiling = load_chip(CHIPS[kernel][0]), SENSIBLE[kernel]
    work = attention(q_heads=1, kv_heads=1, q_len=tiling.block_q, kv_len=tiling.block_kv)
    found = reports(spec, work, tiling, kernel)
    for name in ("serial", "pipelined"):
        np.testing.assert_allclose(
            found[name].seconds, spec.launch_s + spec.task_s + found[name].tile_latency_s, rtol=1e-12, err_msg=name
        )
    assert found["pipelined"].tile_latency_s <= found["serial"].tile_latency_s


@pytest.mark.parametrize("kernel", CHIPS)
def test_seconds_are_launch_and_periods_of_the_busiest_core_and_the_fill(kernel: str) -> None:
    """25 equal tasks on fewer than 25 cores are two rounds or more; ``Report`` says the period and the latency."""
    spec, tiling = load_chip(CHIPS[kernel][0]), SENSIBLE[kernel]
    work = attention(q_heads=5, kv_heads=5, batch=5, q_len=tiling.block_q, kv_len=16 * tiling.block_kv)
    rounds = -(-25 // int(spec.cube_cores))
    every = reports(spec, work, tiling, kernel)
    for name in ("roofline", "pipelined"):
        found = every[name]
        fill = max(float(found.tile_latency_s - found.period_s), 0.0)
        expected = spec.launch_s + rounds * (16 * float(found.period_s) + spec.task_s) + fill
        np.testing.assert_allclose(found.seconds, expected, rtol=1e-12, err_msg=name)


@pytest.mark.parametrize("kernel", CHIPS)
def test_many_slots_and_no_flags_reach_the_roofline(kernel: str) -> None:
    """Where no buffer holds anyone back, the busiest pipe or memory sets the pace."""
    spec = replace(load_chip(CHIPS[kernel][0]), handoff_s=0.0)
    depths = dict.fromkeys(DEPTHS, 64) | {"l0_depth": 4, "preload": 8}
    found = reports(spec, attention(), replace(SENSIBLE[kernel], **depths), kernel)
    if kernel != "ub_resident":  # its buffers in L1 have one slot, whatever the tiling says
        np.testing.assert_allclose(found["pipelined"].period_s, found["roofline"].period_s, rtol=1e-12)
    assert found["pipelined"].period_s >= found["roofline"].period_s


def test_preload_hides_the_way_through_the_vector_cores() -> None:
    """Q·Kᵀ of the next tile runs while the Vector works on this one: ahead by one tile is faster than by none."""
    tiling = replace(SENSIBLE["separated"], ub_depth=1)
    work = attention(q_len=2048, kv_len=8192)
    seconds = [float(pipelined("910B3", work, replace(tiling, preload=ahead), "separated").seconds) for ahead in (0, 1, 2)]
    assert seconds[1] < seconds[0]
    assert seconds[2] <= seconds[1]


@pytest.mark.parametrize(("kernel", "chip"), [("ub_resident", "910B3"), ("coupled", "910A")])
def test_preload_beyond_the_slots_is_a_deadlock(kernel: str, chip: str) -> None:
    """Each tile that runs ahead needs a slot; with more slots it runs again."""
    tiling = Tiling(block_q=32, block_kv=32, score_depth=1, prob_depth=1, ub_depth=1, preload=7)
    assert verdict_of(pipelined(chip, attention(head_dim=64, value_dim=64), tiling, kernel)) is Verdict.PIPELINE_DEADLOCK
    deeper = replace(tiling, score_depth=8, prob_depth=8, ub_depth=8)
    assert verdict_of(pipelined(chip, attention(head_dim=64, value_dim=64), deeper, kernel)) is Verdict.FITS


def test_only_the_pipelined_model_knows_of_deadlocks() -> None:
    tiling = Tiling(block_q=32, block_kv=32, score_depth=1, preload=7)
    found = reports("910B3", attention(head_dim=64, value_dim=64), tiling, "ub_resident")
    assert {name: verdict_of(report) for name, report in found.items()} == {
        "serial": Verdict.FITS,
        "roofline": Verdict.FITS,
        "pipelined": Verdict.PIPELINE_DEADLOCK,
    }


def test_a_tiling_that_does_not_fit_says_so_before_it_says_deadlock() -> None:
    tiling = Tiling(block_q=512, block_kv=512, score_depth=1, preload=7)
    assert verdict_of(pipelined("910B3", attention(), tiling, "ub_resident")) is Verdict.UB_OVERFLOW


@given(tiling=tilings())
@settings(max_examples=40)
def test_no_preload_never_deadlocks(tiling: Tiling) -> None:
    for kernel, chip in (("ub_resident", "910B3"), ("coupled", "910A")):
        found = pipelined(chip, attention(), replace(tiling, preload=0), kernel)
        assert verdict_of(found) is not Verdict.PIPELINE_DEADLOCK


def rates(spec: NpuSpec) -> list[str]:
    names = [item.name for item in fields(spec) if item.name.endswith(("_per_s", "clock_hz"))]
    return [name for name in names if getattr(spec, name) is not None]


@pytest.mark.parametrize(("kernel", "kind"), [("separated", "causal"), ("direct", "causal"), ("coupled", "none")])
@given(data=st.data())
@few
def test_a_faster_rate_or_a_larger_memory_is_never_slower(kernel: str, kind: str, data: st.DataObject) -> None:
    spec, work, tiling = data.draw(chips(kernel)), data.draw(workloads(kind)), data.draw(tilings())
    name = data.draw(st.sampled_from([*rates(spec), "ub_bytes", "l1_bytes", "l2_bytes", "gm_bytes"]))
    better = replace(spec, **{name: getattr(spec, name) * data.draw(st.sampled_from([1.01, 1.5, 4.0]))})
    before, after = pipelined(spec, work, tiling, kernel), pipelined(better, work, tiling, kernel)
    assert after.seconds <= before.seconds * ROUNDING_ERROR
    if name.endswith("_bytes"):
        assert verdict_of(before) is not Verdict.FITS or verdict_of(after) is Verdict.FITS


LATENCIES = ("dma_startup_s", "dma_burst_gap_bytes", "handoff_s", "launch_s", "task_s", "cube_mac_cycles", "cube_issue_cycles")


@pytest.mark.parametrize(("kernel", "kind"), [("separated", "causal"), ("direct", "causal"), ("coupled", "none")])
@given(data=st.data())
@few
def test_a_shorter_latency_is_never_slower(kernel: str, kind: str, data: st.DataObject) -> None:
    spec, work, tiling = data.draw(chips(kernel)), data.draw(workloads(kind)), data.draw(tilings())
    name = data.draw(st.sampled_from(LATENCIES))
    better = replace(spec, **{name: getattr(spec, name) * data.draw(st.sampled_from([0.99, 0.5, 0.01]))})
    before, after = pipelined(spec, work, tiling, kernel), pipelined(better, work, tiling, kernel)
    assert after.seconds <= before.seconds * ROUNDING_ERROR


def test_decode_with_packed_heads_reads_keys_once_for_all_of_them() -> None:
    """Eight query heads of one key/value head lie in one block: the keys pass as often as for one head."""
    tiling = SENSIBLE["separated"]
    grouped: Attention = attention(q_heads=8, kv_heads=1, q_len=1, kv_len=4096)
    single = attention(q_heads=1, kv_heads=1, q_len=1, kv_len=4096)
    moved = [float(pipelined("910B3", work, tiling, "separated").path_bytes["gm_to_l1"]) for work in (grouped, single)]
    keys = 4096 * (128 + 128) * 2
    assert moved[1] >= keys
    assert moved[0] - moved[1] < 0.1 * keys  # more rows of Q and of P, no more of K and V
