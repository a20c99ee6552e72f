"""Cutting into blocks: tensors padded so that every sequence starts at a block, and which blocks meet which.

A batch of sequences and packed sequences become the same thing: tables ``[X, blocks]`` with X = B for a batch (every
sequence has its row) and X = 1 for packed sequences (one behind the other).
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from ascend_jax.attention.options import FAR, Packed, Used, Window, clipped


class Side(NamedTuple):
    """How one side, Q or K/V, is cut.

    ``places``: token at every place of the blocks, ``tokens``: place of every token (-1: none); None where tokens stay where
    they are. ``table``: the blocks.
    """

    block: int
    places: np.ndarray | None
    tokens: np.ndarray | None
    table: "Table"


class Table(NamedTuple):
    """Blocks of one side, int32 ``[X, blocks]``.

    ``first``: the block's first row in its sequence, which is number ``sequence``. ``base``: the first block of that sequence
    on the other side. ``length``, ``other``: the sequence's length on this side and on the other.
    """

    first: Array
    sequence: Array
    base: Array
    length: Array
    other: Array


class Ranges(NamedTuple):
    """Which blocks of the other side a block meets, int32 ``[X, blocks]``, counted from its sequence's first.

    ``start ≤ j < stop`` are computed. Of these ``full_start ≤ j < full_stop`` are whole: all exists and nothing is hidden.
    """

    start: Array
    full_start: Array
    full_stop: Array
    stop: Array


def cut_batch(batch: int, tokens: tuple[int, int], block: tuple[int, int], used: Used) -> tuple[Side, Side]:
    """Q and K/V of a batch; ``tokens`` and ``block`` are those of Q and of K/V."""
    blocks = _no_longer(block, tokens)
    lens = [
        jnp.full(batch, whole, jnp.int32) if given is None else jnp.asarray(given, jnp.int32)
        for given, whole in zip(used, tokens, strict=True)
    ]
    sides = []
    for here, there in ((0, 1), (1, 0)):
        count = -(-tokens[here] // blocks[here])
        shape = (batch, count)
        first = jnp.broadcast_to(jnp.arange(count, dtype=jnp.int32) * blocks[here], shape)
        sequence = jnp.broadcast_to(jnp.arange(batch, dtype=jnp.int32)[:, None], shape)
        length, other = (jnp.broadcast_to(lens[side][:, None], shape) for side in (here, there))
        sides.append(Side(blocks[here], None, None, Table(first, sequence, jnp.zeros(shape, jnp.int32), length, other)))
    return sides[0], sides[1]


def cut_packed(tokens: tuple[int, int], block: tuple[int, int], packed: Packed) -> tuple[Side, Side]:
    """Q and K/V of packed sequences."""
    starts = [np.asarray(x, np.int32) for x in (packed.q_starts, packed.kv_starts)]
    lens = [np.asarray(x, np.int32) for x in (packed.q_lens, packed.kv_lens)]
    blocks = _no_longer(block, (int(lens[0].max(initial=0)), int(lens[1].max(initial=0))))
    counts = [-(-length // size) for length, size in zip(lens, blocks, strict=True)]
    sides = []
    for here, there in ((0, 1), (1, 0)):
        sequence = np.repeat(np.arange(len(lens[here]), dtype=np.int32), counts[here])
        begins, bases = (np.cumsum(count) - count for count in (counts[here], counts[there]))
        first = (np.arange(len(sequence)) - begins[sequence]) * blocks[here]
        table = [
            x[None].astype(np.int32) for x in (first, sequence, bases[sequence], lens[here][sequence], lens[there][sequence])
        ]
        places, where = _places(tokens[here], blocks[here], starts[here][sequence] + first, lens[here][sequence] - first)
        sides.append(Side(blocks[here], places, where, Table(*(jnp.asarray(x) for x in table))))
    return sides[0], sides[1]


def _no_longer(block: tuple[int, int], longest: tuple[int, int]) -> tuple[int, int]:
    """A block longer than the longest sequence is the sequence; keys in whole sixteens, as dropout draws them."""
    return max(1, min(block[0], longest[0])), max(1, min(block[1], -(-longest[1] // 16) * 16))


def _places(tokens: int, block: int, begin: np.ndarray, left: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Token at every place of the blocks, and place of every token, for blocks that begin at a token and have some left."""
    offset = np.arange(block, dtype=np.int32)
    places = np.where(offset < left[:, None], begin[:, None] + offset, -1).reshape(-1)
    where = np.full(tokens, -1, np.int32)
    where[places[places >= 0]] = np.flatnonzero(places >= 0)
    return places, where


