"""Blockwise attention with online softmax: memory linear in the sequence, and no work for blocks that the mask excludes."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ascend_jax.attention.blocks import from_blocks, to_blocks
from ascend_jax.attention.core import Gradients, attend_blocks, gradients_of_blocks
from ascend_jax.attention.dropout import split_words
from ascend_jax.attention.options import Attended, Extras, Fixed, Numbers, Packed, Settings, Used, Window, clipped
from ascend_jax.attention.plan import QKV, Form, Given, plan_of, qkv_blocks, used_only
from ascend_jax.attention.scores import accumulator
from ascend_jax.attention.tiled_checks import check_arguments, check_rows

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
      lengths: for packed sequences (B = 1, S1 and S2 count tokens) where each lies; for a batch how much of each exists.

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
    longest = qkv[0].shape[2] if packed is None else max(packed.q_lens, default=0)
    lower_side = isinstance(window.lower, Array) or bool(np.any(np.asarray(window.lower) > -longest))
    if extras.philox is not None:
        seed, offset = extras.philox
        extras = extras._replace(philox=(split_words(seed), split_words(offset)))
    dtype = accumulator(qkv[0].dtype)
    kinds = (settings.scale, dtype), (settings.alibi_shift, jnp.int32), (settings.keep_prob, dtype)
    numbers = Numbers(*(x.astype(kind) if isinstance(x, Array) else np.asarray(x, kind) for x, kind in kinds))
    given = Given(Window(*map(clipped, window)), extras, used, numbers)
    return Form(Fixed.of(settings), packed, lower_side), given


@partial(jax.jit, static_argnums=0)
def _attend(form: Form, given: Given, qkv: QKV) -> Attended:
    (query, _, value), plan, used = qkv, plan_of(form, qkv, given), given.used
    if plan.empty or 0 in (*query.shape, *value.shape):
        return _nothing(query, value)
    *found, blocks = attend_blocks(plan.static, qkv_blocks(plan, qkv, used), plan.context)
    rows = (from_blocks(x, plan.q_side, query.shape[0], query.shape[2]) for x in found)
    out, top, total = (used_only(x, used.q_lens) for x in rows)
    return Attended(out, top, total, blocks.reshape(*query.shape[:2], -1))


def _nothing(query: Array, value: Array) -> Attended:
    """The answer where no row or no key exists."""
    shape, dtype = query.shape[:3], accumulator(query.dtype)
    out, statistics = jnp.zeros((*shape, value.shape[3]), query.dtype), jnp.zeros(shape, dtype)
    return Attended(out, statistics, statistics, jnp.zeros((*shape[:2], 0), jnp.int32))


@partial(jax.jit, static_argnums=0)
def _differentiate(form: Form, given: Given, qkv: QKV, rows: tuple[Array, Array, Array, Array]) -> Gradients:
    (query, key, value), plan, extras = qkv, plan_of(form, qkv, given), given.extras
    if plan.empty or 0 in (*query.shape, *value.shape):
        return jax.tree.map(jnp.zeros_like, Gradients(*qkv, extras.bias, extras.sink))
    out, d_out = (to_blocks(x, plan.q_side) for x in (rows[0], rows[3]))
    top, total = (to_blocks(x[..., None], plan.q_side)[..., 0] for x in rows[1:3])
    found, _ = gradients_of_blocks(plan.static, qkv_blocks(plan, qkv, given.used), (out, top, total), d_out, plan.context)
    d_q = from_blocks(found.query, plan.q_side, query.shape[0], query.shape[2])
    d_k, d_v = (from_blocks(x, plan.kv_side, key.shape[0], key.shape[2]) for x in (found.key, found.value))
    d_bias = found.bias
    if d_bias is not None and extras.bias is not None:
        d_bias = d_bias[:, :, : extras.bias.shape[2], : extras.bias.shape[3]]
    return Gradients(d_q, d_k, d_v, d_bias, found.sink)
