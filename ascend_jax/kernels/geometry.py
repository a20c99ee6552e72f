"""How big an average tile really is: tails, packed heads and splits worked out once for every kernel."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.rounding import Rounding
from ascend_jax.tiling.tiling import Tiling
from ascend_jax.workload.attention import Attention
from ascend_jax.workload.blocks import last_column, longest_row, total_counts
from ascend_jax.workload.sequences import Sequences

NEARLY_NONE = 1e-6
"""Tiles of a task without any: row stages are spread over the tiles of a task, so there must be some."""


class Geometry(NamedTuple):
    """An average tile of one sequence and how many there are. Rows and keys are real ones, without padding (rank 0).

    A short sequence leaves room in a block of q rows: then the query heads of one key/value head are packed into it, as
    the decode kernels do, so that K and V are read once for all of them.
    """

    rows: Array
    """q rows of a tile, all packed heads together."""
    keys: Array
    """kv rows of a computed tile."""
    vector_rows: Array
    """q rows of a tile on each vector core."""
    vector_cores: Array
    """Vector cores that share a task."""
    vector_steps: Array
    """Steps in which a vector core works through its rows."""
    partial: Array
    """Share of the computed tiles that the mask cuts through."""
    partial_tiles: Array
    """Computed tiles of all tasks that the mask cuts through."""
    skipped_tiles: Array
    """Tiles that the mask leaves out, of all heads and sequences."""
    tasks: Array
    """Blocks of q rows × heads × sequences × the parts that share a block's keys."""
    tiles: Array
    """Computed tiles of all tasks."""
    tiles_per_task: Array
    """Average of ``tiles`` over the tasks; below 1 where some see no key, and just above 0 where none does."""
    longest_tiles: Array
    """Computed tiles of the longest task."""
    longest_tasks: Array
    """How many tasks are that long."""


def geometry(
    spec: NpuSpec, work: Attention, tiling: Tiling, sequence: Sequences, rounding: Rounding, kv_rows: int = 0
) -> Geometry:
    """The average tile of ``sequence`` (one distinct pair of lengths) under ``tiling``; safe for empty sequences.

    ``kv_rows``: keys of the pieces of a block that a kernel leaves out where the mask hides them; 0: only whole blocks.
    """
    q_len, kv_len = jnp.maximum(sequence.q_len, 1.0), jnp.maximum(sequence.kv_len, 1.0)
    blocks = (tiling.block_q, tiling.block_kv)
    counts = total_counts(work.mask, sequence.q_len, sequence.kv_len, *blocks, rounding)
    longest, longest_rows = longest_row(work.mask, sequence.q_len, sequence.kv_len, *blocks)
    row_blocks = rounding.ceil_div(q_len, blocks[0])
    piece = jnp.minimum(blocks[1], kv_rows) if kv_rows else blocks[1]
    pieces = total_counts(work.mask, sequence.q_len, sequence.kv_len, blocks[0], piece, rounding) if kv_rows else counts
    missing = rounding.ceil_div(kv_len, piece) * piece - kv_len
    missing = missing * last_column(work.mask, sequence.q_len, sequence.kv_len, blocks[0], piece)
    average = (pieces.computed * piece - missing) / jnp.maximum(counts.computed, 1.0)
    keys = rounding.count(jnp.where(counts.computed > 0, average, blocks[1]), jnp.minimum(blocks[1], kv_len))
    group = work.q_heads / work.kv_heads
    packs = rounding.ceil_div(group, jnp.clip(rounding.floor_div(blocks[0], q_len), 1.0, group))
    rows = q_len / row_blocks * (group / packs)
    heads = sequence.count * work.kv_heads * packs
    row_blocks = jnp.where(sequence.q_len > 0, row_blocks, 0.0)
    split = _split(counts.computed / jnp.maximum(row_blocks, 1.0), longest, tiling.kv_split, rounding)
    return Geometry(
        rows=rows,
        keys=keys,
        vector_rows=rows / spec.vector_cores_per_cube,
        vector_cores=spec.vector_cores_per_cube,
        vector_steps=rounding.ceil(rows / spec.vector_cores_per_cube / tiling.vector_rows),
        partial=counts.partial / jnp.maximum(counts.computed, 1.0),
        partial_tiles=heads * counts.partial,
        skipped_tiles=heads * counts.skipped,
        tasks=heads * row_blocks * split.parts,
        tiles=heads * counts.computed,
        tiles_per_task=split.average,
        longest_tiles=split.longest,
        longest_tasks=heads * longest_rows * split.longest_parts,
    )


class _Split(NamedTuple):
    parts: Array
    """Parts of an average block row that get any tile."""
    average: Array
    """Tiles of an average part."""
    longest: Array
    """Tiles of the longest part of the longest block row."""
    longest_parts: Array
    """How many parts of that row are so long."""


def _split(per_row: Array, longest: Array, kv_split: Array, rounding: Rounding) -> _Split:
    """A block row's tiles dealt to ``kv_split`` cores, whole tiles each: some get one more than others, some may get none."""
    parts = jnp.clip(kv_split, 1.0, jnp.maximum(per_row, 1.0))
    most = rounding.ceil_div(longest, kv_split)
    longest_parts = jnp.maximum(longest - (most - 1) * kv_split, 1.0)
    return _Split(parts, jnp.maximum(per_row / parts, NEARLY_NONE), most, longest_parts)
