"""Forward: one block of rows after the other, over the blocks of keys that it meets, with a running maximum and sum."""

import functools
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from ascend_jax.attention.meeting import Context, Static, over, put, taken, until
from ascend_jax.attention.options import Extras
from ascend_jax.attention.scores import Bounds, Place, accumulator, dot, dropped, lowest, score_tile


class Statistics(NamedTuple):
    """The running softmax of a block of rows: maximum and sum ``[block_q]``, and the output so far ``[block_q, Dv]``."""

    top: Array
    total: Array
    out: Array


class Found(NamedTuple):
    """Output ``[H, T, Dv]``, maximum and sum ``[H, T]``; of a block of rows ``[block_q, Dv]`` and ``[block_q]``."""

    out: Array
    top: Array
    total: Array


def forward(qkv: tuple[Array, Array, Array], context: Context, static: Static, out_dtype: Any = None) -> Found:
    """Attention of ``q [H, T, D]`` to ``k``, ``v [Hkv, T2, D | Dv]``, with H = B·N1 and Hkv = B·N2.

    The output is of ``out_dtype``, or that of ``q``. Rows of no sequence are 0.
    """
    q, _, v = qkv
    statistics = jnp.zeros(q.shape[:2], accumulator(q.dtype))
    found = Found(jnp.zeros((*q.shape[:2], v.shape[2]), out_dtype or q.dtype), statistics, statistics)

    def row_block(i: Array, found: Found) -> Found:
        h, n = i // context.rows.blocks, i % context.rows.blocks
        table = context.rows.at(h // static.q_heads, n)[0]
        parts = zip(found, _row_block(h, n, qkv, context, static), strict=True)
        left = table.length - table.first if static.packed else None
        return Found(*(put(whole, part.astype(whole.dtype), (h, table.token), left) for whole, part in parts))

    # One loop over heads and blocks: with one in the other, XLA hands tiles from thread to thread, and two devices wait.
    return lax.fori_loop(jnp.int32(0), q.shape[0] * context.rows.blocks, row_block, found)


def _row_block(h: Array, n: Array, qkv: tuple[Array, Array, Array], context: Context, static: Static) -> Found:
    (q, k, v), extras, (block_q, block_kv) = qkv, context.extras, static.block
    table, window, ranges = context.rows.at(h // static.q_heads, n)
    head, h_kv = h % static.q_heads, h // static.group
    bounds = Bounds(*window, table.other)
    q_block = taken(q, (h, table.token), block_q)

    def step(j: Array, now: Statistics, edge: bool) -> Statistics:
        at = Place(head, table.sequence, table.first, j * block_kv, (table.token, table.base + j * block_kv))
        keys, values = (taken(x, (h_kv, at.tokens[1]), block_kv) for x in (k, v))
        if edge and static.packed:  # behind the last key lies another sequence, whose NaN is not this one's
            values = until(values, table.other - at.column)
        scores = score_tile(q_block, keys, at, bounds if edge else None, context, static.settings.pse_type)
        top = jnp.maximum(now.top, _row_max(scores))
        probs, shrink = jnp.exp(scores - top[:, None]), jnp.exp(now.top - top)
        kept = dropped(probs, at, context, static.drawn(table.length, table.other))
        kept = kept.astype(v.dtype) if static.settings.round_probs else kept
        out = now.out * shrink[:, None] + dot(kept, values.astype(kept.dtype), (1, 0))
        return Statistics(top, now.total * shrink + jnp.sum(probs, axis=1), out)

    state = over(ranges, (static.lower_side, True), step, _nothing_yet(q_block, v.shape[2], head, extras))
    out, top, total = _finished(state, ranges.start < ranges.stop, extras, static.settings.zero_empty_rows)
    exists = table.other > 0
    return Found(out, *(jnp.where(exists, x, jnp.zeros_like(x)) for x in (top, total)))


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
