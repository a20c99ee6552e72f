"""Traces and series of simulated kernels: their slices add up to the report, and no memory holds more than it has room for."""

import csv
import io

import pytest
from perfetto_in_node import trace_processor
from trace_checker import Slice, checked

from ascend_jax import Attention, Mask, Tiling, load_chip
from ascend_jax.timeline.series import OccupancySeries
from ascend_jax.timeline.simulate import Timeline, simulate
from ascend_jax.timeline.trace import TraceWriter

THREADS = {"MTE2": "MTE2", "FixPipe": "FIXP", "Vector MTE2": "MTE2", "Vector": "VECTOR", "MTE3": "MTE3"}
CASES = {
    "separated": ("910b3", "separated", "causal"),
    "direct": ("950pr_957x", "direct", "causal"),
    "coupled": ("310p3", "coupled", "causal"),
    "ub_resident": ("910a", "ub_resident", "none"),
    "serial issue": ("950pr_957x", "falite_v1", "none"),
    "grouped issue": ("950pr_957x", "falite_v3", "none"),
    "sums in GM": ("910b3", "cann_separated", "causal"),
}


EACH = [pytest.param(case, marks=() if place < 3 else pytest.mark.slow) for place, case in enumerate(CASES)]


def simulated(case: str) -> Timeline:
    chip, kernel, mask = CASES[case]
    work = Attention(
        batch=2, q_heads=8, kv_heads=4, q_len=640, kv_len=640, head_dim=64, value_dim=64, dtype="fp16", mask=Mask(kind=mask)
    )
    tiling = Tiling(block_q=64, block_kv=64, vector_rows=16, ub_depth=2)
    return simulate(load_chip(chip), work, tiling, kernel=kernel)


def trace_of(timeline: Timeline) -> str:
    file = io.StringIO()
    writer = TraceWriter(file, timeline, {})
    for events in timeline.chunks(range(timeline.cores)):
        writer.add(events)
    writer.close()
    return file.getvalue()


def busy_ns(timeline: Timeline, threads: dict[tuple[str, str], list[Slice]], pipe: str) -> float:
    """Nanoseconds of ``pipe``, a core on average; of one vector core where there are several."""
    place = "veccore0" if pipe in ("Vector", "Vector MTE2", "MTE3") else "cubecore0"
    mine = [
        slices
        for (process, thread), slices in threads.items()
        if thread == THREADS.get(pipe, "CUBE") and process.partition(".")[2] in ("", place)
    ]
    return sum(one.end - one.start for slices in mine for one in slices) / timeline.cores


@pytest.mark.parametrize("case", EACH)
def test_slices_add_up_to_the_cycles_of_the_report(case: str) -> None:
    timeline = simulated(case)
    threads = checked(trace_of(timeline))
    clocks = {name: load_chip(CASES[case][0]).vector_clock_hz for name in ("Vector", "Vector MTE2")}
    slices = sum(map(len, threads.values())) / timeline.cores
    cycles = {name: float(number) for name, number in timeline.report.cycles.items() if float(number) > 0}
    for pipe in cycles.keys() - {"MTE1"}:  # its loads are part of the Cube's stages
        clock_hz = float(clocks.get(pipe, timeline.cube_clock_hz))
        reported_ns = cycles[pipe] / clock_hz * 1e9
        shown_ns = busy_ns(timeline, threads, pipe)
        if pipe == "Cube":
            assert reported_ns <= shown_ns + slices  # it waits for MTE1
        else:
            assert shown_ns == pytest.approx(reported_ns, rel=1e-6, abs=slices)
    last_ns = max(slices[-1].end for slices in threads.values())
    assert last_ns * 1e-9 <= timeline.seconds


@pytest.mark.parametrize("case", EACH)
def test_no_memory_holds_more_than_its_buffers(case: str) -> None:
    timeline, file = simulated(case), io.StringIO()
    series = OccupancySeries(file, timeline, "csv")
    for events in timeline.chunks([0]):
        series.add(events)
    series.close()
    used = timeline.report.occupancy.used_bytes
    for memory in set(series.memories) - {"GM"}:
        assert 0 < series.peak_bytes[memory] <= float(used[memory]), memory
    rows = list(csv.DictReader(io.StringIO(file.getvalue())))
    assert all(float(row[f"{memory}_bytes"]) >= 0 for row in rows for memory in series.memories)
    assert {rows[-1][f"{memory}_bytes"] for memory in ("L0A", "L0B", "L0C")} == {"0"}  # everything is free again


def test_perfetto_adds_up_to_the_report_too() -> None:
    timeline = simulated("separated")
    with trace_processor(trace_of(timeline).encode()) as perfetto:
        rows = perfetto.query(
            "select sum(dur) from slice join thread_track on slice.track_id = thread_track.id join thread using (utid) "
            "where thread.name = 'FIXP'"
        )
    reported_s = float(timeline.report.cycles["FixPipe"]) / timeline.cube_clock_hz
    assert rows[0][0] * 1e-9 / timeline.cores == pytest.approx(reported_s, rel=1e-3)
