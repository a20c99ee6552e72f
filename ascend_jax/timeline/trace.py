"""A timeline as the ``trace.json`` of the operator simulator, for MindStudio Insight, chrome://tracing and Perfetto.

The Trace Event Format: complete events (``X``) with a process for each core and a thread for each pipe, and arrows (``s`` to
``t``) for the flags between cores. MindStudio Insight takes a file named ``trace.json`` for an operator simulation by
``profilingType`` before the first bracket, looks for ``traceEvents`` near the beginning and for the last event near the end,
wants names of cores and pipes as ``pid`` and ``tid``, and ignores arrows that end with ``f``. So what there is to say of the
whole trace stands in the labels of its processes rather than beside the events.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple, TextIO

import numpy as np

from ascend_jax.timeline.events import Events, FlowInfo, Simulated
from ascend_jax.timeline.handoffs import Handoffs, Pairs
from ascend_jax.timeline.lanes import LANES, Lane, NanosecondSlices, Process, processes

Ids = Literal["names", "numbers"]
NS_PER_US = 1000.0


class TraceCounts(NamedTuple):
    """What a trace holds."""

    slices: int
    arrows: int


class _Place(NamedTuple):
    """A lane of a process, as the JSON text of its ``pid`` and ``tid``."""

    process: Process
    lane: Lane
    pid: str
    tid: str


class TraceWriter:
    """Writes chunk after chunk of one timeline to ``file``; memory does not grow with them. :meth:`close` ends the JSON.

    Args:
      file: where the text goes.
      timeline: what is written.
      about: what a person should know of the trace (labels of its processes): workload, chip, whether it is cut.
      ids: ``names`` has cores and pipes as ``pid`` and ``tid``, as the operator simulator has; ``numbers`` has numbers, and
        names them beside.
      arrow_every: draw the arrows of every n-th tile of a task: 1 for all, 0 for none.

    Timestamps are microseconds on a grid of whole nanoseconds: see :func:`microseconds`.
    """

    def __init__(
        self, file: TextIO, timeline: Simulated, about: Mapping[str, str], *, ids: Ids = "names", arrow_every: int = 1
    ) -> None:
        self._file, self._timeline, self._ids, self._arrow_every = file, timeline, ids, arrow_every
        self._core: int | None = None
        self._begun = False
        self._slices = self._arrows = 0
        labels = ", ".join(f"{name}: {value}" for name, value in about.items())
        self._labels = f'{{"labels":{json.dumps(labels)}}}'
        file.write('{"profilingType":"op","schemaVersion":2,"displayTimeUnit":"ns","traceEvents":[')

    def add(self, events: Events) -> None:
        """Write the next chunk: a core's chunks follow one another.

        Raises:
          ValueError: its events overlap on a pipe.
        """
        if events.core != self._core:
            self._begin(events.core)
        start, end = self._rounded.of(events)
        self._file.writelines(self._slice_lines(events, start, end))
        for flow, handoffs in self._handoffs:
            self._file.writelines(self._arrow_lines(flow, handoffs.of(events, start, end)))

    def close(self) -> TraceCounts:
        """End the JSON (the file stays open)."""
        self._file.write("\n]}\n")
        return TraceCounts(self._slices, self._arrows)

    def _begin(self, core: int) -> None:
        stages = self._timeline.stages
        self._core = core
        self._rounded = NanosecondSlices(stages)
        flagged = [flow for flow in self._timeline.flows if flow.handoff and self._arrow_every > 0]
        self._handoffs = [(flow, Handoffs(stages, flow)) for flow in flagged]
        self._places = {
            stage.name: [self._place(process, LANES[stage.pipe]) for process in processes(self._timeline, stage, core)]
            for stage in stages
        }
        names = "".join(self._names())
        self._file.write(names if self._begun else names.removeprefix(","))
        self._begun = True

    def _place(self, process: Process, lane: Lane) -> _Place:
        if self._ids == "names":
            return _Place(process, lane, json.dumps(process.name), json.dumps(lane.thread))
        return _Place(process, lane, str(process.place), str(process.place * 100 + lane.place))

    def _names(self) -> Iterator[str]:
        """Names and order of the core's processes and threads."""
        places = dict.fromkeys(place for group in self._places.values() for place in group)
        for place in {place.pid: place for place in places}.values():
            tid = '"NA"' if self._ids == "names" else place.pid
            yield _metadata("process_name", place.pid, tid, _name(place.process.name))
            yield _metadata("process_labels", place.pid, tid, self._labels)
            yield _metadata("process_sort_index", place.pid, tid, f'{{"sort_index":{place.process.place}}}')
        for place in places:
            yield _metadata("thread_name", place.pid, place.tid, _name(place.lane.thread))
            yield _metadata("thread_sort_index", place.pid, place.tid, f'{{"sort_index":{place.lane.place}}}')

    def _slice_lines(self, events: Events, start: np.ndarray, end: np.ndarray) -> Iterator[str]:
        texts = [
            [
                f',\n{{"name":{json.dumps(stage.name)},"cname":"{place.lane.colour}","ph":"X","pid":{place.pid},'
                f'"tid":{place.tid},"ts":'
                for place in self._places[stage.name]
            ]
            for stage in events.stages
        ]
        seen = end > start  # nothing to see of what takes less than a nanosecond, and viewers differ on it
        copies = np.array([len(text) for text in texts])
        self._slices += int(copies[events.stage[seen]].sum())
        start, length = microseconds(start[seen]), microseconds(end[seen] - start[seen])
        columns = (events.stage[seen], start, length, events.task[seen], events.tile[seen])
        for stage, ts, dur, task, tile in zip(*(column.tolist() for column in columns), strict=True):
            rest = f'{ts!r},"dur":{dur!r},"args":{{"task":{task},"tile":{tile}}}}}'
            for text in texts[stage]:
                yield text + rest

    def _arrow_lines(self, flow: FlowInfo, pairs: Pairs) -> Iterator[str]:
        """From the producer's last nanosecond to the consumer's start: a viewer ties each end to the slice around it."""
        leaves = np.maximum(np.minimum(pairs.produce_end - 1, pairs.consume_start), pairs.produce_start)
        drawn = (pairs.tile % self._arrow_every == 0) & (pairs.produce_end > pairs.produce_start)
        drawn &= pairs.consume_end > pairs.consume_start  # nothing to tie an arrow to in no time at all
        sources, targets = self._places[flow.producer], self._places[flow.consumer]
        kind = f"{sources[0].lane.thread}To{targets[0].lane.thread}"
        times = zip(*(microseconds(times[drawn]).tolist() for times in (leaves, pairs.consume_start)), strict=True)
        routes = [(sources[index % len(sources)], targets[index % len(targets)]) for index in range(self._width(flow))]
        heads = [
            tuple(
                f',\n{{"name":"flow","cat":"{kind}","ph":"{phase}","pid":{place.pid},"tid":{place.tid},"id":'
                for phase, place in (("s", source), ("t", target))
            )
            for source, target in routes
        ]
        for leave, arrive in times:
            for begin, finish in heads:
                self._arrows += 1
                yield f'{begin}{self._arrows},"ts":{leave!r}}}{finish}{self._arrows},"ts":{arrive!r}}}'

    def _width(self, flow: FlowInfo) -> int:
        """How many arrows show one hand-off: one for each vector core."""
        return max(len(self._places[flow.producer]), len(self._places[flow.consumer]))


def microseconds(nanoseconds: np.ndarray) -> np.ndarray:
    """Whole nanoseconds as float64 microseconds that become the same nanoseconds again, by rounding and by truncation.

    Perfetto truncated ``1000 · ts`` for years (and rounds now): 1.001 would become 1000 ns, and slices that touch would
    overlap. Such a number is replaced by the next larger one.

    >>> microseconds(np.array([0, 29, 1001])).tolist()
    [0.0, 0.029, 1.0010000000000001]
    """
    rounded = nanoseconds / NS_PER_US
    return np.where(rounded * NS_PER_US < nanoseconds, np.nextafter(rounded, np.inf), rounded)


def _metadata(name: str, pid: str, tid: str, args: str) -> str:
    return f',\n{{"name":"{name}","ph":"M","pid":{pid},"tid":{tid},"args":{args}}}'


def _name(text: str) -> str:
    return f'{{"name":{json.dumps(text)}}}'
