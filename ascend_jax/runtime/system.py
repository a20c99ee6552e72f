"""``System``: a machine with simulated devices, the threads that program it, and the one virtual time of all of them."""

from __future__ import annotations

from collections.abc import Sequence

from ascend_jax.hardware.catalog import load_chip
from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.runtime.context import Context
from ascend_jax.runtime.deadlock import waits_in_vain
from ascend_jax.runtime.device import Device
from ascend_jax.runtime.engine.task import Task
from ascend_jax.runtime.errors import AclError
from ascend_jax.runtime.hazards import Hazard, HazardChecker
from ascend_jax.runtime.host import Host, Options
from ascend_jax.runtime.memory_calls import MemoryCalls
from ascend_jax.runtime.recording import recorded_calls
from ascend_jax.runtime.stream import Stream


@recorded_calls
class System(Host):
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

    def __init__(
        self, chips: Sequence[str | NpuSpec] = ("910b3",), *, visible: str | None = None, options: Options | None = None
    ) -> None:
        super().__init__(options or Options())
        self.chips, self.visible = chips, visible
        self.listeners = self.scheduler.listeners
        self.listeners.append(self._note_failure)
        self.hazard_reports: list[Hazard] = []
        self.hazards = HazardChecker(self._report_hazard, self._base)
        self.hazards.enabled = self.options.hazards != "off"
        self.op_wait_timeout_s = 0.0
        self.initialised = self.finalised = False
        self.devices: list[Device] = []
        self.memory: MemoryCalls
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
        """Wait for all work and release all devices.

        Raises:
          AclError: 100037 a second time, 100001 before ``init``; for a collective that some rank never joined, its own error,
            once all is released.
        """
        with self.lock:
            if self.finalised:
                raise AclError(100037, "the system is finalised already")
            self.check_running()
            while self.scheduler.step():
                pass
            for device in self.devices:
                for context in device.contexts:
                    context.destroyed = True
                device.contexts.clear()
            self.finalised = True
            if (error := waits_in_vain(self.scheduler)) is not None:
                raise error

    def __enter__(self) -> System:
        self.init()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.finalised:
            return
        try:
            self.finalize()
        except AclError:
            if kind is None:  # the program's own error says more
                raise

    def check_running(self) -> None:
        """Raises 100001 before ``init`` and after ``finalize``."""
        if not self.initialised:
            raise AclError(100001, "the system is not initialised")
        if self.finalised:
            raise AclError(100001, "the system is finalised", remedy="make a new System")

    # Devices and contexts

    def device_count(self) -> int:
        """Devices that are visible."""
        self.check_running()
        return len(self.devices)

    def device(self, device_id: int) -> Device:
        """A device by number. Raises 107001 for one that is not there."""
        self.check_running()
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

    # Failures

    def register(self, stream: Stream) -> None:
        """Know the stream by its number."""
        self._streams[stream.stream_id] = stream

    def _note_failure(self, task: Task) -> None:
        if task.error is not None and (stream := self._streams.get(task.stream_id)) is not None:
            stream.failures.append(task)
            if stream.stop_on_failure and not task.dropped:
                stream.context.failure = f"{task} failed: {task.error}"

    def _base(self, address: int) -> int:
        return self.memory.base(address)

    def _report_hazard(self, hazard: Hazard) -> None:
        self.hazard_reports.append(hazard)
        if self.options.hazards == "raise":
            raise AclError(507015, str(hazard))


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
