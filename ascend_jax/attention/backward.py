"""Backward: one block of keys after the other, over the blocks of rows that it meets, from the saved maximum and sum.

``P = exp(S - max) / sum``, ``dP = dO·Vᵀ`` after dropout, ``dS = P·(dP - rowsum(dO·O))``, ``dQ = scale·dS·K``,
``dK = scale·dSᵀ·Q``, ``dV = Pᵀ·dO`` (FlashAttentionScoreGrad's formulas). Masked scores are constants: their dS is 0.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from ascend_jax.attention.meeting import Context, Static, over
from ascend_jax.attention.scores import Bounds, Place, accumulator, corner, dot, dropped, lowest, score_tile, tile_shape

Where = tuple[Place, Bounds | None, tuple[int | Array, int | Array]]
"""A tile's place, its window where that counts, and S1 and S2 as dropout numbers them."""


class Saved(NamedTuple):
    """Of the rows: q, dO ``[H, nq, block_q, D | Dv]``; maximum, 1/sum and ``rowsum(dO·O)`` ``[H, nq, block_q]``."""

    q: Array
    d_out: Array
    top: Array
    share: Array
    delta: Array


class Sums(NamedTuple):
    """Gradients that grow: dq ``[G, nq, block_q, D]`` of a group of heads, dk and dv of a block of keys, the bias's or None."""

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
    """dq ``[H, nq, block_q, D]``, dk and dv ``[Hkv, nkv, block_kv, D | Dv]`` and the bias's gradient, not rounded.

    dq and dk, and the bias's where it is added before the scale, have yet to be scaled.
    """
    (k, v), bias = kv, context.extras.bias
    dtype = accumulator(k.dtype)
    heads, blocks = (jnp.arange(length, dtype=jnp.int32) for length in k.shape[:2])

    def kv_head(d_bias: Array | None, h_kv: Array) -> tuple[Array | None, tuple[Array, Array, Array]]:
        def kv_block(carry: tuple[Array, Array | None], block: Array) -> tuple[tuple[Array, Array | None], tuple[Array, Array]]:
            dk, dv = (jnp.zeros(x.shape[2:], dtype) for x in kv)
            sums = _kv_block((h_kv, block), Sums(carry[0], dk, dv, carry[1]), (saved, k, v), context, static)
            return (sums.dq, sums.d_bias), (sums.dk, sums.dv)

        dq = jnp.zeros((static.group, *saved.q.shape[1:]), dtype)
        (dq, d_bias), (dk, dv) = lax.scan(kv_block, (dq, d_bias), blocks)
        return d_bias, (dq, dk, dv)

    d_bias, (dq, dk, dv) = lax.scan(kv_head, None if bias is None else jnp.zeros(bias.shape, dtype), heads)
    return Sums(dq.reshape(saved.q.shape), dk, dv, d_bias)


def _kv_block(
    which: tuple[Array, Array], sums: Sums, tensors: tuple[Saved, Array, Array], context: Context, static: Static
) -> Sums:
    """``sums`` with everything that one block of keys adds, for all heads of its group."""
    (h_kv, block), (saved, k, v) = which, tensors
    batch, kv_head = h_kv // static.kv_heads, h_kv % static.kv_heads
    table, window, ranges = context.keys.at(batch, block)
    bounds, kv = Bounds(*window, table.length), (k[h_kv, block], v[h_kv, block])
    lengths = static.drawn(table.other, table.length)

    def of_head(g: Array, sums: Sums) -> Sums:
        def step(i: Array, now: Sums, edge: bool) -> Sums:
            at = Place(kv_head * static.group + g, table.sequence, i * saved.q.shape[2], table.first)
            rows = Saved(*(x[h_kv * static.group + g, table.base + i] for x in saved))
            added = _tile(rows, kv, (at, bounds if edge else None, lengths), context, static)
            dq = now.dq.at[g, table.base + i].add(added.dq)
            d_bias = None if now.d_bias is None else _add_bias(now.d_bias, added.d_scores, at)
            return Sums(dq, now.dk + added.dk, now.dv + added.dv, d_bias)

        return over(ranges, (True, static.lower_side), step, sums)

    return lax.fori_loop(jnp.int32(0), jnp.int32(static.group), of_head, sums)


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
