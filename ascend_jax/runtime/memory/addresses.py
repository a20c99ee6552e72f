"""Allocations by address: which one an address belongs to, alive or freed, and the bytes that lie there.

An address is never given out twice and a page stays empty between two allocations, so that a use after free and an access
past the end are found for certain. Hardware finds neither: it reads what happens to lie there.
"""

import mmap
import sys
from bisect import bisect_right, insort
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from ascend_jax.runtime.errors import AclError
from ascend_jax.runtime.memory.pages import Holding
from ascend_jax.runtime.memory.policy import NORMAL_PAGE, round_up

LARGE = 2**26
"""Contents from this size on are mapped without a reservation."""
UNRESERVED = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000} if sys.platform == "linux" else {}
"""0x4000 is Linux's MAP_NORESERVE, which Python names from 3.13 on."""
FREED_KEPT = 4096
"""Freed allocations that are remembered with their places; older ones are known only to be gone."""


@dataclass(eq=False, slots=True)
class Allocation:
    """One allocation of device or host memory.

    Attributes:
      address, size: first byte and bytes that may be used (``requested``, rounded up).
      requested: bytes that were asked for.
      reserved: bytes of its pages; ``holding`` says which.
      policy: the ``MemMallocPolicy`` that was asked for.
      pinned: host memory that a copy can use without waiting (page-locked).
      site, freed_site: where it was allocated and freed (file and line, "" unknown); ``freed_site`` is None while it lives.
      data: its bytes, made when they are first looked at.
    """

    address: int
    requested: int
    size: int
    reserved: int = 0
    policy: int = 0
    pinned: bool = True
    site: str = ""
    freed_site: str | None = None
    holding: Holding = (0, ())
    data: np.ndarray | None = field(default=None, repr=False)

    @property
    def freed(self) -> bool:
        """Whether it was given back."""
        return self.freed_site is not None

    @property
    def stop(self) -> int:
        """The first address past its end."""
        return self.address + self.size

    def __str__(self) -> str:
        story = f"{self.requested} B at {self.address:#x}" + _at("allocated", self.site)
        return story + (_at("freed", self.freed_site or "unknown place") if self.freed else "")


class AddressTable:
    """The allocations of one memory, live and lately freed.

    Args:
      name: what messages call the memory: ``device 0``, ``host``.
      start: its first address.
    """

    def __init__(self, name: str, start: int) -> None:
        self.name, self.start = name, start
        self.live: dict[int, Allocation] = {}
        self.next_address = start
        self._bases: list[int] = []
        self._freed: dict[int, Allocation] = {}
        self._order: deque[int] = deque()

    def place(self, allocation: Allocation, alignment: int) -> None:
        """Give ``allocation`` an address, a multiple of ``alignment``."""
        allocation.address = round_up(self.next_address, alignment)
        self.next_address = round_up(allocation.address + max(allocation.size, allocation.reserved), NORMAL_PAGE) + NORMAL_PAGE
        self.live[allocation.address] = allocation
        insort(self._bases, allocation.address)

    def retire(self, address: int, site: str) -> Allocation:
        """End the allocation that begins at ``address``. Raises 207002, with the story of what lies there."""
        allocation = self.live.pop(address, None)
        if allocation is None:
            raise self._not_live(address)
        allocation.freed_site, allocation.data = site, None
        self._freed[address] = allocation
        self._order.append(address)
        if len(self._order) > FREED_KEPT:
            oldest = self._order.popleft()
            del self._freed[oldest]
            del self._bases[bisect_right(self._bases, oldest) - 1]
        return allocation

    def find(self, address: int) -> Allocation | None:
        """The allocation, alive or lately freed, that ``address`` lies in; None where there is none."""
        place = bisect_right(self._bases, address) - 1
        if place < 0:
            return None
        base = self._bases[place]
        allocation = self.live.get(base) or self._freed[base]
        return allocation if address < max(allocation.stop, base + 1) else None

    def owner(self, address: int) -> Allocation:
        """:meth:`find`. Raises 107000 where there is none."""
        allocation = self.find(address)
        if allocation is None:
            raise AclError(107000, f"{address:#x} of {self.name} belongs to no allocation{self._near(address)}")
        return allocation

    def check(self, address: int, length: int, what: str, code: int) -> Allocation:
        """The live allocation that holds ``length`` bytes from ``address``. Raises ``code`` for one that is freed or ends."""
        allocation = self.find(address)
        if allocation is None:
            raise AclError(code, f"{what}: {address:#x} of {self.name} belongs to no allocation{self._near(address)}")
        if allocation.freed:
            remedy = "free it after the work that uses it: synchronise the stream in between"
            raise AclError(code, f"{what}: use after free of {self.name}: {allocation}", remedy=remedy)
        if address + length > allocation.stop:
            past = address + length - allocation.stop
            where = f"{length} B from {address:#x} of {self.name} end {past} B past the allocation of {allocation}"
            raise AclError(code, f"{what}: {where}", remedy="use at most the bytes that were allocated")
        return allocation

    def view(self, address: int, length: int, code: int = 507015) -> np.ndarray:
        """``length`` bytes from ``address`` as a uint8 array that shares its memory with every other view of them.

        Raises:
          AclError: ``code`` for bytes that are freed, out of bounds or nobody's (507015: what a kernel would fail with).
            200000 where this machine's own memory does not suffice.
        """
        allocation = self.check(address, length, "access", code)
        if allocation.data is None:
            allocation.data = _zeros(allocation)
        offset = address - allocation.address
        return allocation.data[offset : offset + length]

    def _not_live(self, address: int) -> AclError:
        allocation = self.find(address)
        if allocation is None:
            return AclError(207002, f"free of {address:#x} of {self.name}, which belongs to no allocation{self._near(address)}")
        if allocation.freed:
            return AclError(207002, f"double free of {self.name}: {allocation}")
        inside = f"free of {address:#x}, which lies {address - allocation.address} B inside of {allocation}"
        return AclError(207002, inside, remedy=f"free {allocation.address:#x}, which malloc returned")

    def _near(self, address: int) -> str:
        place = bisect_right(self._bases, address) - 1
        if place < 0:
            return ""
        base = self._bases[place]
        allocation = self.live.get(base) or self._freed[base]
        return f" ({address - allocation.stop} B past the end of {allocation})"


def _zeros(allocation: Allocation) -> np.ndarray:
    """Zeroed bytes of which those that nobody touches cost no memory, even where they exceed this machine's."""
    try:
        if allocation.size < LARGE:
            return np.zeros(allocation.size, np.uint8)
        return np.frombuffer(mmap.mmap(-1, allocation.size, **UNRESERVED), np.uint8)
    except (MemoryError, OSError) as error:
        raise AclError(200000, f"this machine has no memory to hold the contents of {allocation}") from error


def _at(verb: str, site: str) -> str:
    return f", {verb} at {site}" if site else ""
