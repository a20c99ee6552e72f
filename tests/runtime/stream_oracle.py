"""When tasks of streams run, by scanning everything again and again: no queue of events, no cleverness."""

from dataclasses import dataclass, field


@dataclass
class Item:
    """A task of one stream: needs maps kinds of cores to numbers; ``after`` are tasks of other streams."""

    submit_s: float
    duration_s: float
    priority: int
    needs: dict[str, int] = field(default_factory=dict)
    after: "Item | None" = None
    ready_s: float | None = None
    start_s: float | None = None
    end_s: float | None = None


def run(streams: list[list[Item]], cores: dict[str, int], everything: list[Item]) -> bool:
    """Fill in all times; False where some task can never start. ``everything`` is in the order of submission."""
    now = 0.0
    while True:
        while _settle(streams, now) or _give_cores(everything, cores, now):
            pass
        if all(item.end_s is not None for item in everything):
            return True
        later = [item.start_s + item.duration_s for item in everything if item.start_s is not None and item.end_s is None]
        later += [item.submit_s for item in everything if item.submit_s > now]
        if not later:
            return False
        now = min(later)


def _settle(streams: list[list[Item]], now: float) -> bool:
    """End what ends now, and make ready the heads that can be."""
    changed = False
    for stream in streams:
        for item in stream:
            if item.start_s is not None and item.end_s is None and item.start_s + item.duration_s <= now:
                item.end_s, changed = now, True
        head = next((item for item in stream if item.end_s is None), None)
        if head is None or head.ready_s is not None or head.submit_s > now:
            continue
        if head.after is None or head.after.end_s is not None:
            head.ready_s, changed = now, True
            head.start_s = None if head.needs else now
    return changed


def _give_cores(everything: list[Item], cores: dict[str, int], now: float) -> bool:
    free = dict(cores)
    for item in everything:
        if item.start_s is not None and item.end_s is None:
            for kind, number in item.needs.items():
                free[kind] -= number
    waiting = [item for item in everything if item.ready_s is not None and item.start_s is None]
    blocked, changed = set(), False
    for item in sorted(waiting, key=lambda item: (item.priority, item.ready_s, everything.index(item))):
        if blocked & set(item.needs) or any(free[kind] < number for kind, number in item.needs.items()):
            blocked |= set(item.needs)
            continue
        item.start_s, changed = now, True
        for kind, number in item.needs.items():
            free[kind] -= number
    return changed
