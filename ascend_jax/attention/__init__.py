"""What attention computes, block by block, and the operators that users know. Each name is imported at its first use."""

from typing import TYPE_CHECKING

from ascend_jax._front_door import front_door

if TYPE_CHECKING:
    from ascend_jax.attention.errors import AclnnError
    from ascend_jax.attention.fusion.grad import (
        npu_fusion_attention_grad,
        npu_fusion_attention_grad_v2,
        npu_fusion_attention_grad_v3,
    )
    from ascend_jax.attention.fusion.ops import (
        npu_flash_attention,
        npu_fusion_attention,
        npu_fusion_attention_v2,
        npu_fusion_attention_v3,
    )
    from ascend_jax.attention.infer.ops import npu_fused_infer_attention_score
    from ascend_jax.attention.infer.variants import (
        npu_fused_infer_attention_score_v2,
        npu_incre_flash_attention,
        npu_prompt_flash_attention,
    )
    from ascend_jax.attention.merge import merge_partials
    from ascend_jax.attention.reference import reference_attention
    from ascend_jax.attention.tiled import (
        Attended,
        Extras,
        Gradients,
        Packed,
        Settings,
        Used,
        Window,
        tiled_attention,
        tiled_backward,
    )
    from ascend_jax.attention.unified.metadata import flash_attn_metadata
    from ascend_jax.attention.unified.ops import flash_attn

__all__ = [
    "AclnnError",
    "Attended",
    "Extras",
    "Gradients",
    "Packed",
    "Settings",
    "Used",
    "Window",
    "flash_attn",
    "flash_attn_metadata",
    "merge_partials",
    "npu_flash_attention",
    "npu_fused_infer_attention_score",
    "npu_fused_infer_attention_score_v2",
    "npu_fusion_attention",
    "npu_fusion_attention_grad",
    "npu_fusion_attention_grad_v2",
    "npu_fusion_attention_grad_v3",
    "npu_fusion_attention_v2",
    "npu_fusion_attention_v3",
    "npu_incre_flash_attention",
    "npu_prompt_flash_attention",
    "reference_attention",
    "tiled_attention",
    "tiled_backward",
]

__getattr__, __dir__ = front_door(
    __name__,
    {
        "errors": ("AclnnError",),
        "fusion.grad": ("npu_fusion_attention_grad", "npu_fusion_attention_grad_v2", "npu_fusion_attention_grad_v3"),
        "fusion.ops": ("npu_flash_attention", "npu_fusion_attention", "npu_fusion_attention_v2", "npu_fusion_attention_v3"),
        "infer.ops": ("npu_fused_infer_attention_score",),
        "infer.variants": (
            "npu_fused_infer_attention_score_v2",
            "npu_incre_flash_attention",
            "npu_prompt_flash_attention",
        ),
        "merge": ("merge_partials",),
        "reference": ("reference_attention",),
        "tiled": (
            *("Attended", "Extras", "Gradients", "Packed", "Settings", "Used", "Window"),
            *("tiled_attention", "tiled_backward"),
        ),
        "unified.metadata": ("flash_attn_metadata",),
        "unified.ops": ("flash_attn",),
    },
)
