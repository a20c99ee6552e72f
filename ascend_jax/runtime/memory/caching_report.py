"""What the caching allocator tells: its out-of-memory error, and its segments as ``torch.npu.memory_snapshot`` shows them."""

from ascend_jax.runtime.errors import OutOfMemoryError
from ascend_jax.runtime.memory.caching_blocks import Block
from ascend_jax.runtime.memory.caching_stats import CachingStats
from ascend_jax.runtime.memory.device import DeviceMemory
from ascend_jax.runtime.memory.policy import text_of


def caching_oom(
    memory: DeviceMemory, stats: CachingStats, asked: tuple[int, int, int], largest: int, allowed: int | None
) -> OutOfMemoryError:
    """207001 after everything that was cached has been given up.

    Args:
      asked: bytes that the program asked for, of the block for it, and of the segment for that.
      largest: bytes of the largest free block.
      allowed: bytes that the allocator may reserve, None: all.
    """
    size, rounded, segment = asked
    allocated, reserved = stats.current("allocated_bytes"), stats.current("reserved_bytes")
    limit = "" if allowed is None else f", of which {text_of(allowed)} are allowed"
    rows = [
        f"NPU {memory.device_id} out of memory: tried to allocate {text_of(segment)}",
        f"  requested          {text_of(size)}, rounded to {rounded} B",
        f"  capacity           {text_of(memory.total_bytes)}{limit}",
        f"  allocated          {text_of(allocated)}",
        f"  active             {text_of(stats.current('active_bytes'))}",
        f"  reserved           {text_of(reserved)}",
        f"  free on the device {text_of(memory.free_bytes)}",
        f"  largest free block {text_of(largest)} of what is reserved",
        f"  fragmentation      {text_of(reserved - allocated)} reserved and not allocated",
    ]
    hint = "much is reserved in pieces that are too small: set max_split_size_mb in PYTORCH_NPU_ALLOC_CONF"
    fragmented = reserved - allocated >= rounded
    return OutOfMemoryError(207001, "\n".join(rows), remedy=hint if fragmented else "free tensors, or use smaller ones")


def segment_of(first: Block) -> dict[str, object]:
    """The segment that begins with block ``first``: address, bytes, stream, pool and blocks."""
    blocks: list[Block] = []
    block: Block | None = first
    while block is not None:
        blocks.append(block)
        block = block.after
    return {
        "address": first.address,
        "total_size": sum(block.size for block in blocks),
        "stream": first.stream.stream_id,
        "segment_type": "small" if first.small else "large",
        "blocks": [
            {"address": block.address, "size": block.size, "requested_size": block.requested, "state": _state(block)}
            for block in blocks
        ],
    }


def _state(block: Block) -> str:
    return "active_allocated" if block.allocated else "active_pending_free" if block.pending else "inactive"
