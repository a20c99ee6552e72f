"""Attention for inference: ``npu_fused_infer_attention_score`` and what it accepts."""

from ascend_jax.attention.infer.ops import npu_fused_infer_attention_score

__all__ = ["npu_fused_infer_attention_score"]
