"""A JAX model of Huawei Ascend NPUs for FlashAttention. These are the public names; each is imported at its first use."""

from typing import TYPE_CHECKING

from ascend_jax._front_door import front_door

if TYPE_CHECKING:
    from ascend_jax.cost.evaluate import evaluate, evaluate_batch
    from ascend_jax.cost.overlap import OVERLAPS
    from ascend_jax.cost.report import Report
    from ascend_jax.hardware.catalog import load_chip
    from ascend_jax.hardware.chipfile import chip_names
    from ascend_jax.hardware.peak import peak_flops
    from ascend_jax.hardware.spec import NpuSpec, VectorCosts
    from ascend_jax.kernels import KERNELS, kernel_for
    from ascend_jax.rounding import EXACT, SMOOTH, STRAIGHT_THROUGH
    from ascend_jax.tiling.tiling import Tiling
    from ascend_jax.timeline.simulate import simulate
    from ascend_jax.verdict import Verdict
    from ascend_jax.workload.attention import Attention
    from ascend_jax.workload.mask import Mask
    from ascend_jax.workload.presets import load_preset, preset_names

__all__ = [
    "EXACT",
    "KERNELS",
    "OVERLAPS",
    "SMOOTH",
    "STRAIGHT_THROUGH",
    "Attention",
    "Mask",
    "NpuSpec",
    "Report",
    "Tiling",
    "VectorCosts",
    "Verdict",
    "chip_names",
    "evaluate",
    "evaluate_batch",
    "kernel_for",
    "load_chip",
    "load_preset",
    "peak_flops",
    "preset_names",
    "simulate",
]

# Imported at first use: listing chips or presets must not pay for importing jax.
__getattr__, __dir__ = front_door(
    __name__,
    {
        "cost.evaluate": ("evaluate", "evaluate_batch"),
        "cost.overlap": ("OVERLAPS",),
        "cost.report": ("Report",),
        "hardware.catalog": ("load_chip",),
        "hardware.chipfile": ("chip_names",),
        "hardware.peak": ("peak_flops",),
        "hardware.spec": ("NpuSpec", "VectorCosts"),
        "kernels": ("KERNELS", "kernel_for"),
        "rounding": ("EXACT", "SMOOTH", "STRAIGHT_THROUGH"),
        "tiling.tiling": ("Tiling",),
        "timeline.simulate": ("simulate",),
        "verdict": ("Verdict",),
        "workload.attention": ("Attention",),
        "workload.mask": ("Mask",),
        "workload.preset_table": ("preset_names",),
        "workload.presets": ("load_preset",),
    },
)
