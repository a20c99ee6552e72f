"""Device memory: sizes, pages, misuse with both places, and a state machine against a plain list."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ascend_jax.hardware import load_chip
from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.runtime.errors import AclError, OutOfMemoryError
from ascend_jax.runtime.memory.addresses import FREED_KEPT
from ascend_jax.runtime.memory.device import DeviceMemory
from ascend_jax.runtime.memory.policy import GIB, HUGE_PAGE, KIB, MIB, NORMAL_PAGE, MemMallocPolicy

Policy = MemMallocPolicy


def chip(name: str = "910b3", gm_bytes: int = 8 * GIB) -> NpuSpec:
    return replace(load_chip(name), gm_bytes=float(gm_bytes))


@pytest.mark.parametrize(("name", "extra"), [("910a", 32), ("310p3", 32), ("910b3", 32), ("910_9382", 32), ("950pr_958x", 0)])
@pytest.mark.parametrize(("size", "rounded"), [(1, 32), (32, 32), (33, 64), (100, 128)])
def test_sizes_are_rounded_as_each_generation_does(name: str, extra: int, size: int, rounded: int) -> None:
    memory = DeviceMemory(chip(name), 0)
    assert memory.owner(memory.malloc(size)).size == rounded + extra
    assert memory.owner(memory.malloc(size, padded=False)).size == rounded
    assert memory.owner(memory.malloc(size, Policy.HUGE1G_ONLY)).size == rounded


@pytest.mark.parametrize(
    ("size", "policy", "reserved"),
    [
        (100, Policy.HUGE_FIRST, NORMAL_PAGE),
        (MIB - 32, Policy.HUGE_FIRST, MIB),
        (MIB, Policy.HUGE_FIRST, HUGE_PAGE),  # 32 bytes of padding take it beyond 1 MiB
        (MIB + 1, Policy.HUGE_FIRST, HUGE_PAGE),
        (3 * MIB, Policy.HUGE_FIRST_P2P, 2 * HUGE_PAGE),
        (100, Policy.HUGE_ONLY, HUGE_PAGE),
        (3 * MIB, Policy.NORMAL_ONLY, 3 * MIB + NORMAL_PAGE),
        (100, Policy.HUGE1G_ONLY, GIB),
        (3 * MIB, 99, 2 * HUGE_PAGE),
        (MIB + MIB // 2, 99, MIB + MIB // 2 + NORMAL_PAGE),
    ],
)
def test_the_policy_decides_the_pages(size: int, policy: int, reserved: int) -> None:
    memory = DeviceMemory(chip(), 0)
    address = memory.malloc(size, policy)
    assert memory.owner(address).reserved == memory.stats.reserved == reserved
    assert memory.free_bytes == memory.total_bytes - reserved
    assert address % (HUGE_PAGE if reserved % HUGE_PAGE == 0 else NORMAL_PAGE) == 0


def test_huge_first_falls_back_on_normal_pages_and_huge_only_does_not() -> None:
    memory = DeviceMemory(chip(gm_bytes=4 * HUGE_PAGE), 0)
    memory.malloc(2 * HUGE_PAGE, Policy.HUGE_ONLY, padded=False)
    small = memory.malloc(100)
    assert memory.pages.largest_bytes == HUGE_PAGE
    with pytest.raises(OutOfMemoryError) as caught:
        memory.malloc(3 * MIB, Policy.HUGE_ONLY, site="model.py:7")
    assert "HUGE_FIRST" in caught.value.remedy
    fallen_back = memory.malloc(3 * MIB, Policy.HUGE_FIRST)
    assert memory.owner(fallen_back).reserved == 3 * MIB + NORMAL_PAGE
    memory.free(small)
    memory.free(fallen_back)
    assert memory.pages.largest_bytes == 2 * HUGE_PAGE


def test_the_report_says_what_is_needed_to_act() -> None:
    memory = DeviceMemory(chip(gm_bytes=8 * MIB), 3)
    for _ in range(2):
        memory.malloc(2 * MIB, Policy.HUGE_ONLY, site="weights.py:12", padded=False)
    memory.malloc(64 * KIB, site="loop.py:3")
    with pytest.raises(OutOfMemoryError) as caught:
        memory.malloc(6 * MIB, site="cache.py:9")
    error, text = caught.value, str(caught.value)
    assert (error.code, memory.stats.ooms) == (207001, 1)
    assert text.splitlines()[0].startswith("device 3 is out of memory: 6.00 MiB (6291456 B) asked, 3.9")
    assert "allocated          4.06 MiB" in text and "reserved           4.07 MiB" in text
    assert "largest free block 2.00 MiB" in text and "fragmentation      49.2%" in text
    assert text.index("4.00 MiB (4194304 B) in 2 allocations of weights.py:12") < text.index("in 1 allocations of loop.py:3")
    with pytest.raises(OutOfMemoryError, match=r"the whole memory has 8\.00 MiB"):
        memory.malloc(9 * MIB)


@pytest.mark.parametrize("size", [0, -1])
def test_a_size_must_be_positive(size: int) -> None:
    with pytest.raises(AclError) as caught:
        DeviceMemory(chip(), 0).malloc(size)
    assert caught.value.code == 100000


def test_misuse_of_free_is_told_with_both_places() -> None:
    memory = DeviceMemory(chip(), 0)
    address = memory.malloc(1000, site="a.py:1")
    for wrong, code, text in [
        (0, 100000, "null"),
        (address + 8, 207002, "8 B inside of 1000 B"),
        (address - 1, 207002, "belongs to no allocation"),
    ]:
        with pytest.raises(AclError, match=text) as caught:
            memory.free(wrong)
        assert caught.value.code == code
    memory.free(address, site="b.py:2")
    with pytest.raises(AclError, match=r"double free of device 0: .*allocated at a.py:1, freed at b.py:2"):
        memory.free(address)
    with pytest.raises(AclError, match=r"use after free of device 0: .*a.py:1, freed at b.py:2"):
        memory.view(address, 1)


def test_views_share_their_bytes_and_keep_within_bounds() -> None:
    memory = DeviceMemory(chip(), 0)
    address = memory.malloc(100)
    memory.view(address + 4, 4).view(np.float32)[:] = 1.5
    assert memory.view(address, 8).view(np.float32).tolist() == [0.0, 1.5]
    assert memory.view(address, 160).size == 160
    with pytest.raises(AclError, match=r"161 B from .* end 1 B past the allocation") as caught:
        memory.view(address, 161)
    assert caught.value.code == 507015
    with pytest.raises(AclError, match=r"belongs to no allocation .* past the end of 100 B"):
        memory.view(address + 160, 1)


@pytest.mark.parametrize("size", [NORMAL_PAGE, 2 * HUGE_PAGE])
def test_the_end_of_one_allocation_is_not_the_start_of_the_next(size: int) -> None:
    memory = DeviceMemory(chip(), 0)
    first, second = memory.malloc(size, padded=False), memory.malloc(size, padded=False)
    for beyond in (first + size, second - 1):
        with pytest.raises(AclError, match="belongs to no allocation"):
            memory.view(beyond, 1)


def test_contents_beyond_this_machines_memory_cost_only_what_is_touched() -> None:
    memory = DeviceMemory(chip(gm_bytes=1024 * GIB), 0)
    address = memory.malloc(1000 * GIB)
    memory.view(address + 999 * GIB, 8)[:] = 7
    assert memory.view(address + 999 * GIB, 9).tolist() == [7] * 8 + [0]


def test_old_frees_are_forgotten_and_still_found() -> None:
    memory = DeviceMemory(chip(), 0)
    first = memory.malloc(1)
    memory.free(first, site="long ago")
    for _ in range(FREED_KEPT):
        memory.free(memory.malloc(1))
    with pytest.raises(AclError, match="belongs to no allocation") as caught:
        memory.free(first)
    assert caught.value.code == 207002
    assert memory.base(first) == first


def test_addresses_tell_devices_apart() -> None:
    one, other = DeviceMemory(chip(), 0), DeviceMemory(chip(), 1)
    assert one.malloc(1) // 2**48 == 1 and other.malloc(1) // 2**48 == 2


class DeviceMemoryMachine(RuleBasedStateMachine):
    """Random allocations and frees of 64 MiB, beside a list of (address, size, reserved) and counts of pages."""

    @initialize(name=st.sampled_from(["910b3", "950pr_958x"]))
    def start(self, name: str) -> None:
        self.memory = DeviceMemory(chip(name, 64 * MIB), 0)
        self.live: dict[int, tuple[int, int]] = {}
        self.freed: list[int] = []

    @rule(size=st.one_of(st.integers(1, 64), st.integers(1, 20 * MIB)), policy=st.sampled_from([0, 1, 2, 3, 99]))
    def malloc(self, size: int, policy: int) -> None:
        free, whole = self.memory.free_bytes, self.memory.pages.largest_bytes
        try:
            address = self.memory.malloc(size, policy)
        except OutOfMemoryError:
            huge_only = policy in (1, 99)
            assert size + 64 > (whole if huge_only else free) - HUGE_PAGE * huge_only - NORMAL_PAGE
            assert (free, whole) == (self.memory.free_bytes, self.memory.pages.largest_bytes)
            return
        block = self.memory.owner(address)
        assert block.size >= size and block.reserved >= block.size and block.reserved % NORMAL_PAGE == 0
        assert address % NORMAL_PAGE == 0
        for other, (length, _) in self.live.items():
            assert address + block.size <= other or other + length <= address
        assert address not in self.freed
        self.live[address] = (block.size, block.reserved)
        self.memory.view(address, min(size, 8))[:] = len(self.live) % 256

    @precondition(lambda self: bool(getattr(self, "live", None)))
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        address = data.draw(st.sampled_from(sorted(self.live)))
        self.memory.free(address)
        del self.live[address]
        self.freed.append(address)

    @precondition(lambda self: bool(getattr(self, "freed", None)))
    @rule(data=st.data())
    def free_twice(self, data: st.DataObject) -> None:
        with pytest.raises(AclError, match="double free"):
            self.memory.free(data.draw(st.sampled_from(self.freed)))

    @rule()
    def release_all(self) -> None:
        assert self.memory.release_all() == len(self.live)
        self.freed += self.live
        self.live = {}

    @invariant()
    def counts_add_up(self) -> None:
        if not hasattr(self, "memory"):
            return
        memory, stats = self.memory, self.memory.stats
        assert stats.reserved == sum(reserved for _, reserved in self.live.values())
        assert memory.free_bytes == memory.total_bytes - stats.reserved
        assert stats.allocated == sum(block.requested for block in memory.table.live.values())
        assert stats.mallocs - stats.frees == len(self.live) == len(memory.table.live)
        assert stats.reserved_peak >= stats.reserved and stats.allocated_peak >= stats.allocated
        assert memory.pages.loose_pages == sum(memory.pages.loose.values())
        if not self.live:
            assert memory.pages.largest_bytes == memory.total_bytes, "nothing in use and nothing broken"


DeviceMemoryMachine.TestCase.settings = settings(max_examples=25, stateful_step_count=40)
TestDeviceMemory = DeviceMemoryMachine.TestCase
