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

from ascend_jax.timeline.events import FlowInfo
from ascend_jax.timeline.series import MEMORIES, Format, OccupancySeries


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


def spans(timeline: MadeUpTimeline, events: list[Event], flow: FlowInfo) -> list[tuple[int, int]]:
    """From when to when each slot of ``flow`` is in use, one producer after the other."""
    stages = {stage.name: place for place, stage in enumerate(timeline.stages)}
    producer, consumer = stages[flow.producer], stages[flow.consumer]
    by_tile = timeline.stages[producer].per_row == timeline.stages[consumer].per_row

    def key(event: Event) -> tuple[int, int]:
        return event.task, event.tile if by_tile else 0

    found = []
    for opened in sorted({key(event) for event in events if event.stage == producer}):
        start = min(ns(event.start_s) for event in events if event.stage == producer and key(event) == opened)
        emptied = [event for event in events if event.stage == consumer and key(event) >= opened]  # or else with the next
        last = [event for event in emptied if key(event) == min(map(key, emptied))]
        found.append((start, max((ns(event.end_s) for event in last), default=10**18)))
    return found


def counted(timeline: MadeUpTimeline, events: list[Event], now: int) -> dict[str, float]:
    """Bytes in use from ``now`` on, by looking at every event."""
    slot_bytes = timeline.slot_bytes
    used = dict.fromkeys(MEMORIES, 0.0) | {"UB": slot_bytes["max, sum"]}
    cube = {place for place, stage in enumerate(timeline.stages) if stage.pipe == "Cube"}
    working = any(ns(event.start_s) <= now < ns(event.end_s) for event in events if event.stage in cube)
    in_l0c = False
    for flow in timeline.flows:
        under_way = sum(start <= now < end for start, end in spans(timeline, events, flow))
        if flow.buffer == "S in L0C":
            in_l0c = under_way > 0
        elif flow.buffer:
            slots = SLOTS[flow.buffer] if flow.chunked and under_way else under_way
            used[MEMORY[flow.buffer]] += min(slots, SLOTS[flow.buffer]) * slot_bytes[flow.buffer]
    for name in ("left", "right"):
        used[MEMORY[name]] += SLOTS[name] * slot_bytes[name] * working
    used["L0C"] += SLOTS["result"] * slot_bytes["result"] * in_l0c
    return used


@given(st.integers(0, 10**6), st.sampled_from([1, 4, 10**6]), st.booleans())
def test_every_row_is_what_is_under_way(seed: int, chunk: int, hides_zero: bool) -> None:
    timeline = MadeUpTimeline(seed=seed, chunk=chunk, tasks=2, most_tiles=4, hides_zero=hides_zero)
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
            if current:  # the first row is that of the first slot
                assert {name: current[-1][f"{name}_bytes"] for name in MEMORIES} == expected


@given(st.integers(0, 10**6), st.sampled_from([1, 5, 23]), st.booleans())
def test_chunks_make_no_difference(seed: int, chunk: int, hides_zero: bool) -> None:
    small, large = (MadeUpTimeline(seed=seed, chunk=size, hides_zero=hides_zero) for size in (chunk, 10**6))
    assert written(small)[0] == written(large)[0]


def test_no_memory_holds_more_than_its_slots_and_all_slots_are_free_at_the_end() -> None:
    timeline = MadeUpTimeline(tasks=40)
    text, series = written(timeline)
    rows = rows_of(text)
    for memory in MEMORIES:
        most = sum(SLOTS[name] * timeline.slot_bytes[name] for name in MEMORY if MEMORY[name] == memory)
        assert series.peak_bytes[memory] == max(row[f"{memory}_bytes"] for row in rows) <= most
    for row in (rows[-1], next(before for before, row in pairwise(rows) if row["core"] == 1)):
        used = {name: row[f"{name}_bytes"] for name in MEMORIES}
        assert used == dict.fromkeys(MEMORIES, 0.0) | {"UB": timeline.slot_bytes["max, sum"]}


def test_json_holds_the_same_rows() -> None:
    timeline = MadeUpTimeline()
    data: dict[str, Any] = json.loads(written(timeline, "json")[0])
    assert [dict(zip(data["columns"], row, strict=True)) for row in data["rows"]] == rows_of(written(timeline)[0])


@pytest.mark.parametrize(("kind", "lines"), [("csv", 1), ("json", 2)])
def test_a_series_of_nothing_is_valid(kind: Format, lines: int) -> None:
    text, series = written(MadeUpTimeline(cores=0), kind)
    assert len(text.splitlines()) == lines
    assert series.peak_bytes["UB"] == MadeUpTimeline().slot_bytes["max, sum"]
    if kind == "json":
        assert json.loads(text)["rows"] == []
