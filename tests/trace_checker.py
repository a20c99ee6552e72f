"""What a viewer needs of a trace, checked strictly: every rule is a reason why a viewer would show something wrong."""

import json
import math
from collections import defaultdict
from itertools import pairwise
from typing import Any, NamedTuple

PALETTE = {
    "thread_state_running",
    "thread_state_iowait",
    "rail_response",
    "startup",
    "cq_build_failed",
    "background_memory_dump",
    "thread_state_unknown",
}
"""Reserved colours of chrome://tracing that the operator simulator gives to pipes."""


class Slice(NamedTuple):
    """One slice, in whole nanoseconds."""

    start: int
    end: int
    name: str


def loads(text: str) -> Any:
    """Strict JSON, without NaN and without a name that comes twice."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len(dict(pairs)) == len(pairs), pairs
        return dict(pairs)

    return json.loads(text, parse_constant=refuse, object_pairs_hook=once)


def checked(text: str) -> dict[tuple[Any, Any], list[Slice]]:
    """The slices of every thread of a trace that keeps all rules."""
    trace = loads(text)
    _check_frame(text)
    threads: dict[tuple[Any, Any], list[Slice]] = defaultdict(list)
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            threads[event["pid"], event["tid"]].append(_slice(event))
    for slices in threads.values():
        assert all(before.end <= after.start for before, after in pairwise(slices))
    _check_names(trace["traceEvents"], set(threads))
    _check_arrows(trace["traceEvents"], threads)
    return dict(threads)


def _check_frame(text: str) -> None:
    """What MindStudio Insight needs to find the events: a short head before the first bracket, and nothing after the last."""
    head = text[: text.index("[")]
    assert head.endswith('"traceEvents":') and len(head) < 200
    assert {"profilingType": "op", "displayTimeUnit": "ns"}.items() <= loads(head + "[]}").items()
    assert text.endswith("]}\n")
    events = text[len(head) + 1 : -3].split(",\n")  # it cuts large files between events
    assert all(loads(event)["ph"] for event in events if event.strip())


def nanoseconds(us: float) -> int:
    """As Perfetto reads a number today, which has to be as it did when it truncated."""
    assert isinstance(us, float) and math.isfinite(us) and us >= 0
    assert int(us * 1000) == round(us * 1000)
    assert abs(us * 1000 - round(us * 1000)) < 1e-4  # on the grid
    return round(us * 1000)


def _slice(event: dict[str, Any]) -> Slice:
    assert set(event) == {"name", "cname", "ph", "pid", "tid", "ts", "dur", "args"}
    assert event["cname"] in PALETTE
    start = nanoseconds(event["ts"])
    length = nanoseconds(event["dur"])
    assert length > 0
    return Slice(start, start + length, event["name"])


def _check_names(events: list[dict[str, Any]], threads: set[tuple[Any, Any]]) -> None:
    """Every process and thread has a name and a place, given once and before its first event."""
    meta: dict[tuple[str, Any, Any], dict[str, Any]] = {}
    for event in events:
        if event["ph"] == "M":
            thread = event["tid"] if event["name"].startswith("thread") else None
            key = (event["name"], event["pid"], thread)
            assert key not in meta
            meta[key] = event["args"]
        else:
            assert ("process_name", event["pid"], None) in meta
            assert ("thread_name", event["pid"], event["tid"]) in meta
    for pid, tid in threads:
        assert ("process_sort_index", pid, None) in meta and ("thread_sort_index", pid, tid) in meta
    places = [args["sort_index"] for (name, _, _), args in meta.items() if name == "process_sort_index"]
    assert len(places) == len(set(places))


def _check_arrows(events: list[dict[str, Any]], threads: dict[tuple[Any, Any], list[Slice]]) -> None:
    """Each id is one start and one end, in this order, each within a slice; ids are 1, 2, 3."""
    arrows = [event for event in events if event["ph"] in "stf"]
    ids = [event["id"] for event in arrows]
    assert ids == [number for number in range(1, len(arrows) // 2 + 1) for _ in range(2)]
    for begin, end in zip(arrows[::2], arrows[1::2], strict=True):
        assert (begin["ph"], end["ph"]) == ("s", "t")
        assert begin["cat"] == end["cat"] and begin["name"] == end["name"]
        assert nanoseconds(begin["ts"]) <= nanoseconds(end["ts"])
        for event in (begin, end):
            ts = nanoseconds(event["ts"])
            around = [one for one in threads[event["pid"], event["tid"]] if one.start <= ts < one.end]
            assert len(around) == 1
