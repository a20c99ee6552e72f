"""Cutting into blocks: where each block of a tensor lies, and which blocks of the two sides meet.

A batch of sequences and packed sequences become the same thing: tables ``[X, blocks]`` with X = B for a batch (every
sequence has its row) and X = 1 for packed sequences (one behind the other). Lengths are data: shapes follow from shapes alone.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from ascend_jax.attention.options import FAR, Sequences, Used, Window, clipped


class Side(NamedTuple):
    """How one side, Q or K/V, is cut.

    ``block``: tokens of a block. ``tokens``: all, with what fills up the last block. ``table``: the blocks, of which each
    sequence of a batch has ``blocks``, or all packed sequences together.
    """

    block: int
    tokens: int
    table: "Table"
    blocks: Array


class Table(NamedTuple):
    """Blocks of one side, int32 ``[X, blocks]``.

    ``first``: the block's first row in its sequence, which is number ``sequence``. ``token``: where that row lies; ``base``:
    where that sequence begins on the other side. ``length``, ``other``: the sequence's length on this side and on the other.
    """

    first: Array
    sequence: Array
    token: Array
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
        table = Table(first, sequence, first, jnp.zeros(shape, jnp.int32), length, other)
        sides.append(Side(blocks[here], count * blocks[here], table, jnp.int32(count)))
    return sides[0], sides[1]


def cut_packed(tokens: tuple[int, int], block: tuple[int, int], packed: Sequences, apart: bool) -> tuple[Side, Side]:
    """Q and K/V of packed sequences, which all lie ``apart`` or share tokens."""
    blocks = _no_longer(block, tokens)
    starts, lens = (packed.q_starts, packed.kv_starts), (packed.q_lens, packed.kv_lens)
    sides = []
    for here, there in ((0, 1), (1, 0)):
        most = _most_blocks(tokens[here], lens[here].shape[0], blocks[here], apart)
        counts = _ceil(lens[here], blocks[here])
        ends, total = jnp.cumsum(counts, dtype=jnp.int32), jnp.sum(counts, dtype=jnp.int32)
        number = jnp.arange(most, dtype=jnp.int32)
        sequence = jnp.searchsorted(ends, number, side="right").astype(jnp.int32)
        sequence = jnp.minimum(sequence, ends.size - 1)
        first = (number - (ends - counts)[sequence]) * blocks[here]
        places = (first, sequence, starts[here][sequence] + first, starts[there][sequence])
        table = Table(*places, lens[here][sequence], lens[there][sequence])
        table = Table(*(jnp.where(number < total, x, 0)[None] for x in table))
        sides.append(Side(blocks[here], tokens[here] + blocks[here], table, total))
    return sides[0], sides[1]


def _no_longer(block: tuple[int, int], longest: tuple[int, int]) -> tuple[int, int]:
    """A block longer than all tokens is as long as they are; keys in whole sixteens, as dropout draws them."""
    return max(1, min(block[0], longest[0])), max(1, min(block[1], -(-longest[1] // 16) * 16))


def _most_blocks(tokens: int, sequences: int, block: int, apart: bool) -> int:
    """More blocks than sequences within so many tokens can have: each one's last block may hold a single token."""
    if not apart:
        return sequences * -(-tokens // block)
    return (tokens + min(tokens, sequences) * (block - 1)) // block


def filled_up(x: Array, side: Side) -> Array:
    """``[B, N, T, …]`` as ``[B·N, side.tokens, …]``, zeros behind the last token."""
    x = jnp.pad(x, ((0, 0), (0, 0), (0, side.tokens - x.shape[2]), *((0, 0),) * (x.ndim - 3)))
    return x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])


def of_tokens(x: Array, batch: int, tokens: int) -> Array:
    """The way back: ``[B, N, T, …]``."""
    return x.reshape(batch, x.shape[0] // batch, *x.shape[1:])[:, :, :tokens]


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
