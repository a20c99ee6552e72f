"""The stream-ordered pool: who may reuse what and when, attributes, trims, and a state machine against granules in a list."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ascend_jax.hardware import load_chip
from ascend_jax.runtime.errors import AclError, OutOfMemoryError, peek_at_last_error
from ascend_jax.runtime.memory.device import DeviceMemory
from ascend_jax.runtime.memory.policy import HUGE_PAGE, MIB
from ascend_jax.runtime.memory.pool import FLAGS, MemPool, MemPoolAttr, MemPoolProps
from tests.runtime.memory_stubs import StubStream
from tests.runtime.pool_oracle import PoolOracle

Attr = MemPoolAttr


def memory(granules: int = 8) -> DeviceMemory:
    return DeviceMemory(replace(load_chip("910b3"), gm_bytes=float(granules * HUGE_PAGE)), 0)


def two_streams() -> tuple[StubStream, StubStream]:
    return StubStream(0), StubStream(1)


def test_a_stream_has_its_own_memory_back_at_once() -> None:
    stream, _ = two_streams()
    pool = MemPool(memory())
    first = pool.malloc_async(100, stream)
    stream.work()
    pool.free_async(first, stream)
    assert pool.malloc_async(HUGE_PAGE, stream) == first
    assert pool.get_attr(Attr.RESERVED_MEM_CURRENT) == HUGE_PAGE


def test_the_smallest_block_that_fits_is_taken_and_cut() -> None:
    stream, _ = two_streams()
    pool = MemPool(memory())
    large, between, small = (pool.malloc_async(size * HUGE_PAGE, stream) for size in (3, 1, 2))
    pool.free_async(large, stream)
    pool.free_async(small, stream)
    assert pool.malloc_async(2 * HUGE_PAGE, stream) == small
    assert pool.malloc_async(HUGE_PAGE, stream) == large
    assert pool.malloc_async(2 * HUGE_PAGE, stream) == large + HUGE_PAGE
    assert pool.get_attr(Attr.RESERVED_MEM_CURRENT) == pool.get_attr(Attr.USED_MEM_CURRENT) == 6 * HUGE_PAGE
    pool.free_async(between, stream)


def test_of_equal_blocks_the_lower_is_taken() -> None:
    stream, _ = two_streams()
    pool = MemPool(memory())
    blocks = [pool.malloc_async(1, stream) for _ in range(4)]
    for place in (2, 0):
        pool.free_async(blocks[place], stream)
    assert [pool.malloc_async(1, stream) for _ in range(2)] == [blocks[0], blocks[2]]


def test_a_streams_own_memory_comes_before_that_of_others() -> None:
    one, other = two_streams()
    pool = MemPool(memory())
    for attr in FLAGS:
        pool.set_attr(attr, 1)
    foreign, _, own = (pool.malloc_async(size * HUGE_PAGE, one) for size in (1, 1, 3))
    pool.free_async(foreign, one)
    pool.free_async(own, other)
    assert pool.malloc_async(1, other) == own, "although the other would fit better"
    assert pool.malloc_async(3 * HUGE_PAGE, other) not in (own, foreign)


def test_one_wait_for_the_last_of_several_frees() -> None:
    one, other = two_streams()
    pool = MemPool(memory())
    pool.set_attr(Attr.REUSE_ALLOW_INTERNAL_DEPENDENCIES, 1)
    blocks = [pool.malloc_async(1, one) for _ in range(2)]
    for block in blocks:
        one.work()
        pool.free_async(block, one)
    assert pool.malloc_async(2 * HUGE_PAGE, other) == blocks[0]
    assert [task.after for task in other.tasks] == [one.tasks[1]]


def freed_by_another(attr: MemPoolAttr | None) -> tuple[MemPool, StubStream, StubStream, int]:
    """A pool with one block that stream 0 freed after a task that has not ended."""
    one, other = two_streams()
    pool = MemPool(memory())
    block = pool.malloc_async(1, one)
    one.work()
    pool.free_async(block, one)
    if attr is not None:
        pool.set_attr(attr, 1)
    return pool, one, other, block


def test_another_stream_gets_new_memory_unless_it_is_allowed_to_reuse() -> None:
    pool, one, other, block = freed_by_another(None)
    one.finish()
    other.wait_for(one)
    assert pool.malloc_async(1, other) != block


def test_an_event_lets_another_stream_reuse() -> None:
    pool, one, other, block = freed_by_another(Attr.REUSE_FOLLOW_EVENT_DEPENDENCIES)
    one.finish()
    assert pool.malloc_async(1, other) != block, "it has happened, but nothing says so"
    other.wait_for(one)
    assert pool.malloc_async(1, other) == block


def test_an_event_recorded_before_the_free_does_not() -> None:
    one, other = two_streams()
    pool = MemPool(memory())
    pool.set_attr(Attr.REUSE_FOLLOW_EVENT_DEPENDENCIES, 1)
    block = pool.malloc_async(1, one)
    one.work()
    other.wait_for(one)
    one.work()
    pool.free_async(block, one)
    assert pool.malloc_async(1, other) != block


def test_an_opportunity_is_a_free_that_has_happened() -> None:
    pool, one, other, block = freed_by_another(Attr.REUSE_ALLOW_OPPORTUNISTIC)
    assert pool.malloc_async(1, other) != block
    one.finish()
    assert pool.malloc_async(1, other) == block
    assert other.actor.clock == {0: 1}, "what it does next comes after the free"
    assert not other.tasks


def test_an_internal_dependency_is_a_wait_that_the_pool_submits() -> None:
    pool, one, other, block = freed_by_another(Attr.REUSE_ALLOW_INTERNAL_DEPENDENCIES)
    assert pool.malloc_async(1, other) == block
    assert [(task.kind, task.after) for task in other.tasks] == [("wait", one.tail)]
    assert other.actor.clock == {0: 1}


def test_memory_above_the_threshold_goes_back_at_the_next_synchronisation() -> None:
    stream, _ = two_streams()
    device = memory()
    pool = MemPool(device)
    blocks = [pool.malloc_async(HUGE_PAGE, stream) for _ in range(4)]
    pool.set_attr(Attr.RELEASE_THRESHOLD, 2 * HUGE_PAGE)
    stream.work()
    for block in blocks[1:]:
        pool.free_async(block, stream)
    pool.synchronized()
    assert pool.get_attr(Attr.RESERVED_MEM_CURRENT) == 4 * HUGE_PAGE, "the free has not happened yet"
    stream.finish()
    pool.synchronized()
    assert pool.get_attr(Attr.RESERVED_MEM_CURRENT) == device.stats.reserved == 2 * HUGE_PAGE
    pool.trim_to(0)
    assert pool.get_attr(Attr.RESERVED_MEM_CURRENT) == device.stats.reserved == HUGE_PAGE, "what is in use stays"
    assert pool.get_attr(Attr.RESERVED_MEM_HIGH) == pool.get_attr(Attr.USED_MEM_HIGH) == 4 * HUGE_PAGE


@pytest.mark.parametrize(
    ("attr", "value", "text"),
    [
        (Attr.RESERVED_MEM_CURRENT, 0, "read only"),
        (Attr.USED_MEM_CURRENT, 1, "read only"),
        (Attr.USED_MEM_HIGH, 1, r"must lie in \[0, 0\]"),
        (Attr.REUSE_ALLOW_OPPORTUNISTIC, 2, r"must lie in \[0, 1\]"),
        (Attr.RELEASE_THRESHOLD, 9 * HUGE_PAGE, "must lie in"),
        (9, 0, "no attribute"),
    ],
)
def test_what_attributes_refuse(attr: int, value: int, text: str) -> None:
    with pytest.raises(AclError, match=text) as caught:
        MemPool(memory()).set_attr(attr, value)
    assert caught.value.code == 107000


def test_peaks_can_be_reset_to_nothing_but_0() -> None:
    stream, _ = two_streams()
    pool = MemPool(memory())
    pool.free_async(pool.malloc_async(1, stream), stream)
    pool.set_attr(Attr.USED_MEM_HIGH, 0)
    assert pool.get_attr(Attr.USED_MEM_HIGH) == 0
    pool.malloc_async(1, stream)
    assert pool.get_attr(Attr.USED_MEM_HIGH) == HUGE_PAGE


def test_the_size_of_a_pool_is_a_bound_and_takes_no_memory() -> None:
    device, (stream, _) = memory(), two_streams()
    pool = MemPool(device, MemPoolProps(max_size=3 * MIB))
    assert (pool.max_size, device.stats.reserved) == (4 * MIB, 0)
    pool.malloc_async(4 * MIB, stream)
    with pytest.raises(OutOfMemoryError, match=r"capacity +4\.00 MiB .* of the pool, 12\.00 MiB"):
        pool.malloc_async(1, stream)
    assert MemPool(device).max_size == device.total_bytes
    with pytest.raises(AclError, match="max_size"):
        MemPool(device, MemPoolProps(max_size=device.total_bytes + 1))


def test_out_of_memory_says_that_other_streams_hold_it() -> None:
    one, other = two_streams()
    pool = MemPool(memory(2))
    pool.free_async(pool.malloc_async(2 * HUGE_PAGE, one), one)
    with pytest.raises(OutOfMemoryError, match=r"4\.00 MiB \(4194304 B\) of it were freed on other streams") as caught:
        pool.malloc_async(1, other)
    assert "REUSE_ALLOW_INTERNAL_DEPENDENCIES" in caught.value.remedy


def test_wrong_calls() -> None:
    stream, _ = two_streams()
    pool = MemPool(memory(), site="pool.py:1")
    block = pool.malloc_async(1, stream)
    pool.free_async(block, stream)
    for call, code in [
        (lambda: pool.free_async(block, stream), 207002),
        (lambda: pool.free_async(block + 1, stream), 207002),
        (lambda: pool.free_async(0, stream), 107000),
        (lambda: pool.malloc_async(0, stream), 107000),
        (lambda: pool.trim_to(pool.max_size + 1), 107000),
    ]:
        with pytest.raises(AclError) as caught:
            call()
        assert caught.value.code == code
    pool.destroy(site="end.py:2")
    with pytest.raises(AclError, match=r"destroyed: .*pool.py:1, freed at end.py:2") as caught:
        pool.malloc_async(1, stream)
    assert caught.value.code == 107017
    assert pool.memory.free_bytes == pool.memory.total_bytes


def test_a_reset_of_the_device_ends_its_pools() -> None:
    stream, _ = two_streams()
    pool = MemPool(memory())
    pool.malloc_async(1, stream)
    pool.memory.release_all()
    for follow_up in pool.memory.on_synchronise:
        follow_up()
    assert pool.memory.free_bytes == pool.memory.total_bytes
    with pytest.raises(AclError, match="destroyed"):
        pool.malloc_async(1, stream)
    assert peek_at_last_error() == 107017


def test_threads_may_share_a_pool() -> None:
    pool = MemPool(memory(64))

    def churn(number: int) -> None:
        stream = StubStream(number)
        for size in range(200):
            held = [pool.malloc_async((size % 3 + 1) * HUGE_PAGE, stream) for _ in range(3)]
            for block in held:
                pool.free_async(block, stream)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(churn, range(4)))
    assert pool.get_attr(Attr.USED_MEM_CURRENT) == 0
    assert sum(item.size for item in pool.segments) == pool.max_size
    pool.trim_to(0)
    assert pool.memory.free_bytes == pool.memory.total_bytes


class PoolMachine(RuleBasedStateMachine):
    """A pool of 12 granules on a device of 10, three streams, and the oracle beside them."""

    @initialize()
    def start(self) -> None:
        self.device = memory(12)
        assert self.device.pages.take(2 * HUGE_PAGE, HUGE_PAGE)
        self.pool = MemPool(self.device)
        self.oracle = PoolOracle(12, 3, 10)
        self.streams = [StubStream(number) for number in range(3)]
        self.live: dict[int, int] = {}

    @rule(number=st.integers(1, 5), stream=st.integers(0, 2), spare=st.integers(0, HUGE_PAGE - 1))
    def malloc(self, number: int, stream: int, spare: int) -> None:
        expected = self.oracle.malloc(number, stream)
        before = len(self.streams[stream].tasks)
        if expected is None:
            with pytest.raises(OutOfMemoryError):
                self.pool.malloc_async(number * HUGE_PAGE - spare, self.streams[stream])
            return
        place, waits = expected
        address = self.pool.malloc_async(number * HUGE_PAGE - spare, self.streams[stream])
        assert address == self.pool.block.address + place * HUGE_PAGE
        submitted = self.streams[stream].tasks[before:]
        assert sorted(waits) == sorted(s.stream_id for task in submitted for s in self.streams if task.after in s.tasks)
        self.oracle.given[stream] += len(submitted)
        self.live[place] = number

    @precondition(lambda self: bool(getattr(self, "live", None)))
    @rule(data=st.data(), stream=st.integers(0, 2))
    def free(self, data: st.DataObject, stream: int) -> None:
        place = data.draw(st.sampled_from(sorted(self.live)))
        self.pool.free_async(self.pool.block.address + place * HUGE_PAGE, self.streams[stream])
        self.oracle.free(place, self.live.pop(place), stream)

    @rule(stream=st.integers(0, 2))
    def work(self, stream: int) -> None:
        self.streams[stream].work()
        self.oracle.given[stream] += 1

    @rule(stream=st.integers(0, 2))
    def finish(self, stream: int) -> None:
        self.streams[stream].finish()
        self.oracle.ended[stream] = self.oracle.given[stream]

    @rule(stream=st.integers(0, 2), other=st.integers(0, 2))
    def wait(self, stream: int, other: int) -> None:
        if stream != other:
            self.streams[stream].wait_for(self.streams[other])
            oracle = self.oracle
            oracle.given[stream] += 1
            pairs = zip(oracle.known[stream], oracle.known[other], strict=True)
            oracle.known[stream] = [max(pair) for pair in pairs]
            oracle.known[stream][other] = max(oracle.known[stream][other], oracle.given[other])

    @rule(flag=st.sampled_from(["event", "chance", "internal"]), value=st.booleans())
    def allow(self, flag: str, value: bool) -> None:
        attrs = {
            "event": Attr.REUSE_FOLLOW_EVENT_DEPENDENCIES,
            "chance": Attr.REUSE_ALLOW_OPPORTUNISTIC,
            "internal": Attr.REUSE_ALLOW_INTERNAL_DEPENDENCIES,
        }
        self.pool.set_attr(attrs[flag], int(value))
        self.oracle.flags[flag] = value

    @rule(keep=st.integers(0, 12 * HUGE_PAGE))
    def trim(self, keep: int) -> None:
        expected = self.oracle.trimmed_to(keep)
        self.pool.trim_to(keep)
        assert self.pool.get_attr(Attr.RESERVED_MEM_CURRENT) == expected
        for item in self.pool.segments:
            first = (item.address - self.pool.block.address) // HUGE_PAGE
            for granule in self.oracle.pool[first : first + item.size // HUGE_PAGE]:
                assert granule.state in (item.state.value, "cached")
                granule.state = item.state.value

    @invariant()
    def everything_adds_up(self) -> None:
        if not hasattr(self, "pool"):
            return
        pool, oracle, items = self.pool, self.oracle, list(self.pool.segments)
        assert pool.get_attr(Attr.USED_MEM_CURRENT) == oracle.count("used")
        assert pool.get_attr(Attr.RESERVED_MEM_CURRENT) == oracle.count("used", "cached") == self.device.stats.reserved
        assert pool.get_attr(Attr.USED_MEM_HIGH) == oracle.used_high
        assert pool.get_attr(Attr.RESERVED_MEM_HIGH) == oracle.reserved_high
        assert self.device.free_bytes == 10 * HUGE_PAGE - self.device.stats.reserved
        assert [item.address + item.size for item in items][:-1] == [item.address for item in items][1:]
        assert sum(item.size for item in items) == pool.max_size


PoolMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=50)
TestMemPool = PoolMachine.TestCase
