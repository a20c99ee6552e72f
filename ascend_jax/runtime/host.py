"""The host's side: threads, each with a context and a virtual time of its own, and what they wait for."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ascend_jax.runtime.deadlock import deadlock
from ascend_jax.runtime.engine.scheduler import Scheduler
from ascend_jax.runtime.engine.task import Task
from ascend_jax.runtime.errors import AclError
from ascend_jax.runtime.hazards import Actor

if TYPE_CHECKING:
    from ascend_jax.runtime.context import Context

PACKAGE = str(Path(__file__).parents[1]) + os.sep


@dataclass(eq=False)
class Thread:
    """What the runtime knows of one host thread: its context, its virtual time, and what it has waited for."""

    thread: threading.Thread
    actor: Actor
    now_s: float = 0.0
    context: Context | None = None
    callback: bool = False


@dataclass(kw_only=True)
class Options:
    """How a system behaves.

    Attributes:
      host_submit_s: host time of one submission.
      launch_blocking: every call waits for its task, so that errors surface where they are made (``ASCEND_LAUNCH_BLOCKING``).
      timing_only: no numerics; time, order and checks only.
      hazards: what a race does: ``warn`` collects it in ``System.hazard_reports``, ``raise`` raises it, ``off`` looks for none.
      deadlock_patience_s: real seconds that a thread which nothing can wake waits for what other threads may still submit.
      choose_tiling: ``(spec, work) -> Tiling`` for attention; None: the rule of :mod:`ascend_jax.proposal`.
    """

    host_submit_s: float = 2e-6
    launch_blocking: bool = False
    timing_only: bool = False
    hazards: str = "warn"
    deadlock_patience_s: float = 1.0
    choose_tiling: Callable[..., Any] | None = None


class Host:
    """Host threads over one virtual time. One lock guards everything; who waits inside of it lets virtual time pass."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.lock = threading.Condition(threading.RLock())
        self.scheduler = Scheduler()
        self._ids = count()
        self._threads: dict[int, Thread] = {}
        self._blocked = 0

    def check_running(self) -> None:
        """Raises 100001 where nothing can be called (yet, or any more)."""

    def thread(self) -> Thread:
        """This thread. Raises 107000 inside a host function, which must not call the runtime."""
        self.check_running()
        ident = threading.get_ident()
        thread = self._threads.get(ident)
        if thread is None or not thread.thread.is_alive():
            thread = self._threads[ident] = Thread(threading.current_thread(), Actor(-1 - self.new_id()))
        if thread.callback:
            raise AclError(
                107000, "a host function has called the runtime", remedy="submit from outside: on hardware it waits for ever"
            )
        return thread

    @property
    def host_now_s(self) -> float:
        """This thread's virtual time."""
        return self.thread().now_s

    @property
    def host_submit_s(self) -> float:
        """Host time of one submission."""
        return self.options.host_submit_s

    def new_id(self) -> int:
        """A number for a stream, an event, a context or a thread."""
        return next(self._ids)

    @staticmethod
    def site() -> str:
        """File and line of the nearest caller outside of this package."""
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
            frame = frame.f_back
        return f"{frame.f_code.co_filename}:{frame.f_lineno}"

    @contextmanager
    def in_callback(self) -> Iterator[None]:
        """While a host function runs."""
        thread = self._threads[threading.get_ident()]
        thread.callback = True
        try:
            yield
        finally:
            thread.callback = False

    def wait_for(self, task: Task, what: str, timeout_ms: int, code: int) -> None:
        """Let time pass until ``task`` ends; the host's time follows. Raises ``code`` after the timeout or in a deadlock."""
        thread = self.thread()
        until_s = thread.now_s + timeout_ms * 1e-3 if timeout_ms >= 0 else float("inf")
        self._pass_time(lambda: task.done, what, until_s, code)
        if not task.done or (task.end_s or 0.0) > until_s:
            self.scheduler.advance(until_s)
            thread.now_s = until_s
            raise AclError(code, f"{what} was not done after {timeout_ms} ms: {task} has not ended")
        self.scheduler.advance(self.scheduler.now)  # the rest of what happens at the same time
        thread.now_s = max(thread.now_s, task.end_s or 0.0)

    def wait_until(self, done: Callable[[], bool], what: str) -> None:
        """Let time pass until ``done``; the host's time follows."""
        if not done():
            self._pass_time(done, what, float("inf"), 507046)
            self.thread().now_s = max(self.thread().now_s, self.scheduler.now)

    def _pass_time(self, done: Callable[[], bool], what: str, until_s: float, code: int) -> None:
        give_up = None
        while not done():
            if (next_s := self.scheduler.next_s) is not None and next_s <= until_s:
                self.scheduler.step()
                give_up = None
                continue
            if until_s != float("inf"):
                return
            give_up = give_up or time.monotonic() + self.options.deadlock_patience_s
            if not self._others_may_act() or time.monotonic() > give_up:
                raise deadlock(self.scheduler, what, code)
            self._blocked += 1
            try:
                self.lock.wait(0.02)
            finally:
                self._blocked -= 1

    def _others_may_act(self) -> bool:
        """Whether some other thread of the process lives that is not waiting here as well."""
        return threading.active_count() - 1 > self._blocked
