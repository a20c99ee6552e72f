""":class:`Recorder`: listens to a system while a profiler runs."""

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ascend_jax.runtime.engine.task import Task
from ascend_jax.runtime.profiler.kinds import ANY_API, ANY_TIME, AicoreMetrics, DataType
from ascend_jax.runtime.profiler.profile import Profile
from ascend_jax.runtime.profiler.records import ApiCall, Clocks, MemoryEvent, Row

if TYPE_CHECKING:
    from ascend_jax.runtime.system import System

APIS = {
    "kernel": ("node", "launch"),
    "copy": ("acl", "aclrtMemcpyAsync"),
    "memset": ("acl", "aclrtMemsetAsync"),
    "record": ("acl", "aclrtRecordEvent"),
    "wait": ("acl", "aclrtStreamWaitEvent"),
    "host": ("acl", "aclrtLaunchHostFunc"),
}
"""Kind of task → level and name of the call that submits it."""


class Recorder:
    """A listener that turns tasks into rows; memory and waits of the host are tapped where they are made.

    Args:
      system: what is listened to.
      mode: who listens: ``acl`` or ``torch``; the two exclude each other.
      devices: None for all.
      data, metrics: what is asked for.
    """

    def __init__(
        self, system: "System", mode: str, devices: tuple[int, ...] | None, data: DataType, metrics: AicoreMetrics
    ) -> None:
        self.system, self.mode, self.devices, self.data = system, mode, devices, data
        self.profile = Profile(data=data, metrics=metrics)
        self._ends: dict[int, float] = {}
        self._taps: list[tuple[Any, str]] = []

    def __call__(self, task: Task) -> None:
        """A task has ended."""
        if not self._wants(task.device_id):
            return
        if task.start_s is None or task.end_s is None:
            self.profile.dropped += 1
            return
        before = self._ends.get(task.stream_id)
        self._ends[task.stream_id] = task.end_s
        if self.data & ANY_TIME and (task.kind != "collective" or self.data & DataType.HCCL_TRACE):
            self.profile.rows.append(_row(task, 0.0 if before is None else max(task.start_s - before, 0.0)))
        if self.data & ANY_API:
            level, name = APIS.get(task.kind, ("communication", task.op_type or task.name))
            host_s = self.system.host_submit_s
            self.profile.apis.append(ApiCall(level, name, task.submit_s - host_s, host_s, task.task_id))

    def begin(self) -> None:
        """From now on."""
        with self.system.lock:
            for device in self.system.devices:
                spec = device.spec
                vector_hz = float(spec.vector_clock_hz)
                numbers = float(spec.cube_clock_hz), vector_hz, int(spec.cube_cores), int(spec.vector_cores_per_cube)
                self.profile.clocks[device.device_id] = Clocks(*numbers, spec.name)
                if self.data & DataType.TASK_MEMORY and self._wants(device.device_id):
                    self._tap_memory(device)
            if self.data & ANY_API:
                self._tap_waits()
            self.system.listeners.append(self)

    def end(self) -> Profile:
        """No more; the profile so far."""
        with self.system.lock:
            with suppress(ValueError):
                self.system.listeners.remove(self)
            for owner, name in self._taps:
                delattr(owner, name)
            self._taps.clear()
            queues = self.system.scheduler.queues.values()
            self.profile.unfinished = sum(len(queue.tasks) for queue in queues if self._wants(queue.device_id))
        self.profile.apis.sort(key=lambda call: call.start_s)
        return self.profile

    def memory_event(self, event: MemoryEvent) -> None:
        """An allocator of a higher level tells of its own blocks."""
        if self.data & DataType.TASK_MEMORY and self._wants(event.device_id):
            self.profile.memory.append(event)

    def _wants(self, device_id: int) -> bool:
        return self.devices is None or device_id in self.devices

    def _tap(self, owner: Any, name: str, around: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        """Put ``around`` between callers and a method of one object, until :meth:`end`."""
        setattr(owner, name, around(getattr(owner, name)))
        self._taps.append((owner, name))

    def _tap_memory(self, device: Any) -> None:
        memory = device.memory

        def note(address: int, size: int) -> None:
            stats, site = memory.stats, self.system.site()
            totals = stats.allocated, stats.reserved
            self.memory_event(MemoryEvent(device.device_id, "APP", site, address, size, self.system.host_now_s, *totals))

        def malloc(original: Callable[..., int]) -> Callable[..., int]:
            def call(*args: Any, **named: Any) -> int:
                address = original(*args, **named)
                note(address, memory.owner(address).requested)
                return address

            return call

        def free(original: Callable[..., None]) -> Callable[..., None]:
            def call(address: int, **named: Any) -> None:
                size = memory.owner(address).requested if address else 0
                original(address, **named)
                note(address, -size)

            return call

        self._tap(memory, "malloc", malloc)
        self._tap(memory, "free", free)

    def _tap_waits(self) -> None:
        def wait_for(original: Callable[..., None]) -> Callable[..., None]:
            def call(task: Task, what: str, *rest: Any) -> None:
                start_s = self.system.host_now_s
                try:
                    original(task, what, *rest)
                finally:
                    name = "aclrtSynchronizeEvent" if what.startswith("event") else "aclrtSynchronizeStream"
                    self.profile.apis.append(ApiCall("acl", name, start_s, self.system.host_now_s - start_s, -1))

            return call

        self._tap(self.system, "wait_for", wait_for)


def _row(task: Task, gap_s: float) -> Row:
    start_s, end_s = task.start_s or 0.0, task.end_s or 0.0
    return Row(
        name=task.name,
        op_type=task.op_type,
        kind=task.kind,
        core=task.core,
        engine=task.engine,
        block_dim=task.block_dim,
        device_id=task.device_id,
        stream_id=task.stream_id,
        task_id=task.task_id,
        submit_s=task.submit_s,
        ready_s=start_s if task.ready_s is None else task.ready_s,
        start_s=start_s,
        end_s=end_s,
        gap_s=gap_s,
        site=task.site,
        info=task.info,
        error="" if task.error is None else f"{type(task.error).__name__}: {task.error}".splitlines()[0],
    )
