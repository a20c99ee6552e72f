"""One tile of scores and of what dropout leaves, the same going forward and backward."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from ascend_jax.attention.dropout import keep_block
from ascend_jax.attention.meeting import Context


class Place(NamedTuple):
    """Where a tile lies: int32 scalars. ``row`` and ``column`` count from the start of sequence number ``sequence``.

    ``tokens``: where they lie among all tokens.
    """

    head: Array
    sequence: Array
    row: Array
    column: Array
    tokens: tuple[Array, Array]


class Bounds(NamedTuple):
    """The window of the tile's sequence, and how many keys it has: int32 scalars."""

    lower: Array
    upper: Array
    prefix: Array
    keys: Array


def lowest(dtype: jnp.dtype) -> Array:
    """What a masked score is: the lowest finite number, so that a row without keys is no NaN."""
    return jnp.finfo(dtype).min.astype(dtype)


def accumulator(dtype: jnp.dtype) -> jnp.dtype:
    """The type in which scores, statistics and products are kept: float32, or float64 for float64."""
    return jnp.dtype(jnp.float64 if dtype == jnp.float64 else jnp.float32)


def dot(a: Array, b: Array, contract: tuple[int, int]) -> Array:
    """Product of two matrices over axis ``contract[0]`` of a and ``contract[1]`` of b, accumulated in float32 (or float64)."""
    dims = (((contract[0],), (contract[1],)), ((), ()))
    return lax.dot_general(a, b, dims, preferred_element_type=accumulator(a.dtype))


def score_tile(q: Array, k: Array, at: Place, bounds: Bounds | None, context: Context, pse_type: int) -> Array:
    """Scores ``[block_q, block_kv]`` of a tile, scaled, biased and masked.

    Without ``bounds`` every key of the tile exists and is seen by every row of it as far as the window goes. A masked score
    is the lowest finite number; one of a key that does not exist is ``-inf``.
    """
    scores, extras = dot(q, k, (1, 1)), context.extras
    if extras.bias is not None and pse_type == 1:
        scores = scores + tile_of(extras.bias, at, scores.shape).astype(scores.dtype)
    scores = scores * context.numbers.scale
    if extras.bias is not None and pse_type == 0:
        scores = scores + tile_of(extras.bias, at, scores.shape).astype(scores.dtype)
    if extras.slopes is not None:
        scores = scores + _alibi((extras.slopes, context.numbers.alibi_shift), at, scores, pse_type)
    if extras.masked is not None:
        scores = jnp.where(tile_of(extras.masked, at, scores.shape), lowest(scores.dtype), scores)
    return scores if bounds is None else _within(scores, at, bounds)


def _within(scores: Array, at: Place, bounds: Bounds) -> Array:
    column = at.column + lax.broadcasted_iota(jnp.int32, scores.shape, 1)
    off = column - (at.row + lax.broadcasted_iota(jnp.int32, scores.shape, 0))
    seen = ((off >= bounds.lower) & (off <= bounds.upper)) | (column < bounds.prefix)
    absent = jnp.asarray(-jnp.inf, scores.dtype)
    return jnp.where(column < bounds.keys, jnp.where(seen, scores, lowest(scores.dtype)), absent)


def _alibi(alibi: tuple[Array, Array], at: Place, scores: Array, pse_type: int) -> Array:
    slopes, shift = alibi
    column = at.column + lax.broadcasted_iota(jnp.int32, scores.shape, 1)
    row = at.row + lax.broadcasted_iota(jnp.int32, scores.shape, 0)
    far = jnp.abs(column - row - shift).astype(scores.dtype)
    far = jnp.sqrt(far) if pse_type == 3 else far
    slope = slopes[at.sequence if slopes.shape[0] > 1 else 0, at.head]
    return -far * slope.astype(scores.dtype)


def dropped(tile: Array, at: Place, context: Context, lengths: tuple[int | Array, int | Array]) -> Array:
    """A tile of probabilities (or of their gradients) after dropout; ``lengths`` are S1 and S2 of its sequence."""
    extras, keep_prob = context.extras, context.numbers.keep_prob
    if extras.keep is not None:
        keep = tile_of(extras.keep, at, tile.shape)
    elif extras.philox is not None:
        (seed, (low, high)), rows = extras.philox, jnp.arange(tile.shape[0], dtype=jnp.uint32)
        offset, first = (low[at.sequence], high[at.sequence]), (at.head * lengths[0] + at.row).astype(jnp.uint32)
        keep = keep_block(seed, offset, first + rows, at.column, tile.shape[1], lengths[1], keep_prob)
    else:
        return tile
    return jnp.where(keep, tile / keep_prob, jnp.zeros((), tile.dtype))


def tile_of(x: Array, at: Place, shape: tuple[int, ...]) -> Array:
    """The tile of ``x [sequences|1, N1|1, S1|1, S2]`` or ``[T, T2]``, whose lengths are filled up to whole blocks."""
    if x.ndim == 2:
        return lax.dynamic_slice(x, at.tokens, shape)
    return lax.dynamic_slice(x, corner(x, at), (1, 1, *tile_shape(x, shape)))[0, 0]


def corner(x: Array, at: Place) -> tuple[Array | int, ...]:
    """Where the tile starts in ``x``; an axis of length 1 serves every place."""
    wanted = (at.sequence, at.head, at.row, at.column)
    return tuple(place if length > 1 else jnp.int32(0) for place, length in zip(wanted, x.shape, strict=True))


def tile_shape(x: Array, shape: tuple[int, ...]) -> tuple[int, int]:
    """Rows and columns that a tile of ``shape`` takes of ``x``."""
    return (shape[0] if x.shape[2] > 1 else 1), shape[1]


def pad_to_tiles(x: Array | None, block_q: int, block_kv: int) -> Array | None:
    """``x [.., S1|1, S2]`` with both lengths padded to whole blocks, so that no tile runs over its end.

    Of all tokens ``[T, T2]`` a tile begins anywhere: a block more.
    """
    if x is None:
        return None
    if x.ndim == 2:
        return jnp.pad(x, ((0, block_q), (0, block_kv)))
    rows = -x.shape[2] % block_q if x.shape[2] > 1 else 0
    return jnp.pad(x, ((0, 0), (0, 0), (0, rows), (0, -x.shape[3] % block_kv)))
