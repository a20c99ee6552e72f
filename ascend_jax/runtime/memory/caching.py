"""``CachingAllocator``: how PyTorch's backend for Ascend cuts device memory into blocks and keeps what is freed.

Source of the rules: Ascend/pytorch, NPUCachingAllocator (roundings, best fit, splits, merges, the steps before an
out-of-memory error, garbage collection, blocks that other streams use). Without expandable segments and private pools.
"""

import threading
from collections.abc import Callable

from ascend_jax.runtime.errors import AclError, OutOfMemoryError
from ascend_jax.runtime.memory.caching_blocks import Block, FreeBlocks
from ascend_jax.runtime.memory.caching_config import NO_LIMIT, SMALL_SIZE, CachingConfig
from ascend_jax.runtime.memory.caching_report import caching_oom, segment_of
from ascend_jax.runtime.memory.caching_stats import CachingStats
from ascend_jax.runtime.memory.device import DeviceMemory
from ascend_jax.runtime.memory.policy import MemMallocPolicy
from ascend_jax.runtime.memory.streams import StreamLike, mark


class CachingAllocator:
    """Blocks for tensors, out of segments that stay allocated.

    A block belongs to the stream that it was allocated for, and goes back to it as soon as it is freed: the stream's order
    keeps later work behind earlier work. Another stream that uses it must be recorded, or it may still be at it then.

    Args:
      memory: the device's memory.
      config: the settings; :meth:`CachingConfig.parse` reads those of ``PYTORCH_NPU_ALLOC_CONF``.
      synchronize: waits for the device; called before cached segments are given up.
      poll: brings the ``done`` of tasks up to the host's time; called before blocks that wait for streams are looked at.
    """

    def __init__(
        self,
        memory: DeviceMemory,
        config: CachingConfig | None = None,
        *,
        synchronize: Callable[[], None] = lambda: None,
        poll: Callable[[], None] = lambda: None,
    ) -> None:
        self.memory, self.config = memory, config or CachingConfig()
        self.synchronize, self.poll = synchronize, poll
        self.stats = CachingStats()
        self._free = {True: FreeBlocks(), False: FreeBlocks()}
        self._blocks: dict[int, Block] = {}
        self._waiting: list[Block] = []
        self._lock = threading.RLock()

    # What users call

    def malloc(self, size: int, stream: StreamLike, *, site: str = "") -> int:
        """The address of a block of at least ``size`` bytes for ``stream``; 0, which is nobody's, for a size of 0.

        Raises:
          AclError: 100000 for a negative size.
          OutOfMemoryError: 207001 with a report, after everything that is cached was given up.
        """
        if size <= 0:
            if size == 0:
                return 0
            raise AclError(100000, f"malloc of {size} B")
        with self._lock:
            return self._malloc(size, stream, site)

    def free(self, address: int) -> None:
        """Give the block at ``address`` back to its stream; one that other streams use waits for them first.

        Raises 207002 for what begins no block in use. Address 0 is freed without effect.
        """
        if address:
            with self._lock:
                self._free_address(address)

    def record_stream(self, address: int, stream: StreamLike) -> None:
        """Say that ``stream`` uses the block at ``address`` too. Raises 207002 for what begins no block in use."""
        with self._lock:
            block = self._owned(address, "record_stream")
            if stream.stream_id != block.stream.stream_id:
                block.users[stream.stream_id] = stream

    def empty_cache(self) -> None:
        """Wait for the device and give back every segment that is wholly free."""
        with self._lock:
            self.synchronize()
            self._process_events()
            for block in [*self._free[False], *self._free[True]]:
                if not block.is_split:
                    self._release(block)

    def memory_allocated(self) -> int:
        """Bytes of blocks that the program has."""
        return self.stats.current("allocated_bytes")

    def memory_reserved(self) -> int:
        """Bytes of all segments."""
        return self.stats.current("reserved_bytes")

    def memory_stats(self) -> dict[str, int]:
        """All statistics, by the names of ``torch.npu.memory_stats``."""
        return self.stats.flat()

    def memory_snapshot(self) -> list[dict[str, object]]:
        """Every segment with its blocks, by address."""
        with self._lock:
            return [segment_of(block) for block in sorted(self._all_first_blocks(), key=lambda block: block.address)]

    # Blocks

    def _malloc(self, size: int, stream: StreamLike, site: str) -> int:
        self._process_events()
        rounded = self.config.rounded(size)
        block = self._find(rounded, stream) or self._new_segment_after_all(rounded, stream, site)
        if block is None:
            self.stats.counts["num_ooms"] += 1
            largest = max((free.size for blocks in self._free.values() for free in blocks), default=0)
            asked = (size, rounded, self.config.segment_size(rounded))
            raise caching_oom(self.memory, self.stats, asked, largest, self._allowed())
        if self.config.splits(block.size, rounded):
            rest = block
            block = rest.cut(rounded)
            self._put(rest)
        self._give_out(block, size, stream, site)
        return block.address

    def _free_address(self, address: int) -> None:
        block = self._owned(address, "free")
        del self._blocks[address]
        block.allocated = False
        self.stats.change(block.small, -1, allocation=1, allocated_bytes=block.size)
        self._count_oversize("oversize_allocations", block.size, -1)
        block.pending = [mark(stream) for stream in block.users.values()]
        block.follows = {point.actor_id: point.number for point in block.pending}
        block.users = {}
        if block.pending:
            self._waiting.append(block)
        else:
            self._free_block(block)

    def _find(self, size: int, stream: StreamLike) -> Block | None:
        blocks = self._free[size <= SMALL_SIZE]
        if self._collects():
            for block in blocks:
                block.age += 1
        block = blocks.at_least(stream.stream_id, size)
        if block is None or not self.config.gives(block.size, size):
            return None
        block.age = 0
        self._take(block)
        return block

    def _give_out(self, block: Block, size: int, stream: StreamLike, site: str) -> None:
        block.allocated, block.requested, block.site = True, size, site
        stream.actor.follow(block.follows)
        block.follows = {}
        self._blocks[block.address] = block
        amounts = {"allocation": 1, "allocated_bytes": block.size, "active": 1, "active_bytes": block.size}
        self.stats.change(block.small, 1, requested_bytes=size, **amounts)
        self._count_oversize("oversize_allocations", block.size, 1)

    def _free_block(self, block: Block) -> None:
        self.stats.change(block.small, -1, active=1, active_bytes=block.size, requested_bytes=block.requested)
        for neighbour in (block.before, block.after):
            if neighbour is not None and neighbour.is_free:
                self._take(neighbour)
                block.absorb(neighbour)
        self._put(block)

    def _put(self, block: Block) -> None:
        """Into the free blocks of its pool."""
        self._free[block.small].add(block)
        if block.is_split:
            self.stats.change(block.small, 1, inactive_split=1, inactive_split_bytes=block.size)

    def _take(self, block: Block) -> None:
        """Out of the free blocks of its pool."""
        self._free[block.small].remove(block)
        if block.is_split:
            self.stats.change(block.small, -1, inactive_split=1, inactive_split_bytes=block.size)

    def _process_events(self) -> None:
        """Free the blocks that have waited long enough for the streams that used them."""
        if not self._waiting:
            return
        self.poll()
        waiting, self._waiting = self._waiting, []
        for block in waiting:
            block.pending = [point for point in block.pending if not point.passed]
            if block.pending:
                self._waiting.append(block)
            else:
                self._free_block(block)

    # Segments

    def _new_segment_after_all(self, size: int, stream: StreamLike, site: str) -> Block | None:
        """A new segment; where the device has none left, after giving up ever more of what is cached."""
        if self._collects():
            self._collect_garbage()
        block = self._new_segment(size, stream, site)
        if block is None and self._release_oversize(size, stream):
            block = self._new_segment(size, stream, site)
        if block is None:
            self.empty_cache()
            self.stats.counts["num_alloc_retries"] += 1
            block = self._new_segment(size, stream, site)
        return block

    def _new_segment(self, size: int, stream: StreamLike, site: str) -> Block | None:
        length = self.config.segment_size(size)
        allowed = self._allowed()
        if allowed is not None and self.memory_reserved() + length > allowed:
            return None
        try:
            address = self.memory.malloc(length, MemMallocPolicy.HUGE_FIRST, site=site, padded=False)
        except OutOfMemoryError:
            return None
        block = Block(address, length, stream, size <= SMALL_SIZE)
        self.stats.change(block.small, 1, segment=1, reserved_bytes=length)
        self.stats.counts["num_device_alloc"] += 1
        self._count_oversize("oversize_segments", length, 1)
        return block

    def _release(self, block: Block) -> None:
        """Give the segment back that ``block``, which is free, is the whole of."""
        self._take(block)
        self.memory.free(block.address, site="the caching allocator")
        self.stats.change(block.small, -1, segment=1, reserved_bytes=block.size)
        self.stats.counts["num_device_free"] += 1
        self._count_oversize("oversize_segments", block.size, -1)

    def _release_oversize(self, size: int, stream: StreamLike) -> bool:
        """Give up free blocks that are too large to split: one that suffices, or the largest until they do."""
        least = self.config.max_split_size
        if least == NO_LIMIT:
            return False
        needed = max(size, least)
        self.synchronize()
        blocks = self._free[size <= SMALL_SIZE].largest_first(stream.stream_id)
        whole = [block for block in blocks if block.size >= least and not block.is_split]
        fitting = [block for block in whole if block.size >= needed]
        if fitting:
            self._release(fitting[-1])
            return True
        released = 0
        for block in whole:
            if released >= needed:
                break
            released += block.size
            self._release(block)
        return released >= needed

    def _collect_garbage(self) -> None:
        """Give up cached segments of at least average age until the reserved memory is below the threshold."""
        over = self.memory_reserved() - int(self.config.garbage_collection_threshold * (self._allowed() or 0))
        old = [block for block in self._free[False] if not block.is_split]
        if over <= 0 or not old:
            return
        self.synchronize()
        while over > 0 and old:
            average = sum(block.age for block in old) / len(old)
            for block in [block for block in old if block.age >= average]:
                over -= block.size
                old.remove(block)
                self._release(block)

    def _collects(self) -> bool:
        return self.config.garbage_collection_threshold > 0 and self._allowed() is not None

    def _allowed(self) -> int | None:
        fraction = self.config.per_process_memory_fraction
        return None if fraction is None else int(fraction * self.memory.total_bytes)

    # Reports

    def _count_oversize(self, name: str, size: int, sign: int) -> None:
        if size >= self.config.max_split_size:
            self.stats.oversize[name].change(sign)

    def _owned(self, address: int, call: str) -> Block:
        block = self._blocks.get(address)
        if block is None:
            raise AclError(207002, f"{call}: {address:#x} begins no block in use of the caching allocator")
        return block

    def _all_first_blocks(self) -> list[Block]:
        every = [*self._blocks.values(), *self._waiting, *self._free[True], *self._free[False]]
        return [block for block in every if block.before is None]
