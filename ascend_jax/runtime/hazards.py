"""Mistakes that hardware leaves undefined: two accesses of the same bytes, one of them a write, that nothing puts in order.

Order is what the program asked for, not what happened to come first: tasks of one stream follow each other, a wait follows the
record that it is bound to, what the host submits follows all that it has waited for, and a host that has synchronised follows
what it synchronised with. Each stream and each host thread keeps a vector clock of the others (Lamport's happened-before, as
race detectors of CPUs do it).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from ascend_jax.runtime.engine.task import Span, Task

Clock = dict[int, int]


class Access(NamedTuple):
    """One access: who (stream or host thread) and its number there, the bytes, whether it writes, and what to call it."""

    actor: int
    number: int
    start: int
    stop: int
    writes: bool
    what: str


@dataclass(frozen=True)
class Hazard:
    """Two accesses that nothing orders. ``kind``: write after read and so on, or free while in use."""

    kind: str
    device_id: int
    first: str
    second: str
    bytes: int

    def __str__(self) -> str:
        return (
            f"{self.kind} on device {self.device_id}, {self.bytes} B: {self.first}, and {self.second}, in no order. "
            "Record an event after the one and let the other's stream wait for it, or synchronise in between."
        )


@dataclass
class Actor:
    """A stream or a host thread: its own number so far, and the last numbers of others that come before what it does next."""

    actor_id: int
    number: int = 0
    clock: Clock = field(default_factory=dict)

    def stamp(self) -> Clock:
        """All that comes before what another does after it."""
        return {**self.clock, self.actor_id: self.number}

    def follow(self, stamp: Clock) -> None:
        """What it does from now on comes after ``stamp``."""
        for actor, number in stamp.items():
            if actor != self.actor_id and self.clock.get(actor, 0) < number:
                self.clock[actor] = number


class HazardChecker:
    """The accesses of every allocation that something may still race with; not ``enabled``, it counts and looks at nothing."""

    enabled = True

    def __init__(self, report: Callable[[Hazard], None], base_of: Callable[[int], int]) -> None:
        self.report, self.base_of = report, base_of
        self.accesses: dict[int, list[Access]] = {}

    def task(self, actor: Actor, task: Task) -> None:
        """The accesses of a task of stream ``actor``, which it has followed so far."""
        actor.number += 1
        for spans, writes in ((task.reads, False), (task.writes, True)):
            self._touch(actor, task.device_id, spans, writes, str(task))

    def host(self, actor: Actor, device_id: int, spans: Iterable[Span], *, writes: bool, what: str) -> None:
        """An access of a host thread, such as a synchronous copy."""
        actor.number += 1
        self._touch(actor, device_id, spans, writes, what)

    def free(self, actor: Actor, device_id: int, span: Span, what: str) -> None:
        """The host frees an allocation: everything that uses it must have come before."""
        actor.number += 1
        self._touch(actor, device_id, (span,), True, what)
        self.accesses.pop(self.base_of(span[0]), None)

    def _touch(self, actor: Actor, device_id: int, spans: Iterable[Span], writes: bool, what: str) -> None:
        for address, length in spans if self.enabled else ():
            mine = Access(actor.actor_id, actor.number, address, address + length, writes, what)
            key = self.base_of(address)
            others = self.accesses.get(key, [])
            self.accesses[key] = [other for other in others if not self._settled(actor, mine, other, device_id)]
            self.accesses[key].append(mine)

    def _settled(self, actor: Actor, mine: Access, other: Access, device_id: int) -> bool:
        """Whether ``other`` can be forgotten: whatever races with it later races with ``mine`` too. Reports a race."""
        before = other.actor == mine.actor or actor.clock.get(other.actor, 0) >= other.number
        overlap = min(mine.stop, other.stop) - max(mine.start, other.start)
        if not before:
            if overlap > 0 and (mine.writes or other.writes):
                self.report(Hazard(_kind(other, mine), device_id, other.what, mine.what, overlap))
            return False
        covered = mine.start <= other.start and other.stop <= mine.stop
        return covered and (mine.writes or not other.writes)


def _kind(first: Access, second: Access) -> str:
    if second.what.startswith("free"):
        return "memory freed while in use"
    return f"{'write' if second.writes else 'read'} after {'write' if first.writes else 'read'}"
