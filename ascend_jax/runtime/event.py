"""Events: marks in a stream that others wait for, and that tell how long something took."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ascend_jax.runtime.engine.task import Signal, Task
from ascend_jax.runtime.errors import AclError
from ascend_jax.runtime.hazards import Actor, Clock
from ascend_jax.runtime.recording import recorded_calls

if TYPE_CHECKING:
    from ascend_jax.runtime.context import Context
    from ascend_jax.runtime.stream import Stream


@recorded_calls
class Event:
    """A mark. Make one with ``Context.create_event``.

    Recording it again moves it; who waits is bound to the record of the moment of the call. A wait for an event that was never
    recorded passes at once; for one of the older kind (``classic``), which occupies a hardware event, it waits for the next
    record, and so for ever if there is none.

    Attributes:
      timing: whether ``elapsed_time`` may use it.
      classic: the older kind, of ``aclrtCreateEvent``: counts against the device's events until it is destroyed.
    """

    def __init__(self, context: Context, event_id: int, *, timing: bool = True, classic: bool = False, site: str = "") -> None:
        self.context, self.event_id, self.timing, self.classic, self.site = context, event_id, timing, classic, site
        self.record_task: Task | None = None
        self.stamp: Clock = {}
        self.followers: list[Actor] = []
        self._promise: Signal | None = None
        self.destroyed = False

    def record(self, stream: Stream) -> Task:
        """Mark what has been submitted to ``stream`` so far."""
        with stream.system.lock:
            self.check(stream)
            task = stream.submit(Task(name=f"record {self}", kind="record"))
            self.record_task, self.stamp = task, stream.actor.stamp()
            for follower in self.followers:
                follower.follow(self.stamp)
            self.followers.clear()
            promise, self._promise = self._promise, None
            if promise is not None:
                promise.source = task
                task.waiters.append(promise)
        return task

    def bind(self) -> tuple[Signal | None, Clock]:
        """What a wait that is submitted now waits for, and what comes before its end; None: nothing."""
        if self.record_task is not None:
            return self.record_task, self.stamp
        if not self.classic:
            return None, {}
        self._promise = self._promise or Signal()
        return self._promise, {}

    def reset(self, stream: Stream) -> Task:
        """Forget the record, in the stream's order: a later wait of a classic event waits for the next record."""
        with stream.system.lock:
            self.check(stream)
            bound = self.record_task

            def forget() -> None:
                if self.record_task is bound:
                    self.record_task, self.stamp = None, {}

            return stream.submit(Task(name=f"reset {self}", kind="record", run=forget))

    def query(self) -> bool:
        """Whether the record has happened by the host's time; True also for an event that was never recorded."""
        system = self.context.system
        with system.lock:
            self._is_alive()
            system.scheduler.advance(system.thread().now_s)
            if self.record_task is not None and not self.record_task.done:
                return False
            system.thread().actor.follow(self.stamp)
        return True

    def synchronize(self, timeout_ms: int = -1) -> None:
        """The host waits until the record has happened, from any thread. Raises 507047 after the timeout."""
        system = self.context.system
        with system.lock:
            self._is_alive()
            if self.record_task is not None:
                system.wait_for(self.record_task, str(self), timeout_ms, 507047)
                system.thread().actor.follow(self.stamp)

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds from this record to that of ``end``. Raises 107006 without both, 107007 when ``end`` came first."""
        start_s, end_s = self.timestamp_s(), end.timestamp_s()
        if end_s < start_s:
            what = f"{end} was recorded {(start_s - end_s) * 1e3} ms before {self}"
            raise AclError(107007, what, remedy="swap start and end")
        return (end_s - start_s) * 1e3

    def timestamp_s(self) -> float:
        """Virtual time of the record. Raises 107006 where it has none (yet)."""
        self._is_alive()
        if not self.timing:
            raise AclError(107006, f"{self} was made without timing", remedy="create_event(timing=True)")
        if self.record_task is None:
            raise AclError(107006, f"{self} was never recorded", remedy="record it on a stream first")
        if not self.record_task.done or self.record_task.end_s is None:
            raise AclError(107006, f"{self} is recorded but not reached yet", remedy="synchronize it first")
        return self.record_task.end_s

    def check(self, stream: Stream) -> None:
        """Whether ``stream`` may record it or wait for it: both must be of one device."""
        self._is_alive()
        if stream.device is not self.context.device:
            what = f"{self} is of device {self.context.device.device_id}, {stream} of another"
            raise AclError(107003, what, remedy="make the event in the stream's context; use collectives between devices")

    def _is_alive(self) -> None:
        if self.destroyed:
            raise AclError(107017, f"{self} was destroyed", remedy="make a new one with create_event()")

    def __str__(self) -> str:
        return f"event {self.event_id}" + (f" made at {self.site}" if self.site else "")
