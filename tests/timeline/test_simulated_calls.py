"""``simulate`` and its events: what must hold of any timeline of a real chip, and agreement with the report's counts."""

from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from ascend_jax import Attention, Tiling, Verdict, kernel_for, load_chip
from ascend_jax.timeline.events import Events
from ascend_jax.timeline.schedule import DISPATCH
from ascend_jax.timeline.simulate import Timeline, simulate

CASES = {
    "separated": ("910B3", Tiling(block_q=128, block_kv=256)),
    "direct": ("950PR_957x", Tiling(block_q=128, block_kv=128, ub_depth=1)),
    "coupled": ("910A", Tiling(block_q=64, block_kv=128, ub_depth=1)),
    "ub_resident": ("910B3", Tiling(block_q=64, block_kv=64)),
    "falite_v5": ("950PR_957x", Tiling(block_q=128, block_kv=128, vector_rows=64, preload=0)),
}
"""A kernel, a chip that it runs on, and a tiling that fits."""
SMALL = Attention(batch=1, q_heads=6, kv_heads=2, q_len=1500, kv_len=1500, head_dim=128, mask="causal")


@cache
def small(kernel: str) -> Timeline:
    chip, tiling = CASES[kernel]
    return simulate(load_chip(chip), SMALL, tiling, kernel=kernel)


@cache
def events(kernel: str) -> list[dict[tuple[str, int, int], tuple[float, float, float]]]:
    """Per core, start, end and when it is done of each stage, task and tile."""
    timeline = small(kernel)
    return [table(timeline.chunks([core])) for core in range(timeline.cores)]


def table(chunks: object) -> dict[tuple[str, int, int], tuple[float, float, float]]:
    found = {}
    for chunk in chunks:  # pyright: ignore[reportGeneralTypeIssues]
        columns = (chunk.stage, chunk.task, chunk.tile, chunk.start_s, chunk.end_s, chunk.done_s)
        for stage, task, tile, *times in zip(*(column.tolist() for column in columns), strict=True):
            found[chunk.stages[stage].name, task, tile] = tuple(times)
    return found


def in_order(chunks: list[Events]) -> bool:
    starts = np.concatenate([chunk.start_s for chunk in chunks])
    return bool((np.diff(starts) >= 0).all())


@pytest.mark.parametrize("kernel", CASES)
def test_no_pipe_does_two_things_at_once(kernel: str) -> None:
    pipe = {stage.name: stage.pipe for stage in small(kernel).stages}
    for core in events(kernel):
        for name in set(pipe.values()):
            spans = sorted(times[:2] for (stage, _, _), times in core.items() if pipe[stage] == name)
            for (_, end), (start, _) in pairwise(spans):
                assert start >= end - 1e-12, name


@pytest.mark.parametrize("kernel", CASES)
def test_no_tile_is_used_before_it_is_there_and_no_slot_twice(kernel: str) -> None:
    """Of flows that hand over whole tiles; in pieces they may overlap."""
    timeline, spec = small(kernel), load_chip(CASES[kernel][0])
    rows = {stage.name for stage in kernel_for(spec, kernel).graph.row_stages}
    waits = 0
    for core in events(kernel):
        order = sorted((task, tile) for stage, task, tile in core if stage == "mm_qk")
        place = {key: index for index, key in enumerate(order)}
        for flow in timeline.flows:
            if flow.chunked or {flow.producer, flow.consumer} & rows:
                continue
            flag = float(spec.handoff_s) if flow.handoff else 0.0
            for (stage, task, tile), (start, _, done) in core.items():
                if stage != flow.producer:
                    continue
                later = place[task, tile] + flow.lag
                if later < len(order):
                    assert core[flow.consumer, *order[later]][0] >= done + flag - 1e-12
                before = place[task, tile] - timeline.slots.get(str(flow.buffer), 10**9)
                if flow.buffer and before >= 0:
                    assert start >= core[flow.consumer, *order[before]][1] + flag - 1e-12
                    waits += 1
    assert waits > 0


