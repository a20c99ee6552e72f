"""Use of memories over time, against counting at every time what is under way."""

import csv
import io
import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_timeline import MEMORY, SLOTS, Event, MadeUpTimeline

from ascend_jax.timeline.series import MEMORIES, Format, OccupancySeries

CHUNKED = {flow.buffer for flow in MadeUpTimeline().flows if flow.chunked}


def written(timeline: MadeUpTimeline, kind: Format = "csv") -> tuple[str, OccupancySeries]:
    file = io.StringIO()
    series = OccupancySeries(file, timeline, kind)
    for events in timeline.chunks(range(timeline.cores)):
        series.add(events)
    series.close()
    return file.getvalue(), series


def rows_of(text: str) -> list[dict[str, float]]:
    return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(io.StringIO(text))]


def ns(seconds: float) -> int:
    return round(seconds * 1e9)


def counted(timeline: MadeUpTimeline, events: list[Event], now: int) -> dict[str, float]:
    """Bytes in use from ``now`` on, by looking at every event."""
    names = [stage.name for stage in timeline.stages]
    used = dict.fromkeys(MEMORIES, 0.0) | {"L1": SLOTS["Q"] * timeline.slot_bytes["Q"], "UB": timeline.slot_bytes["O"]}
    working = {name: 0 for name in names}
    for event in events:
        working[names[event.stage]] += ns(event.start_s) <= now < ns(event.end_s)
    in_l0c = 0
    for flow in timeline.flows:
        begun = sum(names[event.stage] == flow.producer and ns(event.start_s) <= now for event in events)
        under_way = begun - sum(names[event.stage] == flow.consumer and ns(event.end_s) <= now for event in events)
        assert under_way >= 0
        if flow.buffer == "S in L0C":
            in_l0c += under_way
        elif flow.buffer in MEMORY:
            slots = SLOTS[flow.buffer] * (under_way > 0) if flow.buffer in CHUNKED else under_way
            used[MEMORY[flow.buffer]] += slots * timeline.slot_bytes[flow.buffer]
    for name, running in (("left", working["mm_qk"] + working["mm_pv"]), ("right", working["mm_qk"] + working["mm_pv"])):
        used[MEMORY[name]] += SLOTS[name] * timeline.slot_bytes[name] * (running > 0)
    used["L0C"] += SLOTS["result"] * timeline.slot_bytes["result"] * (in_l0c > 0)
    return used


@given(st.integers(0, 10**6), st.sampled_from([1, 4, 10**6]))
def test_every_row_is_what_is_under_way(seed: int, chunk: int) -> None:
    timeline = MadeUpTimeline(seed=seed, chunk=chunk, tasks=2, most_tiles=4)
    rows = rows_of(written(timeline)[0])
    for core in range(timeline.cores):
        events, ours = timeline.events(core), [row for row in rows if row["core"] == core]
        times = [ns(row["time_us"] * 1e-6) for row in ours]
        assert times == sorted(set(times))
        sizes = [[row[f"{name}_bytes"] for name in MEMORIES] for row in ours]
        assert all(before != after for before, after in pairwise(sizes))
        changes = {ns(time) for event in events for time in (event.start_s, event.end_s)}
        for now in sorted(changes):
            current = [row for row, time in zip(ours, times, strict=True) if time <= now]
            expected = counted(timeline, events, now)
            if current:  # a task's load of Q comes before any slot is taken
                assert {name: current[-1][f"{name}_bytes"] for name in MEMORIES} == expected


@given(st.integers(0, 10**6), st.sampled_from([1, 5, 23]))
def test_chunks_make_no_difference(seed: int, chunk: int) -> None:
    assert written(MadeUpTimeline(seed=seed, chunk=chunk))[0] == written(MadeUpTimeline(seed=seed, chunk=10**6))[0]


def test_no_memory_holds_more_than_its_slots_and_all_slots_are_free_at_the_end() -> None:
    timeline = MadeUpTimeline(tasks=40)
    text, series = written(timeline)
    rows = rows_of(text)
    for memory in MEMORIES:
        most = sum(SLOTS[name] * timeline.slot_bytes[name] for name in MEMORY if MEMORY[name] == memory)
        assert series.peak_bytes[memory] == max(row[f"{memory}_bytes"] for row in rows) <= most
    for row in (rows[-1], next(before for before, row in pairwise(rows) if row["core"] == 1)):
        assert row["L0A_bytes"] == row["L0C_bytes"] == row["GM_bytes"] == 0
        assert row["L1_bytes"] == SLOTS["Q"] * timeline.slot_bytes["Q"]


def test_json_holds_the_same_rows() -> None:
    timeline = MadeUpTimeline()
    data: dict[str, Any] = json.loads(written(timeline, "json")[0])
    assert [dict(zip(data["columns"], row, strict=True)) for row in data["rows"]] == rows_of(written(timeline)[0])


@pytest.mark.parametrize(("kind", "lines"), [("csv", 1), ("json", 2)])
def test_a_series_of_nothing_is_valid(kind: Format, lines: int) -> None:
    text, series = written(MadeUpTimeline(cores=0), kind)
    assert len(text.splitlines()) == lines
    assert series.peak_bytes["UB"] == MadeUpTimeline().slot_bytes["O"]
    if kind == "json":
        assert json.loads(text)["rows"] == []
