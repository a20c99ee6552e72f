"""The two operators that ``npu_fused_infer_attention_score`` joins, with their own names and defaults.

Both are served by the joint operator and its checks; their quantised forms are left out.
"""

from typing import Any

from jax import Array

from ascend_jax.attention.infer.call import INT_MAX, Chip
from ascend_jax.attention.infer.ops import npu_fused_infer_attention_score
from ascend_jax.tiling.tiling import Tiling


def npu_prompt_flash_attention(  # noqa: PLR0913 - the signature is torch_npu's
    query: Any,
    key: Any,
    value: Any,
    *,
    atten_mask: Any = None,
    pse_shift: Any = None,
    actual_seq_lengths: Any = None,
    num_heads: int = 1,
    scale_value: float = 1.0,
    pre_tokens: int = INT_MAX,
    next_tokens: int = 0,
    input_layout: str = "BSH",
    num_key_value_heads: int = 0,
    actual_seq_lengths_kv: Any = None,
    sparse_mode: int = 0,
    chip: Chip = "910b",
    tiling: Tiling | None = None,
) -> Array:
    """Attention over whole prompts. ``next_tokens`` is 0 by default: with ``sparse_mode`` 0 the mask is taken to be causal.

    Returns ``attention_out``; see :func:`npu_fused_infer_attention_score` for arguments and errors.
    """
    return npu_fused_infer_attention_score(
        query,
        key,
        value,
        atten_mask=atten_mask,
        pse_shift=pse_shift,
        actual_seq_lengths=actual_seq_lengths,
        actual_seq_lengths_kv=actual_seq_lengths_kv,
        num_heads=num_heads,
        scale=scale_value,
        pre_tokens=pre_tokens,
        next_tokens=next_tokens,
        input_layout=input_layout,
        num_key_value_heads=num_key_value_heads,
        sparse_mode=sparse_mode,
        chip=chip,
        tiling=tiling,
    )[0]


def npu_incre_flash_attention(  # noqa: PLR0913 - the signature is torch_npu's
    query: Any,
    key: Any,
    value: Any,
    *,
    atten_mask: Any = None,
    pse_shift: Any = None,
    actual_seq_lengths: Any = None,
    block_table: Any = None,
    kv_padding_size: Any = None,
    num_heads: int = 1,
    scale_value: float = 1.0,
    input_layout: str = "BSH",
    num_key_value_heads: int = 0,
    block_size: int = 0,
    inner_precise: int = 1,
    chip: Chip = "910b",
    tiling: Tiling | None = None,
) -> Array:
    """Attention of one new row. ``actual_seq_lengths`` are those of the keys.

    Returns ``attention_out``; see :func:`npu_fused_infer_attention_score` for arguments and errors.
    """
    return npu_fused_infer_attention_score(
        query,
        key,
        value,
        atten_mask=atten_mask,
        pse_shift=pse_shift,
        actual_seq_lengths_kv=actual_seq_lengths,
        block_table=block_table,
        kv_padding_size=kv_padding_size,
        num_heads=num_heads,
        scale=scale_value,
        input_layout=input_layout,
        num_key_value_heads=num_key_value_heads,
        block_size=block_size,
        inner_precise=inner_precise,
        chip=chip,
        tiling=tiling,
    )[0]
