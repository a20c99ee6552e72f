"""Memory as a program asks for it: allocation on this thread's device, copies and fills, at once or on a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ascend_jax.runtime.engine.task import Task
from ascend_jax.runtime.errors import AclError
from ascend_jax.runtime.memory.caching import CachingAllocator
from ascend_jax.runtime.memory.caching_config import CachingConfig
from ascend_jax.runtime.memory.copy import AddressSpace, Copy, PeerAccess, check_copy, check_memset
from ascend_jax.runtime.memory.device import DeviceMemory
from ascend_jax.runtime.memory.host import HostMemory
from ascend_jax.runtime.memory.policy import MemcpyKind, MemMallocPolicy
from ascend_jax.runtime.recording import recorded_calls

if TYPE_CHECKING:
    from ascend_jax.runtime.device import Device
    from ascend_jax.runtime.stream import Stream
    from ascend_jax.runtime.system import System


@recorded_calls
class MemoryCalls:
    """``System.memory``: the calls ``aclrtMalloc``, ``aclrtMemcpy`` and their kin.

    >>> from ascend_jax.runtime.system import System
    >>> with System(["910b3"]) as system:
    ...     device, memory = system.set_device(0).device, system.memory
    ...     a, b = memory.malloc(1024), memory.malloc(1024)
    ...     memory.memset(a, 1024, 7, 1024)
    ...     memory.memcpy(b, 1024, a, 512)
    ...     device.memory.view(b, 1024)[[0, 511, 512]].tolist()
    [7, 7, 0]
    """

    def __init__(self, system: System) -> None:
        self.system = system
        self.host, self.peers = HostMemory(), PeerAccess()
        self.space = AddressSpace(self.host, {device.device_id: device.memory for device in system.devices}, self.peers)

    def malloc(self, size: int, policy: int = MemMallocPolicy.HUGE_FIRST) -> int:
        """``size`` bytes on this thread's device. Raises 207001 with a report where there is no room."""
        with self.system.lock:
            return self.system.current_context().device.memory.malloc(size, policy, site=self.system.site())

    def free(self, address: int) -> None:
        """Give the allocation back at once, whatever tasks still use it: the hazard checker says so where they may."""
        with self.system.lock:
            memory, site = self._of_a_device(address), self.system.site()
            span = (address, memory.owner(address).requested) if address else (0, 0)
            memory.free(address, site=site)
            self.system.hazards.free(self.system.thread().actor, memory.device_id, span, f"free at {site}")

    def free_with_sync(self, address: int) -> None:
        """Wait for all streams of this thread's context, then :meth:`free` (``aclrtFreeWithDevSync``)."""
        self.system.current_context().synchronize()
        self.free(address)

    def malloc_host(self, size: int) -> int:
        """``size`` bytes of page-locked host memory, which asynchronous copies need to overlap."""
        with self.system.lock:
            return self.host.malloc_host(size, site=self.system.site())

    def free_host(self, address: int) -> None:
        """Give it back."""
        with self.system.lock:
            self.host.free_host(address, site=self.system.site())

    def enable_peer_access(self, peer: int) -> None:
        """Let this thread's device send to ``peer``; for the other direction the other calls this as well."""
        self.peers.enable(self.system.get_device(), self.system.device(peer).device_id)

    def memcpy(self, dst: int, dst_max: int, src: int, count: int, kind: int = MemcpyKind.DEFAULT) -> None:
        """Copy ``count`` bytes, and wait for that alone: tasks of streams that still write them are not waited for."""
        with self.system.lock:
            copy = check_copy(self.space, dst, dst_max, src, count, kind)
            self._at_once(copy, f"memcpy at {self.system.site()}")

    def memcpy_async(
        self, dst: int, dst_max: int, src: int, count: int, kind: int = MemcpyKind.DEFAULT, *, stream: Stream | None = None
    ) -> Task | None:
        """Copy in the order of ``stream`` (None: the default one). Host memory that is not page-locked makes the host wait.

        Returns the task, or None where nothing is left to wait for.
        """
        with self.system.lock:
            stream = self.system.current_stream() if stream is None else stream
            stream.check()
            copy = check_copy(self.space, dst, dst_max, src, count, kind, is_async=True)
            if copy.blocking:
                stream.synchronize()
                self._at_once(copy, f"memcpy_async at {self.system.site()}")
                return None
            return stream.submit(self._task(copy, stream.device)) if copy.engine else None

    def memset(self, address: int, max_count: int, value: int, count: int) -> None:
        """Fill ``count`` bytes with ``value & 0xFF``, and wait for that."""
        with self.system.lock:
            task = self._fill(address, max_count, value, count)
            if task is not None:
                self._run(task, self._of_a_device(address).device_id, f"memset at {self.system.site()}")

    def memset_async(
        self, address: int, max_count: int, value: int, count: int, *, stream: Stream | None = None
    ) -> Task | None:
        """The same in the order of ``stream`` (None: the default one)."""
        with self.system.lock:
            task = self._fill(address, max_count, value, count)
            stream = self.system.current_stream() if stream is None else stream
            return None if task is None else stream.submit(task)

    def get_mem_info(self) -> tuple[int, int]:
        """Free and total bytes of this thread's device."""
        device = self.system.current_context().device
        return device.memory.free_bytes, device.memory.total_bytes

    def caching_allocator(self, config: str = "") -> CachingAllocator:
        """PyTorch's allocator over this thread's device; ``config``: the text of ``PYTORCH_NPU_ALLOC_CONF``."""
        context = self.system.current_context()

        def poll() -> None:
            with self.system.lock:
                self.system.scheduler.advance(self.system.thread().now_s)

        settings = CachingConfig.parse(config)
        return CachingAllocator(context.device.memory, settings, synchronize=context.synchronize, poll=poll)

    def _task(self, copy: Copy, device: Device) -> Task:
        run = None if self.system.options.timing_only else lambda: copy.run(self.space)
        return Task(
            name=f"memcpy {copy.engine}",
            kind="copy",
            op_type="MEMCPY_ASYNC",
            duration_s=device.copy_s(copy.engine, copy.count),
            engine=copy.engine,
            run=run,
            reads=((copy.source, copy.count),),
            writes=((copy.target, copy.count),),
            info={"bytes": copy.count, "operation": copy.engine},
        )

    def _fill(self, address: int, max_count: int, value: int, count: int) -> Task | None:
        if not check_memset(self.space, address, max_count, count):
            return None
        view = self.space.view

        def fill() -> None:
            view(address, count)[:] = value & 0xFF

        device = self.system.devices[self._of_a_device(address).device_id]
        run = None if self.system.options.timing_only else fill
        seconds = device.copy_s("d2d", count)
        return Task(name="memset", kind="memset", duration_s=seconds, engine="d2d", run=run, writes=((address, count),))

    def _at_once(self, copy: Copy, what: str) -> None:
        if copy.engine == "h2h":
            copy.run(self.space)
        elif copy.engine:
            number = copy.source_device if copy.source_device is not None else copy.target_device
            assert number is not None
            self._run(self._task(copy, self.system.devices[number]), number, what)

    def _run(self, task: Task, device_id: int, what: str) -> None:
        """Let ``task`` pass through the device's own queue, beside all streams, and wait for it."""
        thread, device = self.system.thread(), self.system.devices[device_id]
        for spans, writes in ((task.reads, False), (task.writes, True)):
            self.system.hazards.host(thread.actor, device_id, spans, writes=writes, what=what)
        self.system.scheduler.submit(device.host_queue, task, thread.now_s)
        self.system.wait_for(task, what, -1, 507046)
        if task.error is not None:
            raise task.error

    def _of_a_device(self, address: int) -> DeviceMemory:
        memory = self.space.locate(address)
        if isinstance(memory, HostMemory):
            if not address:
                raise AclError(100000, "the address is a null pointer", category="EH0002")
            raise AclError(107000, f"{address:#x} lies in host memory", remedy="free_host() for what malloc_host() gave")
        return memory

    def base(self, address: int) -> int:
        """The first address of the allocation that ``address`` lies in; ``address`` itself where there is none."""
        allocation = self.space.locate(address).table.find(address)
        return address if allocation is None else allocation.address
