"""How many blocks of the score matrix a mask leaves to compute, in closed form: per block row, in total, and the longest row.

Block ``(i, j)`` covers rows ``i·block_q … min((i+1)·block_q, q_len) - 1`` and keys ``j·block_kv … min((j+1)·block_kv,
kv_len) - 1``. It is computed iff the mask keeps some of it, full iff it keeps all of it, partial iff computed but not full
(only then does the vector core apply a mask), and skipped otherwise. This is the exact rule; a real operator may compute
more (FlashAttentionScore rounds the band out to 128 keys and visits at least one block of an empty row).

All inputs are float arrays of rank 0 that hold whole numbers (``vmap`` makes batches), all of one dtype: lengths at
least 0, block sizes at least 1. Counts are exact for any of them, whether or not blocks divide lengths, while they and
the lengths stay below 2^24 (float32) or 2^53 (float64).
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.lax import stop_gradient
from jax.tree_util import register_dataclass

from ascend_jax.rounding import EXACT, SMOOTH, Rounding, ceil_div, floor_div
from ascend_jax.workload.floor_sum import clipped_floor_sums, floor_sum
from ascend_jax.workload.mask import Mask


@register_dataclass
@dataclass(frozen=True)
class BlockCounts:
    """Numbers of blocks, floats of one shape; ``partial`` are the computed ones that are not ``full``."""

    computed: Array
    full: Array
    partial: Array
    skipped: Array


def row_counts(mask: Mask, q_len: Array, kv_len: Array, block_q: Array, block_kv: Array, row: Array) -> BlockCounts:
    """Blocks of block row ``row`` (``0 ≤ row < ⌈q_len / block_q⌉``).

    The keys that a row sees begin and end later from row to row, so the last row of the block decides where its computed
    blocks end and its full blocks start, and the first row the opposite.
    """
    lower, upper, prefix = mask.bounds(q_len, kv_len)
    first = row * block_q
    last = jnp.minimum(first + block_q, q_len) - 1
    columns = ceil_div(kv_len, block_kv)
    seen_by_all = jnp.maximum(first + upper + 1, prefix)  # every row of the block sees the keys before it, down to its lower

    computed_end = jnp.clip(ceil_div(jnp.maximum(last + upper + 1, prefix), block_kv), 0, columns)
    full_end = jnp.where(seen_by_all >= kv_len, columns, jnp.clip(floor_div(seen_by_all, block_kv), 0, columns))
    if mask.kind != "band":
        return _counts(columns, computed_end, full_end)
    computed_start = _first_computed(first + lower, kv_len, block_kv, columns)
    full_start = jnp.clip(ceil_div(last + lower, block_kv), 0, columns)
    return _counts(columns, computed_end - computed_start, jnp.maximum(full_end - full_start, 0))


def total_counts(
    mask: Mask, q_len: Array, kv_len: Array, block_q: Array, block_kv: Array, rounding: Rounding = EXACT
) -> BlockCounts:
    """Blocks of all block rows, without a loop over them.

    The exact count is piecewise constant: its gradient is 0, and ``STRAIGHT_THROUGH`` gives it that of the smooth one.
    It takes block sizes that are not whole as their nearest whole number. The smooth count is the area of the mask over
    the area of a block, plus (computed) or minus (full) half the blocks that the boundary of the mask crosses; see
    :func:`_smooth_totals`. With ``SMOOTH`` only that is traced.
    """
    smooth = _smooth_totals(mask, q_len, kv_len, block_q, block_kv)
    if rounding is SMOOTH:
        return _counts(*smooth)
    lengths = stop_gradient(q_len), stop_gradient(kv_len)
    blocks = (jnp.maximum(jnp.round(stop_gradient(block)), 1) for block in (block_q, block_kv))
    exact = _exact_totals(stop_gradient(mask), *lengths, *blocks)
    return _counts(*(rounding.count(one, other) for one, other in zip(exact, smooth, strict=True)))


def kept_pairs(mask: Mask, q_len: Array, kv_len: Array) -> Array:
    """Pairs of a row and a key that it sees: :func:`total_counts` for blocks of one by one, by sums of whole numbers alone."""
    lower, upper, prefix = mask.bounds(q_len, kv_len)
    ends = q_len * prefix + _clipped_sum(q_len, upper + 1 - prefix, kv_len - prefix)
    return ends - _clipped_sum(q_len, lower, kv_len)


def _clipped_sum(terms: Array, offset: Array, most: Array) -> Array:
    """``Σ clip(i + offset, 0, most)`` over ``0 ≤ i < terms``."""
    rising, risen = jnp.clip(-offset, 0, terms), jnp.clip(most - offset, 0, terms)
    return (risen - rising) * ((rising + risen - 1) / 2 + offset) + most * (terms - risen)


def last_column(mask: Mask, q_len: Array, kv_len: Array, block_q: Array, block_kv: Array) -> Array:
    """Computed blocks of the last block column, which ``kv_len`` may cut short. Exact for every mask; gradient 0."""
    mask, q_len, kv_len, block_q, block_kv = stop_gradient((mask, q_len, kv_len, block_q, block_kv))
    rows, columns = ceil_div(q_len, block_q), ceil_div(kv_len, block_kv)
    if mask.kind == "none":
        return jnp.where(columns > 0, rows, 0)
    lower, upper, prefix = mask.bounds(q_len, kv_len)
    key = (columns - 1) * block_kv  # the first key of the column; rows that see it or a later one are neighbours
    first = jnp.clip(ceil_div(key - upper + 1, block_q) - 1, 0, rows)
    first = jnp.where(q_len - 1 + upper < key, rows, first)
    end = jnp.clip(floor_div(kv_len - 1 - lower, block_q) + 1, 0, rows)
    seen = jnp.where(prefix > key, rows, jnp.maximum(end - first, 0))
    return jnp.where((rows > 0) & (columns > 0), seen, 0)


def longest_row(mask: Mask, q_len: Array, kv_len: Array, block_q: Array, block_kv: Array) -> tuple[Array, Array]:
    """Computed blocks of the longest block row, and how many block rows have that many. Exact for every mask; gradient 0."""
    mask, q_len, kv_len, block_q, block_kv = stop_gradient((mask, q_len, kv_len, block_q, block_kv))
    rows, columns = ceil_div(q_len, block_q), ceil_div(kv_len, block_kv)
    if mask.kind == "none":
        return jnp.where(rows > 0, columns, 0), rows
    if mask.kind == "band":
        longest, count = _longest_row_of_band(mask, q_len, kv_len, block_q, block_kv)
        return longest, jnp.where(longest > 0, count, rows)
    # Without a lower bound no row is longer than the last; as long are those that see a key of its last block.
    _, upper, prefix = mask.bounds(q_len, kv_len)
    longest = jnp.where(rows > 0, jnp.clip(ceil_div(jnp.maximum(q_len + upper, prefix), block_kv), 0, columns), 0)
    key = (longest - 1) * block_kv
    first = jnp.where(prefix > key, 0, jnp.clip(ceil_div(key - upper + 1, block_q) - 1, 0, rows - 1))
    return longest, rows - first


def _longest_row_of_band(mask: Mask, q_len: Array, kv_len: Array, block_q: Array, block_kv: Array) -> tuple[Array, Array]:
    """:func:`longest_row` of a band (the number of rows is right only if the longest is not 0).

    Complete block rows fall in three ranges: up to ``entered`` the band's lower side lies left of the matrix and rows grow;
    from ``leaving`` on its upper side lies right of the matrix and rows shrink; in between they have ``steady`` blocks or
    one more, and sums of floors tell how many have one more. The row that ``q_len`` cuts off is looked at by itself.
    """
    lower, upper, _ = mask.bounds(q_len, kv_len)
    rows, columns = floor_div(q_len, block_q), ceil_div(kv_len, block_kv)
    entered = jnp.clip(ceil_div(-lower, block_q), 0, rows)
    leaving = jnp.clip(ceil_div(kv_len - upper + 1, block_q) - 1, entered, rows)

    between = leaving - entered
    steady = floor_div(block_q - 1 + upper - lower, block_kv) + 1
    offsets = entered * block_q + jnp.stack([block_q - 1 + upper, lower])
    ends, starts = jax.vmap(floor_sum, in_axes=(None, None, None, 0))(between, block_kv, block_q, offsets)
    longer = ends - starts - (steady - 1) * between

    last_growing = jnp.clip(ceil_div(entered * block_q + upper, block_kv), 0, columns)
    first_shrinking = columns - _first_computed(leaving * block_q + lower, kv_len, block_kv, columns)
    cut = row_counts(mask, q_len, kv_len, block_q, block_kv, rows).computed
    longest = jnp.maximum(jnp.where(entered > 0, last_growing, 0), jnp.where(leaving < rows, first_shrinking, 0))
    longest = jnp.maximum(longest, jnp.where(between > 0, steady + jnp.sign(longer), 0))
    longest = jnp.maximum(longest, jnp.where(rows * block_q < q_len, cut, 0))

    growing = entered - jnp.clip(ceil_div((longest - 1) * block_kv - upper + 1, block_q) - 1, 0, entered)
    last_start = jnp.minimum((columns - longest + 1) * block_kv, kv_len)  # the first key of so long a row lies before it
    shrinking = jnp.clip(ceil_div(last_start - lower, block_q), leaving, rows) - leaving
    level = jnp.where(longest == steady, between, jnp.where(longest == steady + 1, longer, 0))
    return longest, growing + level + shrinking + jnp.where((rows * block_q < q_len) & (cut == longest), 1, 0)


def _counts(blocks: Array, computed: Array, full: Array) -> BlockCounts:
    return BlockCounts(computed, full, computed - full, blocks - computed)


def _first_computed(key: Array, kv_len: Array, block_kv: Array, columns: Array) -> Array:
    """The block column of the first key that a row sees; behind the last column if that key lies behind the matrix."""
    return jnp.where(key >= kv_len, columns, jnp.clip(floor_div(key, block_kv), 0, columns))


class _Totals(NamedTuple):
    blocks: Array
    computed: Array
    full: Array


def _exact_totals(mask: Mask, q_len: Array, kv_len: Array, block_q: Array, block_kv: Array) -> _Totals:
    """Complete block rows by sums of clipped floors; the row and the column that the lengths cut off, apart."""
    blocks = ceil_div(q_len, block_q) * ceil_div(kv_len, block_kv)
    if mask.kind == "none":
        return _Totals(blocks, blocks, blocks)
    rows = floor_div(q_len, block_q)
    columns, all_columns = floor_div(kv_len, block_kv), ceil_div(kv_len, block_kv)
    lower, upper, prefix = mask.bounds(q_len, kv_len)

    # Computed blocks end at ⌈(first + block_q + upper) / block_kv⌉, the complete full ones at ⌊(first + upper + 1) / block_kv⌋.
    lines = [
        (block_q + upper + block_kv - 1, ceil_div(prefix, block_kv), all_columns),
        (upper + 1, floor_div(prefix, block_kv), columns),
    ]
    if mask.kind == "band":  # they start at ⌊(first + lower) / block_kv⌋ and ⌈(first + block_q - 1 + lower) / block_kv⌉
        zero = jnp.zeros_like(columns)
        lines += [(lower, zero, columns), (block_q + block_kv - 2 + lower, zero, columns)]
    sums = clipped_floor_sums(rows, block_kv, block_q, *(jnp.stack(line) for line in zip(*lines, strict=True)))

    computed, full = sums[0], sums[1]
    if mask.kind == "band":
        behind = rows - jnp.clip(ceil_div(kv_len - lower, block_q), 0, rows)  # rows that see no key: they start behind all
        computed = computed - sums[2] - jnp.where(all_columns > columns, behind, 0)
        # Wide enough for one full block, the band makes every row's difference ≥ 0, so that sums may be subtracted.
        full = jnp.where(upper - lower + 1 >= block_q + block_kv - 1, full - sums[3], 0)
    full = full + jnp.where(all_columns > columns, _full_in_cut_column(mask, q_len, kv_len, block_q, block_kv), 0)

    cut_row = row_counts(mask, q_len, kv_len, block_q, block_kv, rows)
    is_cut = rows * block_q < q_len
    return _Totals(blocks, computed + jnp.where(is_cut, cut_row.computed, 0), full + jnp.where(is_cut, cut_row.full, 0))


def _full_in_cut_column(mask: Mask, q_len: Array, kv_len: Array, block_q: Array, block_kv: Array) -> Array:
    """Full blocks that complete block rows have in the last column, which ``kv_len`` cuts off."""
    lower, upper, prefix = mask.bounds(q_len, kv_len)
    rows, columns = floor_div(q_len, block_q), floor_div(kv_len, block_kv)
    start = jnp.where(prefix >= kv_len, 0, jnp.maximum(ceil_div(kv_len - 1 - upper, block_q), 0))
    if mask.kind != "band":
        return jnp.maximum(rows - start, 0)
    end = jnp.minimum(floor_div(columns * block_kv - lower + 1, block_q), rows)  # the last row still sees the first key
    return jnp.maximum(end - start, 0)


def _smooth_totals(mask: Mask, q_len: Array, kv_len: Array, block_q: Array, block_kv: Array) -> _Totals:
    """The counts with nothing rounded: areas, and half the blocks that each slanted side of the mask crosses.

    A side of slope 1 that spans ``length`` rows and keys crosses ``length / block_q + length / block_kv`` blocks less what
    both grids share: at least ``length / min(block_q, block_kv)``, which is taken here, and no more than that where one
    block size divides the other. So the counts fall short as every unrounded quotient does: by the cut-off blocks (``none``
    has ``q_len / block_q · kv_len / block_kv`` blocks), and by up to half the smaller number of crossed blocks where
    neither block size divides the other. At each corner of the mask inside the matrix, ``computed`` may instead err high
    by up to an eighth of the larger block size over the smaller.
    """
    block_area = block_q * block_kv
    blocks = q_len * kv_len / block_area
    if mask.kind == "none":
        return _Totals(blocks, blocks, blocks)
    lower, upper, prefix = mask.bounds(q_len, kv_len)
    computed_area, crossed = _left_of(upper, prefix, q_len, kv_len)
    full_area, uncrossed = _left_of(upper + 1, prefix, q_len, kv_len)
    if mask.kind == "band":
        zero = jnp.zeros_like(prefix)
        area, length = _left_of(lower, zero, q_len, kv_len)
        computed_area, crossed = computed_area - area, crossed + length
        area, length = _left_of(lower - 1, zero, q_len, kv_len)
        full_area, uncrossed = full_area - area, uncrossed + length
    side = 2 * jnp.minimum(block_q, block_kv)
    computed = jnp.minimum(computed_area / block_area + crossed / side, blocks)
    return _Totals(blocks, computed, jnp.clip(full_area / block_area - uncrossed / side, 0, computed))


def _left_of(offset: Array, least: Array, q_len: Array, kv_len: Array) -> tuple[Array, Array]:
    """Area left of the line ``key = clip(row + offset, least, kv_len)`` over ``0 ≤ row ≤ q_len``, and how far it is slanted."""
    start, end = jnp.clip(offset, least, kv_len), jnp.clip(q_len + offset, least, kv_len)
    return end * (q_len + offset - end * 0.5) - start * (offset - start * 0.5), end - start
