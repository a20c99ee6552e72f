"""``MemPool``: memory that is allocated and freed in the order of streams, without waiting for them.

Source of the rules: hicann/runtime, api_ref/11-10, 25-02 and feature/soma (granule of 2 MiB, best fit, order of the reuse
rules, attributes); marked there as experimental, and for the A2 only. Reuse of another stream's memory is off until asked for.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from ascend_jax.runtime.engine.task import Task
from ascend_jax.runtime.errors import AclError, OutOfMemoryError
from ascend_jax.runtime.memory.device import DeviceMemory
from ascend_jax.runtime.memory.policy import HUGE_PAGE, round_up, text_of
from ascend_jax.runtime.memory.segments import Segment, Segments, State
from ascend_jax.runtime.memory.streams import Mark, StreamLike, mark
from ascend_jax.runtime.recording import recorded_calls


class MemPoolAttr(IntEnum):
    """``aclrtMemPoolAttr``."""

    REUSE_FOLLOW_EVENT_DEPENDENCIES = 1
    REUSE_ALLOW_OPPORTUNISTIC = 2
    REUSE_ALLOW_INTERNAL_DEPENDENCIES = 3
    RELEASE_THRESHOLD = 4
    RESERVED_MEM_CURRENT = 5
    RESERVED_MEM_HIGH = 6
    USED_MEM_CURRENT = 7
    USED_MEM_HIGH = 8


READ_ONLY = (MemPoolAttr.RESERVED_MEM_CURRENT, MemPoolAttr.USED_MEM_CURRENT)
HIGH = (MemPoolAttr.RESERVED_MEM_HIGH, MemPoolAttr.USED_MEM_HIGH)
FLAGS = (
    MemPoolAttr.REUSE_FOLLOW_EVENT_DEPENDENCIES,
    MemPoolAttr.REUSE_ALLOW_OPPORTUNISTIC,
    MemPoolAttr.REUSE_ALLOW_INTERNAL_DEPENDENCIES,
)


@dataclass(frozen=True)
class MemPoolProps:
    """``aclrtMemPoolProps``: ``max_size`` in bytes, rounded up to 2 MiB; 0 is the whole device."""

    max_size: int = 0


@recorded_calls
class MemPool:
    """A stream-ordered pool. It takes pages when it grows and keeps them until a trim or a synchronisation.

    A freed block is reused, smallest that fits first: by its own stream at once; by another stream, where the attributes
    allow it, when an event orders it behind the free; when the free has happened; or with a wait that the pool submits.

    Args:
      memory: the device's memory.
      props: how large it may become.
      site: file and line of the caller.

    Raises:
      AclError: 107000 for a size beyond the device.
    """

    def __init__(self, memory: DeviceMemory, props: MemPoolProps | None = None, *, site: str = "") -> None:
        asked = (props or MemPoolProps()).max_size
        size = round_up(asked, HUGE_PAGE) or memory.total_bytes
        if not 0 < size <= memory.total_bytes:
            raise AclError(107000, f"max_size={asked} of a pool must lie in [0, {memory.total_bytes}], the device's memory")
        self.memory, self.max_size = memory, size
        self.block = memory.reserve(size, site=site)
        self.segments = Segments(self.block.address, size)
        self.values = {attr: 0 for attr in MemPoolAttr}
        memory.on_synchronise.append(self.synchronized)

    def malloc_async(self, size: int, stream: StreamLike, *, site: str = "") -> int:
        """The address of ``size`` bytes (rounded up to 2 MiB) that ``stream`` may use from here on.

        Raises:
          AclError: 107000 for a size below 1, 107017 for a destroyed pool.
          OutOfMemoryError: 207001 with a report.
        """
        self._check_alive()
        if size <= 0:
            raise AclError(107000, f"malloc_async of {size} B", remedy="ask for at least 1 byte")
        needed = round_up(size, HUGE_PAGE)
        with self.memory.lock:
            segment, parts = self._reuse(needed, stream) or self._grow(needed) or (None, [])
            if segment is None:
                raise self._out_of_memory(size, needed, stream)
            segment.state, segment.requested, segment.site = State.USED, size, site
            self._count(MemPoolAttr.USED_MEM_CURRENT, MemPoolAttr.USED_MEM_HIGH, needed)
        _wait_for(stream, parts)
        return segment.address

    def free_async(self, address: int, stream: StreamLike) -> None:
        """Give the block at ``address`` back when ``stream`` comes to this point; its pages stay in the pool.

        Raises:
          AclError: 107000 for a null pointer, 107017 for a destroyed pool, 207002 for what begins no block in use.
        """
        self._check_alive()
        if not address:
            raise AclError(107000, "free_async of a null pointer")
        with self.memory.lock:
            segment = self.segments.used_at(address)
            if segment is None:
                raise AclError(207002, f"free_async of {address:#x}, which begins no block in use of the pool")
            segment.state, segment.mark = State.CACHED, mark(stream)
            self._count(MemPoolAttr.USED_MEM_CURRENT, MemPoolAttr.USED_MEM_HIGH, -segment.size)

    def get_attr(self, attr: int) -> int:
        """One attribute. Raises 107000 for one that does not exist."""
        return self.values[self._attr(attr)]

    def set_attr(self, attr: int, value: int) -> None:
        """Set a reuse rule (0 or 1), the release threshold, or a peak (to 0 only).

        Raises:
          AclError: 107000 for an attribute that is read only, or a value out of its range.
        """
        attr = self._attr(attr)
        if attr in READ_ONLY:
            raise AclError(107000, f"{attr.name} of a pool is read only")
        most = 0 if attr in HIGH else 1 if attr in FLAGS else self.max_size
        if not 0 <= value <= most:
            raise AclError(107000, f"{attr.name}={value} must lie in [0, {most}]")
        self.values[attr] = value

    def trim_to(self, min_bytes_to_keep: int) -> None:
        """Give pages that nobody uses back until the pool holds ``min_bytes_to_keep``; pages in use stay.

        Raises 107000 for more than the pool's size. A block whose free has not happened yet stays, too.
        """
        self._check_alive()
        if not 0 <= min_bytes_to_keep <= self.max_size:
            raise AclError(107000, f"trim_to({min_bytes_to_keep}) must lie in [0, {self.max_size}], the pool's size")
        with self.memory.lock:
            self._trim(min_bytes_to_keep)

    def synchronized(self) -> None:
        """A stream was synchronised: what the pool holds beyond the release threshold goes back."""
        if not self.block.freed:  # by a reset of the device
            self.trim_to(self.values[MemPoolAttr.RELEASE_THRESHOLD])

    def destroy(self, *, site: str = "") -> None:
        """Give everything back, whoever still uses it. Raises 107017 a second time."""
        self._check_alive()
        self.memory.on_synchronise.remove(self.synchronized)
        self.memory.free(self.block.address, site=site)

    def _trim(self, keep: int) -> None:
        cached = [item for item in self.segments if item.state is State.CACHED and item.mark and item.mark.passed]
        for segment in sorted(cached, key=lambda item: (item.size, item.address)):
            over = (self.values[MemPoolAttr.RESERVED_MEM_CURRENT] - keep) // HUGE_PAGE * HUGE_PAGE
            if over <= 0:
                return
            part = self.segments.cut(segment, over)
            self.memory.shrink(self.block, part.size)
            self._count(MemPoolAttr.RESERVED_MEM_CURRENT, MemPoolAttr.RESERVED_MEM_HIGH, -part.size)
            self.segments.release(part)

    def _reuse(self, size: int, stream: StreamLike) -> tuple[Segment, list[Segment]] | None:
        """A block out of what was freed, and the parts that it is made of."""
        for accepts in self._rules(stream):
            first = self.segments.best_fit(size, _cached(accepts))
            if first is not None:
                return self.segments.take(first, size)
        return None

    def _rules(self, stream: StreamLike) -> list[Callable[[Mark], bool]]:
        """Whose memory may be reused, from the rule that is tried first to the one that costs a wait."""
        follow, chance, internal = (self.values[attr] for attr in FLAGS)

        def mine(point: Mark) -> bool:
            return point.actor_id == stream.actor.actor_id

        def ordered(point: Mark) -> bool:
            return mine(point) or bool(follow and point.precedes(stream))

        rules = [mine, ordered] if follow else [mine]
        rules += [lambda point: ordered(point) or point.passed] if chance else []
        return rules + ([lambda point: True] if internal else [])

    def _grow(self, size: int) -> tuple[Segment, list[Segment]] | None:
        first = self.segments.best_fit(size, lambda item: item.state is State.FREE)
        if first is None or not self.memory.grow(self.block, size):
            return None
        self._count(MemPoolAttr.RESERVED_MEM_CURRENT, MemPoolAttr.RESERVED_MEM_HIGH, size)
        return self.segments.take(first, size)

    def _count(self, current: MemPoolAttr, high: MemPoolAttr, size: int) -> None:
        self.values[current] += size
        self.values[high] = max(self.values[high], self.values[current])

    def _attr(self, attr: int) -> MemPoolAttr:
        self._check_alive()
        try:
            return MemPoolAttr(attr)
        except ValueError:
            raise AclError(107000, f"{attr} is no attribute of a pool", remedy="use a member of MemPoolAttr") from None

    def _check_alive(self) -> None:
        if self.block.freed:
            raise AclError(107017, f"the pool was destroyed: {self.block}", remedy="make a new one")

    def _out_of_memory(self, size: int, needed: int, stream: StreamLike) -> OutOfMemoryError:
        used, reserved = self.values[MemPoolAttr.USED_MEM_CURRENT], self.values[MemPoolAttr.RESERVED_MEM_CURRENT]
        largest = max((item.size for item in self.segments if item.state is State.FREE), default=0)
        foreign = sum(
            item.size
            for item in self.segments
            if item.mark and item.state is State.CACHED and item.mark.actor_id != stream.actor.actor_id
        )
        rows = [
            f"a pool of {self.memory.table.name} is out of memory: {text_of(size)} asked",
            f"  requested          {text_of(size)}, rounded to {needed} B",
            f"  capacity           {text_of(self.max_size)} of the pool, {text_of(self.memory.free_bytes)} free on the device",
            f"  used               {text_of(used)}",
            f"  reserved           {text_of(reserved)}; {text_of(foreign)} of it were freed on other streams",
            f"  largest free block {text_of(min(largest, self.memory.pages.largest_bytes))}",
        ]
        waiting = "allow reuse between streams (REUSE_ALLOW_INTERNAL_DEPENDENCIES), or synchronise and trim_to(0)"
        return OutOfMemoryError(207001, "\n".join(rows), remedy=waiting if foreign else "free memory, or ask for less")


def _cached(accepts: Callable[[Mark], bool]) -> Callable[[Segment], bool]:
    return lambda item: item.state is State.CACHED and item.mark is not None and accepts(item.mark)


def _wait_for(stream: StreamLike, parts: list[Segment]) -> None:
    """Let ``stream`` wait for the frees of ``parts``: one wait for the latest of each other stream."""
    latest: dict[int, Mark] = {}
    for point in (part.mark for part in parts):
        if point is not None and not point.precedes(stream):
            known = latest.get(point.actor_id)
            latest[point.actor_id] = point if known is None or known.number < point.number else known
    for point in latest.values():
        if point.task is not None and not point.task.done:
            stream.submit(Task(name="wait for memory of the pool", kind="wait", after=point.task))
        stream.actor.follow({point.actor_id: point.number})
