"""Backward: one block of keys after the other, over the blocks of rows that it meets, from the saved maximum and sum.

``P = exp(S - max) / sum``, ``dP = dO·Vᵀ`` after dropout, ``dS = P·(dP - rowsum(dO·O))``, ``dQ = scale·dS·K``,
``dK = scale·dSᵀ·Q``, ``dV = Pᵀ·dO`` (FlashAttentionScoreGrad's formulas). Masked scores are constants: their dS is 0.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from ascend_jax.attention.meeting import Context, Static, over, put, taken, until
from ascend_jax.attention.scores import Bounds, Place, accumulator, corner, dot, dropped, lowest, score_tile, tile_shape

Where = tuple[Place, Bounds | None, tuple[int | Array, int | Array]]
"""A tile's place, its window where that counts, and S1 and S2 as dropout numbers them."""


class Saved(NamedTuple):
    """Of the rows: q, dO ``[H, T, D | Dv]``; maximum, 1/sum and ``rowsum(dO·O)`` ``[H, T]``. Of a block without H."""

    q: Array
    d_out: Array
    top: Array
    share: Array
    delta: Array


class Sums(NamedTuple):
    """Gradients that grow: dq ``[G, T, D]`` of a group of heads, dk and dv of a block of keys, the bias's or None."""

    dq: Array
    dk: Array
    dv: Array
    d_bias: Array | None


class Tile(NamedTuple):
    """What one tile adds to dq, dk and dv, before the scale, and its dS."""

    dq: Array
    dk: Array
    dv: Array
    d_scores: Array


def backward(saved: Saved, kv: tuple[Array, Array], context: Context, static: Static) -> Sums:
    """dq ``[H, T, D]``, dk and dv ``[Hkv, T2, D | Dv]`` and the bias's gradient, not rounded.

    dq and dk, and the bias's where it is added before the scale, have yet to be scaled.
    """
    (k, v), bias = kv, context.extras.bias
    dtype = accumulator(k.dtype)

    def kv_head(d_bias: Array | None, h_kv: Array) -> tuple[Array | None, tuple[Array, Array, Array]]:
        def kv_block(n: Array, sums: Sums) -> Sums:
            return _kv_block((h_kv, n), sums, (saved, k, v), context, static)

        dq, dk, dv = (jnp.zeros(shape, dtype) for shape in ((static.group, *saved.q.shape[1:]), k.shape[1:], v.shape[1:]))
        sums = lax.fori_loop(jnp.int32(0), context.keys.blocks, kv_block, Sums(dq, dk, dv, d_bias))
        return sums.d_bias, sums[:3]

    d_bias = None if bias is None else jnp.zeros(bias.shape, dtype)
    d_bias, (dq, dk, dv) = lax.scan(kv_head, d_bias, jnp.arange(k.shape[0], dtype=jnp.int32))
    return Sums(dq.reshape(saved.q.shape), dk, dv, d_bias)


def _kv_block(
    which: tuple[Array, Array], sums: Sums, tensors: tuple[Saved, Array, Array], context: Context, static: Static
) -> Sums:
    """``sums`` with everything that one block of keys adds, for all heads of its group."""
    (h_kv, n), (saved, *kv), (block_q, block_kv) = which, tensors, static.block
    table, window, ranges = context.keys.at(h_kv // static.kv_heads, n)
    bounds, lengths = Bounds(*window, table.length), static.drawn(table.other, table.length)
    left = table.length - table.first
    k, v = (taken(x, (h_kv, table.token), block_kv) for x in kv)
    if static.packed:
        k, v = until(k, left), until(v, left)

    def of_head(g: Array, sums: Sums) -> Sums:
        h = h_kv * static.group + g

        def step(i: Array, now: Sums, edge: bool) -> Sums:
            token = table.base + i * block_q
            at = Place(h % static.q_heads, table.sequence, i * block_q, table.first, (token, table.token))
            rows = Saved(*(taken(x, (h, token), block_q) for x in saved))
            rows = _existing(rows, table.other - at.row) if static.packed else rows
            added = _tile(rows, (k, v), (at, bounds if edge else None, lengths), context, static)
            d_bias = None if now.d_bias is None else _add_bias(now.d_bias, added.d_scores, at)
            return Sums(_plus(now.dq, added.dq, (g, token)), now.dk + added.dk, now.dv + added.dv, d_bias)

        return over(ranges, (True, static.lower_side), step, sums)

    dk, dv = (jnp.zeros(x.shape, accumulator(x.dtype)) for x in (k, v))
    found = lax.fori_loop(jnp.int32(0), jnp.int32(static.group), of_head, Sums(sums.dq, dk, dv, sums.d_bias))
    dk, dv = (until(x, left) if static.packed else x for x in (found.dk, found.dv))
    dk, dv = (_plus(x[None], part, (jnp.int32(0), table.token))[0] for x, part in ((sums.dk, dk), (sums.dv, dv)))
    return Sums(found.dq, dk, dv, found.d_bias)


def _existing(rows: Saved, left: Array) -> Saved:
    """``rows`` without those of the next sequence: the first ``left`` of them. The others have no probability."""
    top = jnp.where(jnp.arange(rows.top.shape[0], dtype=jnp.int32) < left, rows.top, jnp.inf)
    return Saved(*(until(x, left) for x in rows))._replace(top=top)


def _plus(x: Array, part: Array, at: tuple[Array, Array]) -> Array:
    """``x [H, T, …]`` with ``part`` added at token ``at[1]`` of head ``at[0]``."""
    return put(x, taken(x, at, part.shape[0]) + part, at, None)


def _tile(rows: Saved, kv: tuple[Array, Array], where: Where, context: Context, static: Static) -> Tile:
    """What one tile adds."""
    (k, v), (at, bounds, lengths) = kv, where
    scores = score_tile(rows.q, k, at, bounds, context, static.settings.pse_type)
    probs = jnp.exp(scores - rows.top[:, None]) * rows.share[:, None]
    d_probs = dropped(dot(rows.d_out, v, (1, 1)), at, context, lengths)
    d_scores = probs * (d_probs - rows.delta[:, None])
    if bounds is not None or context.extras.masked is not None:
        d_scores = jnp.where(scores > lowest(scores.dtype), d_scores, jnp.zeros_like(d_scores))
    kept, rounded = dropped(probs, at, context, lengths), d_scores
    if static.settings.round_probs:
        kept, rounded = kept.astype(k.dtype), d_scores.astype(k.dtype)
    q, k, d_out = (x.astype(kept.dtype) for x in (rows.q, k, rows.d_out))
    return Tile(dot(rounded, k, (1, 0)), dot(rounded, q, (0, 0)), dot(kept, d_out, (0, 0)), d_scores)


def _add_bias(d_bias: Array, d_scores: Array, at: Place) -> Array:
    """The bias's gradient with that of one tile; an axis of length 1 gathers what it was broadcast to."""
    start, (rows, columns) = corner(d_bias, at), tile_shape(d_bias, d_scores.shape)
    tile = d_scores if rows == d_scores.shape[0] else jnp.sum(d_scores, axis=0, keepdims=True)
    old = lax.dynamic_slice(d_bias, start, (1, 1, rows, columns))
    return lax.dynamic_update_slice(d_bias, old + tile[None, None], start)
