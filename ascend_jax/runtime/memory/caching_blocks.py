"""Blocks of the caching allocator: pieces of a segment, in order of address, and those that wait to be used again."""

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field

from ascend_jax.runtime.memory.streams import Mark, StreamLike

Key = tuple[int, int]
"""Size and address: the order in which free blocks are looked through."""


@dataclass(slots=True, eq=False)
class Block:
    """A piece of a segment.

    Attributes:
      stream: the one that it was allocated for, and that alone may have it again.
      small: whether it belongs to the small pool.
      before, after: its neighbours in the segment.
      users: other streams that use it, by their number.
      pending: where those streams stood when it was freed; it waits until all of them are passed.
      follows: clocks of those streams: what uses the block again comes after them.
      age: searches of its pool since it was last used (counted only where garbage is collected).
    """

    address: int
    size: int
    stream: StreamLike
    small: bool
    before: "Block | None" = None
    after: "Block | None" = None
    allocated: bool = False
    requested: int = 0
    site: str = ""
    users: dict[int, StreamLike] = field(default_factory=dict)
    pending: list[Mark] = field(default_factory=list)
    follows: dict[int, int] = field(default_factory=dict)
    age: int = 0

    @property
    def is_split(self) -> bool:
        """Whether it shares its segment with other blocks."""
        return self.before is not None or self.after is not None

    @property
    def is_free(self) -> bool:
        """Whether it may be given out."""
        return not self.allocated and not self.pending

    def cut(self, size: int) -> "Block":
        """Split the first ``size`` bytes off as a block of their own, which is returned."""
        left = Block(self.address, size, self.stream, self.small, self.before, self, follows=dict(self.follows))
        if self.before is not None:
            self.before.after = left
        self.before = left
        self.address += size
        self.size -= size
        return left

    def absorb(self, other: "Block") -> None:
        """Make a neighbour part of this block."""
        if other is self.before:
            self.address, self.before = other.address, other.before
            if self.before is not None:
                self.before.after = self
        else:
            self.after = other.after
            if self.after is not None:
                self.after.before = self
        self.size += other.size
        for actor, number in other.follows.items():
            self.follows[actor] = max(number, self.follows.get(actor, 0))


class FreeBlocks:
    """The free blocks of one pool, for each stream by size."""

    def __init__(self) -> None:
        self._keys: dict[int, list[Key]] = {}
        self._blocks: dict[int, Block] = {}

    def __iter__(self) -> Iterator[Block]:
        """By stream, size and address."""
        return iter([self._blocks[key[1]] for _, keys in sorted(self._keys.items()) for key in keys])

    def __len__(self) -> int:
        return len(self._blocks)

    def add(self, block: Block) -> None:
        """Put ``block`` in."""
        insort(self._keys.setdefault(block.stream.stream_id, []), (block.size, block.address))
        self._blocks[block.address] = block

    def remove(self, block: Block) -> None:
        """Take ``block`` out."""
        keys = self._keys[block.stream.stream_id]
        del keys[bisect_left(keys, (block.size, block.address))]
        del self._blocks[block.address]

    def at_least(self, stream_id: int, size: int) -> Block | None:
        """The smallest block of the stream of at least ``size`` bytes, the lowest address first."""
        keys = self._keys.get(stream_id, [])
        place = bisect_left(keys, (size, 0))
        return self._blocks[keys[place][1]] if place < len(keys) else None

    def largest_first(self, stream_id: int) -> list[Block]:
        """The blocks of the stream, the largest first, and of equal ones the highest address."""
        return [self._blocks[address] for _, address in reversed(self._keys.get(stream_id, []))]
