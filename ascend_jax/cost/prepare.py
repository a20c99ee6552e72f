"""The part of the model that a tiling's blocks decide: everything but the slots, the preload and the verdict.

A search tries many depths on the same blocks; it prepares once for all of them.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ascend_jax.cost.overlap import Overlap, Steady, Tile
from ascend_jax.cost.stages import StageCosts, stage_costs
from ascend_jax.cost.traffic import Contention
from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.kernels.geometry import Geometry, geometry
from ascend_jax.kernels.kernel import Buffer, Kernel
from ascend_jax.occupancy import slot_bytes
from ascend_jax.rounding import Rounding
from ascend_jax.tiling.tiling import Tiling
from ascend_jax.workload.problem import Problem
from ascend_jax.workload.sequences import Sequences

LIVE_SLOTS = 2.0
"""Slots of a workspace that L2 must hold: one being written and one being read."""


class Prepared(NamedTuple):
    """What the blocks of a tiling decide (rank 0, or ``[U]`` where the lengths are).

    Attributes:
      slot_bytes: bytes of one slot, per buffer.
      active: cube cores that have any task.
      shapes, costs, steady: the average tile, its stages, and what bounds its pace.
    """

    slot_bytes: dict[str, Array]
    active: Array
    shapes: Geometry
    costs: StageCosts
    steady: Steady


def prepare(spec: NpuSpec, given: Problem, tiling: Tiling, kernel: Kernel, overlap: Overlap, rounding: Rounding) -> Prepared:
    """Cost the average tile of ``tiling``'s blocks.

    Reads ``block_q``, ``block_kv``, ``vector_rows``, ``ub_depth``, ``l0_depth`` and ``kv_split``; no other depth, nor the
    preload.
    """
    work, lengths = given
    buffers = kernel.buffers(spec, work, tiling, rounding)
    slots = {name: slot_bytes(buffer, rounding) for name, buffer in buffers.items()}
    piece = kernel.kv_rows if kernel.trim else 0
    shapes = over(lengths)(lambda sequence: geometry(spec, work, tiling, sequence, rounding, piece))(lengths)
    active = jnp.clip(jnp.sum(shapes.tasks), 1.0, spec.cube_cores)
    contention = contention_of(buffers, slots, active)
    chunk_slots = {
        flow.buffer: tiling.l0_depth if flow.in_l0c else buffers[flow.buffer].slots + jnp.zeros_like(active)
        for flow in kernel.graph.tile_flows
        if flow.chunked and flow.buffer is not None
    }

    def one(sequence: Sequences, shape: Geometry) -> tuple[StageCosts, Steady]:
        costs = stage_costs(spec, work, tiling, kernel, sequence, shape, others=contention, rounding=rounding)
        return costs, overlap.steady(Tile(spec, kernel.graph, costs, chunk_slots, shape.tiles_per_task, rounding))

    return Prepared(slots, active, shapes, *over(lengths)(one)(lengths, shapes))


def contention_of(buffers: dict[str, Buffer], slot_bytes: dict[str, Array], active: Array) -> Contention:
    """``active`` cores, and what their workspaces take of L2."""
    workspace = sum((slot_bytes[name] for name, buffer in buffers.items() if buffer.memory == "GM"), jnp.zeros_like(active))
    return Contention(active, workspace * LIVE_SLOTS * active)


def over(lengths: Sequences) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """vmap over the distinct lengths, or nothing where all sequences share one."""
    return jax.vmap if jnp.ndim(lengths.q_len) else lambda function: function
