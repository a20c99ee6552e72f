"""Blockwise attention with online softmax: memory linear in the sequence, and no work for blocks that the mask excludes."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ascend_jax.attention.blocks import filled_up, of_tokens
from ascend_jax.attention.core import Gradients, attend_blocks, gradients_of_blocks
from ascend_jax.attention.dropout import split_words
from ascend_jax.attention.forward import Found
from ascend_jax.attention.options import (
    FAR,
    Attended,
    Extras,
    Fixed,
    Numbers,
    Packed,
    Sequences,
    Settings,
    Used,
    Window,
    clipped,
)
from ascend_jax.attention.plan import QKV, Form, Given, nothing, plan_of, qkv_blocks, used_only
from ascend_jax.attention.scores import accumulator
from ascend_jax.attention.tiled_checks import check_arguments, check_rows

SHORTEST = 16
"""Rows or keys: blocks are not made shorter than that for short packed sequences."""

__all__ = ["Attended", "Extras", "Gradients", "Packed", "Settings", "Used", "Window", "tiled_attention", "tiled_backward"]


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
      lengths: for packed sequences (B = 1, S1 and S2 count tokens) where each lies; for a batch how much of each exists. They
        are data: another list of as many sequences compiles nothing anew, unless all are shorter than half a block.

    Returns:
      ``Attended``. Statistics are float32 (float64 for float64). Rows of no sequence, or of one without keys, are 0.

    Raises:
      ValueError: tensors, window, extras or lengths that do not fit one another, settings out of range.

    Differentiable by query, key, value, ``extras.bias``, ``extras.sink`` and ``settings.scale``, and through the statistics
    wherever they are used as a whole (``max + log(sum)``), block by block as well. Slopes, alibi_shift and keep_prob count as
    constants.
    """
    qkv = query, key, value
    return _attend(*_at_the_boundary(qkv, window, settings, extras, lengths), qkv)


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
    form, given = _at_the_boundary(qkv, window, settings, extras, lengths)
    check_rows(qkv, saved, d_out)
    return _differentiate(form, given, qkv, (*saved, d_out))


def _at_the_boundary(
    qkv: QKV, window: Window, settings: Settings, extras: Extras, lengths: Packed | Used | None
) -> tuple[Form, Given]:
    """What is fixed at compile time, and numbers of a person as arrays of the types that the program takes."""
    check_arguments(qkv, window, settings, extras, lengths)
    packed = lengths if isinstance(lengths, Packed) else None
    used = Used(*(None if x is None else jnp.asarray(x, jnp.int32) for x in lengths)) if isinstance(lengths, Used) else Used()
    limit = -qkv[0].shape[2] if packed is None else -FAR // 2  # whatever the lengths: those of the next call may be longer
    lower_side = isinstance(window.lower, Array) or bool(np.any(np.asarray(window.lower) > limit))
    if extras.philox is not None:
        seed, offset = extras.philox
        extras = extras._replace(philox=(split_words(seed), split_words(offset)))
    dtype = accumulator(qkv[0].dtype)
    kinds = (settings.scale, dtype), (settings.alibi_shift, jnp.int32), (settings.keep_prob, dtype)
    numbers = Numbers(*(x.astype(kind) if isinstance(x, Array) else np.asarray(x, kind) for x, kind in kinds))
    given = Given(Window(*map(clipped, window)), extras, used, numbers, _sequences(packed))
    return Form(_for_short(Fixed.of(settings), packed), _apart(packed, qkv), lower_side), given


def _for_short(fixed: Fixed, packed: Packed | None) -> Fixed:
    """Blocks no longer than packed sequences need, by powers of two, so that few programs serve lists of any lengths."""
    if packed is None or not packed.known:
        return fixed
    longest = (max(lens, default=0) for lens in (packed.q_lens, packed.kv_lens))
    rows, keys = (max(SHORTEST, 1 << (length - 1).bit_length()) if length else SHORTEST for length in longest)
    return fixed._replace(block_q=min(fixed.block_q, rows), block_kv=min(fixed.block_kv, keys))


def _sequences(packed: Packed | None) -> Sequences | None:
    if packed is None:
        return None
    lists = (getattr(packed, name) for name in Sequences._fields)
    return Sequences(*(x.astype(jnp.int32) if isinstance(x, Array) else np.asarray(x, np.int32) for x in lists))


def _apart(packed: Packed | None, qkv: QKV) -> bool:
    """Whether no tokens of packed sequences need be shared: there are as many as the sequences have together."""
    tokens = (x.shape[2] for x in qkv[:2])
    return (
        packed is None
        or not packed.known
        or all(sum(x) <= most for x, most in zip((packed.q_lens, packed.kv_lens), tokens, strict=True))
    )


@partial(jax.jit, static_argnums=0)
def _attend(form: Form, given: Given, qkv: QKV) -> Attended:
    (query, _, value), used = qkv, given.used
    if nothing(qkv, given):
        return _zeros(query, value)
    plan = plan_of(form, qkv, given)
    found = attend_blocks(plan.static, qkv_blocks(plan, qkv, used), plan.context)
    out, top, total = (used_only(of_tokens(x, query.shape[0], query.shape[2]), used.q_lens) for x in found)
    start, _, _, stop = plan.context.rows.ranges
    blocks = jnp.broadcast_to((stop - start)[:, None], (*query.shape[:2], start.shape[1]))
    return Attended(out, top, total, blocks)


def _zeros(query: Array, value: Array) -> Attended:
    """The answer where no row or no key exists."""
    shape, dtype = query.shape[:3], accumulator(query.dtype)
    out, statistics = jnp.zeros((*shape, value.shape[3]), query.dtype), jnp.zeros(shape, dtype)
    return Attended(out, statistics, statistics, jnp.zeros((*shape[:2], 0), jnp.int32))


@partial(jax.jit, static_argnums=0)
def _differentiate(form: Form, given: Given, qkv: QKV, rows: tuple[Array, Array, Array, Array]) -> Gradients:
    (query, key, _), extras = qkv, given.extras
    if nothing(qkv, given):
        return jax.tree.map(jnp.zeros_like, Gradients(*qkv, extras.bias, extras.sink))
    plan = plan_of(form, qkv, given)
    *saved, d_out = (filled_up(x, plan.q_side) for x in rows)
    found, _ = gradients_of_blocks(plan.static, qkv_blocks(plan, qkv, given.used), Found(*saved), d_out, plan.context)
    d_q = of_tokens(found.query, query.shape[0], query.shape[2])
    d_k, d_v = (of_tokens(x, key.shape[0], key.shape[2]) for x in (found.key, found.value))
    d_bias = found.bias
    if d_bias is not None and extras.bias is not None:
        d_bias = d_bias[:, :, : extras.bias.shape[2], : extras.bias.shape[3]]
    return Gradients(d_q, d_k, d_v, d_bias, found.sink)
