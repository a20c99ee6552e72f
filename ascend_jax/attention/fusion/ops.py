"""``npu_fusion_attention``: the training operator of torch_npu, forward, under its own signature, for JAX arrays.

The name, the arguments and the seven results are those of torch_npu (op_plugin_functions.yaml of op-plugin).
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ascend_jax.attention.fusion.arrange import pack_statistics
from ascend_jax.attention.fusion.axes import Axes
from ascend_jax.attention.fusion.call import OPEN, Call, make_call, second_spelling
from ascend_jax.attention.fusion.checks import check_call
from ascend_jax.attention.fusion.numerics import BLOCKS, inputs_of, qkv_of
from ascend_jax.attention.layouts import laid_out
from ascend_jax.attention.options import How
from ascend_jax.attention.tiled import tiled_attention
from ascend_jax.tiling.tiling import Tiling


class FusionAttention(NamedTuple):
    """What the operator gives.

    Attributes:
      attention_out: like query, with the head size of value.
      softmax_max, softmax_sum: float32 ``[B, N1, S1, 8]`` (TND ``[T, N1, 8]``), eight equal copies. Packed ones lie in memory
        heads first, unless softmax_layout is "TND". They are constants to a gradient, as in torch_npu, whose backward is given
        the gradient of attention_out alone (derivatives.yaml of op-plugin).
      softmax_out: empty.
      seed, offset: those of dropout; numels: weights that it draws for. Plain numbers, under jit as well.
    """

    attention_out: Array
    softmax_max: Array
    softmax_sum: Array
    softmax_out: Array
    seed: int
    offset: int
    numels: int


def _numbers_aside(found: FusionAttention) -> tuple[tuple[Array, Array, Array, Array], tuple[int, int, int]]:
    return found[:4], found[4:]


def _together(numbers: tuple[int, int, int], arrays: tuple[Array, Array, Array, Array]) -> FusionAttention:
    return FusionAttention(*arrays, *numbers)


jax.tree_util.register_pytree_node(FusionAttention, _numbers_aside, _together)


def npu_fusion_attention(  # noqa: PLR0913, PLR0917 - the operator's own signature
    query: Array,
    key: Array,
    value: Array,
    head_num: int,
    input_layout: str,
    pse: Array | None = None,
    padding_mask: Array | None = None,
    atten_mask: Array | None = None,
    scale: float | Array = 1.0,
    keep_prob: float | Array = 1.0,
    pre_tockens: int = OPEN,
    next_tockens: int = OPEN,
    inner_precise: int = 0,
    prefix: Sequence[int] | None = None,
    actual_seq_qlen: Sequence[int] | None = None,
    actual_seq_kvlen: Sequence[int] | None = None,
    sparse_mode: int = 0,
    gen_mask_parallel: bool = True,
    sync: bool = False,
    softmax_layout: str = "",
    sink: Array | None = None,
    dropout_mask: Array | None = None,
    seed: int = 0,
    offset: int = 0,
    *,
    query_rope: Array | None = None,
    key_rope: Array | None = None,
    pse_type: int = 1,
    q_start_idx: Sequence[int] | None = None,
    kv_start_idx: Sequence[int] | None = None,
    chip: str = "910b",
    tiling: Tiling | None = None,
    round_probs: bool = False,
) -> FusionAttention:
    """Attention as the NPU's training operator computes it: ``softmax(scale · (Q·Kᵀ + pse))·V`` under a mask, with dropout.

    Args:
      query, key, value: float16, bfloat16 or float32 in ``input_layout``: BSH ``[B, S, N·D]``, SBH ``[S, B, N·D]``, BSND
        ``[B, S, N, D]``, BNSD ``[B, N, S, D]`` or TND ``[T, N, D]``, whose sequences lie behind one another. N1 of query is a
        multiple of N2 of key and value; D of value may be smaller; D is at most 768.
      head_num: N1.
      pse: added to the scores before the scale (pse_type 1) or after it (0); ``[B or 1, N1, S1 or 1, S2]``. pse_type 2 and 3:
        slopes of alibi, float32 ``[N1]`` or ``[B, N1]``.
      padding_mask, gen_mask_parallel, sync: have no effect, as in the operator or because there is one stream.
      atten_mask: bool or uint8, 1 where a key is hidden; ``[S1, S2]`` or behind ``[B, N1]``, ``[B, 1]`` or ``[1, 1]``, never
        broadcast; ``[2048, 2048]`` in sparse modes 2, 3, 4, 7 and 8 and ``[3072, 2048]`` in mode 6, whose content is known and
        not read. None: full attention, whatever the mode says.
      scale: multiplies the scores. May be traced, and then has a gradient; another value compiles nothing anew.
      keep_prob: share of the probabilities that dropout keeps, in (0, 1]; others are 0. May be traced: weights are then drawn
        for whatever it is.
      pre_tockens, next_tockens: keys before and behind that a row sees, in modes 0 (from the top left), 4, 7 and 8 (from the
        bottom right). In mode 0 blocks outside of them are skipped whatever the mask says.
      inner_precise: 2 gives zeros in rows that see no key. Every other value gives the mean of the values of computed blocks.
      prefix: keys that all rows of a sequence see, in modes 5 and 6.
      actual_seq_qlen, actual_seq_kvlen: TND: where each sequence ends, cumulative. Zeros at the end stand for no sequence.
      sparse_mode: 0 declared band, 1 mask alone, 2 causal from the top left, 3 causal from the bottom right, 4 band, 5 and 6
        prefix, 7 and 8 mixtures for packed sequences that were cut.
      softmax_layout: "TND" puts the packed statistics tokens first.
      sink: float32 ``[N1]``, one more score per row that takes probability and gives nothing.
      dropout_mask: uint8, a bit for each weight, 1 to keep. Without it and with keep_prob below 1 the mask is drawn from seed
        and offset as the 950 draws it; the 910B's generator is not public.
      chip: whose checks hold, "910b" or "950".
      tiling: its block_q and block_kv cut the numerics; without it 128 × 128.
      round_probs: round P to the inputs' type before P·V, as the Cube takes it. Without it results are within the tolerances of
        the operators' own tests, which compare with a softmax that rounds nothing.

    Raises:
      ParamNullptrError, ParamInvalidError: what wrapper and front end refuse (161001, 161002).
      NullptrError: what the host tiling refuses, as the user of this operator sees it (561103), with the TilingError as cause.

    >>> x = jnp.ones((1, 2, 4, 16), jnp.float16)
    >>> npu_fusion_attention(x, x, x, 2, "BNSD", scale=0.25).attention_out.shape
    (1, 2, 4, 16)
    """
    tensors = {"query": query, "key": key, "value": value, "pse": pse, "padding_mask": padding_mask, "atten_mask": atten_mask}
    tensors |= {"query_rope": query_rope, "key_rope": key_rope, "sink": sink, "dropout_mask": dropout_mask}
    lists = {"prefix": prefix, "actual_seq_qlen": actual_seq_qlen, "actual_seq_kvlen": actual_seq_kvlen}
    lists |= {"q_start_idx": q_start_idx, "kv_start_idx": kv_start_idx}
    del gen_mask_parallel, sync
    call = make_call(
        tensors,
        head_num,
        input_layout,
        lists=lists,
        scale=scale,
        keep_prob=keep_prob,
        pre_tokens=pre_tockens,
        next_tokens=next_tockens,
        inner_precise=inner_precise,
        sparse_mode=sparse_mode,
        pse_type=pse_type,
        softmax_layout=softmax_layout,
        seed=seed,
        offset=offset,
        chip=chip,
    )
    return _compute(call, How.of(tiling, BLOCKS, round_probs))


def npu_fusion_attention_v2(
    query: Array,
    key: Array,
    value: Array,
    head_num: int,
    input_layout: str,
    *,
    pre_tokens: int = OPEN,
    next_tokens: int = OPEN,
    **options: Any,
) -> FusionAttention:
    """``npu_fusion_attention`` under the second spelling: ``pre_tokens`` and ``next_tokens``, and everything else by name."""
    tokens = {"pre_tockens": pre_tokens, "next_tockens": next_tokens}
    return npu_fusion_attention(query, key, value, head_num, input_layout, **tokens, **options)


setattr(npu_fusion_attention_v2, "__signature__", second_spelling(npu_fusion_attention))  # noqa: B010 - unknown to type checkers


class FusionAttentionV3(NamedTuple):
    """What the third version gives: no numels, and seed and offset as int64 arrays of NumPy, for jax may have no such type."""

    attention_out: Array
    softmax_max: Array
    softmax_sum: Array
    softmax_out: Array
    seed: np.ndarray
    offset: np.ndarray


@functools.wraps(npu_fusion_attention, assigned=())
def npu_fusion_attention_v3(*arguments: Any, **options: Any) -> FusionAttentionV3:
    """``npu_fusion_attention`` in its third version: lengths are tensors (or lists), known when the call is traced."""
    found = npu_fusion_attention(*arguments, **options)
    return FusionAttentionV3(*found[:4], np.asarray(found.seed, np.int64), np.asarray(found.offset, np.int64))


@functools.wraps(npu_fusion_attention, assigned=())  # its signature, for those who ask
def npu_flash_attention(*arguments: Any, **options: Any) -> Array:
    """``attention_out`` of ``npu_fusion_attention`` alone, for the same arguments. torch_npu has no operator of this name."""
    return npu_fusion_attention(*arguments, **options).attention_out


def _compute(call: Call, how: How) -> FusionAttention:
    axes, sparse = check_call(call)
    none = jnp.zeros((0,), call.query.dtype)
    if sparse is None:
        return FusionAttention(*_zeros(call, axes), none, call.seed, call.offset, axes.weights)
    window, settings, extras, lengths = inputs_of(call, axes, sparse, how)
    found = tiled_attention(*qkv_of(call, axes), window, settings, extras=extras, lengths=lengths)
    statistics = (jax.lax.stop_gradient(x) for x in (found.softmax_max, found.softmax_sum))
    top, total = (pack_statistics(x, call.packed, call.softmax_layout) for x in statistics)
    return FusionAttention(laid_out(found.out, call.layout), top, total, none, call.seed, call.offset, axes.weights)


def _zeros(call: Call, axes: Axes) -> tuple[Array, Array, Array]:
    """Output and statistics of a call of which some tensor is empty."""
    if call.packed:
        shape, lead = (axes.t1, axes.n1, axes.d_value), (axes.t1, axes.n1)
    else:
        sizes = {"B": axes.batch, "S": axes.s1, "N": axes.n1, "D": axes.d_value, "H": axes.n1 * axes.d_value}
        shape, lead = tuple(sizes[name] for name in call.layout), (axes.batch, axes.n1, axes.s1)
    statistics = jnp.zeros((*lead, 8), jnp.float32)
    return jnp.zeros(shape, call.query.dtype), statistics, statistics
