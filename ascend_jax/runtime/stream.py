"""Streams: tasks in order, and what the host asks of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ascend_jax.runtime.engine.task import Task
from ascend_jax.runtime.errors import AclError
from ascend_jax.runtime.failures import failure
from ascend_jax.runtime.hazards import Actor
from ascend_jax.runtime.recording import recorded_calls

if TYPE_CHECKING:
    from ascend_jax.runtime.context import Context
    from ascend_jax.runtime.event import Event

DEPTH, PERSISTENT_DEPTH = 2013, 60_000
"""Tasks that a stream holds, from hicann/runtime's dev_info_reg.cc; more of them let the host wait."""


@recorded_calls
class Stream:
    """A first-in first-out queue of tasks of one context. Make one with ``Context.create_stream``.

    Attributes:
      priority: smaller goes first where tasks compete for cores; the default is the highest, 0.
      stop_on_failure: a failing task stops the whole context; otherwise later tasks run (``ACL_CONTINUE_ON_FAILURE``).
    """

    def __init__(
        self, context: Context, stream_id: int, *, priority: int = 0, persistent: bool = False, site: str = ""
    ) -> None:
        self.context, self.stream_id, self.priority, self.site = context, stream_id, priority, site
        self.system, self.device = context.system, context.device
        self.depth = PERSISTENT_DEPTH if persistent else DEPTH
        self.queue = self.system.scheduler.queue(self.device.device_id, stream_id, priority)
        self.actor = Actor(stream_id)
        self.tail: Task | None = None
        self.stop_on_failure = self.destroyed = False
        self.failures: list[Task] = []
        self.system.register(self)

    def submit(self, task: Task) -> Task:
        """Append ``task`` and return it; the host goes on. It waits first where the stream is full.

        Raises:
          AclError: 107017 a destroyed stream, 107003 one of another context, 107022 a context that a failure has stopped.
        """
        with self.system.lock:
            self.check()
            thread = self.system.thread()
            task.site = task.site or self.system.site()
            thread.now_s += self.system.host_submit_s
            self.system.wait_until(lambda: len(self.queue.tasks) < self.depth, f"room in full stream {self.stream_id}")
            self.actor.follow(thread.actor.stamp())
            self.system.scheduler.submit(self.queue, task, thread.now_s)
            self.system.hazards.task(self.actor, task)
            self.tail = task
            self.system.lock.notify_all()
        return task

    def check(self) -> None:
        """Whether this thread may use the stream."""
        if self.destroyed:
            raise AclError(107017, f"stream {self.stream_id} was destroyed", remedy="make a new one with create_stream()")
        current = self.system.current_context()
        if current is not self.context:
            what = f"stream {self.stream_id} is of context {self.context.context_id}, and this thread's is {current.context_id}"
            raise AclError(107003, what, remedy="set_context(stream.context) first, or use a stream of this context")
        self.context.check()

    def wait_event(self, event: Event, timeout_s: float = 0.0) -> Task:
        """Later tasks of the stream start only when what ``event`` has last recorded is done (bound now).

        A timeout of 0 is the system's ``op_wait_timeout_s``; 0 there is for ever. A wait that runs out fails with 107019.
        """
        with self.system.lock:
            event.check(self)
            after, stamp = event.bind()
            limit = timeout_s or self.system.op_wait_timeout_s
            task = Task(name=f"wait for {event}", kind="wait", after=after, timeout_s=limit)
            self.submit(task)
            self.actor.follow(stamp)
            if after is not None and not after.done and not stamp:
                event.followers.append(self.actor)
        return task

    def query(self) -> bool:
        """Whether everything submitted so far has ended by the host's time; raises what has failed."""
        with self.system.lock:
            self.check()
            self.system.scheduler.advance(self.system.thread().now_s)
            if self.tail is not None and not self.tail.done:
                return False
            self._is_drained()
        return True

    def synchronize(self, timeout_ms: int = -1) -> None:
        """The host waits until everything submitted so far has ended; -1: for ever.

        Raises:
          AclError: what a task has failed with since the last time, with the place that submitted it; 507046 when the timeout
            runs out or when tasks wait for each other; 107023 when the stream is aborted.
        """
        with self.system.lock:
            self.check()
            if self.tail is not None:
                self.system.wait_for(self.tail, f"stream {self.stream_id}", timeout_ms, 507046)
            for follow_up in self.device.memory.on_synchronise:
                follow_up()
            self._is_drained()

    def _is_drained(self) -> None:
        self.system.thread().actor.follow(self.actor.stamp())
        failures, self.failures = self.failures, []
        if failures:
            raise failure(failures)

    def launch_host_func(self, function: Callable[..., object], *arguments: object) -> Task:
        """Call ``function(*arguments)`` on the host when the stream comes to it. It must not call the runtime."""

        def run() -> None:
            with self.system.in_callback():
                function(*arguments)

        return self.submit(Task(name=getattr(function, "__name__", "host function"), kind="host", run=run))

    def abort(self) -> int:
        """Drop every task that has not started; who waits for the stream gets 107023. Returns how many were dropped."""
        with self.system.lock:
            self.check()
            self.system.scheduler.advance(self.system.thread().now_s)
            count = sum(task.start_s is None for task in self.queue.tasks)
            self.system.scheduler.drop(self.queue, lambda task: AclError(107023, f"{task} was dropped: its stream was aborted"))
            self.tail = self.queue.tasks[-1] if self.queue.tasks else self.tail
            self.system.lock.notify_all()
        return count

    def __repr__(self) -> str:
        return f"Stream({self.stream_id}, context {self.context.context_id}, device {self.device.device_id})"
