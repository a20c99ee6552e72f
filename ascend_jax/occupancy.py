"""Does it fit? Bytes per buffer and memory, slack, verdict. The only module that counts bytes of buffers.

Counts are whole numbers held in floats: exact up to 2^24 in float32 (any on-chip buffer) and 2^53 in float64, and an on-chip
count beyond that still compares as too large. So "262,144 of 262,144 fits" and one byte more does not, in both. GM holds
more than float32 counts: there it is exact in float64 only, and within a part in ten million otherwise.
"""

from dataclasses import dataclass
from functools import reduce

import jax.numpy as jnp
from jax import Array
from jax.tree_util import register_dataclass

from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.kernels.buffers import STATE_COLUMNS
from ascend_jax.kernels.kernel import Buffer, Kernel
from ascend_jax.rounding import EXACT, Rounding
from ascend_jax.tiling.tiling import Tiling
from ascend_jax.verdict import OVERFLOWS, Verdict, message
from ascend_jax.workload.attention import Attention
from ascend_jax.workload.sequences import Sequences

ALIGN_BYTES = {"UB": 32, "L1": 32, "L0A": 512, "L0B": 512, "L0C": 512, "GM": 512}
"""Start alignment of a buffer: blocks of UB and L1, fractals of L0, cache lines of GM (AscendNPU-IR target specs, CANN)."""
BLOCK_ALIGN = 16
"""Blocks are whole fractals of the Cube."""
MEMORIES = tuple(ALIGN_BYTES)


@register_dataclass
@dataclass(frozen=True, kw_only=True)
class Occupancy:
    """Bytes per memory, by name (rank 0): of one core for the buffers, of the chip for GM.

    Attributes:
      used_bytes, capacity_bytes: per memory.
      buffer_bytes: per memory and buffer, all slots together.
      verdict: a ``Verdict`` as a number; the first memory that overflows, or what is wrong with the blocks.
    """

    used_bytes: dict[str, Array]
    capacity_bytes: dict[str, Array]
    buffer_bytes: dict[str, dict[str, Array]]
    verdict: Array


def split_row_bytes(work: Attention) -> Array:
    """Bytes of one row of a split sequence's partial result: float32 O, and a 32-byte block each for max and sum."""
    return (work.value_dim + 2 * STATE_COLUMNS) * 4


def explain(held: Occupancy) -> str:
    """The verdict of a concrete occupancy as a sentence: the memory, bytes asked and available, and what to shrink."""
    verdict = Verdict(int(held.verdict))
    if verdict.memory is None:
        return message(verdict)
    sizes = {name: float(size) for name, size in held.buffer_bytes[verdict.memory].items()}
    return message(verdict, float(held.capacity_bytes[verdict.memory]), sizes)


def occupancy(
    spec: NpuSpec, work: Attention, lengths: Sequences, tiling: Tiling, kernel: Kernel, rounding: Rounding = EXACT
) -> Occupancy:
    """Bytes of every buffer of ``kernel`` and the first memory that overflows (all leaves float arrays of rank 0).

    GM holds the workspace of all cores, the partial results of split sequences, and Q, K, V and O themselves.
    """
    buffers = kernel.buffers(spec, work, tiling, rounding)
    slots = {name: slot_bytes(buffer, rounding) for name, buffer in buffers.items()}
    return occupancy_of(spec, work, lengths, tiling, buffers, slots)


def occupancy_of(
    spec: NpuSpec,
    work: Attention,
    lengths: Sequences,
    tiling: Tiling,
    buffers: dict[str, Buffer],
    slots: dict[str, Array],
) -> Occupancy:
    """:func:`occupancy` from the bytes of one slot of each buffer."""
    sizes: dict[str, dict[str, Array]] = {memory: {} for memory in MEMORIES}
    for name, buffer in buffers.items():
        per_core = slots[name] * buffer.slots
        sizes[buffer.memory][name] = per_core * spec.cube_cores if buffer.memory == "GM" else per_core
    sizes["GM"] |= tensor_bytes(work, lengths, tiling)
    used = {memory: sum(entries.values(), jnp.zeros_like(tiling.block_q)) for memory, entries in sizes.items()}
    capacity = {memory: getattr(spec, f"{memory.lower()}_bytes") for memory in MEMORIES}
    return Occupancy(used_bytes=used, capacity_bytes=capacity, buffer_bytes=sizes, verdict=_verdict(tiling, used, capacity))


def slot_bytes(buffer: Buffer, rounding: Rounding = EXACT) -> Array:
    """Bytes of one slot of ``buffer``, padded to its alignment."""
    align = buffer.align_bytes or ALIGN_BYTES[buffer.memory]
    size = buffer.rows * buffer.columns * buffer.element_bytes
    return rounding.round_up(size, align)


def tensor_bytes(work: Attention, lengths: Sequences, tiling: Tiling) -> dict[str, Array]:
    """Bytes in GM of Q, K, V and O, and of the float32 partial results that split sequences leave to combine."""
    q_rows, kv_rows = jnp.sum(lengths.count * lengths.q_len), jnp.sum(lengths.count * lengths.kv_len)
    e = work.element_bytes
    partial = q_rows * work.q_heads * split_row_bytes(work) * tiling.kv_split
    return {
        "Q, O": q_rows * work.q_heads * (work.head_dim + work.value_dim) * e,
        "K, V": kv_rows * work.kv_heads * work.kv_columns * e,
        "split results": jnp.where(tiling.kv_split > 1, partial, 0.0),
    }


def _verdict(tiling: Tiling, used: dict[str, Array], capacity: dict[str, Array]) -> Array:
    code = jnp.zeros_like(tiling.block_q)
    for memory in reversed(MEMORIES):
        code = jnp.where(used[memory] > capacity[memory], float(OVERFLOWS[memory]), code)
    aligned = (tiling.block_q % BLOCK_ALIGN == 0) & (tiling.block_kv % BLOCK_ALIGN == 0)
    code = jnp.where(aligned, code, float(Verdict.BLOCK_NOT_ALIGNED))
    return jnp.where(too_small(tiling), float(Verdict.BLOCK_TOO_SMALL), code)


def too_small(tiling: Tiling) -> Array:
    """Whether a block has less than one fractal of rows, or anything no slot at all."""
    slots = (tiling.kv_depth, tiling.score_depth, tiling.prob_depth, tiling.out_depth, tiling.ub_depth, tiling.vector_rows)
    return (tiling.block_q < BLOCK_ALIGN) | (tiling.block_kv < BLOCK_ALIGN) | (reduce(jnp.minimum, slots) < 1)
