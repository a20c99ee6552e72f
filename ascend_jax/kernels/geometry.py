"""How big an average tile really is: tails, packed heads and splits worked out once for every kernel."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.rounding import Rounding
from ascend_jax.tiling.tiling import Tiling
from ascend_jax.workload.attention import Attention
from ascend_jax.workload.blocks import longest_row, total_counts
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
    """Average of ``tiles`` over the tasks; at least 1."""
    longest_tiles: Array
    """Computed tiles of the longest task."""
    longest_tasks: Array
    """How many tasks are that long."""


def geometry(spec: NpuSpec, work: Attention, tiling: Tiling, sequence: Sequences, rounding: Rounding) -> Geometry:
    """The average tile of ``sequence`` (one distinct pair of lengths) under ``tiling``; safe for empty sequences."""
    q_len, kv_len = jnp.maximum(sequence.q_len, 1.0), jnp.maximum(sequence.kv_len, 1.0)
    blocks = (tiling.block_q, tiling.block_kv)
    counts = total_counts(work.mask, sequence.q_len, sequence.kv_len, *blocks, rounding)
    longest, longest_rows = longest_row(work.mask, sequence.q_len, sequence.kv_len, *blocks)
    row_blocks, key_blocks = rounding.ceil_div(q_len, blocks[0]), rounding.ceil_div(kv_len, blocks[1])
    group = work.q_heads / work.kv_heads
    packs = rounding.ceil_div(group, jnp.clip(rounding.floor_div(blocks[0], q_len), 1.0, group))
    rows = q_len / row_blocks * (group / packs)
    heads = sequence.count * work.kv_heads * packs
    split = _split(counts.computed / row_blocks, longest, tiling.kv_split, rounding)
    return Geometry(
        rows=rows,
        keys=kv_len / key_blocks,
        vector_rows=rows / spec.vector_cores_per_cube,
        vector_cores=spec.vector_cores_per_cube,
        vector_steps=rounding.ceil(rows / spec.vector_cores_per_cube / tiling.vector_rows),
        partial=counts.partial / jnp.maximum(counts.computed, 1.0),
        tasks=heads * jnp.where(sequence.q_len > 0, row_blocks, 0.0) * tiling.kv_split,
        tiles=heads * jnp.where(sequence.q_len > 0, row_blocks, 0.0) * tiling.kv_split * split.average,
        tiles_per_task=jnp.maximum(split.average, 1.0),
        longest_tiles=split.longest,
        longest_tasks=heads * longest_rows * tiling.kv_split,
    )


class _Split(NamedTuple):
    average: Array
    longest: Array


def _split(per_row: Array, longest: Array, kv_split: Array, rounding: Rounding) -> _Split:
    """Tiles of a part of a block row when ``kv_split`` cores share it: whole tiles, so the last part may idle."""
    whole = kv_split > 1
    average = jnp.where(whole, rounding.ceil(per_row / kv_split), per_row)
    return _Split(average, rounding.ceil_div(longest, kv_split))
