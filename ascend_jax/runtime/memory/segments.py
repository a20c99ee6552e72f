"""The addresses of a pool, cut into segments that are free (no pages), cached (pages, nobody's) or in use."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum

from ascend_jax.runtime.memory.streams import Mark


class State(Enum):
    """What a segment is."""

    FREE = "free"
    CACHED = "cached"
    USED = "used"


@dataclass(slots=True, eq=False)
class Segment:
    """Adjacent addresses in one state. ``mark``: where the program gave it back; ``site``: who has it in use."""

    address: int
    size: int
    state: State = State.FREE
    mark: Mark | None = None
    requested: int = 0
    site: str = ""


Run = tuple[int, int]
"""Adjacent segments: their bytes, and the index of the first."""


class Segments:
    """All segments of a pool, by address: they cover its addresses without a gap."""

    def __init__(self, address: int, size: int) -> None:
        self.items = [Segment(address, size)]

    def __iter__(self) -> Iterator[Segment]:
        return iter(self.items)

    def used_at(self, address: int) -> Segment | None:
        """The segment in use that begins at ``address``."""
        return next((item for item in self.items if item.address == address and item.state is State.USED), None)

    def best_fit(self, size: int, accepts: Callable[[Segment], bool]) -> int | None:
        """Index of the first segment of the smallest run of adjacent accepted segments that holds ``size`` bytes."""
        best: Run | None = None
        start, total = 0, 0
        for index, item in enumerate([*self.items, None]):
            if item is not None and accepts(item):
                start, total = (start, total + item.size) if total else (index, item.size)
                continue
            if total >= size and (best is None or total < best[0]):
                best = (total, start)
            total = 0
        return None if best is None else best[1]

    def take(self, first: int, size: int) -> tuple[Segment, list[Segment]]:
        """Make one segment of the ``size`` bytes from segment ``first`` on. Returns it and the parts it was made of."""
        parts, total, index = [], 0, first
        while total < size:
            item = self.items[index]
            if total + item.size > size:
                item = self._split(index, size - total)
            parts.append(item)
            total += item.size
            index += 1
        whole = Segment(parts[0].address, size)
        self.items[first:index] = [whole]
        return whole, parts

    def release(self, segment: Segment) -> None:
        """Make ``segment`` free and one with its free neighbours."""
        segment.state, segment.mark = State.FREE, None
        index = self.items.index(segment)
        first, last = index, index + 1
        while first > 0 and self.items[first - 1].state is State.FREE:
            first -= 1
        while last < len(self.items) and self.items[last].state is State.FREE:
            last += 1
        whole = Segment(self.items[first].address, sum(item.size for item in self.items[first:last]))
        self.items[first:last] = [whole]

    def cut(self, segment: Segment, size: int) -> Segment:
        """The first ``size`` bytes of ``segment``, which keeps the rest (all of it: the segment itself)."""
        return segment if size >= segment.size else self._split(self.items.index(segment), size)

    def _split(self, index: int, size: int) -> Segment:
        rest = self.items[index]
        left = Segment(rest.address, size, rest.state, rest.mark)
        rest.address += size
        rest.size -= size
        self.items.insert(index, left)
        return left
