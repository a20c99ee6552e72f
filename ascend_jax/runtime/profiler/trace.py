"""The timeline of a profile as Chrome's trace format, for Perfetto, MindStudio Insight and chrome://tracing.

A flat array as msprof writes it, with its processes (CANN, Ascend Hardware, Communication, NPU MEM, Overlap Analysis), names
and arguments; but with times as numbers from 0 and small numbers as ids, because Perfetto loses digits of long ones and then
nests slices that only touch (Ascend/pytorch#133). Slices of one thread never overlap.
"""

import json
from collections.abc import Iterator
from itertools import count
from typing import Any, NamedTuple, TextIO

import numpy as np

from ascend_jax.runtime.hccl.link_tasks import link_tasks
from ascend_jax.runtime.profiler.profile import Profile
from ascend_jax.runtime.profiler.records import Row, task_type
from ascend_jax.timeline.trace import microseconds

HOST = 1
"""Process of the host; device d has processes ``(d + 1) * 10 + …``."""
HARDWARE, COMMUNICATION, MEMORY, OVERLAP = range(4)
SORT = {"CANN": 7, "Ascend Hardware": 14, "Communication": 16, "NPU MEM": 17, "Overlap Analysis": 31}
"""``process_sort_index`` of msprof (meta_data_event.h of Ascend/msprof)."""
MOST_LINK_RANKS = 64
"""Larger groups show their collectives without the links' tasks."""

Event = dict[str, Any]


class Counts(NamedTuple):
    """What was written."""

    slices: int
    arrows: int
    counters: int


class Lanes:
    """Threads of one process side by side, so that what overlaps does not lie in one."""

    def __init__(self) -> None:
        self.ends: list[int] = []

    def place(self, start: int, end: int) -> int:
        """The first lane that is free from ``start`` on."""
        lane = next((number for number, until in enumerate(self.ends) if until <= start), len(self.ends))
        self.ends[lane : lane + 1] = [end]
        return lane


