"""Other names of the same operator: torch_npu's second version, and the two operators that it joins.

All are served by ``npu_fused_infer_attention_score`` and its checks, where arguments and errors are told. Of the second version
the arguments that only name types for torch are left out. ``padding_mask`` has no effect, as in the operators.
"""

from typing import Any

from jax import Array

from ascend_jax.attention.infer.call import INT_MAX, Chip
from ascend_jax.attention.infer.ops import npu_fused_infer_attention_score
from ascend_jax.tiling.tiling import Tiling


def npu_fused_infer_attention_score_v2(  # noqa: PLR0913 - the signature is torch_npu's
    query: Any,
    key: Any,
    value: Any,
    *,
    query_rope: Any = None,
    key_rope: Any = None,
    pse_shift: Any = None,
    atten_mask: Any = None,
    actual_seq_qlen: Any = None,
    actual_seq_kvlen: Any = None,
    block_table: Any = None,
    dequant_scale_query: Any = None,
    dequant_scale_key: Any = None,
    dequant_offset_key: Any = None,
    dequant_scale_value: Any = None,
    dequant_offset_value: Any = None,
    dequant_scale_key_rope: Any = None,
    quant_scale_out: Any = None,
    quant_offset_out: Any = None,
    quant_scale_p: Any = None,
    learnable_sink: Any = None,
    num_query_heads: int = 1,
    num_key_value_heads: int = 0,
    softmax_scale: float | Array = 1.0,
    pre_tokens: int = INT_MAX,
    next_tokens: int = INT_MAX,
    input_layout: str = "BSH",
    sparse_mode: int = 0,
    block_size: int = 0,
    query_quant_mode: int = 0,
    key_quant_mode: int = 0,
    value_quant_mode: int = 0,
    inner_precise: int = 0,
    return_softmax_lse: bool = False,
    chip: Chip = "910b",
    tiling: Tiling | None = None,
    round_probs: bool = False,
) -> tuple[Array, Array]:
    """The second version: other names, and a ``learnable_sink``; no prefix and no left padding."""
    return npu_fused_infer_attention_score(
        query,
        key,
        value,
        query_rope=query_rope,
        key_rope=key_rope,
        pse_shift=pse_shift,
        atten_mask=atten_mask,
        actual_seq_lengths=actual_seq_qlen,
        actual_seq_lengths_kv=actual_seq_kvlen,
        block_table=block_table,
        dequant_scale_query=dequant_scale_query,
        key_antiquant_scale=dequant_scale_key,
        key_antiquant_offset=dequant_offset_key,
        value_antiquant_scale=dequant_scale_value,
        value_antiquant_offset=dequant_offset_value,
        key_rope_antiquant_scale=dequant_scale_key_rope,
        quant_scale2=quant_scale_out,
        quant_offset2=quant_offset_out,
        quant_scale1=quant_scale_p,
        learnable_sink=learnable_sink,
        num_heads=num_query_heads,
        num_key_value_heads=num_key_value_heads,
        scale=softmax_scale,
        pre_tokens=pre_tokens,
        next_tokens=next_tokens,
        input_layout=input_layout,
        sparse_mode=sparse_mode,
        block_size=block_size,
        query_quant_mode=query_quant_mode,
        key_antiquant_mode=key_quant_mode,
        value_antiquant_mode=value_quant_mode,
        inner_precise=inner_precise,
        softmax_lse_flag=return_softmax_lse,
        chip=chip,
        tiling=tiling,
        round_probs=round_probs,
    )


def npu_prompt_flash_attention(  # noqa: PLR0913 - the signature is torch_npu's
    query: Any,
    key: Any,
    value: Any,
    *,
    padding_mask: Any = None,
    atten_mask: Any = None,
    pse_shift: Any = None,
    actual_seq_lengths: Any = None,
    deq_scale1: Any = None,
    quant_scale1: Any = None,
    deq_scale2: Any = None,
    quant_scale2: Any = None,
    quant_offset2: Any = None,
    num_heads: int = 1,
    scale_value: float | Array = 1.0,
    pre_tokens: int = INT_MAX,
    next_tokens: int = 0,
    input_layout: str = "BSH",
    num_key_value_heads: int = 0,
    actual_seq_lengths_kv: Any = None,
    sparse_mode: int = 0,
    chip: Chip = "910b",
    tiling: Tiling | None = None,
    round_probs: bool = False,
) -> Array:
    """Attention over whole prompts. ``next_tokens`` is 0 by default: with ``sparse_mode`` 0 the mask is taken to be causal.

    Returns ``attention_out``.
    """
    del padding_mask
    return npu_fused_infer_attention_score(
        query,
        key,
        value,
        atten_mask=atten_mask,
        pse_shift=pse_shift,
        actual_seq_lengths=actual_seq_lengths,
        actual_seq_lengths_kv=actual_seq_lengths_kv,
        dequant_scale1=deq_scale1,
        quant_scale1=quant_scale1,
        dequant_scale2=deq_scale2,
        quant_scale2=quant_scale2,
        quant_offset2=quant_offset2,
        num_heads=num_heads,
        scale=scale_value,
        pre_tokens=pre_tokens,
        next_tokens=next_tokens,
        input_layout=input_layout,
        num_key_value_heads=num_key_value_heads,
        sparse_mode=sparse_mode,
        chip=chip,
        tiling=tiling,
        round_probs=round_probs,
    )[0]


def npu_incre_flash_attention(  # noqa: PLR0913 - the signature is torch_npu's
    query: Any,
    key: Any,
    value: Any,
    *,
    padding_mask: Any = None,
    atten_mask: Any = None,
    pse_shift: Any = None,
    actual_seq_lengths: Any = None,
    antiquant_scale: Any = None,
    antiquant_offset: Any = None,
    block_table: Any = None,
    dequant_scale1: Any = None,
    quant_scale1: Any = None,
    dequant_scale2: Any = None,
    quant_scale2: Any = None,
    quant_offset2: Any = None,
    kv_padding_size: Any = None,
    num_heads: int = 1,
    scale_value: float | Array = 1.0,
    input_layout: str = "BSH",
    num_key_value_heads: int = 0,
    block_size: int = 0,
    inner_precise: int = 1,
    chip: Chip = "910b",
    tiling: Tiling | None = None,
    round_probs: bool = False,
) -> Array:
    """Attention of one new row. ``actual_seq_lengths`` are those of the keys.

    Returns ``attention_out``.
    """
    del padding_mask
    return npu_fused_infer_attention_score(
        query,
        key,
        value,
        atten_mask=atten_mask,
        pse_shift=pse_shift,
        actual_seq_lengths_kv=actual_seq_lengths,
        antiquant_scale=antiquant_scale,
        antiquant_offset=antiquant_offset,
        block_table=block_table,
        dequant_scale1=dequant_scale1,
        quant_scale1=quant_scale1,
        dequant_scale2=dequant_scale2,
        quant_scale2=quant_scale2,
        quant_offset2=quant_offset2,
        kv_padding_size=kv_padding_size,
        num_heads=num_heads,
        scale=scale_value,
        input_layout=input_layout,
        num_key_value_heads=num_key_value_heads,
        block_size=block_size,
        inner_precise=inner_precise,
        chip=chip,
        tiling=tiling,
        round_probs=round_probs,
    )[0]
