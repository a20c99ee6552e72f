"""Devices and memory: init, contexts, allocations and copies, the pool, and the allocator that PyTorch programs meet."""

import inspect
import threading

from ascend_jax.runtime.engine.task import Task
from ascend_jax.runtime.memory.caching import CachingAllocator
from ascend_jax.runtime.memory.policy import MemcpyKind, MemMallocPolicy
from ascend_jax.runtime.memory.pool import MemPool, MemPoolAttr, MemPoolProps
from ascend_jax.runtime.stream import Stream
from experiments.articles.machine import Machine
from experiments.articles.page import ARCHITECTURE, CALL_PATH, HANDS_ON, Page, program, refusal

MIB, GIB = 2**20, 2**30
SIZE = 128 * MIB


@program(f"{ARCHITECTURE}: init, a device, its attributes, and a context for this thread")
def device_and_context(page: Page) -> None:
    """Init, set device, size of memory, contexts, and what the article leaves out of each."""
    with Machine() as machine:
        device = machine.current_context().device
        page.show("\n".join(f"{name}: {value}" for name, value in device.properties().items()))
        total = machine.memory.get_mem_info()[1]
        page.point(
            "GiB of memory", "totalMem of a struct", total // GIB, "no such struct: get_mem_info(), or one attribute a call"
        )
        page.point(
            "set_device gives a context", "not told", machine.current_context().primary, "the primary one, for all threads"
        )
        created = machine.create_context(0)
        current = machine.current_context() is created
        page.point(
            "a new context must be set", True, not current, "creating it makes it this thread's; setting it again does nothing"
        )
        page.point("each thread has its own", True, _in_thread(machine) == 107002)
        machine.set_device(0)
        machine.destroy_context(created)
        again = refusal(machine.init)
        page.point("init a second time", "not told", again.code, again.name)
    ended = refusal(machine.finalize)
    page.point("finalize", "left out", ended.code, "the machine did it at the end of the block; a second time is an error")


def _in_thread(machine: Machine) -> int:
    """The code that another thread gets when it asks for its device."""
    codes = []
    thread = threading.Thread(target=lambda: codes.append(refusal(machine.get_device).code))
    thread.start()
    thread.join()
    return codes[0]


