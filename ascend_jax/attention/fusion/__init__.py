"""The training operator: npu_fusion_attention and its gradient, every check of them, and their numerics."""
