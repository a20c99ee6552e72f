"""The blocks' attention as one differentiable function: forward and backward joined by what is saved between them."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ascend_jax.attention.backward import Saved, backward
from ascend_jax.attention.forward import Found, forward
from ascend_jax.attention.meeting import Context, Static
from ascend_jax.attention.options import Extras, Numbers
from ascend_jax.attention.scores import accumulator


class Gradients(NamedTuple):
    """Gradients in the types of what they belong to; ``bias`` and ``sink`` are None where there is none."""

    query: Array
    key: Array
    value: Array
    bias: Array | None
    sink: Array | None


def attend_blocks(static: Static, qkv: tuple[Array, Array, Array], context: Context) -> Found:
    """Output, maximum and sum of ``forward``, differentiable by Q, K, V, bias, sink and scale."""
    return _core(static, qkv, context)  # pyright: ignore[reportReturnType] (custom_vjp loses the type)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _core(static: Static, qkv: tuple[Array, Array, Array], context: Context) -> Found:
    return forward(qkv, context, static)


def _core_forward(static: Static, qkv: tuple[Array, Array, Array], context: Context) -> Any:
    # Without rounding, gradients need the output as it was before it took the inputs' type.
    exact = forward(qkv, context, static, None if static.settings.round_probs else accumulator(qkv[0].dtype))
    return exact._replace(out=exact.out.astype(qkv[0].dtype)), (qkv, context, exact)


def _core_backward(static: Static, saved: Any, towards: Found) -> tuple[Any, ...]:
    qkv, context, found = saved
    gradients, d_scale = gradients_of_blocks(static, qkv, found, towards.out, context, d_total=towards.total)
    d_q, d_k, d_v, d_bias, d_sink = gradients
    of_context = None, None, Extras(bias=d_bias, sink=d_sink), Numbers(d_scale, None, None)
    return (d_q, d_k, d_v), Context(*of_context)  # pyright: ignore[reportArgumentType]


_core.defvjp(_core_forward, _core_backward)


def gradients_of_blocks(
    static: Static,
    qkv: tuple[Array, Array, Array],
    found: Found,
    d_out: Array,
    context: Context,
    *,
    d_total: Array | None = None,
) -> tuple[Gradients, Array]:
    """Gradients of the blocks, and that of the scale. ``d_total``: how the result depends on the sums, beside the output.

    Where nothing is to be rounded on the way and the output in ``found`` is, it is computed anew.
    """
    (q, k, v), (out, top, total) = qkv, found
    dtype, extras = accumulator(q.dtype), context.extras
    if not static.settings.round_probs and out.dtype != dtype:
        out = forward(qkv, context, static, dtype).out
    delta = jnp.sum(out.astype(dtype) * d_out.astype(dtype), axis=2)
    if d_total is not None:
        delta = delta - d_total * total  # dP grows by what the sum is worth, and P·sum is the sum's derivative
    exists = jnp.repeat(context.rows.tokens(q.shape[1]), static.q_heads, axis=0)
    top = jnp.where(exists, top, jnp.inf)  # rows that do not exist have no probability, whatever stands in their place
    delta = jnp.where(exists, delta, jnp.zeros_like(delta))
    share = 1 / jnp.where(total > 0, total, jnp.ones_like(total))
    sums = backward(Saved(q, d_out, top, share, delta), (k, v), context, static)
    scale, d_bias, d_scale = context.numbers.scale, sums.d_bias, jnp.sum(q.astype(dtype) * sums.dq)
    if extras.bias is not None and d_bias is not None:
        if static.settings.pse_type == 1:
            d_scale, d_bias = d_scale + jnp.sum(extras.bias.astype(dtype) * d_bias), d_bias * scale
        d_bias = d_bias.astype(extras.bias.dtype)
    d_sink = None if extras.sink is None else _sink_gradient(extras.sink, (top, share, delta))
    d_q, d_k = ((x * scale).astype(like.dtype) for x, like in ((sums.dq, q), (sums.dk, k)))
    return Gradients(d_q, d_k, sums.dv.astype(v.dtype), d_bias, d_sink), d_scale


def _sink_gradient(sink: Array, rows: tuple[Array, Array, Array]) -> Array:
    """``-Σ P_sink · delta`` of each head: the sink's probability meets no value."""
    top, share, delta = (x.reshape(-1, sink.shape[0], x.shape[1]) for x in rows)
    probs = jnp.exp(sink.astype(top.dtype)[None, :, None] - top) * share
    return -jnp.sum(probs * delta, axis=(0, 2)).astype(sink.dtype)
