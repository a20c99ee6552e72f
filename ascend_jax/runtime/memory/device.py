"""``DeviceMemory``: the memory of one device as malloc and free see it."""

import threading
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.runtime.errors import AclError
from ascend_jax.runtime.memory.addresses import AddressTable, Allocation
from ascend_jax.runtime.memory.pages import Holding, Pages, held_bytes
from ascend_jax.runtime.memory.policy import HUGE_PAGE, SIZE_UNIT, MemMallocPolicy, device_size, pages_to_try
from ascend_jax.runtime.memory.report import device_oom

DEVICE_STRIDE = 1 << 48
"""Device ``n`` owns the addresses from ``(n + 1) · DEVICE_STRIDE``; below the first one lies the host."""


@dataclass
class MemoryStats:
    """Bytes and counts of one device's memory. ``allocated`` was asked for, ``reserved`` is in pages that are in use."""

    allocated: int = 0
    allocated_peak: int = 0
    reserved: int = 0
    reserved_peak: int = 0
    mallocs: int = 0
    frees: int = 0
    ooms: int = 0

    def add(self, requested: int, reserved: int) -> None:
        """One allocation more."""
        self.mallocs += 1
        self.allocated += requested
        self.reserved += reserved
        self.allocated_peak = max(self.allocated_peak, self.allocated)
        self.reserved_peak = max(self.reserved_peak, self.reserved)

    def take(self, requested: int, reserved: int) -> None:
        """One allocation less."""
        self.frees += 1
        self.allocated -= requested
        self.reserved -= reserved


class DeviceMemory:
    """Device memory: virtual addresses over physical pages. Nothing here waits for a stream, as on the device.

    Args:
      spec: the chip; its ``gm_bytes`` are the capacity. The 950 (architecture ``direct``) adds no padding.
      device_id: its number, which sets its addresses apart.

    Attributes:
      lock: held while anything of it changes; nobody waits for a stream under it.
      on_synchronise: what a stream calls that the host has waited for: pools give back what they hold beyond their threshold.

    >>> from ascend_jax.hardware import load_chip
    >>> memory = DeviceMemory(load_chip("910b3"), 0)
    >>> address = memory.malloc(100)
    >>> memory.owner(address).size, memory.stats.reserved, memory.view(address, 4).tolist()
    (160, 4096, [0, 0, 0, 0])
    """

    def __init__(self, spec: NpuSpec, device_id: int) -> None:
        self.device_id = device_id
        self.padding = 0 if spec.architecture == "direct" else SIZE_UNIT
        self.table = AddressTable(f"device {device_id}", (device_id + 1) * DEVICE_STRIDE)
        self.pages = Pages(int(spec.gm_bytes))
        self.total_bytes = self.pages.free_bytes
        self.stats = MemoryStats()
        self.lock = threading.RLock()
        self.on_synchronise: list[Callable[[], None]] = []

    @property
    def free_bytes(self) -> int:
        """Bytes of free pages of either size (``aclrtGetMemInfo`` of ``ACL_HBM_MEM``)."""
        return self.pages.free_bytes

    def malloc(self, size: int, policy: int = MemMallocPolicy.HUGE_FIRST, *, site: str = "", padded: bool = True) -> int:
        """Allocate ``size`` bytes and return their address, a multiple of the page. The contents are not set by the device.

        Args:
          size: bytes, at least 1; rounded up to 32, and 32 more but for the 950 and pages of 1 GiB.
          policy: which pages.
          site: file and line of the caller.
          padded: False is ``aclrtMallocAlign32``: without the 32 more.

        Raises:
          AclError: 100000 for a size that is no positive whole number.
          OutOfMemoryError: 207001 with a report.
        """
        if size <= 0:
            raise AclError(100000, f"malloc of {size} B", remedy="ask for at least 1 byte")
        rounded = device_size(size, policy, padding=self.padding if padded else 0)
        asked = Allocation(0, size, rounded, policy=policy, site=site)
        with self.lock:
            for page in pages_to_try(rounded, policy):
                if (holding := self.pages.take(rounded, page)) is not None:
                    return self._place(asked, holding, page)
            self.stats.ooms += 1
            raise self._out_of_memory(asked)

    def free(self, address: int, *, site: str = "") -> None:
        """Give the allocation at ``address`` back at once, whatever tasks still use it.

        Raises:
          AclError: 100000 for address 0; 207002 for one that begins no live allocation, with both places of a double free.
        """
        if not address:
            raise AclError(100000, "free of a null pointer")
        with self.lock:
            allocation = self.table.retire(address, site)
            self.pages.give(allocation.holding)
            self.stats.take(allocation.requested, allocation.reserved)

    def reserve(self, size: int, *, site: str = "") -> Allocation:
        """Addresses for ``size`` bytes without any pages behind them, for a pool that takes its pages as it grows."""
        block = Allocation(0, 0, size, site=site)
        with self.lock:
            self.table.place(block, HUGE_PAGE)
            self.stats.add(0, 0)
        return block

    def grow(self, block: Allocation, size: int) -> bool:
        """Huge pages for ``size`` more bytes of reserved addresses, a multiple of 2 MiB; False where there are not enough."""
        with self.lock:
            if self.pages.take(size, HUGE_PAGE) is None:
                return False
            self._resize(block, size)
        return True

    def shrink(self, block: Allocation, size: int) -> None:
        """Give ``size`` bytes of the huge pages of reserved addresses back."""
        with self.lock:
            self.pages.give((size // HUGE_PAGE, ()))
            self._resize(block, -size)

    def _resize(self, block: Allocation, size: int) -> None:
        block.reserved += size
        block.holding = (block.reserved // HUGE_PAGE, ())
        self.stats.reserved += size
        self.stats.reserved_peak = max(self.stats.reserved_peak, self.stats.reserved)

    def release_all(self, *, site: str = "") -> int:
        """Free everything that is still allocated, as a reset does. Returns how many allocations that were."""
        with self.lock:
            left = list(self.table.live)
            for address in left:
                self.free(address, site=site)
        return len(left)

    def view(self, address: int, length: int, code: int = 507015) -> np.ndarray:
        """The bytes themselves: :meth:`AddressTable.view`."""
        return self.table.view(address, length, code)

    def owner(self, address: int) -> Allocation:
        """The allocation that ``address`` lies in, alive or lately freed. Raises 107000 for nobody's address."""
        return self.table.owner(address)

    def base(self, address: int) -> int:
        """The first address of the allocation that ``address`` lies in; ``address`` itself where there is none."""
        allocation = self.table.find(address)
        return address if allocation is None else allocation.address

    def _place(self, asked: Allocation, holding: Holding, page: int) -> int:
        asked.holding, asked.reserved = holding, held_bytes(holding)
        self.table.place(asked, page)
        self.stats.add(asked.requested, asked.reserved)
        return asked.address

    def _out_of_memory(self, asked: Allocation) -> AclError:
        return device_oom(
            self.table.name,
            asked,
            total=self.total_bytes,
            allocated=self.stats.allocated,
            reserved=self.stats.reserved,
            largest=self.pages.largest_bytes,
            live=self.table.live.values(),
        )