class _Trace:
    """Events of one profile, names of processes and threads before their first one."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.named: set[tuple[int, int | None]] = set()

    def ns(self, at_s: float) -> int:
        """Whole nanoseconds from the start of the recording."""
        return round((at_s - self.profile.origin_s) * 1e9)

    def names(self, process: tuple[int, str, str], thread: tuple[int, str]) -> Iterator[Event]:
        """Metadata of a process (number, name, label) and a thread (number, name) that come for the first time."""
        pid, name, label = process
        if (pid, None) not in self.named:
            self.named.add((pid, None))
            yield _meta("process_name", pid, 0, name=name)
            yield _meta("process_labels", pid, 0, labels=label)
            yield _meta("process_sort_index", pid, 0, sort_index=SORT[name] * 100 + pid)
        tid, text = thread
        if (pid, tid) not in self.named:
            self.named.add((pid, tid))
            yield _meta("thread_name", pid, tid, name=text)
            yield _meta("thread_sort_index", pid, tid, sort_index=tid)

    def events(self) -> Iterator[Event]:
        """Everything, process by process."""
        hosts = yield from self._host()
        yield from self._streams(hosts)
        yield from self._communication()
        yield from self._memory()
        yield from self._overlap()

    def _host(self) -> Any:
        """Calls of the host, in as many threads as overlap. Returns task → thread, middle of the call."""
        lanes, places = Lanes(), {}
        for call in sorted(self.profile.apis, key=lambda call: (call.start_s, call.duration_s)):
            start, end = self.ns(call.start_s), self.ns(call.start_s + call.duration_s)
            if end <= start:
                continue
            tid = lanes.place(start, end)
            yield from self.names((HOST, "CANN", "CPU"), (tid, f"Thread {tid}"))
            yield _slice(f"{call.level.capitalize()}@{call.name}", (HOST, tid), (start, end), {"connection_id": call.task_id})
            if call.task_id >= 0:
                places[call.task_id] = (tid, end - 1)
        return places

    def _streams(self, hosts: dict[int, tuple[int, int]]) -> Iterator[Event]:
        arrows = count(1)
        for row in sorted(self.profile.rows, key=lambda row: (row.device_id, row.stream_id, row.start_s, row.task_id)):
            process = (_pid(row.device_id, HARDWARE), "Ascend Hardware", f"NPU {row.device_id}")
            pid, tid, text = process[0], 2 * row.stream_id, f"Stream {row.stream_id}"
            start, end = self.ns(row.start_s), self.ns(row.end_s)
            if end == start:  # beside the stream: a viewer would tie arrows to it that belong to the next task
                yield from self.names(process, (tid + 1, f"{text} events"))
                yield _instant(row.name, (pid, tid + 1), start, _task_args(row))
                continue
            yield from self.names(process, (tid, text))
            yield _slice(row.name, (pid, tid), (start, end), _task_args(row))
            if row.task_id in hosts:
                thread, leaves = hosts[row.task_id]
                yield from _arrow(next(arrows), (HOST, thread, min(leaves, start)), (pid, tid, start))

    def _communication(self) -> Iterator[Event]:
        """Collectives by group, and the tasks of their links by plane; groups that overlap get threads of their own."""
        numbers: dict[tuple[int, str], int] = {}
        lanes: dict[tuple[int, str], Lanes] = {}
        for row in self.profile.of_kind("collective"):
            start, end = self.ns(row.start_s), self.ns(row.end_s)
            if end == start:
                continue
            group = str(row.info.get("group", "hccl"))
            key = row.device_id, group
            base = numbers.setdefault(key, 1000 * (1 + sum(device == row.device_id for device, _ in numbers)))
            lane = lanes.setdefault(key, Lanes()).place(start, end)
            process = (_pid(row.device_id, COMMUNICATION), "Communication", f"NPU {row.device_id}")
            tid, title = base + 100 * lane, f"Group {group} Communication" + (f" {lane + 1}" if lane else "")
            yield from self.names(process, (tid, title))
            yield _slice(row.name, (process[0], tid), (start, end), _collective_args(row))
            if lane == 0:
                yield from self._links(row, process, tid)

    def _links(self, row: Row, process: tuple[int, str, str], tid: int) -> Iterator[Event]:
        plan, rank, ranks, wait_s = (row.info.get(key) for key in ("plan", "rank", "ranks", "notify_wait_s"))
        if plan is None or rank is None or ranks is None or wait_s is None or len(ranks) > MOST_LINK_RANKS:
            return
        until: dict[int, int] = {}
        for task in link_tasks(plan, rank, wait_s):
            start = max(self.ns(row.start_s + task.start_s), until.get(task.plane, 0))
            end = min(self.ns(row.start_s + task.start_s + task.duration_s), self.ns(row.end_s))
            if end <= start:
                continue
            until[task.plane] = end
            thread = (tid + 1 + task.plane, f"Plane {task.plane}")
            yield from self.names(process, thread)
            args = {"src rank": task.source, "dst rank": task.target, "transport type": task.transport}
            if task.bytes:
                args |= {"size(Byte)": round(task.bytes), "bandwidth(GB/s)": round(task.bytes / task.duration_s / 1e9, 3)}
            args |= {"task type": task.name, "duration estimated(us)": round(task.duration_s * 1e6, 3)}
            yield _slice(task.name, (process[0], thread[0]), (start, end), args)

    def _memory(self) -> Iterator[Event]:
        for event in sorted(self.profile.memory, key=lambda event: event.at_s):
            pid = _pid(event.device_id, MEMORY)
            yield from self.names((pid, "NPU MEM", f"NPU {event.device_id}"), (0, event.component))
            args = {"KB": round(event.allocated / 1024, 3), "reserved": round(event.reserved / 1024, 3)}
            ts = _us(self.ns(event.at_s))
            yield {"name": f"{event.component}/allocated", "pid": pid, "tid": 0, "ts": ts, "ph": "C", "args": args}

    def _overlap(self) -> Iterator[Event]:
        for device in self.profile.devices:
            found = self.profile.overlap(device)
            rows = {
                "Computing": found.computing,
                "Communication": found.communication,
                "Communication(Not Overlapped)": found.exposed,
                "Free": found.free,
            }
            pid = _pid(device, OVERLAP)
            for tid, (name, spans) in enumerate(rows.items()):
                for span in spans:
                    start, end = map(self.ns, span)
                    if end > start:
                        yield from self.names((pid, "Overlap Analysis", f"NPU {device}"), (tid, name))
                        yield _slice(name, (pid, tid), (start, end), {})


def write_trace(profile: Profile, file: TextIO) -> Counts:
    """Write the timeline to ``file``, event by event."""
    slices = arrows = counters = 0
    file.write("[")
    for number, event in enumerate(_Trace(profile).events()):
        file.write((",\n" if number else "\n") + json.dumps(event, separators=(",", ":"), ensure_ascii=False, allow_nan=False))
        slices += event["ph"] == "X"
        arrows += event["ph"] == "s"
        counters += event["ph"] == "C"
    file.write("\n]\n")
    return Counts(slices, arrows, counters)


def _pid(device_id: int, what: int) -> int:
    return (device_id + 1) * 10 + what


def _us(nanoseconds: int) -> float:
    return float(microseconds(np.asarray([nanoseconds]))[0])


def _meta(what: str, pid: int, tid: int, **args: Any) -> Event:
    return {"name": what, "pid": pid, "tid": tid, "ph": "M", "args": args}


def _slice(name: str, place: tuple[int, int], span: tuple[int, int], args: dict[str, Any]) -> Event:
    """From one whole nanosecond to another; the keys in msprof's order."""
    start, end = span
    return {"name": name, "pid": place[0], "tid": place[1], "ts": _us(start), "dur": _us(end - start), "ph": "X", "args": args}


