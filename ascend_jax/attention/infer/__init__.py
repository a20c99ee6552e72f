"""Attention for inference: ``npu_fused_infer_attention_score``, what it accepts, and the two operators that it joins."""

from ascend_jax.attention.infer.older import npu_incre_flash_attention, npu_prompt_flash_attention
from ascend_jax.attention.infer.ops import npu_fused_infer_attention_score

__all__ = ["npu_fused_infer_attention_score", "npu_incre_flash_attention", "npu_prompt_flash_attention"]
