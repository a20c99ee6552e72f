"""What the operator computes: its call put into the terms of the tiled attention, and its results put back."""

from typing import Any, NoReturn

import jax
import jax.numpy as jnp
from jax import Array
from jax.core import Tracer

from ascend_jax.attention.errors import FindKernelError
from ascend_jax.attention.infer.arrange import keys_of, query_of
from ascend_jax.attention.infer.facts import Facts
from ascend_jax.attention.infer.padding import Padding, padding_of
from ascend_jax.attention.infer.spans import Spans, lengths_of, spans_of, tree_mask, window_of, zero_rows
from ascend_jax.attention.layouts import laid_out
from ascend_jax.attention.options import Attended, Extras, How, Settings
from ascend_jax.attention.tiled import Used, tiled_attention

BLOCKS = (128, 512)
"""Rows and keys of a block, without a tiling."""


def compute(f: Facts, how: How) -> tuple[Array, Array]:
    """``attention_out`` and ``softmax_lse`` of a call that was checked."""
    if f.quant != "none" or f.out_quantised:
        return _not_built(f)
    if f.empty or f.s2 + f.prefix_len == 0:
        return _filled(f)
    spans = spans_of(f)
    settings = Settings(f.call.scale, **how._asdict(), pse_type=0, zero_empty_rows=zero_rows(f, spans))
    padding = padding_of(f, spans)
    query, (key, value) = query_of(f), keys_of(f)
    query, key, value = padding.rows(query), padding.keys(key), padding.keys(value)
    extras = _extras(f, spans, padding, key.shape[2])
    lengths = lengths_of(f, spans)
    if isinstance(lengths, Used):
        lengths = lengths._replace(q_lens=jnp.where(padding.fits, lengths.q_lens, 0))
    result = tiled_attention(query, key, value, window_of(f, spans), settings, extras=extras, lengths=lengths)
    result = result._replace(**{name: padding.rows_back(getattr(result, name)) for name in result._fields[:3]})
    return laid_out(result.out, f.out_layout), _log_sum(f, result)


def _extras(f: Facts, spans: Spans, padding: Padding, keys: int) -> Extras:
    """Mask, bias and sink. Packed sequences count rows and keys from their own start, up to the longest."""
    keys = int(spans.kv.max(initial=0)) if f.packed else keys
    sink, bias, masked = f.call.learnable_sink, None, None
    if f.pse:
        bias = jnp.asarray(f.call.pse_shift)
        bias = _columns(bias[:, :, : max(1, f.s1) if bias.shape[2] > 1 else 1], keys)
        bias = padding.columns(padding.rows(bias) if bias.shape[2] > 1 else bias)
    if f.masked and f.sparse_mode == 9:
        masked = tree_mask(f, spans)[..., :keys]
    elif f.masked and f.sparse_mode in (0, 1):
        masked = padding.columns(padding.rows(_columns(_whole_mask(f), keys)))
    return Extras(bias=bias, masked=masked, sink=None if sink is None else jnp.asarray(sink).astype(jnp.float32))


def _whole_mask(f: Facts) -> Array:
    """``[B|1, 1, S1, ≥S2]``, True: masked. In two dimensions one row per batch for a query of one row, else all rows."""
    mask = jnp.asarray(f.call.atten_mask).astype(jnp.bool_)
    if mask.ndim == 2:
        mask = mask[: f.b, None] if f.s1 == 1 and mask.shape[0] >= f.b else mask[None]
    if mask.ndim == 3:
        mask = mask[:, None]
    return mask[:, :, : f.s1]


def _columns(x: Array, keys: int) -> Array:
    """The columns of the ``keys``; what is missing belongs to keys that do not exist."""
    return jnp.pad(x[..., :keys], ((0, 0), (0, 0), (0, 0), (0, max(0, keys - x.shape[3]))))


def _log_sum(f: Facts, result: Attended) -> Array:
    """``max + log(sum)``; ``+inf`` for rows that see no key. Rows that became a mean have about ``-FLT_MAX``."""
    if not f.call.softmax_lse_flag:
        return jnp.zeros(1, jnp.float32)
    top, total = result.softmax_max, result.softmax_sum
    limit = jnp.finfo(top.dtype)
    none = (total <= 0) | ((top <= limit.min) & (total >= limit.max))
    lse = jnp.where(none, jnp.full_like(top, jnp.inf), top + jnp.log(jnp.where(none, jnp.ones_like(total), total)))
    return jnp.moveaxis(lse[0], 0, 1)[..., None] if f.packed else lse[..., None]


def _shapes(f: Facts) -> tuple[jax.ShapeDtypeStruct, jax.ShapeDtypeStruct]:
    rows = (1, f.n1, f.call.query.shape[f.q_layout.index("T")]) if f.packed else (f.b, f.n1, f.s1)
    out = jax.eval_shape(lambda x: laid_out(x, f.out_layout), jax.ShapeDtypeStruct((*rows, f.dv), f.call.out_dtype))
    lse = (rows[2], f.n1, 1) if f.packed else (*rows, 1)
    return out, jax.ShapeDtypeStruct(lse if f.call.softmax_lse_flag else (1,), jnp.float32)


def _filled(f: Facts) -> tuple[Array, Array]:
    """No key at all: zeros, and ``+inf``."""
    out, lse = _shapes(f)
    return jnp.zeros(out.shape, out.dtype), jnp.full(lse.shape, jnp.inf if f.call.softmax_lse_flag else 0, lse.dtype)


def _not_built(f: Facts) -> Any:
    """Raises ``FindKernelError`` when the call is computed; only shapes are known of it."""
    dtypes = f"query of {f.q_dtype}, key of {f.kv_dtype}, output of {f.call.out_dtype}"

    def refuse(*_: Any) -> NoReturn:
        raise FindKernelError(dtypes, "numerics of quantised attention are not built", "pass float16 or bfloat16")

    if not isinstance(f.call.query, Tracer):
        refuse()
    return jax.pure_callback(refuse, _shapes(f))