@program(f"{ARCHITECTURE}: 128 MiB of device memory, a copy from the host, and its release")
def device_memory(page: Page) -> None:
    """malloc, memcpy and free; the argument that the article forgets; and what the checks find."""
    with Machine(numerics=True) as machine:
        memory, device = machine.memory, machine.current_context().device.memory
        address, host = memory.malloc(SIZE, MemMallocPolicy.HUGE_FIRST), memory.malloc_host(SIZE)
        memory.host.view(host, 4)[:] = (1, 2, 3, 4)
        began = machine.host_now_s
        memory.memcpy(address, SIZE, host, SIZE, MemcpyKind.HOST_TO_DEVICE)
        seconds = machine.host_now_s - began
        page.point("bytes arrive", [1, 2, 3, 4], device.view(address, 4).tolist())
        page.point("bytes of the allocation", SIZE, device.owner(address).size, "32 more, for kernels that read ahead, on 32")
        page.show(f"{SIZE} B from host to device: {seconds * 1e3:.2f} ms, {SIZE / seconds / 1e9:.1f} GB/s")
        arguments = len(inspect.signature(memory.memcpy).parameters)
        page.point("arguments of memcpy", 4, arguments, "the second is what the target may take (destMax)")
        too_much = refusal(lambda: memory.memcpy(address, SIZE // 2, host, SIZE, MemcpyKind.HOST_TO_DEVICE))
        page.point("more bytes than the target takes", "not told", too_much.code, too_much.what)
        memory.free(address)
        gone = refusal(lambda: memory.memcpy(address, 4, host, 4))
        page.show(f"after free: {gone}")
        page.point("a copy after free", "not told", gone.code, "free acts at once, whatever still uses the memory")
        full = refusal(lambda: memory.malloc(65 * GIB))
        page.show(f"65 GiB: {full}")
        page.point("more than there is", "not told", full.code, full.what.splitlines()[0])


@program(f"{ARCHITECTURE}: a pool of 1 GiB, a block of 1 MiB from it, and back")
def memory_pool(page: Page) -> None:
    """The pool that the article means, which goes by streams."""
    with Machine() as machine:
        context = machine.current_context()
        one, other = context.create_stream(), context.create_stream()
        pool = MemPool(context.device.memory, MemPoolProps(max_size=GIB))
        page.point("bytes held after creation", GIB, pool.get_attr(MemPoolAttr.RESERVED_MEM_CURRENT), WHY_POOL)
        block = pool.malloc_async(MIB, one)
        page.point("bytes held for 1 MiB", MIB, pool.get_attr(MemPoolAttr.RESERVED_MEM_CURRENT), "its granule is 2 MiB")
        kernel = one.submit(
            Task(name="kernel", kind="kernel", duration_s=1e-3, block_dim=1, core="cube", writes=((block, MIB),))
        )
        pool.free_async(block, one)
        page.point("free waits for the kernel", "not told", kernel.done, "it takes its place in the stream's order")
        page.point("the same block, same stream", True, pool.malloc_async(MIB, one) == block)
        pool.free_async(block, one)
        foreign = pool.malloc_async(MIB, other)
        page.point(
            "the same block, other stream", "not told", foreign == block, "not before the free has happened, or on request"
        )
        pool.free_async(foreign, other)
        pool.set_attr(MemPoolAttr.REUSE_ALLOW_INTERNAL_DEPENDENCIES, 1)
        pool.malloc_async(4 * MIB, other)  # both blocks, the one of the other stream with a wait that the pool submits
        waits = other.tail is not None and other.tail.kind == "wait"
        page.point("… with internal dependencies", "not told", waits, "the pool lets that stream wait for the free")
        full = refusal(lambda: pool.malloc_async(GIB, one))
        page.show(str(full))
        page.point("more than the pool has", "not told", full.code, "with a report")
        machine.seconds()
        pool.destroy()


WHY_POOL = "the size is the most it may take; pages come when blocks are asked for, and stay until a trim"


@program(f"{HANDS_ON} and {CALL_PATH}: tensors that PyTorch makes on the device; {ARCHITECTURE}: allocations are slow")
def caching_allocator(page: Page) -> None:
    """What ``torch.randn(…, device="npu")`` takes: blocks of the caching allocator, and what it keeps."""
    with Machine() as machine:
        context = machine.current_context()
        one, other = context.create_stream(), context.create_stream()
        allocator = CachingAllocator(context.device.memory, synchronize=context.synchronize)
        tensor = allocator.malloc(8 * 512 * 64 * 2, one)
        reserved = [allocator.memory_reserved() // MIB]
        page.point("bytes of q", 524288, allocator.memory_allocated())
        for size in (3 * MIB, 18 * MIB - 100):
            allocator.malloc(size, one)
            reserved.append(allocator.memory_reserved() // MIB)
        page.point(
            "MiB reserved for 0.5, 3 and 18 MiB",
            "as much as is asked",
            reserved,
            "segments of 2 and 20 MiB; 10 MiB and more alone",
        )
        page.point("bytes of a tensor of 1000 B", 1000, _grows(allocator, one, 1000), "multiples of 512")
        allocator.free(tensor)
        page.point(
            "bytes given back by free",
            524288,
            reserved[-1] * MIB - allocator.memory_reserved(),
            "it stays, for the next tensor",
        )
        page.point("the next tensor has the same block", True, allocator.malloc(524288, one) == tensor)
        allocator.record_stream(tensor, other)
        other.submit(Task(name="kernel", kind="kernel", duration_s=1e-3, reads=((tensor, 524288),)))
        allocator.free(tensor)
        page.point(
            "… while another stream reads it",
            "not told",
            allocator.malloc(524288, one) != tensor,
            "after record_stream it waits",
        )
        page.show("\n".join(f"{segment['total_size']} B: {segment['blocks']}" for segment in allocator.memory_snapshot()))


def _grows(allocator: CachingAllocator, stream: Stream, size: int) -> int:
    """By how many bytes the allocated memory grows for ``size``."""
    before = allocator.memory_allocated()
    allocator.malloc(size, stream)
    return allocator.memory_allocated() - before
