"""``npu_fused_infer_attention_score``: attention for inference, with the signature that torch_npu users know."""

from typing import Any

from jax import Array

from ascend_jax.attention.infer.call import INT_MAX, Call, Chip, lengths, required
from ascend_jax.attention.infer.check import check
from ascend_jax.attention.infer.compute import BLOCKS, compute
from ascend_jax.attention.options import How
from ascend_jax.tiling.tiling import Tiling


def npu_fused_infer_attention_score(  # noqa: PLR0913 - the signature is torch_npu's
    query: Any,
    key: Any,
    value: Any,
    *,
    pse_shift: Any = None,
    atten_mask: Any = None,
    actual_seq_lengths: Any = None,
    actual_seq_lengths_kv: Any = None,
    dequant_scale1: Any = None,
    quant_scale1: Any = None,
    dequant_scale2: Any = None,
    quant_scale2: Any = None,
    quant_offset2: Any = None,
    antiquant_scale: Any = None,
    antiquant_offset: Any = None,
    key_antiquant_scale: Any = None,
    key_antiquant_offset: Any = None,
    value_antiquant_scale: Any = None,
    value_antiquant_offset: Any = None,
    block_table: Any = None,
    query_padding_size: Any = None,
    kv_padding_size: Any = None,
    key_shared_prefix: Any = None,
    value_shared_prefix: Any = None,
    actual_shared_prefix_len: Any = None,
    query_rope: Any = None,
    key_rope: Any = None,
    key_rope_antiquant_scale: Any = None,
    num_heads: int = 1,
    scale: float | Array = 1.0,
    pre_tokens: int = INT_MAX,
    next_tokens: int = INT_MAX,
    input_layout: str = "BSH",
    num_key_value_heads: int = 0,
    sparse_mode: int = 0,
    inner_precise: int = 0,
    block_size: int = 0,
    antiquant_mode: int = 0,
    key_antiquant_mode: int = 0,
    value_antiquant_mode: int = 0,
    softmax_lse_flag: bool = False,
    learnable_sink: Any = None,
    dequant_scale_query: Any = None,
    query_quant_mode: int = 0,
    chip: Chip = "910b",
    tiling: Tiling | None = None,
    round_probs: bool = False,
) -> tuple[Array, Array]:
    """Attention over a whole prompt (prefill) or one step (decode), with pages, ropes, prefixes and sinks.

    ``softmax(scale · (Q·Kᵀ) + pse_shift, masked) · V``. The names, defaults and order are op-plugin's; ``learnable_sink``,
    ``dequant_scale_query`` and ``query_quant_mode`` are the operator's further inputs, which torch's second version has.

    Args:
      query, key, value: float16 or bfloat16 in ``input_layout`` (what stands before ``_``): ``[B, S, N·D]`` (BSH),
        ``[B, S, N, D]``, ``[B, N, S, D]``, ``[T, N, D]`` or ``[N, T, D]``. ``key`` and ``value`` may be lists, one tensor
        ``[1, …]`` per batch.
      pse_shift: ``[B|1, N1, S1|1, ≥S2]``, added after the scale.
      atten_mask: bool, int8 or uint8, 1 or True: masked. ``[B|1, (1,) ≥S1, ≥S2]`` with ``sparse_mode`` 0 and 1,
        ``[2048, 2048]`` with 2, 3 and 4 (their rule alone is used), ``[B, S1, S1]`` with 9.
      actual_seq_lengths, actual_seq_lengths_kv: used rows and keys of each batch; in layouts with T the tokens at which the
        sequences end (with pages: the keys of each sequence).
      block_table: int32 ``[B, blocks]``, page of each block of keys; ``key`` and ``value`` are then caches
        ``[pages, block_size, N·D]``, ``[pages, N, block_size, D]`` or ``[pages, N, D/16, block_size, 16]``.
      query_padding_size, kv_padding_size: ``[1]``, unused tokens at the end, where the used ones stand at the right.
      query_rope, key_rope: D=64, added to the scores of D=512 (one key head) or D=128.
      learnable_sink: ``[N1]``, one more score per row, whose probability goes to no key.
      inner_precise: 2 and 3 turn rows that see no key to 0; 0 and 1 leave them the mean of V where only ``atten_mask``
        empties them. The fast modes 1 and 3 compute as 0 and 2 here.
      chip: "910b" (Atlas A2, A3) or "950": whose checks apply.
      tiling: rows and keys of a block; None: 128 and 512.
      round_probs: round P to the inputs' type before P·V, as the Cube takes it. Without it results are within the tolerances of
        the operators' own tests, which compare with a softmax that rounds nothing.

    Returns:
      ``attention_out`` in the layout behind ``_``, and ``softmax_lse`` float32 ``[B, N1, S1, 1]`` or ``[T, N1, 1]``
      (``[1]`` zeros without ``softmax_lse_flag``); ``+inf`` where a row sees no key.

    Raises:
      AclnnError: what the operator refuses, with its status; ``FindKernelError`` for int8, fp8 and fp4 inputs and outputs, when
        they are computed.
    """
    other = {
        **{"dequant_scale1": dequant_scale1, "quant_scale1": quant_scale1, "dequant_scale2": dequant_scale2},
        **{"antiquant_scale": antiquant_scale, "antiquant_offset": antiquant_offset},
        **{"key_antiquant_offset": key_antiquant_offset, "value_antiquant_offset": value_antiquant_offset},
        "key_rope_antiquant_scale": key_rope_antiquant_scale,
    }
    call = Call(
        query=required("query", query),
        key=_several("key", key),
        value=_several("value", value),
        pse_shift=pse_shift,
        atten_mask=atten_mask,
        lengths_q=lengths("actual_seq_lengths", actual_seq_lengths),
        lengths_kv=lengths("actual_seq_lengths_kv", actual_seq_lengths_kv),
        quant_scale2=quant_scale2,
        quant_offset2=quant_offset2,
        block_table=block_table,
        query_padding_size=query_padding_size,
        kv_padding_size=kv_padding_size,
        key_antiquant_scale=key_antiquant_scale,
        value_antiquant_scale=value_antiquant_scale,
        key_shared_prefix=key_shared_prefix,
        value_shared_prefix=value_shared_prefix,
        prefix_len=lengths("actual_shared_prefix_len", actual_shared_prefix_len),
        query_rope=query_rope,
        key_rope=key_rope,
        dequant_scale_query=dequant_scale_query,
        learnable_sink=learnable_sink,
        other_scales=tuple(other.items()),
        num_heads=num_heads,
        scale=scale,
        pre_tokens=pre_tokens,
        next_tokens=next_tokens,
        input_layout=input_layout,
        num_key_value_heads=num_key_value_heads,
        sparse_mode=sparse_mode,
        inner_precise=inner_precise,
        block_size=block_size,
        antiquant_mode=antiquant_mode,
        key_antiquant_mode=key_antiquant_mode,
        value_antiquant_mode=value_antiquant_mode,
        query_quant_mode=query_quant_mode,
        softmax_lse_flag=softmax_lse_flag,
        chip=chip,
    )
    return compute(check(call), How.of(tiling, BLOCKS, round_probs))


def _several(name: str, tensors: Any) -> tuple[Any, ...]:
    return tuple(tensors) if isinstance(tensors, list | tuple) else (required(name, tensors),)
