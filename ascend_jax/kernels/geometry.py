"""How big an average tile really is: tails, packed heads and splits worked out once for every kernel."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.rounding import Rounding
from ascend_jax.tiling.tiling import Tiling
from ascend_jax.workload.attention import Attention
from ascend_jax.workload.blocks import BlockCounts
from ascend_jax.workload.sequences import Sequences


class Geometry(NamedTuple):
    """An average tile of one sequence and how many there are. Rows and keys are real ones, without padding (rank 0).

    A short sequence leaves room in a block of q rows: then the query heads of one key/value head are packed into it, as
    the decode kernels do, so that K and V are read once for all of them.
    """

    rows: Array
    """q rows of a tile, all packed heads together."""
    keys: Array
    """kv rows of a tile."""
    vector_rows: Array
    """q rows of a tile on each vector core."""
    vector_cores: Array
    """Vector cores that share a task."""
    vector_steps: Array
    """Steps in which a vector core works through its rows."""
    partial: Array
    """Share of the computed tiles that the mask cuts through."""
    tasks: Array
    """Blocks of q rows × heads × sequences × kv splits."""
    tiles: Array
    """Computed tiles of all tasks."""
    tiles_per_task: Array
    """Average of ``tiles`` over the tasks."""


def geometry(
    spec: NpuSpec, work: Attention, tiling: Tiling, sequence: Sequences, counts: BlockCounts, rounding: Rounding
) -> Geometry:
    """The average tile of ``sequence`` (one distinct pair of lengths) under ``tiling``; safe for empty sequences."""
    q_len, kv_len = jnp.maximum(sequence.q_len, 1.0), jnp.maximum(sequence.kv_len, 1.0)
    row_blocks = rounding.ceil_div(q_len, tiling.block_q)
    key_blocks = rounding.ceil_div(kv_len, tiling.block_kv)
    group = work.q_heads / work.kv_heads
    packed = jnp.clip(rounding.floor(tiling.block_q / q_len), 1.0, group)
    packs = rounding.ceil_div(group, packed)
    rows = q_len / row_blocks * (group / packs)
    vector_rows = rows / spec.vector_cores_per_cube
    heads = sequence.count * work.kv_heads * packs
    tasks = heads * jnp.where(sequence.q_len > 0, row_blocks, 0.0) * tiling.kv_split
    per_row = counts.computed / row_blocks
    tiles_per_task = rounding.ceil_div(per_row, tiling.kv_split)
    split_waste = jnp.where(tiling.kv_split > 1, tiles_per_task * tiling.kv_split / jnp.maximum(per_row, 1.0), 1.0)
    return Geometry(
        rows=rows,
        keys=kv_len / key_blocks,
        vector_rows=vector_rows,
        vector_cores=spec.vector_cores_per_cube,
        vector_steps=rounding.ceil_div(vector_rows, tiling.vector_rows),
        partial=counts.partial / jnp.maximum(counts.computed, 1.0),
        tasks=tasks,
        tiles=heads * counts.computed * split_waste,
        tiles_per_task=jnp.where(tiling.kv_split > 1, tiles_per_task, per_row),
    )
