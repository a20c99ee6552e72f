"""``Task``: one entry of a stream, from its submission to its end, and the signals that tasks wait for."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

Kind = Literal["kernel", "copy", "memset", "record", "wait", "host", "collective"]
Core = Literal["cube", "vector", "mix", "none"]
Span = tuple[int, int]
"""Address and bytes."""


class Waiter(Protocol):
    """What a signal wakes."""

    def wake(self) -> None:
        """Called once, when the signal is done."""
        ...


class Signal:
    """Something that happens once, and wakes those who wait for it. ``source``: the task whose end it is, if that is known."""

    def __init__(self) -> None:
        self.done = False
        self.source: Task | None = None
        self.waiters: list[Waiter] = []

    def wake(self) -> None:
        """It happened."""
        self.done = True
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            waiter.wake()


@dataclass(eq=False, kw_only=True)
class Task(Signal):
    """One entry of a stream. Times are virtual seconds; a task is ``done`` once virtual time has passed its end.

    Attributes:
      duration_s: from start to end.
      block_dim, core: cores that a kernel occupies: ``block_dim`` cube cores, vector cores, or both (``mix``: with the vector
        cores of each cube core). It starts when all of them are free.
      engine: the copy engine that a copy occupies (``h2d``, ``d2h``, ``d2d``); copies of one engine follow each other.
      run: does the numerics, when the task ends. What it raises becomes ``error``.
      reads, writes: what it touches, for the hazard checker.
      site: file and line of the caller.
      info: what the profiler shows beside: shapes, dtypes, bytes.
      after: what it waits for before it starts; ``timeout_s`` after which that fails.
      rendezvous: it starts when the others of its party are ready, and ends with them.
      ready_s: head of its stream, submitted, and nothing to wait for any more.
    """

    name: str
    kind: Kind
    op_type: str = ""
    duration_s: float = 0.0
    block_dim: int = 0
    core: Core = "none"
    engine: str = ""
    run: Callable[[], object] | None = None
    reads: tuple[Span, ...] = ()
    writes: tuple[Span, ...] = ()
    site: str = ""
    info: dict[str, Any] = field(default_factory=dict)
    after: Signal | None = None
    timeout_s: float = 0.0
    rendezvous: "Rendezvous | None" = None

    task_id: int = -1
    stream_id: int = -1
    device_id: int = -1
    submit_s: float = 0.0
    ready_s: float | None = None
    start_s: float | None = None
    end_s: float | None = None
    error: BaseException | None = None
    dropped: bool = False
    queue: Any = None

    def __post_init__(self) -> None:
        Signal.__init__(self)

    def wake(self) -> None:
        """What it waited for happened. (Its own end is :meth:`Signal.wake`, which the scheduler calls.)"""
        self.queue.scheduler.offer(self)

    def __str__(self) -> str:
        where = f" submitted at {self.site}" if self.site else ""
        return f"task {self.task_id} {self.name!r} ({self.kind}) of stream {self.stream_id} on device {self.device_id}{where}"


class Rendezvous:
    """A party of tasks that start together and end together: as many as ``parties``, on any streams."""

    def __init__(self, parties: int, name: str = "") -> None:
        self.parties, self.name = parties, name
        self.tasks: list[Task] = []

    def timeout(self) -> Exception | None:
        """What those get who wait for ever for the rest of the party; None: the explanation of a deadlock."""
        return None
