"""Copies and fills: which addresses lie where, and whether a copy may be made. Making it is the stream's business.

Source of the rules: hicann/runtime, memory.cpp and api_error.cc (order and codes of the checks; the addresses decide the
direction), api_ref/04 and 11-03 (peer access, asynchronous copies).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from ascend_jax.runtime.errors import AclError
from ascend_jax.runtime.memory.addresses import Allocation
from ascend_jax.runtime.memory.device import DEVICE_STRIDE, DeviceMemory
from ascend_jax.runtime.memory.host import HostMemory
from ascend_jax.runtime.memory.policy import MemcpyKind

KINDS = range(MemcpyKind.HOST_TO_BUF_TO_DEVICE + 1)
"""Kinds that the copy calls take; the two finer ones of device to device they refuse."""


class PeerAccess:
    """Which device may send to which: one direction a call, for both directions both devices must allow it.

    Args:
      connected: whether two devices have a path at all (``aclrtDeviceCanAccessPeer``).
    """

    def __init__(self, connected: Callable[[int, int], bool] = lambda device, peer: True) -> None:
        self.connected = connected
        self.allowed: set[tuple[int, int]] = set()

    def can_access(self, device: int, peer: int) -> bool:
        """Whether there is a path. Raises 107001 for a device and itself."""
        if device == peer:
            raise AclError(107001, f"peer access of device {device} with itself", remedy="name two devices")
        return self.connected(device, peer)

    def enable(self, device: int, peer: int) -> None:
        """Allow copies from ``device`` to ``peer``. Raises 207000 without a path."""
        if not self.can_access(device, peer):
            raise AclError(207000, f"devices {device} and {peer} have no path", remedy="copy through host memory")
        self.allowed.add((device, peer))

    def disable(self, device: int, peer: int) -> None:
        """Allow them no more. Raises 107000 where they were not allowed."""
        if not self.status(device, peer):
            raise AclError(107000, f"peer access from device {device} to {peer} is not enabled")
        self.allowed.remove((device, peer))

    def status(self, device: int, peer: int) -> bool:
        """Whether copies from ``device`` to ``peer`` are allowed."""
        return (device, peer) in self.allowed


@dataclass(frozen=True)
class AddressSpace:
    """All memory of a machine: the host's and, by number, that of each device."""

    host: HostMemory
    devices: Mapping[int, DeviceMemory]
    peers: PeerAccess

    def locate(self, address: int) -> HostMemory | DeviceMemory:
        """The memory that ``address`` belongs to. Raises 107000 for an address of no device."""
        number = address // DEVICE_STRIDE - 1
        if number < 0:
            return self.host
        if number not in self.devices:
            raise AclError(107000, f"{address:#x} is an address of no device", remedy="use what malloc returned")
        return self.devices[number]

    def view(self, address: int, length: int) -> np.ndarray:
        """``length`` bytes from ``address``, wherever they lie (uint8, shared)."""
        return self.locate(address).view(address, length)


@dataclass(frozen=True)
class Copy:
    """A copy that may be made.

    Attributes:
      engine: who makes it: ``h2h``, ``h2d``, ``d2h``, ``d2d`` or ``p2p`` (between devices).
      source_device, target_device: numbers, None for the host.
      blocking: an asynchronous call that must wait all the same, for host memory that is not page-locked: first for the
        stream, then for the copy.
    """

    target: int
    source: int
    count: int
    engine: str = ""
    source_device: int | None = None
    target_device: int | None = None
    blocking: bool = False

    def run(self, space: AddressSpace) -> None:
        """Move the bytes."""
        if self.engine:
            space.view(self.target, self.count)[:] = space.view(self.source, self.count)


def check_copy(
    space: AddressSpace, dst: int, dst_max: int, src: int, count: int, kind: int = MemcpyKind.DEFAULT, *, is_async: bool = False
) -> Copy:
    """Whether ``count`` bytes may be copied from ``src`` to ``dst``, and who copies them.

    A count of 0, and a copy of something onto itself, is a success that moves nothing: its ``engine`` is "".

    Args:
      dst_max: bytes that the caller knows to be free at ``dst``.
      kind: a ``MemcpyKind``; a hint that only has to be one, the addresses decide.
      is_async: for a stream.

    Raises:
      AclError: 100000 for null or a kind that the call does not take; 107000 for ``count > dst_max`` and for bytes that are
        freed, out of bounds or nobody's; 207000 for an asynchronous copy within the host; 207006 between devices that are
        not allowed to.
    """
    if count == 0:
        return Copy(dst, src, 0)
    for name, address in (("dst", dst), ("src", src)):
        if not address:
            raise AclError(100000, f"memcpy: {name} is a null pointer", category="EH0002")
    if kind not in KINDS:
        raise AclError(100000, f"memcpy: kind={kind!r} is none of {', '.join(MemcpyKind(number).name for number in KINDS)}")
    _check_count("memcpy", count, dst_max)
    copy = _directed(space, dst, src, count, is_async=is_async)
    return Copy(dst, src, 0) if dst == src else copy


def check_memset(space: AddressSpace, address: int, max_count: int, count: int) -> int:
    """Bytes to fill from ``address``: ``count``, which may be 0. The value is one byte, ``value & 0xFF``.

    Raises:
      AclError: 100000 for null, 107000 for ``count > max_count`` and for bytes that are freed, out of bounds or nobody's.
    """
    if count == 0:
        return 0
    if not address:
        raise AclError(100000, "memset: the address is a null pointer", category="EH0002")
    _check_count("memset", count, max_count)
    space.locate(address).table.check(address, count, "memset", 107000)
    return count


def _check_count(call: str, count: int, most: int) -> None:
    if not 0 < count <= most:
        remedy = "pass the size of the destination as its bound, and copy no more"
        raise AclError(107000, f"{call}: count={count} must lie in (0, {most}], the bound of the destination", remedy=remedy)


def _directed(space: AddressSpace, dst: int, src: int, count: int, *, is_async: bool) -> Copy:
    target, source = space.locate(dst), space.locate(src)
    blocks = [
        memory.table.check(address, count, f"memcpy {name}", 107000)
        for name, memory, address in (("dst", target, dst), ("src", source, src))
    ]
    to, origin = (memory.device_id if isinstance(memory, DeviceMemory) else None for memory in (target, source))
    engine = {(True, True): "h2h", (True, False): "h2d", (False, True): "d2h"}.get((origin is None, to is None), "d2d")
    if engine == "h2h" and is_async:
        raise AclError(207000, "memcpy_async: both addresses lie in host memory", remedy="copy with memcpy(), or in Python")
    if origin is not None and to is not None and origin != to:
        _check_peers(space.peers, origin, to)
        engine = "p2p"
    return Copy(dst, src, count, engine, origin, to, is_async and _is_pageable(blocks))


def _check_peers(peers: PeerAccess, origin: int, to: int) -> None:
    if not peers.status(origin, to):
        remedy = f"set_device({origin}), then enable_peer_access({to}); or copy through host memory"
        raise AclError(207006, f"memcpy: device {origin} may not send to device {to}", remedy=remedy)


def _is_pageable(blocks: list[Allocation]) -> bool:
    return not all(block.pinned for block in blocks)