@pytest.mark.parametrize("kernel", CASES)
def test_every_tile_and_task_runs_once_and_pipes_are_busy_as_the_report_says(kernel: str) -> None:
    timeline = small(kernel)
    report, spec = timeline.report, load_chip(CASES[kernel][0])
    cores = events(kernel)
    count = {stage: sum(key[0] == stage for core in cores for key in core) for stage in ("mm_qk", "load_q", DISPATCH)}
    assert count["mm_qk"] == float(report.blocks_computed)
    assert count["load_q"] == count[DISPATCH] == float(report.tasks)
    assert timeline.cores == float(report.active_cores)
    pipe = {stage.name: stage.pipe for stage in timeline.stages}
    for name in ("MTE2", "Vector", "MTE3"):
        busy = sum(end - start for core in cores for (stage, *_), (start, end, _) in core.items() if pipe[stage] == name)
        clock = spec.vector_clock_hz if name == "Vector" else spec.cube_clock_hz
        np.testing.assert_allclose(busy / timeline.cores * clock, report.cycles[name], rtol=1e-9, err_msg=name)


@pytest.mark.parametrize("kernel", CASES)
def test_the_call_ends_with_its_last_core_and_no_pipe_works_longer(kernel: str) -> None:
    timeline = small(kernel)
    last = max(times[2] for core in events(kernel) for times in core.values())
    np.testing.assert_allclose(timeline.seconds, load_chip(CASES[kernel][0]).launch_s + last, rtol=1e-9)
    shares = dict(zip(timeline.report.limits, np.asarray(timeline.report.bounds).tolist(), strict=True))
    for name in {stage.pipe for stage in timeline.stages} & set(shares) | {"GM and L2"}:
        assert shares[name] <= 1 + 1e-9, name


@pytest.mark.parametrize("kernel", CASES)
def test_events_come_in_order_in_chunks_of_bounded_size(kernel: str) -> None:
    chip, tiling = CASES[kernel]
    long = replace(SMALL, q_heads=2, q_len=16384, kv_len=16384)
    chunks = list(simulate(load_chip(chip), long, tiling, kernel=kernel).chunks([0]))
    assert len(chunks) > 1
    assert in_order(chunks)
    assert max(chunk.stage.size for chunk in chunks) < 2048 * 20


@pytest.mark.parametrize("kernel", ["separated", "coupled"])
def test_jump_and_full_mode_agree(kernel: str) -> None:
    chip, tiling = CASES[kernel]
    for work in (replace(SMALL, q_len=8192, kv_len=8192), replace(SMALL, mask="none", batch=9)):
        jump, full = (simulate(load_chip(chip), work, tiling, kernel=kernel, mode=mode).seconds for mode in ("jump", "full"))
        np.testing.assert_allclose(jump, full, rtol=1e-6)


def test_split_keys_and_variable_lengths_are_dealt_whole() -> None:
    chip, tiling = load_chip("910B3"), replace(CASES["separated"][1], kv_split=3)
    ragged = replace(SMALL, q_len=(1, 700, 1500), kv_len=(900, 700, 1500), batch=1, layout="TND")
    for work in (SMALL, ragged):
        timeline = simulate(chip, work, tiling)
        every = [run for core in timeline.core_runs for run in core]
        assert sum(run.tiles * run.times for run in every) == float(timeline.report.blocks_computed)
        assert sum(run.masked * run.times for run in every) == float(timeline.report.blocks_partial)
        assert np.isfinite(timeline.seconds)


def test_a_kernel_that_waits_for_itself_never_ends() -> None:
    work = replace(SMALL, q_heads=2, head_dim=64, value_dim=64)
    stuck = Tiling(block_q=32, block_kv=32, score_depth=1, prob_depth=1, ub_depth=1, preload=7)
    timeline = simulate(load_chip("910A"), work, stuck, kernel="coupled")
    assert timeline.seconds == np.inf
    assert Verdict(int(timeline.report.occupancy.verdict)) is Verdict.PIPELINE_DEADLOCK
    assert list(timeline.chunks([0])) == []


@pytest.mark.parametrize("changes", [{"q_len": 0}, {"batch": 0}])
def test_nothing_to_do_takes_no_time(changes: dict[str, int]) -> None:
    timeline = simulate(load_chip("910B3"), replace(SMALL, **changes), CASES["separated"][1])
    assert timeline.seconds == timeline.cores == 0


def test_rows_without_keys_take_a_launch() -> None:
    chip = load_chip("910B3")
    timeline = simulate(chip, replace(SMALL, kv_len=0), CASES["separated"][1])
    assert timeline.seconds == chip.launch_s


def test_wrong_modes_and_cores_are_told() -> None:
    with pytest.raises(ValueError, match="jump or full"):
        simulate(load_chip("910B3"), SMALL, CASES["separated"][1], mode="fast")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="core 99 has no task: give 0 to"):
        list(small("separated").chunks([99]))
