"""``npu_fusion_attention_grad``: the training operator of torch_npu, backward, from the statistics that the forward saved."""

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from jax import Array

from ascend_jax.attention.fusion.arrange import unpack_statistics
from ascend_jax.attention.fusion.axes import Axes
from ascend_jax.attention.fusion.call import OPEN, Call, GradCall, make_call, second_spelling
from ascend_jax.attention.fusion.grad_checks import check_grad_call
from ascend_jax.attention.fusion.numerics import BLOCKS, bias_of, inputs_of, qkv_of
from ascend_jax.attention.fusion.plan import Sparse
from ascend_jax.attention.layouts import heads_first, laid_out
from ascend_jax.attention.options import How
from ascend_jax.attention.tiled import tiled_backward
from ascend_jax.tiling.tiling import Tiling


class FusionAttentionGrad(NamedTuple):
    """Gradients like what they belong to. ``dpse`` and ``dsink`` are empty where there is none; so is dpse of slopes."""

    dq: Array
    dk: Array
    dv: Array
    dpse: Array
    dsink: Array


class FusionAttentionGradV2(NamedTuple):
    """The same, and the gradients of the rope parts, empty where there are none."""

    dq: Array
    dk: Array
    dv: Array
    dpse: Array
    dq_rope: Array
    dk_rope: Array
    dsink: Array


def npu_fusion_attention_grad(  # noqa: PLR0913 - the operator's own signature
    query: Array,
    key: Array,
    value: Array,
    dy: Array,
    head_num: int,
    input_layout: str,
    *,
    pse: Array | None = None,
    padding_mask: Array | None = None,
    atten_mask: Array | None = None,
    softmax_max: Array | None = None,
    softmax_sum: Array | None = None,
    softmax_in: Array | None = None,
    attention_in: Array | None = None,
    scale_value: float | Array = 1.0,
    keep_prob: float | Array = 1.0,
    pre_tockens: int = OPEN,
    next_tockens: int = OPEN,
    inner_precise: int = 0,
    seed: int = 0,
    offset: int = 0,
    numels: int = 0,
    prefix: Sequence[int] | None = None,
    actual_seq_qlen: Sequence[int] | None = None,
    actual_seq_kvlen: Sequence[int] | None = None,
    sparse_mode: int = 0,
    gen_mask_parallel: bool = True,
    sync: bool = False,
    softmax_layout: str = "",
    sink: Array | None = None,
    pse_type: int = 1,
    q_start_idx: Sequence[int] | None = None,
    kv_start_idx: Sequence[int] | None = None,
    chip: str = "910b",
    tiling: Tiling | None = None,
    round_probs: bool = False,
) -> FusionAttentionGrad:
    """Gradients of ``sum(attention_out · dy)`` by query, key, value, pse and sink.

    ``softmax_max``, ``softmax_sum`` and ``attention_in`` are what ``npu_fusion_attention`` gave; ``softmax_in`` and ``numels``
    are not read. Everything else as in the forward call; dropout is drawn again from seed and offset. ``round_probs`` rounds
    dS as well; without it ``attention_in``, which is rounded, is not read but computed again.

    Raises:
      ParamNullptrError, ParamInvalidError: what wrapper and front end refuse (161001, 161002).
      NullptrError: what the host tiling refuses (561103).
    """
    del softmax_in, numels, gen_mask_parallel, sync
    tensors = {"pse": pse, "padding_mask": padding_mask, "atten_mask": atten_mask, "sink": sink, "attention_in": attention_in}
    tensors |= {"softmax_max": softmax_max, "softmax_sum": softmax_sum}
    lists = {"prefix": prefix, "actual_seq_qlen": actual_seq_qlen, "actual_seq_kvlen": actual_seq_kvlen}
    lists |= {"q_start_idx": q_start_idx, "kv_start_idx": kv_start_idx}
    attributes = {"scale": scale_value, "keep_prob": keep_prob, "pre_tokens": pre_tockens, "next_tokens": next_tockens}
    attributes |= {"inner_precise": inner_precise, "seed": seed, "offset": offset, "sparse_mode": sparse_mode}
    attributes |= {"softmax_layout": softmax_layout, "pse_type": pse_type, "chip": chip}
    qkv_dy = {"query": query, "key": key, "value": value, "dy": dy}
    found = _gradients(
        make_call(qkv_dy | tensors, head_num, input_layout, lists=lists, **attributes), How.of(tiling, BLOCKS, round_probs)
    )
    return FusionAttentionGrad(found.dq, found.dk, found.dv, found.dpse, found.dsink)


