"""A checked call as the tiled attention takes it: tensors in ``[B, N, S, D]``, window, settings and extras."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from ascend_jax.attention.arguments import traced
from ascend_jax.attention.dropout import split_words, unpack_keep_bits
from ascend_jax.attention.fusion.arrange import by_sequence
from ascend_jax.attention.fusion.axes import Axes
from ascend_jax.attention.fusion.call import Call
from ascend_jax.attention.fusion.front_end import name_of
from ascend_jax.attention.fusion.optional_checks import ALIBI_ROWS
from ascend_jax.attention.fusion.plan import Sparse
from ascend_jax.attention.fusion.window import seen_keys
from ascend_jax.attention.layouts import heads_first
from ascend_jax.attention.options import Extras, How, Packed, Settings, Window

BLOCKS = (128, 128)
"""Rows and keys of a block, without a tiling."""
INVALID_LINE = 2
"""The value of inner_precise that asks for zeros in rows without keys. The operator takes every other value as 0."""


class Inputs(NamedTuple):
    """Arguments of ``tiled_attention`` besides Q, K and V."""

    window: Window
    settings: Settings
    extras: Extras
    lengths: Packed | None


def qkv_of(call: Call, axes: Axes) -> tuple[Array, Array, Array]:
    """Q, K and V as ``[B, N, S, D]``. The rope part is one more piece of D: its products add up with the others."""
    heads = {"query": axes.n1, "key": axes.n2, "value": axes.n2}
    q, k, v = (heads_first(getattr(call, name), call.layout, count) for name, count in heads.items())
    if call.query_rope is not None and call.key_rope is not None:
        q = jnp.concatenate([q, heads_first(call.query_rope, call.layout, axes.n1)], axis=3)
        k = jnp.concatenate([k, heads_first(call.key_rope, call.layout, axes.n2)], axis=3)
    return q, k, v


def inputs_of(call: Call, axes: Axes, sparse: Sparse, how: How) -> Inputs:
    """Everything else."""
    window, masked = seen_keys(call, axes, sparse, how[:2])
    slopes = call.pse is not None and call.pse_type in (2, 3)
    settings = Settings(
        scale=call.scale,
        **how._asdict(),
        pse_type=call.pse_type,
        alibi_shift=call.q_start - call.kv_start,
        keep_prob=call.keep_prob,
        zero_empty_rows=_zero_empty_rows(call, sparse),
    )
    extras = Extras(
        bias=None if call.pse is None or slopes else bias_of(jnp.asarray(call.pse), call, axes),
        slopes=jnp.asarray(call.pse).reshape(-1, axes.n1) if slopes else None,
        masked=masked,
        sink=None if call.sink is None or 0 in call.sink.shape else jnp.asarray(call.sink),
        **_dropout(call, axes),
    )
    return Inputs(window, settings, extras, _packing(axes))


def _zero_empty_rows(call: Call, sparse: Sparse) -> bool:
    """Asked for, or noticed by the host. The 950 minds it only with a mask and inputs of 2 bytes."""
    asked = call.inner_precise == INVALID_LINE or sparse.empty_rows
    return asked and (call.old or (call.atten_mask is not None and name_of(call.query) != "float32"))


def _packing(axes: Axes) -> Packed | None:
    if not axes.packed:
        return None
    starts = [tuple(int(x) for x in np.cumsum([0, *lens])[:-1]) for lens in (axes.q_lens, axes.kv_lens)]
    return Packed(starts[0], axes.q_lens, starts[1], axes.kv_lens)


def bias_of(pse: Array, call: Call, axes: Axes) -> Array:
    """pse of type 0 or 1 as ``[sequences|1, N1, S1|1, S2]``."""
    if pse.ndim == 1:
        rows = (1,) * axes.batch if pse.size == axes.n1 * sum(axes.kv_lens) else axes.q_lens
        return by_sequence(pse, axes, rows)
    if pse.shape[2] == ALIBI_ROWS and (call.packed or axes.s1 > ALIBI_ROWS):
        return _uncompressed(pse, axes)
    return pse


def _uncompressed(pse: Array, axes: Axes) -> Array:
    """All rows of an alibi of which the last 1024 are given: a row looks like a later one, moved along the diagonal."""
    first = axes.s2 - ALIBI_ROWS
    row = np.arange(axes.s1)
    like = np.where(row >= first, row, first + row % ALIBI_ROWS)
    key = jnp.arange(axes.s2)[None] + jnp.asarray(like - row)[:, None]
    return pse[:, :, jnp.asarray(like - first)[:, None], jnp.minimum(key, axes.s2 - 1)]


def _dropout(call: Call, axes: Axes) -> dict[str, Any]:
    """``keep`` or ``philox`` of `Extras`."""
    if call.dropout_mask is not None:
        bits = unpack_keep_bits(jnp.asarray(call.dropout_mask).reshape(-1), (axes.weights,))
        whole = (axes.batch, axes.n1, axes.s1, axes.s2)
        return {"keep": by_sequence(bits, axes, axes.q_lens) if axes.packed else bits.reshape(whole)}
    if not traced(call.keep_prob) and call.keep_prob >= 1:
        return {}
    return {"philox": (split_words(call.seed), split_words(call.offset))}
