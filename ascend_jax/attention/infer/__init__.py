"""Attention for inference: ``npu_fused_infer_attention_score``, what it accepts, and its other names."""

from ascend_jax.attention.infer.ops import npu_fused_infer_attention_score
from ascend_jax.attention.infer.variants import (
    npu_fused_infer_attention_score_v2,
    npu_incre_flash_attention,
    npu_prompt_flash_attention,
)

__all__ = [
    "npu_fused_infer_attention_score",
    "npu_fused_infer_attention_score_v2",
    "npu_incre_flash_attention",
    "npu_prompt_flash_attention",
]
