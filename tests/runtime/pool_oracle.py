"""A stream-ordered pool as a list of granules of 2 MiB: what a pool must do, without segments, marks and clocks."""

from dataclasses import dataclass, field

from ascend_jax.runtime.memory.policy import HUGE_PAGE


@dataclass
class Granule:
    """One granule: ``free``, ``used`` or ``cached``; when it was freed: stream and tasks that this had been given by then."""

    state: str = "free"
    stream: int = -1
    tasks: int = 0


@dataclass
class PoolOracle:
    """``known[a][b]``: tasks of stream b that stream a comes after. ``given`` and ``ended``: tasks of each stream."""

    granules: int
    streams: int
    device_granules: int
    flags: dict[str, bool] = field(default_factory=lambda: {"event": False, "chance": False, "internal": False})

    def __post_init__(self) -> None:
        self.pool = [Granule() for _ in range(self.granules)]
        self.given = [0] * self.streams
        self.ended = [0] * self.streams
        self.known = [[0] * self.streams for _ in range(self.streams)]
        self.reserved_high = self.used_high = 0

    def count(self, *states: str) -> int:
        """Bytes of the granules in these states."""
        return sum(granule.state in states for granule in self.pool) * HUGE_PAGE

    def passed(self, granule: Granule) -> bool:
        """Whether the free has happened."""
        return self.ended[granule.stream] >= granule.tasks

    def may_have(self, granule: Granule, stream: int, rule: str) -> bool:
        """Whether the rule lets ``stream`` use a cached granule."""
        mine = granule.stream == stream
        ordered = self.known[stream][granule.stream] >= granule.tasks and self.flags["event"]
        never_used = granule.tasks == 0 and self.flags["event"]
        return {
            "own": mine,
            "event": mine or ordered or never_used,
            "chance": mine or ordered or never_used or self.passed(granule),
            "internal": True,
        }[rule]

    def malloc(self, number: int, stream: int) -> tuple[int, set[int]] | None:
        """First granule of the block and streams to wait for; None: out of memory."""
        for rule in ("own", "event", "chance", "internal"):
            if rule == "own" or self.flags[rule]:
                accepted = [item.state == "cached" and self.may_have(item, stream, rule) for item in self.pool]
                place = best_fit(accepted, number)
                if place is not None:
                    return self._reuse(place, number, stream)
        place = best_fit([item.state == "free" for item in self.pool], number)
        if place is None or self.count("used", "cached") // HUGE_PAGE + number > self.device_granules:
            return None
        return self._reuse(place, number, stream)

    def _reuse(self, place: int, number: int, stream: int) -> tuple[int, set[int]]:
        taken = [item for item in self.pool[place : place + number] if item.state == "cached"]
        waits: set[int] = set()
        for item in sorted(taken, key=lambda granule: -granule.tasks):
            if item.stream == stream or not item.tasks or self.known[stream][item.stream] >= item.tasks:
                continue
            if not self.passed(item):
                waits.add(item.stream)
            self.known[stream][item.stream] = item.tasks
        for item in self.pool[place : place + number]:
            item.state = "used"
        self.reserved_high = max(self.reserved_high, self.count("used", "cached"))
        self.used_high = max(self.used_high, self.count("used"))
        return place, waits

    def free(self, place: int, number: int, stream: int) -> None:
        """Back to the pool, in the order of ``stream``."""
        for item in self.pool[place : place + number]:
            item.state, item.stream, item.tasks = "cached", stream, self.given[stream]

    def trimmed_to(self, keep: int) -> int:
        """Bytes that the pool holds after a trim."""
        held = self.count("used", "cached")
        gone = sum(item.state == "cached" and self.passed(item) for item in self.pool) * HUGE_PAGE
        most = max(held - keep, 0) // HUGE_PAGE * HUGE_PAGE
        return held - min(gone, most)


def best_fit(accepted: list[bool], number: int) -> int | None:
    """The first place of the shortest row of at least ``number`` accepted ones."""
    rows, length = [], 0
    for place, accepts in enumerate([*accepted, False]):
        if accepts:
            length += 1
        elif length:
            rows.append((length, place - length))
            length = 0
    return min(((size, place) for size, place in rows if size >= number), default=(0, None))[1]
