"""Buffers that several dataflows share: padded dimensions, the rows' softmax state, L0."""

import jax.numpy as jnp
from jax import Array

from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.kernels.kernel import Buffer
from ascend_jax.kernels.l0 import FRACTAL, L0Steps, l0_steps
from ascend_jax.rounding import Rounding
from ascend_jax.tiling.tiling import Tiling
from ascend_jax.workload.attention import Attention

Q_SLOTS = 2.0
"""Q of the next task loads beside the Cube, as in the vendor's L1 plans."""
STATE_COLUMNS = 8
"""float32 columns of a softmax max, sum or correction: one 32-byte block a row."""


def padded(dim: Array, rounding: Rounding) -> Array:
    """A head dimension as it lies in a buffer: whole fractals (72 → 80, 88 → 96)."""
    return rounding.round_up(dim, FRACTAL)


def masked(work: Attention) -> float:
    """1 where a mask may cut through tiles, so that its tile needs room; else 0."""
    return 0.0 if work.mask.kind == "none" else 1.0


def operand_buffers(work: Attention, tiling: Tiling, rounding: Rounding, q_slots: float = Q_SLOTS) -> dict[str, Buffer]:
    """Q, K and V in L1; V takes no room where it is part of K."""
    e, dim, value = work.element_bytes, padded(work.head_dim, rounding), padded(work.value_dim, rounding)
    value = 0 * value if work.latent else value
    return {
        "Q": Buffer(memory="L1", rows=tiling.block_q, columns=dim, element_bytes=e, slots=q_slots),
        "K": Buffer(memory="L1", rows=tiling.block_kv, columns=dim, element_bytes=e, slots=tiling.kv_depth),
        "V": Buffer(memory="L1", rows=tiling.block_kv, columns=value, element_bytes=e, slots=tiling.kv_depth),
    }


def state_buffers(rows: Array, tiling: Tiling) -> dict[str, Buffer]:
    """Running max and sum of ``rows`` rows, and the correction factors of the tiles under way."""
    return {
        "max, sum": Buffer(memory="UB", rows=rows, columns=STATE_COLUMNS, element_bytes=4, slots=2.0),
        "exp": Buffer(memory="UB", rows=rows, columns=STATE_COLUMNS, element_bytes=4, slots=tiling.preload + 1),
    }


def matmul_steps(spec: NpuSpec, work: Attention, tiling: Tiling, rounding: Rounding) -> tuple[L0Steps, L0Steps]:
    """The L0 steps of Q·Kᵀ and P·V of a whole block."""
    qk = (tiling.block_q, work.head_dim, tiling.block_kv)
    pv = (tiling.block_q, tiling.block_kv, work.value_dim)
    e, depth = work.element_bytes, tiling.l0_depth
    return l0_steps(spec, qk, e, depth, rounding), l0_steps(spec, pv, e, depth, rounding)


def l0_buffers(spec: NpuSpec, work: Attention, tiling: Tiling, rounding: Rounding) -> dict[str, Buffer]:
    """L0A, L0B and L0C: slots that Q·Kᵀ and P·V share, so each is as large as the larger step."""
    qk, pv = matmul_steps(spec, work, tiling, rounding)
    e, slots = work.element_bytes, tiling.l0_depth
    return {
        "left": Buffer(memory="L0A", rows=jnp.maximum(qk.m * qk.k, pv.m * pv.k), columns=1.0, element_bytes=e, slots=slots),
        "right": Buffer(memory="L0B", rows=jnp.maximum(qk.k * qk.n, pv.k * pv.n), columns=1.0, element_bytes=e, slots=slots),
        "result": Buffer(memory="L0C", rows=jnp.maximum(qk.m * qk.n, pv.m * pv.n), columns=1.0, element_bytes=4, slots=slots),
    }
