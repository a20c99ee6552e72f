"""How computing and communication share the time of a device."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ascend_jax.runtime.profiler.records import Row

Span = tuple[float, float]


class Overlap(NamedTuple):
    """Seconds; ``exposed_s`` is communication during which nothing computes. The lists hold the times themselves."""

    total_s: float
    computing: list[Span]
    communication: list[Span]
    exposed: list[Span]
    free: list[Span]

    @property
    def computing_s(self) -> float:
        """Kernels, whichever cores."""
        return length(self.computing)

    @property
    def communication_s(self) -> float:
        """Collectives."""
        return length(self.communication)

    @property
    def exposed_s(self) -> float:
        """Collectives without a kernel beside them."""
        return length(self.exposed)

    @property
    def free_s(self) -> float:
        """Neither."""
        return length(self.free)

    def share(self, seconds: float) -> float:
        """Of the whole time; 0 where there is none."""
        return seconds / self.total_s if self.total_s else 0.0


def overlap(rows: "Iterable[Row]") -> Overlap:
    """Of the tasks of one device, from the first start to the last end."""
    spans = [(row.kind, (row.start_s, row.end_s)) for row in rows if row.end_s > row.start_s]
    computing = union(span for kind, span in spans if kind == "kernel")
    communication = union(span for kind, span in spans if kind == "collective")
    everything = union(span for _, span in spans)
    if not everything:
        return Overlap(0.0, [], [], [], [])
    whole = [(everything[0][0], everything[-1][1])]
    busy = union([*computing, *communication])
    return Overlap(length(whole), computing, communication, without(communication, computing), without(whole, busy))


def union(spans: Iterable[Span]) -> list[Span]:
    """The times that any of them covers, in order, without touching ones.

    >>> union([(3, 4), (0, 2), (1, 3)])
    [(0, 4)]
    """
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def without(spans: Sequence[Span], others: Sequence[Span]) -> list[Span]:
    """What ``spans`` cover and ``others`` do not; both as :func:`union` gives them.

    >>> without([(0, 10)], [(2, 3), (5, 12)])
    [(0, 2), (3, 5)]
    """
    left: list[Span] = []
    place = 0
    for begin, end in spans:
        start = begin
        while place < len(others) and others[place][1] <= start:
            place += 1
        at = place
        while at < len(others) and others[at][0] < end:
            if others[at][0] > start:
                left.append((start, others[at][0]))
            start = max(start, others[at][1])
            at += 1
        if start < end:
            left.append((start, end))
    return left


def length(spans: Iterable[Span]) -> float:
    """Seconds in all."""
    return sum(end - start for start, end in spans)
