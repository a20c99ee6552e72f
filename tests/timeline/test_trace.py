"""Traces: what a viewer reads is what the timeline says, in any chunks, without overlaps."""

import io
import tracemalloc
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from made_up_timeline import Event, MadeUpTimeline, as_chunk
from trace_checker import checked, loads

from ascend_jax.timeline.events import FlowInfo, StageInfo
from ascend_jax.timeline.lanes import NanosecondSlices
from ascend_jax.timeline.trace import TraceCounts, TraceWriter, microseconds

THREADS = {"MTE2": "MTE2", "Cube": "CUBE", "FixPipe": "FIXP", "Vector MTE2": "MTE2", "Vector": "VECTOR", "MTE3": "MTE3"}
VECTOR = StageInfo("softmax", "Vector", "vector")


def written(timeline: MadeUpTimeline, **options: Any) -> tuple[str, TraceCounts]:
    file = io.StringIO()
    writer = TraceWriter(file, timeline, {"chip": "made up"}, **options)
    for events in timeline.chunks(range(timeline.cores)):
        writer.add(events)
    counts = writer.close()
    return file.getvalue(), counts


def drawn(text: str, *phases: str) -> list[Any]:
    return [event for event in loads(text)["traceEvents"] if event["ph"] in phases]


@given(st.integers(0, 10**6), st.integers(1, 4), st.sampled_from([1, 2, 50, 10**6]))
def test_every_event_is_one_slice_of_each_of_its_cores(seed: int, vector_cores: int, chunk: int) -> None:
    timeline = MadeUpTimeline(seed=seed, chunk=chunk, vector_cores_per_cube=vector_cores)
    text, counts = written(timeline)
    threads = checked(text)
    assert counts.slices == sum(map(len, threads.values()))
    for core in range(timeline.cores):
        expected: dict[tuple[str, str], list[Event]] = {}
        for event in timeline.events(core):
            stage = timeline.stages[event.stage]
            for process in timeline.shown_on(stage, core) if round(event.end_s * 1e9) > round(event.start_s * 1e9) else []:
                expected.setdefault((process, THREADS[stage.pipe]), []).append(event)
        ours = {key: slices for key, slices in threads.items() if key[0].split(".")[0] == f"core{core}"}
        assert set(ours) == set(expected)
        for key, slices in ours.items():
            assert [one.name for one in slices] == [timeline.stages[event.stage].name for event in expected[key]]
            times = np.array([(event.start_s, event.end_s) for event in expected[key]]) * 1e9
            assert np.abs(np.array([(one.start, one.end) for one in slices]) - times).max() <= 1


@given(st.integers(0, 10**6), st.sampled_from([1, 3, 40]))
def test_chunks_make_no_difference(seed: int, chunk: int) -> None:
    small, large = (written(MadeUpTimeline(seed=seed, chunk=size))[0] for size in (chunk, 10**6))

    def told(text: str) -> Counter[str]:
        return Counter(str({key: value for key, value in event.items() if key != "id"}) for event in drawn(text, *"MXst"))

    assert told(small) == told(large)


def test_slices_of_a_pipe_sum_up_to_its_time() -> None:
    timeline = MadeUpTimeline(tasks=50, cores=1)
    threads = checked(written(timeline)[0])
    for process, stage in (("core0.cubecore0", timeline.stages[2]), ("core0.veccore1", timeline.stages[5])):
        slices = threads[process, THREADS[stage.pipe]]
        same_pipe = [event for event in timeline.events(0) if timeline.stages[event.stage][1:3] == stage[1:3]]
        busy_s = sum(event.end_s - event.start_s for event in same_pipe)
        assert sum(one.end - one.start for one in slices) * 1e-9 == pytest.approx(busy_s, abs=len(slices) * 0.5e-9)


def flags(timeline: MadeUpTimeline, core: int, flow: FlowInfo) -> list[tuple[Event, Event]]:
    """Producer and consumer of every flag of ``flow``, found one by one."""
    stages = {stage.name: place for place, stage in enumerate(timeline.stages)}
    made, taken = (
        {(event.task, event.tile): event for event in timeline.events(core) if event.stage == stages[name]}
        for name in (flow.producer, flow.consumer)
    )
    found = []
    for (task, tile), target in taken.items():
        of_task = [event for event in made.values() if event.task == task]
        source = made.get((task, tile - flow.lag))
        if tile == -1 and of_task and of_task[0].tile >= 0:
            source = of_task[-1]
        if tile == 0 and of_task and of_task[0].tile == -1:
            source = of_task[0]
        if source is not None and min(round(one.end_s * 1e9) - round(one.start_s * 1e9) for one in (source, target)) > 0:
            found.append((source, target))
    return found