def to_blocks(x: Array, side: Side) -> Array:
    """``[B, N, T, D]`` as ``[B·N, blocks, block, D]``, zeros where there is no token."""
    batch, heads, tokens, width = x.shape
    blocks = side.table.first.shape[1]
    if side.places is None:
        x = jnp.pad(x, ((0, 0), (0, 0), (0, blocks * side.block - tokens), (0, 0)))
    elif not np.array_equal(side.places, np.arange(tokens)):
        x = jnp.where((side.places >= 0)[:, None], jnp.take(x, np.maximum(side.places, 0), axis=2), jnp.zeros((), x.dtype))
    return x.reshape(batch * heads, blocks, side.block, width)


def from_blocks(x: Array, side: Side, batch: int, tokens: int) -> Array:
    """``[B·N, blocks, block, …]`` as ``[B, N, T, …]``; zeros for tokens of no sequence."""
    x = x.reshape(batch, x.shape[0] // batch, x.shape[1] * side.block, *x.shape[3:])
    if side.tokens is None:
        return x[:, :, :tokens]
    if np.array_equal(side.tokens, np.arange(x.shape[2])):
        return x
    exists = (side.tokens >= 0).reshape(-1, *(1,) * (x.ndim - 3))
    return jnp.where(exists, jnp.take(x, np.maximum(side.tokens, 0), axis=2), jnp.zeros((), x.dtype))


def window_of(window: Window, table: Table) -> Window:
    """The window of each block's sequence, int32 ``[X, blocks]``."""
    sides = (jnp.asarray(clipped(side)) for side in window)
    return Window(*(side[table.sequence] if side.ndim else jnp.full(table.sequence.shape, side) for side in sides))


def key_ranges(window: Window, rows: Table, block_q: int, block_kv: int) -> Ranges:
    """The blocks of keys that each block of rows meets: those of which some row sees some key."""
    lower, upper, prefix = window
    last = jnp.minimum(rows.first + block_q, rows.length) - 1
    begin = jnp.where(prefix > 0, 0, rows.first + lower)
    end = jnp.where(lower <= upper, jnp.maximum(last + upper + 1, prefix), prefix)
    whole_end = jnp.clip(jnp.maximum(rows.first + upper + 1, prefix), 0, rows.other)
    return _ranges(rows, (begin, end), (_ceil(jnp.maximum(last + lower, 0), block_kv), whole_end // block_kv), block_kv)


def row_ranges(window: Window, keys: Table, block_kv: int, block_q: int) -> Ranges:
    """The blocks of rows that each block of keys meets: those of which some row sees some key."""
    lower, upper, prefix = window
    last = jnp.minimum(keys.first + block_kv, keys.length) - 1
    by_some, by_all = keys.first < prefix, last < prefix
    begin = jnp.where(by_some, 0, keys.first - upper)
    end = jnp.where(by_some, keys.other, jnp.where(lower <= upper, last - lower + 1, 0))
    # The last keys of a sequence fill no whole block: all that it meets is at the edge, and comes before the full ones.
    exists = keys.first + block_kv <= keys.length
    whole_start = jnp.where(by_all, 0, _ceil(jnp.maximum(last - upper, 0), block_q))
    whole_end = jnp.where(by_all, keys.other, jnp.clip(keys.first - lower + 1, 0, keys.other))
    whole_stop = jnp.where(whole_end == keys.other, _ceil(whole_end, block_q), whole_end // block_q)
    return _ranges(keys, (begin, end), (jnp.where(exists, whole_start, FAR), whole_stop), block_q)


def _ranges(table: Table, seen: tuple[Array, Array], whole: tuple[Array, Array], block: int) -> Ranges:
    """Blocks of ``block`` that hold what is ``seen`` (first, and one past the last), within the other side's length."""
    begin, end = (jnp.clip(x, 0, table.other) for x in seen)
    some = (begin < end) & (table.first < table.length)
    start, stop = (jnp.where(some, x, 0) for x in (begin // block, _ceil(end, block)))
    full_start = jnp.clip(whole[0], start, stop)
    return Ranges(start, full_start, jnp.clip(whole[1], full_start, stop), stop)


def _ceil(x: Array, block: int) -> Array:
    return (x + (block - 1)) // block
