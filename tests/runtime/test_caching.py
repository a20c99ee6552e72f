"""The caching allocator: sizes, splits, streams, limits, the way to an out-of-memory error, and a state machine."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ascend_jax.hardware import load_chip
from ascend_jax.runtime.errors import AclError, OutOfMemoryError
from ascend_jax.runtime.memory.caching import CachingAllocator
from ascend_jax.runtime.memory.caching_config import CachingConfig
from ascend_jax.runtime.memory.device import DeviceMemory
from ascend_jax.runtime.memory.policy import KIB, MIB
from tests.runtime.caching_oracle import CachingOracle
from tests.runtime.memory_stubs import StubStream


def allocator(text: str = "", device_mib: int = 200, synchronize: Callable[[], None] = lambda: None) -> CachingAllocator:
    spec = replace(load_chip("910b3"), gm_bytes=float(device_mib * MIB))
    return CachingAllocator(DeviceMemory(spec, 0), CachingConfig.parse(text), synchronize=synchronize)


@pytest.mark.parametrize(
    ("size", "block", "segment"),
    [
        (1, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),
        (11 * MIB - 512, 11 * MIB - 512, 12 * MIB),
        (11 * MIB, 12 * MIB, 12 * MIB),  # a rest of 1 MiB is not split off
    ],
)
def test_sizes_of_blocks_and_segments(size: int, block: int, segment: int) -> None:
    cache = allocator()
    cache.malloc(size, StubStream(0))
    assert (cache.memory_allocated(), cache.memory_reserved()) == (block, segment)
    assert cache.memory.stats.reserved == segment, "huge pages, or normal ones for 2 MiB and less, without padding"
    assert cache.memory_stats()["requested_bytes.all.current"] == size


def test_nothing_is_nobodys_and_can_be_freed() -> None:
    cache = allocator()
    assert cache.malloc(0, StubStream(0)) == 0
    cache.free(0)
    assert cache.memory_stats()["allocation.all.allocated"] == 0


def test_a_freed_block_goes_back_to_its_stream_only() -> None:
    cache, one, other = allocator(), StubStream(0), StubStream(1)
    block = cache.malloc(3 * MIB, one)
    one.work()
    cache.free(block)
    elsewhere = cache.malloc(3 * MIB, other)
    assert cache.memory.base(elsewhere) != cache.memory.base(block)
    assert cache.malloc(3 * MIB, one) == block


def test_neighbours_merge_and_the_smallest_that_fits_is_taken() -> None:
    cache, stream = allocator(), StubStream(0)
    blocks = [cache.malloc(4 * MIB, stream) for _ in range(5)]
    assert cache.memory_reserved() == 20 * MIB
    for number in (0, 1, 3):
        cache.free(blocks[number])
    assert cache.memory_stats()["inactive_split.all.current"] == 2
    assert cache.memory_stats()["inactive_split_bytes.large_pool.current"] == 12 * MIB
    assert cache.malloc(4 * MIB, stream) == blocks[3]
    assert cache.malloc(6 * MIB, stream) == blocks[0]
    [segment] = cache.memory_snapshot()
    assert [block["size"] for block in segment["blocks"]] == [6 * MIB, 2 * MIB, *[4 * MIB] * 3]  # pyright: ignore


def test_a_small_block_is_cut_down_to_512() -> None:
    cache, stream = allocator(), StubStream(0)
    block = cache.malloc(1024, stream)
    cache.malloc(1, stream)
    cache.free(block)
    assert [cache.malloc(1, stream) for _ in range(2)] == [block, block + 512]


def test_a_block_that_another_stream_uses_waits_for_it() -> None:
    cache, one, other = allocator(), StubStream(0), StubStream(1)
    block = cache.malloc(3 * MIB, one)
    cache.record_stream(block, other)
    cache.record_stream(block, one)
    other.work()
    cache.free(block)
    other.work()  # after the free: nothing to wait for
    assert cache.memory_allocated() == 0
    assert cache.memory_stats()["active_bytes.all.current"] == 3 * MIB
    assert cache.malloc(3 * MIB, one) != block
    other.tasks[0].done = True
    assert cache.malloc(3 * MIB, one) == block
    assert one.actor.clock == {1: 1}, "what the stream does next comes after the other's task"


def test_without_recording_the_block_is_reused_while_the_other_stream_is_at_it() -> None:
    cache, one, other = allocator(), StubStream(0), StubStream(1)
    block = cache.malloc(3 * MIB, one)
    other.work()
    cache.free(block)
    assert cache.malloc(3 * MIB, one) == block


def test_blocks_beyond_the_split_limit_stay_whole_and_apart() -> None:
    cache, stream = allocator("max_split_size_mb:20"), StubStream(0)
    large = cache.malloc(40 * MIB, stream)
    cache.free(large)
    assert cache.memory_stats()["oversize_segments.current"] == 1
    assert cache.malloc(12 * MIB, stream) != large, "a small request gets no large block"
    assert cache.malloc(30 * MIB, stream) == large, "a large one gets it whole"
    assert cache.memory_stats()["allocated_bytes.all.current"] == 52 * MIB
    cache.free(large)
    assert cache.malloc(20 * MIB, stream) != large, "unless more than 20 MiB would be lost"


def test_the_limit_gives_up_just_enough_before_everything() -> None:
    cache, stream = allocator("max_split_size_mb:20", 100), StubStream(0)
    blocks = [cache.malloc(size * MIB, stream) for size in (24, 26, 28)]
    small = cache.malloc(1, stream)
    for block in [*blocks, small]:
        cache.free(block)
    cache.malloc(44 * MIB, stream)
    assert cache.memory_stats()["num_alloc_retries"] == 0
    assert sorted(segment["total_size"] for segment in cache.memory_snapshot()) == [2 * MIB, 24 * MIB, 44 * MIB]  # pyright: ignore


@pytest.mark.parametrize(
    ("cached", "device", "asked", "left"),
    [((42, 46), 100, 20, [20, 46]), ((20, 20, 20), 64, 40, [20, 40]), ((22, 20, 21), 64, 40, [20, 40])],
)
def test_which_large_segments_go(cached: tuple[int, ...], device: int, asked: int, left: list[int]) -> None:
    """The smallest that suffices; else the largest, one after the other, until they suffice."""
    cache, stream = allocator("max_split_size_mb:20", device), StubStream(0)
    for block in [cache.malloc(size * MIB, stream) for size in cached]:
        cache.free(block)
    cache.malloc(asked * MIB, stream)
    assert sorted(segment["total_size"] for segment in cache.memory_snapshot()) == [size * MIB for size in left]  # pyright: ignore
    assert cache.memory_stats()["num_alloc_retries"] == 0


def test_the_cache_is_given_up_before_an_error() -> None:
    synchronised: list[int] = []
    cache = allocator("", 60, lambda: synchronised.append(1))
    stream = StubStream(0)
    block, kept = cache.malloc(30 * MIB, stream), cache.malloc(1, stream, site="kept.py:1")
    cache.free(block)
    cache.malloc(40 * MIB, stream)
    counts = cache.memory_stats()
    assert (counts["num_alloc_retries"], counts["num_ooms"], len(synchronised)) == (1, 0, 1)
    assert (counts["num_device_alloc"], counts["num_device_free"], counts["segment.all.current"]) == (3, 1, 2)
    with pytest.raises(OutOfMemoryError) as caught:
        cache.malloc(20 * MIB, stream)
    text = str(caught.value)
    assert text.startswith("NPU 0 out of memory: tried to allocate 20.00 MiB")
    assert "allocated          40.00 MiB" in text and "reserved           42.00 MiB" in text
    assert "free on the device 18.00 MiB" in text and "largest free block 2.00 MiB" in text
    assert cache.memory_stats()["num_ooms"] == 1
    cache.free(kept)


def test_a_fraction_of_the_device_is_the_limit() -> None:
    cache, stream = allocator("per_process_memory_fraction:0.2"), StubStream(0)
    cache.malloc(30 * MIB, stream)
    with pytest.raises(OutOfMemoryError, match=r"of which 40\.00 MiB \(41943040 B\) are allowed"):
        cache.malloc(12 * MIB, stream)
    assert cache.memory.stats.ooms == 0, "the device was not asked"


def test_old_segments_are_collected_beyond_the_threshold() -> None:
    cache, stream = allocator("garbage_collection_threshold:0.5,per_process_memory_fraction:1.0", 100), StubStream(0)
    old, young = cache.malloc(30 * MIB, stream), cache.malloc(26 * MIB, stream)
    cache.free(old)
    for _ in range(3):
        cache.free(young)
        assert cache.malloc(26 * MIB, stream) == young
    cache.free(young)
    cache.malloc(40 * MIB, stream)
    assert [segment["total_size"] for segment in cache.memory_snapshot()] == [26 * MIB, 40 * MIB]


def test_empty_cache_gives_back_what_is_wholly_free() -> None:
    cache, stream = allocator(), StubStream(0)
    whole, part, rest = cache.malloc(30 * MIB, stream), cache.malloc(4 * MIB, stream), cache.malloc(4 * MIB, stream)
    cache.free(whole)
    cache.free(rest)
    cache.empty_cache()
    assert cache.memory_reserved() == cache.memory.stats.reserved == 20 * MIB
    cache.stats.reset_peaks()
    assert cache.memory_stats()["reserved_bytes.all.peak"] == 20 * MIB
    cache.free(part)
    cache.empty_cache()
    assert cache.memory_reserved() == cache.memory.stats.reserved == 0


def test_what_is_no_block_cannot_be_freed_or_recorded() -> None:
    cache, stream = allocator(), StubStream(0)
    block = cache.malloc(1, stream)
    cache.free(block)
    for call in (lambda: cache.free(block), lambda: cache.record_stream(block + 512, stream)):
        with pytest.raises(AclError) as caught:
            call()
        assert caught.value.code == 207002
    with pytest.raises(AclError, match="-1 B"):
        cache.malloc(-1, stream)


@pytest.mark.parametrize(
    ("text", "mib", "rounded"),
    [
        ("", 5.0001, 5.00048828125),
        ("roundup_power2_divisions:4", 5.0001, 6),
        ("roundup_power2_divisions:4", 4, 4),
        ("roundup_power2_divisions:8", 9.5, 10),
        ("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]", 300, 300),
        ("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]", 600, 768),
        ("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]", 1100, 1152),
        ("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]", 5000, 5120),
        ("roundup_power2_divisions:[64:2,256:4]", 3, 3),
        ("roundup_power2_divisions:[64:2,256:4]", 130, 130),
        ("roundup_power2_divisions:[64:2,256:4]", 33, 48),
    ],
)
def test_rounding_to_parts_of_powers_of_two(text: str, mib: float, rounded: float) -> None:
    assert CachingConfig.parse(text).rounded(int(mib * MIB)) == rounded * MIB


def test_small_sizes_are_rounded_to_512_whatever_the_divisions() -> None:
    config = CachingConfig.parse("roundup_power2_divisions:8")
    assert [config.rounded(size) for size in (1, 4096, 4097, 5 * KIB + 1)] == [512, 4096, 4608, 5632]


def test_settings_are_read_as_users_write_them() -> None:
    config = CachingConfig.parse("max_split_size_mb: 64, garbage_collection_threshold:0.8,expandable_segments:False")
    assert (config.max_split_size, config.garbage_collection_threshold) == (64 * MIB, 0.8)
    assert CachingConfig.parse("large_segment_size_mb:40").segment_size(2 * MIB) == 40 * MIB
    assert CachingConfig.parse("") == CachingConfig()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max_split_size_mb:19", "whole number of MiB from 20"),
        ("max_split_size_mb:many", "whole number"),
        ("garbage_collection_threshold:1", "between 0 and 1"),
        ("garbage_collection_threshold:x", "between 0 and 1"),
        ("large_segment_size_mb:513", "to 512"),
        ("roundup_power2_divisions:3", "power of two"),
        ("roundup_power2_divisions:[300:2]", "size '300'"),
        ("max_split_size_mb", "has no value"),
        ("max_split:20", "is no key of PYTORCH_NPU_ALLOC_CONF"),
        ("expandable_segments:True", "not part of this model"),
        ("per_process_memory_fraction:1.5", "from 0 and 1"),
    ],
)
def test_wrong_settings_are_named(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("[", r"\[")):
        CachingConfig.parse(text)


def test_threads_may_share_the_allocator() -> None:
    cache = allocator(device_mib=4000)

    def churn(number: int) -> None:
        stream = StubStream(number)
        for size in range(300):
            held = [cache.malloc(size * factor + 1, stream) for factor in (1, 1000, 10_000)]
            for block in held:
                cache.free(block)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(churn, range(4)))
    assert cache.memory_allocated() == 0
    assert cache.memory_stats()["allocation.all.allocated"] == 4 * 300 * 3
    cache.empty_cache()
    assert cache.memory.free_bytes == cache.memory.total_bytes


SIZES = st.one_of(st.integers(1, 4096), st.integers(1, 2 * MIB), st.integers(1, 45 * MIB), st.sampled_from([MIB, 10 * MIB]))


class CachingMachine(RuleBasedStateMachine):
    """The allocator on a device of 96 MiB with three streams, and the oracle beside it."""

    @initialize(limit=st.sampled_from(["", "max_split_size_mb:20", "max_split_size_mb:24"]))
    def start(self, limit: str) -> None:
        self.streams = [StubStream(number) for number in range(3)]
        self.cache = allocator(limit, 96, self.finish_all)
        self.oracle = CachingOracle(3, 96 * MIB, self.cache.config.max_split_size)
        self.bases: dict[int, int] = {}
        self.live: dict[tuple[int, int], int] = {}

    def finish_all(self) -> None:
        for stream in self.streams:
            stream.finish()

    @rule(size=SIZES, stream=st.integers(0, 2))
    def malloc(self, size: int, stream: int) -> None:
        expected = self.oracle.malloc(size, stream)
        if expected is None:
            with pytest.raises(OutOfMemoryError):
                self.cache.malloc(size, self.streams[stream])
            return
        number, start = expected
        address = self.cache.malloc(size, self.streams[stream])
        assert self.bases.setdefault(number, self.cache.memory.base(address)) == self.cache.memory.base(address)
        assert address == self.bases[number] + start
        assert expected not in self.live
        self.live[expected] = address

    @precondition(lambda self: bool(getattr(self, "live", None)))
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        place = data.draw(st.sampled_from(sorted(self.live)))
        self.cache.free(self.live.pop(place))
        self.oracle.free(*place)

    @precondition(lambda self: bool(getattr(self, "live", None)))
    @rule(data=st.data(), stream=st.integers(0, 2))
    def record_stream(self, data: st.DataObject, stream: int) -> None:
        place = data.draw(st.sampled_from(sorted(self.live)))
        self.cache.record_stream(self.live[place], self.streams[stream])
        self.oracle.use(*place, stream)

    @rule(stream=st.integers(0, 2))
    def work(self, stream: int) -> None:
        self.streams[stream].work()
        self.oracle.given[stream] += 1

    @rule(stream=st.integers(0, 2))
    def finish(self, stream: int) -> None:
        self.streams[stream].finish()
        self.oracle.ended[stream] = self.oracle.given[stream]

    @rule()
    def empty_cache(self) -> None:
        self.cache.empty_cache()
        self.oracle.empty()

    @invariant()
    def statistics_add_up(self) -> None:
        if not hasattr(self, "oracle"):
            return
        stats, oracle = self.cache.memory_stats(), self.oracle
        assert stats["allocated_bytes.all.current"] == oracle.total("used")
        assert stats["requested_bytes.all.current"] == oracle.requested()
        assert stats["active_bytes.all.current"] == oracle.total("used", "waiting")
        assert stats["reserved_bytes.all.current"] == oracle.total() == self.cache.memory.stats.reserved
        assert stats["inactive_split_bytes.all.current"] == oracle.split_free()
        assert stats["segment.all.current"] == len(oracle.segments)
        assert (stats["num_alloc_retries"], stats["num_ooms"]) == (oracle.retries, oracle.ooms)
        for name in ("allocated_bytes", "reserved_bytes", "active", "inactive_split"):
            pools = [stats[f"{name}.{pool}.current"] for pool in ("all", "small_pool", "large_pool")]
            assert pools[0] == pools[1] + pools[2]
            assert stats[f"{name}.all.peak"] >= pools[0] == stats[f"{name}.all.allocated"] - stats[f"{name}.all.freed"]
        blocks = [block for segment in self.cache.memory_snapshot() for block in segment["blocks"]]  # pyright: ignore
        sizes = sorted(piece.size for segment in oracle.segments for piece in segment.pieces)
        assert sorted(block["size"] for block in blocks) == sizes


CachingMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=50)
TestCachingAllocator = CachingMachine.TestCase