@given(st.integers(0, 10**6), st.sampled_from([1, 5, 10**6]), st.booleans())
def test_an_arrow_goes_from_the_end_of_a_flag_to_its_start_on_every_vector_core(
    seed: int, chunk: int, hides_zero: bool
) -> None:
    timeline = MadeUpTimeline(seed=seed, chunk=chunk, hides_zero=hides_zero)
    text, counts = written(timeline)
    checked(text)
    arrows = drawn(text, *"st")
    assert counts.arrows * 2 == len(arrows)
    expected = []
    for core in range(timeline.cores):
        for flow in (flow for flow in timeline.flows if flow.handoff):
            for pair in flags(timeline, core, flow):
                sides = [timeline.shown_on(timeline.stages[event.stage], core) for event in pair]
                for index in range(max(map(len, sides))):
                    places = tuple(side[index % len(side)] for side in sides)
                    expected.append((*places, pair[0].end_s * 1e9 - 1, pair[1].start_s * 1e9))
    found = [(a["pid"], b["pid"], a["ts"] * 1e3, b["ts"] * 1e3) for a, b in zip(arrows[::2], arrows[1::2], strict=True)]
    for ours, theirs in zip(sorted(found), sorted(expected), strict=True):
        assert ours[:2] == theirs[:2]
        assert ours[2:] == pytest.approx(theirs[2:], abs=1.01)
    kinds = {"FIXPToMTE2", "MTE3ToMTE2", "MTE2ToCUBE", "CUBEToVECTOR", "CUBEToCUBE"}
    assert {arrow["cat"] for arrow in arrows} <= kinds


def test_arrows_can_be_thinned_out_and_left_away() -> None:
    timeline = MadeUpTimeline(tasks=20)
    all_of_them, some, none = (written(timeline, arrow_every=every)[1] for every in (1, 3, 0))
    assert all_of_them.slices == some.slices == none.slices
    assert all_of_them.arrows > some.arrows > none.arrows == 0


def test_numbers_may_stand_for_cores_and_pipes() -> None:
    timeline = MadeUpTimeline()
    by_name, by_number = (written(timeline, ids=ids)[0] for ids in ("names", "numbers"))
    threads = checked(by_number)
    assert all(isinstance(pid, int) and isinstance(tid, int) for pid, tid in threads)
    assert len({tid for _, tid in threads}) == len(threads)  # Perfetto knows a thread by its number alone
    names = {event["pid"]: event["args"]["name"] for event in drawn(by_number, "M") if event["name"] == "process_name"}
    lanes = {event["tid"]: event["args"]["name"] for event in drawn(by_number, "M") if event["name"] == "thread_name"}
    assert {(names[pid], lanes[tid]): slices for (pid, tid), slices in threads.items()} == checked(by_name)


def test_cores_and_pipes_are_in_the_order_of_the_operator_simulator() -> None:
    meta = [event for event in drawn(written(MadeUpTimeline())[0], "M") if "sort_index" in event["args"]]
    cores = [event["pid"] for event in sorted(meta, key=lambda event: event["args"]["sort_index"]) if event["tid"] == "NA"]
    assert cores == [f"core{core}.{part}" for core in range(2) for part in ("cubecore0", "veccore0", "veccore1")]
    pipes = [event for event in meta if event["pid"] == "core1.cubecore0" and event["tid"] != "NA"]
    assert [e["tid"] for e in sorted(pipes, key=lambda event: event["args"]["sort_index"])] == ["CUBE", "FIXP", "MTE2"]


def test_a_vector_unit_of_the_core_itself_is_a_thread_of_the_core() -> None:
    stages = (StageInfo("mm_qk", "Cube", "cube"), VECTOR)
    timeline = MadeUpTimeline(vector_cores_per_cube=1, stages=stages, flows=())
    file = io.StringIO()
    writer = TraceWriter(file, timeline, {})
    writer.add(as_chunk(4, stages, [Event(4, 0, 0, 0, 0.0, 1e-6), Event(4, 1, 0, 0, 1e-6, 3e-6)]))
    writer.close()
    assert set(checked(file.getvalue())) == {("core4", "CUBE"), ("core4", "VECTOR")}


