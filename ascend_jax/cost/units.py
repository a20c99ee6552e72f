"""Seconds of one piece of work on its unit: a transfer on a path, a matrix multiplication on the Cube, Vector instructions."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from ascend_jax._pytree import Leaf
from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.kernels.kernel import Matmul, Transfer, VectorOps
from ascend_jax.kernels.l0 import FRACTAL, L0Steps, l0_steps
from ascend_jax.rounding import Rounding

FLOAT32_BYTES = 4


class MatmulTime(NamedTuple):
    """Seconds of a matrix multiplication: Cube, MTE1 feeding it, and both together as they overlap; and its L0 steps."""

    cube_s: Array
    mte1_s: Array
    stage_s: Array
    steps: L0Steps


def transfer_seconds(spec: NpuSpec, transfer: Transfer) -> Array:
    """``instructions · startup + bursts · (burst + gap) / rate`` of one core that has the path to itself.

    Start-up and gap are those of GM (packet-efficiency and burst tables of the vendor's data-copy samples); on-chip paths
    have none.
    """
    rate = getattr(spec, f"{transfer.path}_bytes_per_s")
    if "gm" not in transfer.path:
        return transfer.bursts * transfer.burst_bytes / rate
    moved = transfer.bursts * (transfer.burst_bytes + burst_gap(spec, transfer))
    return transfer.instructions * spec.dma_startup_s + moved / rate


def burst_gap(spec: NpuSpec, transfer: Transfer) -> Leaf:
    """Bytes that each contiguous burst costs besides its own."""
    return spec.nd2nz_burst_gap_bytes if transfer.path == "gm_to_l1" else spec.dma_burst_gap_bytes


def matmul_time(spec: NpuSpec, matmul: Matmul, element_bytes: int, l0_depth: Array, rounding: Rounding) -> MatmulTime:
    """Cube: ``6 + c ⌈M/16⌉ ⌈K/(32/bytes)⌉ ⌈N/16⌉`` cycles a step (PTO-ISA cost model). MTE1: bytes over L1→L0A and L1→L0B.

    The left operand stays in L0A while the steps go along n, if all of k fits; the right one is loaded for each step of m.
    With two slots of L0 the loads run beside the Cube, also those of the next tile's first step; with one they alternate.
    """
    steps = l0_steps(spec, (matmul.m, matmul.k, matmul.n), element_bytes, l0_depth, rounding)
    m16, n16 = rounding.ceil_div(matmul.m, FRACTAL), rounding.ceil_div(matmul.n, FRACTAL)
    k_units = rounding.ceil_div(matmul.k, 32 / element_bytes)
    factor = spec.cube_mac_cycles_fp32 if element_bytes == FLOAT32_BYTES else spec.cube_mac_cycles
    cube_s = (spec.cube_issue_cycles * steps.steps + factor * m16 * k_units * n16) / spec.cube_clock_hz
    left = m16 * FRACTAL * k_units * 32 * jnp.where(steps.k_steps > 1, steps.n_steps, 1.0)
    right = k_units * 32 * n16 * FRACTAL * steps.m_steps
    mte1_s = left / spec.l1_to_l0a_bytes_per_s + right / spec.l1_to_l0b_bytes_per_s
    stage_s = jnp.where(l0_depth > 1, jnp.maximum(cube_s, mte1_s), cube_s + mte1_s)
    return MatmulTime(cube_s, mte1_s, stage_s, steps)


def vector_seconds(spec: NpuSpec, ops: VectorOps) -> Array:
    """``Σ slope · repeats + starts · (head + tail)`` cycles (PTO-ISA cost model); a repeat is 256 bytes of float32.

    Outside of a fused vector function each instruction takes its operands through UB: at least ``round_trip`` cycles a repeat.
    """
    per_repeat = spec.vector_repeat_bytes / FLOAT32_BYTES
    costs = spec.vector
    slopes = {name: getattr(costs, name) for name in ops.elements}
    if not ops.fused:
        slopes = {name: jnp.maximum(slope, costs.round_trip) for name, slope in slopes.items()}
    cycles = sum(slopes[name] * elements for name, elements in ops.elements.items()) / per_repeat
    return (cycles + ops.instructions * (spec.vector.head + spec.vector.tail)) / spec.vector_clock_hz
