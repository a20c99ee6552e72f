"""Host memory: page-locked blocks of ``malloc_host``, and arrays of the program that copies may use as they are."""

import weakref
from collections import deque

import numpy as np

from ascend_jax.runtime.errors import AclError
from ascend_jax.runtime.memory.addresses import AddressTable, Allocation
from ascend_jax.runtime.memory.policy import NORMAL_PAGE

HOST_START = 0x7000_0000_0000
"""The first host address; all of them lie below the first of a device."""


class HostMemory:
    """Host memory. Copies from and to page-locked blocks overlap with other work; those of other memory do not.

    >>> memory = HostMemory()
    >>> array = np.arange(4, dtype=np.uint8)
    >>> memory.view(memory.pointer(array) + 1, 2).tolist(), memory.owner(memory.malloc_host(8)).pinned
    ([1, 2], True)
    """

    def __init__(self) -> None:
        self._table = AddressTable("host", HOST_START)
        self._dead: deque[tuple[int, int]] = deque()
        self._arrays: dict[int, int] = {}
        self._behind: dict[int, weakref.ref[np.ndarray]] = {}

    @property
    def table(self) -> AddressTable:
        """The blocks by address, without those of arrays that are gone."""
        while self._dead:
            key, address = self._dead.popleft()
            del self._arrays[key], self._behind[address]
            self._table.retire(address, "the end of its array")
        return self._table

    def malloc_host(self, size: int, *, site: str = "") -> int:
        """Allocate ``size`` bytes of page-locked memory and return their address. Raises 100000 for a size below 1."""
        if size <= 0:
            raise AclError(100000, f"malloc_host of {size} B", remedy="ask for at least 1 byte")
        block = Allocation(0, size, size, reserved=size, site=site)
        self.table.place(block, NORMAL_PAGE)
        return block.address

    def free_host(self, address: int, *, site: str = "") -> None:
        """Give the block at ``address`` back. Raises 100000 for address 0, 207002 for what is no live block of malloc_host."""
        if not address:
            raise AclError(100000, "free_host of a null pointer")
        block = self.table.find(address)
        if block is not None and not block.pinned and not block.freed:
            raise AclError(
                207002, f"free_host of {block}, an array of the program", remedy="the program frees its arrays itself"
            )
        self.table.retire(address, site)

    def pointer(self, array: np.ndarray, *, site: str = "") -> int:
        """An address that stands for the bytes of ``array`` while it lives: memory that is not page-locked.

        Args:
          array: C-contiguous, not empty. Writable where a copy writes to it. The same array gets the same address.

        Raises:
          AclError: 100000 for an array of another kind.
        """
        table = self.table
        if id(array) in self._arrays:
            return self._arrays[id(array)]
        if not array.flags.c_contiguous or not array.nbytes:
            raise AclError(
                100000, f"array of shape {array.shape} is not contiguous or empty", remedy="np.ascontiguousarray(it)"
            )
        block = Allocation(0, array.nbytes, array.nbytes, reserved=array.nbytes, pinned=False, site=site)
        table.place(block, NORMAL_PAGE)
        self._arrays[id(array)] = block.address
        self._behind[block.address] = weakref.ref(array)
        weakref.finalize(array, self._dead.append, (id(array), block.address))  # it may run amid anything: only note it
        return block.address

    def view(self, address: int, length: int, code: int = 107000) -> np.ndarray:
        """The bytes themselves: :meth:`AddressTable.view`."""
        block = self.table.check(address, length, "access", code)
        array = self._behind[block.address]() if block.address in self._behind else None
        if array is None:
            return self.table.view(address, length, code)
        offset = address - block.address
        return array.reshape(-1).view(np.uint8)[offset : offset + length]

    def owner(self, address: int) -> Allocation:
        """The block that ``address`` lies in. Raises 107000 for nobody's address."""
        return self.table.owner(address)
