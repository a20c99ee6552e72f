"""``System``: a machine with simulated devices, the threads that program it, and the one virtual time of all of them."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from ascend_jax.hardware.catalog import load_chip
from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.runtime.context import Context
from ascend_jax.runtime.deadlock import explain
from ascend_jax.runtime.device import Device
from ascend_jax.runtime.engine.scheduler import Scheduler
from ascend_jax.runtime.engine.task import Task
from ascend_jax.runtime.errors import AclError
from ascend_jax.runtime.hazards import Actor, Hazard, HazardChecker
from ascend_jax.runtime.memory_calls import MemoryCalls
from ascend_jax.runtime.stream import Stream

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


@dataclass
class System:
    """A machine. Use it in a ``with`` statement, or call ``init`` and ``finalize``.

    Args:
      chips: names of the catalogue, or specs; one device each.
      visible: text of ``ASCEND_RT_VISIBLE_DEVICES`` ("2,0"); None: all.

    >>> with System(["910b3"], options=Options(host_submit_s=0.0)) as system:
    ...     context = system.set_device(0)
    ...     start, end, stream = context.create_event(), context.create_event(), context.create_stream()
    ...     _ = start.record(stream), stream.submit(Task(name="sleep", kind="kernel", duration_s=1e-3)), end.record(stream)
    ...     end.synchronize()
    ...     round(start.elapsed_time(end), 3)
    1.0
    """

    chips: Sequence[str | NpuSpec] = ("910b3",)
    visible: str | None = None
    options: Options = field(default_factory=Options)

    def __post_init__(self) -> None:
        self.lock = threading.Condition(threading.RLock())
        self.scheduler = Scheduler()
        self.listeners = self.scheduler.listeners
        self.listeners.append(self._note_failure)
        self.hazard_reports: list[Hazard] = []
        self.hazards = HazardChecker(self._report_hazard, self._base)
        self.hazards.enabled = self.options.hazards != "off"
        self.op_wait_timeout_s = 0.0
        self.initialised = self.finalised = False
        self.devices: list[Device] = []
        self.memory: MemoryCalls
        self._ids = count()
        self._threads: dict[int, Thread] = {}
        self._blocked = 0
        self._streams: dict[int, Stream] = {}

    # Beginning and end

    def init(self) -> None:
        """Once. Raises 100002 a second time; what the first call set up stays."""
        with self.lock:
            if self.initialised:
                raise AclError(100002, "the system is initialised already")
            chips = [chip if isinstance(chip, NpuSpec) else load_chip(chip) for chip in self.chips]
            self.devices = [Device(number, chips[place]) for number, place in enumerate(_visible(self.visible, len(chips)))]
            self.scheduler.cores = {device.device_id: device.cores for device in self.devices}
            for device in self.devices:
                device.host_queue = self.scheduler.queue(device.device_id, self.new_id(), priority=0)
            self.memory = MemoryCalls(self)
            self.initialised = True

    def finalize(self) -> None:
        """Wait for all work and release all devices. Raises 100037 a second time, 100001 before ``init``."""
        with self.lock:
            if self.finalised:
                raise AclError(100037, "the system is finalised already")
            self._check()
            while self.scheduler.step():
                pass
            for device in self.devices:
                for context in device.contexts:
                    context.destroyed = True
                device.contexts.clear()
            self.finalised = True

    def __enter__(self) -> System:
        self.init()
        return self

    def __exit__(self, *_: object) -> None:
        if not self.finalised:
            self.finalize()

    def _check(self) -> None:
        if not self.initialised:
            raise AclError(100001, "the system is not initialised")
        if self.finalised:
            raise AclError(100001, "the system is finalised", remedy="make a new System")

    # Devices and contexts

    def device_count(self) -> int:
        """Devices that are visible."""
        self._check()
        return len(self.devices)

    def device(self, device_id: int) -> Device:
        """A device by number. Raises 107001 for one that is not there."""
        self._check()
        if not 0 <= device_id < len(self.devices):
            what = f"device {device_id} of {len(self.devices)}"
            raise AclError(107001, what, remedy=f"0 to {len(self.devices) - 1}; see ASCEND_RT_VISIBLE_DEVICES")
        return self.devices[device_id]

    def set_device(self, device_id: int) -> Context:
        """Bind this thread to the device's primary context, which the first call makes, and count one user more."""
        with self.lock:
            device = self.device(device_id)
            device.references += 1
            if device.primary is None:
                device.primary = self._new_context(device, primary=True)
            self.thread().context = device.primary
            return device.primary

    def reset_device(self, device_id: int, *, force: bool = False) -> None:
        """One user less; at none (or with ``force``) wait for its tasks, release the primary context and all memory.

        Raises:
          AclError: 107000 where nobody has set the device; 148051 where explicit contexts are still there.
        """
        with self.lock:
            device = self.device(device_id)
            if not device.references:
                raise AclError(107000, f"device {device_id} was not set", remedy="call reset_device once for each set_device")
            device.references = 0 if force else device.references - 1
            if device.references:
                return
            explicit = [context.context_id for context in device.contexts if not context.primary]
            if explicit:
                device.references = 1
                what = f"device {device_id} still has contexts {explicit}"
                raise AclError(148051, what, remedy="destroy_context() them first")
            assert device.primary is not None
            self._release(device.primary)
            device.primary = None
            device.memory.release_all()

    def get_device(self) -> int:
        """The device of this thread's context. Raises 107002 without one."""
        return self.current_context().device.device_id

    def create_context(self, device_id: int) -> Context:
        """A new context with a default stream of its own, which becomes this thread's."""
        with self.lock:
            context = self._new_context(self.device(device_id), primary=False)
            self.thread().context = context
            return context

    def set_context(self, context: Context) -> None:
        """Make ``context`` this thread's, and its device with it."""
        with self.lock:
            context.check_alive()
            self.thread().context = context

    def current_context(self) -> Context:
        """This thread's context. Raises 107002 without one, naming the thread."""
        thread = self.thread()
        if thread.context is None:
            what = f"thread {thread.thread.name!r} has no current context"
            raise AclError(107002, what, remedy="call set_device() or set_context() in this thread: each thread has its own")
        return thread.context

    def current_stream(self) -> Stream:
        """The default stream of this thread's context."""
        return self.current_context().default_stream

    def destroy_context(self, context: Context) -> None:
        """Wait for its streams and destroy it. Raises 107000 for a primary one."""
        with self.lock:
            context.check_alive()
            if context.primary:
                what = f"context {context.context_id} is the primary one of device {context.device.device_id}"
                raise AclError(107000, what, remedy="reset_device() releases it")
            self._release(context)
            context.device.contexts.remove(context)

    def _new_context(self, device: Device, *, primary: bool) -> Context:
        context = Context(self, device, self.new_id(), primary=primary, site=self.site())
        device.contexts.append(context)
        return context

    def _release(self, context: Context) -> None:
        """End a context: its tasks end first, and threads that are in it have none any more."""
        for stream in context.streams.values():
            if stream.tail is not None:
                self.wait_for(stream.tail, f"stream {stream.stream_id}", -1, 507046)
            stream.destroyed = True
        context.destroyed = True
        if context.primary:
            context.device.contexts.remove(context)
        for thread in self._threads.values():
            if thread.context is context:
                thread.context = None

    # Threads and time

    def thread(self) -> Thread:
        """This thread. Raises 107000 inside a host function, which must not call the runtime."""
        self._check()
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
                raise AclError(
                    code,
                    f"deadlock: {what} will never be done\n{explain(self.scheduler)}",
                    cause="tasks wait for what nobody is going to do",
                    remedy="record the events, or join the collectives, named above",
                )
            self._blocked += 1
            try:
                self.lock.wait(0.02)
            finally:
                self._blocked -= 1

    def _others_may_act(self) -> bool:
        """Whether some other thread that has used the system is neither dead nor waiting as well."""
        return sum(thread.thread.is_alive() for thread in self._threads.values()) - 1 > self._blocked

    # Failures

    def register(self, stream: Stream) -> None:
        """Know the stream by its number."""
        self._streams[stream.stream_id] = stream

    def _note_failure(self, task: Task) -> None:
        if task.error is not None and (stream := self._streams.get(task.stream_id)) is not None:
            stream.failures.append(task)
            if stream.stop_on_failure and not task.dropped:
                stream.context.failure = f"{task} failed: {task.error}"

    def failure(self, tasks: list[Task]) -> AclError:
        """The exception for tasks that have failed: the first one's, with the place that submitted it."""
        task, error = tasks[0], tasks[0].error
        code = (
            {"wait": 107019}.get(task.kind, 507014) if isinstance(error, TimeoutError) else getattr(error, "code", _fault(task))
        )
        more = f" (and {len(tasks) - 1} more)" if len(tasks) > 1 else ""
        raised = AclError(code, f"{task} failed{more}: {type(error).__name__}: {error}")
        raised.__cause__ = error
        return raised

    def _base(self, address: int) -> int:
        return self.memory.base(address)

    def _report_hazard(self, hazard: Hazard) -> None:
        self.hazard_reports.append(hazard)
        if self.options.hazards == "raise":
            raise AclError(507015, str(hazard))


def _fault(task: Task) -> int:
    """The code of a kernel that went wrong: on vector cores, elsewhere on cores, or not on cores at all."""
    return 507035 if task.core == "vector" else 507015 if task.kind == "kernel" else 500000


def _visible(text: str | None, total: int) -> list[int]:
    """The chips that ``ASCEND_RT_VISIBLE_DEVICES`` leaves, in its order."""
    if text is None:
        return list(range(total))
    places = [part.strip() for part in text.split(",") if part.strip()]
    for place in places:
        if not place.isdecimal() or int(place) >= total or places.count(place) > 1:
            raise AclError(
                107001, f"ASCEND_RT_VISIBLE_DEVICES={text!r} names {place!r}", remedy=f"different numbers below {total}"
            )
    return [int(place) for place in places]