def _instant(name: str, place: tuple[int, int], at: int, args: dict[str, Any]) -> Event:
    """What takes no time: an event's record, a wait that was over."""
    return {"name": name, "pid": place[0], "tid": place[1], "ts": _us(at), "ph": "i", "s": "t", "args": args}


def _arrow(number: int, source: tuple[int, int, int], target: tuple[int, int, int]) -> Iterator[Event]:
    """From a call of the host to its task."""
    shared = {"cat": "HostToDevice", "name": "HostToDevice", "id": number}
    yield {"ph": "s", "bp": "e", "pid": source[0], "tid": source[1], "ts": _us(source[2]), **shared}
    yield {"ph": "f", "bp": "e", "pid": target[0], "tid": target[1], "ts": _us(target[2]), **shared}


def _task_args(row: Row) -> dict[str, Any]:
    args: dict[str, Any] = {
        "Model Id": 4294967295,
        "Task Type": task_type(row),
        "Physic Stream Id": row.stream_id,
        "Task Id": row.task_id,
        "Batch Id": 0,
        "Subtask Id": 4294967295,
        "connection_id": row.task_id,
        "Wait(us)": round(row.wait_s * 1e6, 3),
        "Block Num": row.block_dim,
    }
    if row.kind == "copy" and "bytes" in row.info:
        size = row.info["bytes"]
        args |= {"size(B)": size, "bandwidth(GB/s)": round(size / row.duration_s / 1e9, 3), "operation": row.engine}
    if row.site:
        args["site"] = row.site
    if row.error:
        args["error"] = row.error
    return args


def _collective_args(row: Row) -> dict[str, Any]:
    info = row.info
    return {
        "connection_id": row.task_id,
        "count": info.get("count"),
        "data_type": info.get("dtype"),
        "alg_type": info.get("algorithm"),
        "group": info.get("group"),
        "rank": info.get("rank"),
        "size(Byte)": info.get("bytes"),
        "Wait(us)": round(row.wait_s * 1e6, 3),
    }
