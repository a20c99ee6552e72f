"""Blockwise attention with online softmax: memory linear in the sequence, and no work for blocks that the mask excludes."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ascend_jax.attention.backward import Saved, backward
from ascend_jax.attention.blocks import (
    Side,
    cut_batch,
    cut_packed,
    from_blocks,
    key_ranges,
    row_ranges,
    to_blocks,
    window_of,
)
from ascend_jax.attention.forward import forward
from ascend_jax.attention.meeting import Context, Meeting, Static
from ascend_jax.attention.options import Attended, Extras, Packed, Settings, Used, Window
from ascend_jax.attention.scores import accumulator, pad_to_tiles

__all__ = ["Attended", "Extras", "Gradients", "Packed", "Settings", "Used", "Window", "tiled_attention", "tiled_backward"]


class Gradients(NamedTuple):
    """Gradients in the types of what they belong to; ``bias`` and ``sink`` are None where there is none."""

    query: Array
    key: Array
    value: Array
    bias: Array | None
    sink: Array | None


class _Plan(NamedTuple):
    q_side: Side
    kv_side: Side
    context: Context
    static: Static


def tiled_attention(
    query: Array,
    key: Array,
    value: Array,
    window: Window = Window(),  # noqa: B008 (immutable)
    settings: Settings = Settings(),  # noqa: B008
    *,
    extras: Extras = Extras(),  # noqa: B008
    lengths: Packed | Used | None = None,
) -> Attended:
    """Attention block by block, as ``settings`` cuts it, for the keys that ``window`` lets each row see.

    Args:
      query: ``[B, N1, S1, D]``, float16, bfloat16, float32 or float64.
      key, value: ``[B, N2, S2, D]``, ``[B, N2, S2, Dv]``; head n of Q reads head ``n // (N1 / N2)``.
      lengths: for packed sequences (B = 1, S1 and S2 count tokens) where each lies; for a batch how much of each exists.

    Returns:
      ``Attended``. Statistics are float32 (float64 for float64). Rows of no sequence, or of one without keys, are 0.

    Differentiable by query, key, value, ``extras.bias`` and ``extras.sink``, and through the statistics wherever they are used
    as a whole (``max + log(sum)``), block by block as well.
    """
    plan = _plan((query, key, value), window, settings, extras, lengths)
    if _is_empty((query, key, value), plan):
        return _nothing(query, value)
    found = _attend(plan.static, _qkv_blocks((query, key, value), plan), plan.context)
    out, top, total = (from_blocks(x, plan.q_side, query.shape[0], query.shape[2]) for x in found[:3])
    return Attended(out, top, total, found[3].reshape(*query.shape[:2], -1))


def _nothing(query: Array, value: Array) -> Attended:
    """The answer where no row or no key exists."""
    shape, dtype = query.shape[:3], accumulator(query.dtype)
    out, statistics = jnp.zeros((*shape, value.shape[3]), query.dtype), jnp.zeros(shape, dtype)
    return Attended(out, statistics, statistics, jnp.zeros((*shape[:2], 0), jnp.int32))


def tiled_backward(
    qkv: tuple[Array, Array, Array],
    saved: tuple[Array, Array, Array],
    d_out: Array,
    window: Window = Window(),  # noqa: B008
    settings: Settings = Settings(),  # noqa: B008
    *,
    extras: Extras = Extras(),  # noqa: B008
    lengths: Packed | Used | None = None,
) -> Gradients:
    """The gradients of ``sum(out · d_out)`` from ``saved``: output, maximum and sum of :func:`tiled_attention`."""
    (query, key, _), plan = qkv, _plan(qkv, window, settings, extras, lengths)
    if _is_empty(qkv, plan):
        return jax.tree.map(jnp.zeros_like, Gradients(*qkv, extras.bias, extras.sink))
    out, d_out = (to_blocks(x, plan.q_side) for x in (saved[0], d_out))
    top, total = (to_blocks(x[..., None], plan.q_side)[..., 0] for x in saved[1:])
    found = _gradients(plan.static, _qkv_blocks(qkv, plan), (out, top, total), d_out, plan.context)
    d_q = from_blocks(found.query, plan.q_side, query.shape[0], query.shape[2])
    d_k, d_v = (from_blocks(x, plan.kv_side, key.shape[0], key.shape[2]) for x in (found.key, found.value))
    d_bias = found.bias
    if d_bias is not None and extras.bias is not None:
        d_bias = d_bias[:, :, : extras.bias.shape[2], : extras.bias.shape[3]]
    return Gradients(d_q, d_k, d_v, d_bias, found.sink)


def _is_empty(qkv: tuple[Array, Array, Array], plan: _Plan) -> bool:
    """Whether there is no row, no key or no column at all."""
    blocks = (plan.context.rows.table.first.size, plan.context.keys.table.first.size)
    return 0 in (*blocks, *qkv[0].shape, *qkv[1].shape, *qkv[2].shape)


def _qkv_blocks(qkv: tuple[Array, Array, Array], plan: _Plan) -> tuple[Array, Array, Array]:
    query, key, value = qkv
    return to_blocks(query, plan.q_side), to_blocks(key, plan.kv_side), to_blocks(value, plan.kv_side)


def _plan(
    qkv: tuple[Array, Array, Array], window: Window, settings: Settings, extras: Extras, lengths: Packed | Used | None
) -> _Plan:
    query, key, _ = qkv
    tokens, block = (query.shape[2], key.shape[2]), (settings.block_q, settings.block_kv)
    if isinstance(lengths, Packed):
        q_side, kv_side = cut_packed(tokens, block, lengths)
        tokens = (max(lengths.q_lens, default=0), max(lengths.kv_lens, default=0))
    else:
        q_side, kv_side = cut_batch(query.shape[0], tokens, block, Used() if lengths is None else lengths)
    q_window, kv_window = (window_of(window, side.table) for side in (q_side, kv_side))
    rows = Meeting(q_side.table, q_window, key_ranges(q_window, q_side.table, q_side.block, kv_side.block))
    keys = Meeting(kv_side.table, kv_window, row_ranges(kv_window, kv_side.table, kv_side.block, q_side.block))
    lower_side = isinstance(window.lower, Array) or bool(np.any(np.asarray(window.lower) > -tokens[0]))
    padded = (pad_to_tiles(x, q_side.block, kv_side.block) for x in (extras.bias, extras.masked, extras.keep))
    bias, masked, keep = padded
    static = Static(settings, query.shape[1], key.shape[1], *tokens, lower_side)
    return _Plan(q_side, kv_side, Context(rows, keys, extras._replace(bias=bias, masked=masked, keep=keep)), static)


@partial(jax.jit, static_argnums=0)
def _attend(static: Static, qkv: tuple[Array, Array, Array], context: Context) -> tuple[Array, Array, Array, Array]:
    return _core(static, qkv, context)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _core(static: Static, qkv: tuple[Array, Array, Array], context: Context) -> tuple[Array, Array, Array, Array]:
    return forward(qkv, context, static)


def _core_forward(static: Static, qkv: tuple[Array, Array, Array], context: Context) -> Any:
    found = forward(qkv, context, static)
    return found, (qkv, context, found[:3])


def _core_backward(static: Static, saved: Any, cotangents: tuple[Array, ...]) -> tuple[Any, ...]:
    qkv, context, found = saved
    d_out, _, d_total, _ = cotangents
    d_q, d_k, d_v, d_bias, d_sink = _gradients(static, qkv, found, d_out, context, d_total=d_total)
    return (d_q, d_k, d_v), Context(None, None, Extras(bias=d_bias, sink=d_sink))  # pyright: ignore[reportArgumentType]


_core.defvjp(_core_forward, _core_backward)


def _gradients(
    static: Static,
    qkv: tuple[Array, Array, Array],
    found: tuple[Array, Array, Array],
    d_out: Array,
    context: Context,
    *,
    d_total: Array | None = None,
) -> Gradients:
    """Gradients of the blocks. ``d_total``: how the result depends on the sums, beside the output."""
    (q, k, v), (out, top, total), table = qkv, found, context.rows.table
    dtype, extras = accumulator(q.dtype), context.extras
    delta = jnp.sum(out.astype(dtype) * d_out.astype(dtype), axis=3)
    if d_total is not None:
        delta = delta - d_total * total  # dP grows by what the sum is worth, and P·sum is the sum's derivative
    row = table.first[..., None] + jnp.arange(q.shape[2], dtype=jnp.int32)[None, None]
    exists = jnp.repeat(row < table.length[..., None], static.q_heads, axis=0)
    top = jnp.where(exists, top, jnp.inf)  # rows that do not exist have no probability, whatever stands in their place
    share = 1 / jnp.where(total > 0, total, jnp.ones_like(total))
    sums = backward(Saved(q, d_out, top, share, delta), (k, v), context, static)
    d_bias = None if extras.bias is None or sums.d_bias is None else sums.d_bias.astype(extras.bias.dtype)
    d_sink = None if extras.sink is None else _sink_gradient(extras.sink, (top, share, delta))
    return Gradients(sums.dq.astype(q.dtype), sums.dk.astype(k.dtype), sums.dv.astype(v.dtype), d_bias, d_sink)


def _sink_gradient(sink: Array, rows: tuple[Array, Array, Array]) -> Array:
    """``-Σ P_sink · delta`` of each head: the sink's probability meets no value."""
    top, share, delta = (x.reshape(-1, sink.shape[0], x.shape[1] * x.shape[2]) for x in rows)
    probs = jnp.exp(sink.astype(top.dtype)[None, :, None] - top) * share
    return -jnp.sum(probs * delta, axis=(0, 2)).astype(sink.dtype)
