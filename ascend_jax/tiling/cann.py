"""Rule ``cann``: the tilings of the vendor's attention operators (FlashAttentionScore, FusedInferAttentionScore).

910B: S1 64 or 128 rows, S2 128 × nRatio 8 keys, a vector tile of 8 × 1024 (ops-transformer, arch22 general tiling). 950: blocks
of 128 × 128, Q·Kᵀ two tiles ahead (arch35).
"""

import numpy as np

from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.tiling.rules import STEP, whole_steps
from ascend_jax.tiling.tiling import Tiling
from ascend_jax.workload.attention import Attention
from ascend_jax.workload.sequences import sequences

S2_BASE, S2_RATIO = 128, 8
VECTOR_ELEMENTS = 8 * 1024
"""Scores of one vector step: 32 KiB of float32."""
PLAIN_COLUMNS = 128
"""Head columns up to which the 950's ΔO stays on chip."""


WIDE_COLUMNS = 256
"""Head columns above which L1 has room for one slot only."""


def cann_kernel(architecture: str, work: Attention, operator: str = "FusedInferAttentionScore") -> str:
    """The name of the vendor's dataflow for ``work``; first-generation cores have one only."""
    if architecture == "coupled":
        return "coupled"
    if work.latent and architecture == "separated":
        return "cann_separated_mla"
    if architecture == "direct":
        return "cann_direct_wide" if int(work.value_dim) > PLAIN_COLUMNS else "cann_direct"
    if int(work.head_dim) > WIDE_COLUMNS:
        return "cann_separated_wide"
    return "flash_attention_score" if operator == "FlashAttentionScore" else "cann_separated"


def cann_tiling(spec: NpuSpec, work: Attention, operator: str = "FusedInferAttentionScore") -> Tiling:
    """The vendor's tiling of ``work`` on ``spec`` by ``operator``."""
    lengths = sequences(work)
    q_len, kv_len = int(np.max(lengths.q_len)), int(np.max(lengths.kv_len))
    rows = q_len * (int(work.q_heads) // int(work.kv_heads)) if q_len <= STEP else q_len
    if spec.architecture != "separated":
        return Tiling(
            block_q=min(128, whole_steps(rows)),
            block_kv=min(128, whole_steps(kv_len)),
            ub_depth=1,
            score_depth=2,
            prob_depth=3 if int(work.head_dim) <= WIDE_COLUMNS else 2,
            out_depth=2,
            preload=2,
        )
    vectors = float(spec.cube_cores) * float(spec.vector_cores_per_cube)
    blocks = float(np.sum(lengths.count * np.ceil(lengths.q_len / 64))) * int(work.q_heads)
    most = 256 if work.latent else 128 if blocks > vectors else 64
    block_q = min(most, whole_steps(rows))
    ratio = S2_RATIO if operator == "FlashAttentionScore" or rows <= STEP else S2_RATIO // 2
    block_kv = min(S2_BASE * ratio, whole_steps(kv_len))
    return Tiling(
        block_q=block_q,
        block_kv=block_kv,
        vector_rows=max(8, min(VECTOR_ELEMENTS // block_kv, 64)),
        score_depth=2,
        prob_depth=2,
        out_depth=2,
        ub_depth=2,
        preload=1,
    )
