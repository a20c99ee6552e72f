"""Host memory, and the checks before a copy: order, codes, direction by address, peers."""

import gc
from dataclasses import replace

import numpy as np
import pytest

from ascend_jax.hardware import load_chip
from ascend_jax.runtime.errors import AclError
from ascend_jax.runtime.memory.copy import AddressSpace, PeerAccess, check_copy, check_memset
from ascend_jax.runtime.memory.device import DeviceMemory
from ascend_jax.runtime.memory.host import HostMemory
from ascend_jax.runtime.memory.policy import MemcpyKind


@pytest.fixture
def space() -> AddressSpace:
    spec = replace(load_chip("910b3"), gm_bytes=2.0**30)
    return AddressSpace(HostMemory(), {number: DeviceMemory(spec, number) for number in (0, 1)}, PeerAccess())


def refused(code: int, space: AddressSpace, *call: int, is_async: bool = False) -> str:
    """The message of a copy that must fail with ``code``."""
    with pytest.raises(AclError) as caught:
        check_copy(space, *call, is_async=is_async)  # pyright: ignore[reportCallIssue]
    assert caught.value.code == code
    return str(caught.value)


def test_the_addresses_decide_the_direction_whatever_the_kind(space: AddressSpace) -> None:
    host, device, other = space.host.malloc_host(64), space.devices[0].malloc(64), space.devices[0].malloc(64)
    pairs = {"h2d": (device, host), "d2h": (host, device), "d2d": (other, device), "h2h": (host + 32, host)}
    for engine, (dst, src) in pairs.items():
        for kind in range(6):
            assert check_copy(space, dst, 32, src, 32, kind).engine == engine
    copy = check_copy(space, device, 32, host, 32)
    assert (copy.source_device, copy.target_device, copy.blocking) == (None, 0, False)


def test_a_copy_moves_its_bytes_and_no_others(space: AddressSpace) -> None:
    array = np.arange(8, dtype=np.uint8)
    device = space.devices[0].malloc(8)
    check_copy(space, device + 2, 8, space.host.pointer(array) + 1, 3).run(space)
    assert space.view(device, 8).tolist() == [0, 0, 1, 2, 3, 0, 0, 0]
    back = np.zeros(2, np.int16)
    check_copy(space, space.host.pointer(back), back.nbytes, device + 2, 4).run(space)
    assert back.tobytes() == bytes([1, 2, 3, 0])


def test_nothing_to_copy_is_no_error(space: AddressSpace) -> None:
    device = space.devices[0].malloc(64)
    assert check_copy(space, 0, 0, 0, 0).engine == ""
    assert check_copy(space, device, 64, device, 64).engine == ""
    check_copy(space, 0, 0, 0, 0).run(space)


def test_the_checks_come_in_order_with_their_codes(space: AddressSpace) -> None:
    host, device = space.host.malloc_host(64), space.devices[0].malloc(64)
    assert "dst is a null pointer" in refused(100000, space, 0, 1, 0, 2, 99)
    assert "src is a null pointer" in refused(100000, space, device, 1, 0, 2, 99)
    for kind in (MemcpyKind.INNER_DEVICE_TO_DEVICE, MemcpyKind.INTER_DEVICE_TO_DEVICE, -1):
        assert "is none of HOST_TO_HOST" in refused(100000, space, device, 1, host, 2, kind)
    assert "count=2 must lie in (0, 1]" in refused(107000, space, device, 1, host, 2)
    assert "must lie in (0, 64]" in refused(107000, space, device, 64, host, -1)
    assert "65 B from" in refused(107000, space, device, 65, host, 65)
    assert "dst" in refused(107000, space, device + 96, 64, host, 64)
    assert "address of no device" in refused(107000, space, 7 << 48, 64, host, 64)
    space.devices[0].free(device, site="free.py:4")
    assert "use after free" in refused(107000, space, device, 64, host, 64)


def test_asynchronous_copies_want_page_locked_memory_and_a_device(space: AddressSpace) -> None:
    array = np.zeros(64, np.uint8)
    pinned, pageable, device = space.host.malloc_host(64), space.host.pointer(array), space.devices[0].malloc(64)
    assert not check_copy(space, device, 64, pinned, 64, is_async=True).blocking
    assert check_copy(space, device, 64, pageable, 64, is_async=True).blocking
    assert not check_copy(space, device, 64, pageable, 64).blocking
    refused(207000, space, pinned, 64, pageable, 64, MemcpyKind.HOST_TO_HOST, is_async=True)


def test_peers_are_allowed_one_direction_at_a_time(space: AddressSpace) -> None:
    here, there = space.devices[0].malloc(64), space.devices[1].malloc(64)
    assert "enable_peer_access(1)" in refused(207006, space, there, 64, here, 64)
    space.peers.enable(0, 1)
    copy = check_copy(space, there, 64, here, 64)
    assert (copy.engine, copy.source_device, copy.target_device) == ("p2p", 0, 1)
    refused(207006, space, here, 64, there, 64)
    space.peers.disable(0, 1)
    refused(207006, space, there, 64, here, 64)
    with pytest.raises(AclError, match="is not enabled"):
        space.peers.disable(0, 1)
    with pytest.raises(AclError, match="with itself"):
        space.peers.can_access(1, 1)
    with pytest.raises(AclError, match="have no path") as caught:
        PeerAccess(lambda device, peer: False).enable(0, 1)
    assert caught.value.code == 207000


def test_memset_is_checked_against_its_bound_and_the_allocation(space: AddressSpace) -> None:
    device = space.devices[0].malloc(64)
    assert check_memset(space, 0, 0, 0) == 0
    assert check_memset(space, device, 96, 96) == 96
    for address, most, count, code in [(0, 1, 1, 100000), (device, 1, 2, 107000), (device, 200, 97, 107000)]:
        with pytest.raises(AclError) as caught:
            check_memset(space, address, most, count)
        assert caught.value.code == code


def test_an_array_is_one_address_while_it_lives() -> None:
    memory = HostMemory()
    array = np.arange(3, dtype=np.float32)
    address = memory.pointer(array, site="script.py:1")
    assert memory.pointer(array) == address
    memory.view(address, 4).view(np.float32)[0] = 9
    assert array[0] == 9
    with pytest.raises(AclError, match="the program frees its arrays itself"):
        memory.free_host(address)
    del array
    gc.collect()
    with pytest.raises(AclError, match=r"use after free of host: 12 B .* allocated at script.py:1"):
        memory.view(address, 1)


def test_another_array_at_the_same_place_is_another_address() -> None:
    memory, seen = HostMemory(), set()
    for size in range(1, 20):
        array = np.full(size, size, np.uint8)
        address = memory.pointer(array)
        assert memory.view(address, size).tolist() == [size] * size
        seen.add(address)
        del array
    assert len(seen) == 19 and not memory.table.live


def test_what_host_memory_refuses() -> None:
    memory = HostMemory()
    block = memory.malloc_host(16)
    memory.free_host(block)
    for call, code in [
        (lambda: memory.free_host(block), 207002),
        (lambda: memory.free_host(0), 100000),
        (lambda: memory.malloc_host(0), 100000),
        (lambda: memory.pointer(np.zeros((4, 4))[:, 1]), 100000),
        (lambda: memory.pointer(np.zeros(0)), 100000),
    ]:
        with pytest.raises(AclError) as caught:
            call()
        assert caught.value.code == code