def npu_fusion_attention_grad_v3(
    query: Array,
    key: Array,
    value: Array,
    dy: Array,
    head_num: int,
    input_layout: str,
    *,
    seed: Array | int | None = None,
    offset: Array | int | None = None,
    **options: Any,
) -> FusionAttentionGrad:
    """``npu_fusion_attention_grad`` in its third version: ``seed`` and ``offset`` as the forward gave them, and no numels."""
    drawn: dict[str, Any] = {"seed": 0 if seed is None else seed, "offset": 0 if offset is None else offset}
    return npu_fusion_attention_grad(query, key, value, dy, head_num, input_layout, **drawn, **options)


def npu_fusion_attention_grad_v2(  # noqa: PLR0913 - the operator's own signature
    query: Array,
    key: Array,
    value: Array,
    dy: Array,
    head_num: int,
    input_layout: str,
    *,
    query_rope: Array | None = None,
    key_rope: Array | None = None,
    pre_tokens: int = OPEN,
    next_tokens: int = OPEN,
    **options: Any,
) -> FusionAttentionGradV2:
    """``npu_fusion_attention_grad`` under the second spelling, with the rope parts of query and key and their gradients."""
    ignored = ("softmax_in", "numels", "gen_mask_parallel", "sync")
    given = {name: value for name, value in options.items() if name not in ignored}
    tensors = {"query": query, "key": key, "value": value, "dy": dy, "query_rope": query_rope, "key_rope": key_rope}
    tensors |= {name: given.pop(name, None) for name in TENSORS}
    lists = {name: given.pop(name, None) for name in LISTS}
    how = How.of(given.pop("tiling", None), BLOCKS, given.pop("round_probs", False))
    given |= {"scale": given.pop("scale_value", 1.0), "pre_tokens": pre_tokens, "next_tokens": next_tokens}
    return _gradients(make_call(tensors, head_num, input_layout, lists=lists, **given), how)


_signature = second_spelling(npu_fusion_attention_grad, ("query_rope", "key_rope"))
setattr(npu_fusion_attention_grad_v2, "__signature__", _signature)  # noqa: B010 - unknown to type checkers

TENSORS = ("pse", "padding_mask", "atten_mask", "softmax_max", "softmax_sum", "attention_in", "sink")
LISTS = ("prefix", "actual_seq_qlen", "actual_seq_kvlen", "q_start_idx", "kv_start_idx")


def _gradients(call: Call, how: How) -> FusionAttentionGradV2:
    call = cast(GradCall, call)
    axes, sparse = check_grad_call(call)
    return _zeros(call) if sparse is None else _compute(call, axes, sparse, how)


def _zeros(call: GradCall) -> FusionAttentionGradV2:
    none = jnp.zeros((0,), call.query.dtype)
    tensors = (call.query, call.key, call.value, call.pse, call.query_rope, call.key_rope, call.sink)
    return FusionAttentionGradV2(*(none if x is None else jnp.zeros(x.shape, x.dtype) for x in tensors))


def _compute(call: GradCall, axes: Axes, sparse: Sparse, how: How) -> FusionAttentionGradV2:
    window, settings, extras, lengths = inputs_of(call, axes, sparse, how)
    statistics = [unpack_statistics(x, call.packed, call.softmax_layout) for x in (call.softmax_max, call.softmax_sum)]
    out, d_out = (heads_first(x, call.layout, axes.n1) for x in (call.attention_in, call.dy))
    saved = (out, statistics[0], statistics[1])
    found = tiled_backward(qkv_of(call, axes), saved, d_out, window, settings, extras=extras, lengths=lengths)
    dq, dk, dv = (laid_out(x, call.layout) for x in (found.query[..., : axes.d], found.key[..., : axes.d], found.value))
    none = jnp.zeros((0,), call.query.dtype)
    ropes = [none, none]
    if call.query_rope is not None:
        ropes = [laid_out(x[..., axes.d :], call.layout) for x in (found.query, found.key)]
    dpse, dsink = _pse_gradient(call, axes, found.bias), none.astype(jnp.float32) if found.sink is None else found.sink
    return FusionAttentionGradV2(dq, dk, dv, dpse, ropes[0], ropes[1], dsink)


def _pse_gradient(call: GradCall, axes: Axes, d_bias: Array | None) -> Array:
    """The gradient of pse as it was given, from that of the scores."""
    if d_bias is None or call.pse is None:
        return jnp.zeros((0,), call.query.dtype)
    _, back = jax.vjp(lambda pse: bias_of(pse, call, axes), jnp.asarray(call.pse))
    return back(d_bias)[0]
