"""Forward: one block of rows after the other, over the blocks of keys that it meets, with a running maximum and sum."""

import functools
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from ascend_jax.attention.meeting import Context, Static, over
from ascend_jax.attention.options import Extras
from ascend_jax.attention.scores import Bounds, Place, accumulator, dot, dropped, lowest, score_tile


class Statistics(NamedTuple):
    """The running softmax of a block of rows: maximum and sum ``[block_q]``, and the output so far ``[block_q, Dv]``."""

    top: Array
    total: Array
    out: Array


def forward(
    qkv: tuple[Array, Array, Array], context: Context, static: Static, out_dtype: Any = None
) -> tuple[Array, Array, Array, Array]:
    """Output ``[H, nq, block_q, Dv]``, maximum and sum ``[H, nq, block_q]``, and blocks computed ``[H, nq]``.

    ``q [H, nq, block_q, D]``, ``k``, ``v [Hkv, nkv, block_kv, D | Dv]`` with H = B·N1 and Hkv = B·N2; ``out_dtype`` is that of
    ``q`` unless given.
    """

    q = qkv[0]
    heads, blocks = (jnp.arange(length, dtype=jnp.int32) for length in q.shape[:2])

    def row_block(h: Array, block: Array) -> tuple[Array, Array, Array, Array]:
        out, top, total, computed = _row_block(h, block, qkv, context, static)
        return out.astype(out_dtype or q.dtype), top, total, computed

    return lax.map(lambda h: lax.map(lambda block: row_block(h, block), blocks), heads)


def _row_block(
    h: Array, block: Array, qkv: tuple[Array, Array, Array], context: Context, static: Static
) -> tuple[Array, Array, Array, Array]:
    (q, k, v), extras = qkv, context.extras
    batch, head = h // static.q_heads, h % static.q_heads
    table, window, ranges = context.rows.at(batch, block)
    h_kv = h // static.group
    bounds = Bounds(*window, table.other)
    q_block, block_kv = q[h, block], k.shape[2]

    def step(j: Array, now: Statistics, edge: bool) -> Statistics:
        at = Place(head, table.sequence, table.first, j * block_kv)
        scores = score_tile(q_block, k[h_kv, table.base + j], at, bounds if edge else None, context, static.settings.pse_type)
        top = jnp.maximum(now.top, _row_max(scores))
        probs, shrink = jnp.exp(scores - top[:, None]), jnp.exp(now.top - top)
        kept = dropped(probs, at, context, static.drawn(table.length, table.other))
        kept = kept.astype(v.dtype) if static.settings.round_probs else kept
        out = now.out * shrink[:, None] + dot(kept, v[h_kv, table.base + j].astype(kept.dtype), (1, 0))
        return Statistics(top, now.total * shrink + jnp.sum(probs, axis=1), out)

    state = over(ranges, (static.lower_side, True), step, _nothing_yet(q_block, v.shape[3], head, extras))
    out, top, total = _finished(state, ranges.start < ranges.stop, extras, static.settings.zero_empty_rows)
    exists = table.other > 0
    top, total = (jnp.where(exists, x, jnp.zeros_like(x)) for x in (top, total))
    return out, top, total, ranges.stop - ranges.start


def _row_max(scores: Array, lanes: int = 32) -> Array:
    """``max(scores, axis=1)``. XLA's own runs one column at a time on CPUs; maxima of whole vectors take a fifth off a tile."""
    columns = range(0, scores.shape[1], lanes)
    if scores.shape[1] % lanes or len(columns) == 1:
        return jnp.max(scores, axis=1)
    by_lane = functools.reduce(jnp.maximum, (scores[:, first : first + lanes] for first in columns))
    return jnp.max(lax.optimization_barrier(by_lane), axis=1)


def _nothing_yet(q_block: Array, width: int, head: Array, extras: Extras) -> Statistics:
    """The softmax before the first key: no probability, or all of it at the sink."""
    dtype, rows = accumulator(q_block.dtype), q_block.shape[0]
    out = jnp.zeros((rows, width), dtype)
    if extras.sink is None:
        return Statistics(jnp.full(rows, lowest(dtype)), jnp.zeros(rows, dtype), out)
    return Statistics(jnp.full(rows, extras.sink[head].astype(dtype)), jnp.ones(rows, dtype), out)


def _finished(state: Statistics, any_block: Array, extras: Extras, zero_empty_rows: bool) -> tuple[Array, Array, Array]:
    """Output, maximum and sum of a block of rows; a row that saw no key as ``Settings.zero_empty_rows`` says."""
    top, total, out = state
    out = out / jnp.where(total > 0, total, jnp.ones_like(total))[:, None]
    if extras.sink is not None:
        return out, top, total
    empty = (top == lowest(top.dtype)) & (zero_empty_rows | ~any_block)
    return jnp.where(empty[:, None], jnp.zeros_like(out), out), top, jnp.where(empty, -lowest(total.dtype), total)