def test_a_chunked_flag_leaves_within_its_producer_though_its_consumer_begins_before_the_end() -> None:
    stages = (StageInfo("mm_qk", "Cube", "cube"), VECTOR)
    timeline = MadeUpTimeline(stages=stages, flows=(FlowInfo("mm_qk", "softmax", "S in L0C", handoff=True, chunked=True),))
    file = io.StringIO()
    writer = TraceWriter(file, timeline, {})
    writer.add(as_chunk(0, stages, [Event(0, 0, 0, 0, 1e-6, 5e-6), Event(0, 1, 0, 0, 2e-6, 6e-6)]))
    assert writer.close().arrows == 2
    checked(file.getvalue())
    assert {event["ts"] for event in drawn(file.getvalue(), *"st")} == {2.0}


def test_a_trace_of_nothing_is_valid() -> None:
    file = io.StringIO()
    assert TraceWriter(file, MadeUpTimeline(), {}).close() == TraceCounts(0, 0)
    assert checked(file.getvalue()) == {}


def test_what_a_person_should_know_is_a_label_of_every_core() -> None:
    timeline, file = MadeUpTimeline(), io.StringIO()
    writer = TraceWriter(file, timeline, {"workload": 'a "name" [with] {brackets}', "cut": "first 2 tasks"})
    for events in timeline.chunks([1]):
        writer.add(events)
    writer.close()
    checked(file.getvalue())
    labels = {event["pid"]: event["args"]["labels"] for event in drawn(file.getvalue(), "M") if "labels" in event["args"]}
    text = 'workload: a "name" [with] {brackets}, cut: first 2 tasks'
    assert labels == dict.fromkeys(["core1.cubecore0", "core1.veccore0", "core1.veccore1"], text)


@given(st.lists(st.floats(0, 1e-6), min_size=1, max_size=60), st.floats(0, 10))
@example([0.0, 0.0, 5e-10, 5e-10, 5e-10], 0.0)
@example([1e-9 / 3] * 60, 9.99)
def test_slices_that_touch_never_overlap_nor_turn_around(lengths: list[float], begin_s: float) -> None:
    events, now = [], begin_s
    for tile, length in enumerate(lengths):
        events.append(Event(0, 0, 0, tile, now, now + length))
        now = (now + length) * (1 - 2.0**-53) if tile % 3 == 0 else now + length  # float noise: an ulp before the end
    rounded = NanosecondSlices((VECTOR,))
    halves = [rounded.of(as_chunk(0, (VECTOR,), part)) for part in (events[: len(events) // 2], events[len(events) // 2 :])]
    start, end = (np.concatenate(column) for column in zip(*halves, strict=True))
    assert np.all(start <= end) and np.all(end[:-1] <= start[1:])
    times = np.array([(event.start_s, event.end_s) for event in events]) * 1e9
    assert np.abs(np.stack([start, end], axis=1) - times).max() <= 1.001


@given(st.lists(st.integers(0, 2**43), min_size=1, max_size=100))
@example([1001, 2002, 4004, 8_388_609, 2**43])
def test_microseconds_are_read_back_as_the_same_nanoseconds(nanoseconds: list[int]) -> None:
    values = microseconds(np.array(nanoseconds)).tolist()
    assert [int(float(repr(value)) * 1000.0) for value in values] == nanoseconds
    assert [round(float(repr(value)) * 1000.0) for value in values] == nanoseconds


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ([Event(0, 0, 0, 0, 0.0, 2e-6), Event(0, 0, 0, 1, 1e-6, 3e-6)], "stages on Vector of core 0 overlap by 1000 ns"),
        ([Event(0, 0, 0, 0, 2e-6, 1e-6)], "overlap"),
        ([Event(0, 0, 0, 0, -1e-6, 1e-6)], "start_s that is negative"),
        ([Event(0, 0, 0, 0, 0.0, float("nan"))], "end_s that is negative or not finite"),
    ],
)
def test_a_wrong_timeline_is_an_error_rather_than_a_wrong_picture(events: list[Event], message: str) -> None:
    writer = TraceWriter(io.StringIO(), MadeUpTimeline(stages=(VECTOR,), flows=()), {})
    with pytest.raises(ValueError, match=message):
        writer.add(as_chunk(0, (VECTOR,), events))


class _Nowhere(io.StringIO):
    """Counts what is written and keeps nothing."""

    length = 0

    def write(self, text: str) -> int:
        self.length += len(text)
        return len(text)


def test_memory_does_not_grow_with_the_trace() -> None:
    timeline, file = MadeUpTimeline(tasks=400, cores=1, chunk=100), _Nowhere()
    chunks = list(timeline.chunks([0]))
    tracemalloc.start()
    writer = TraceWriter(file, timeline, {})
    for events in chunks:
        writer.add(events)
    writer.close()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.1 * file.length
