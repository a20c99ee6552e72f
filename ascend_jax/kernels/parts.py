"""Pieces that several dataflows share: loads of Q, K and V, the store of O, and the Vector's instructions of a tile."""

from dataclasses import replace

from jax import Array

from ascend_jax._pytree import Leaf
from ascend_jax.kernels.buffers import STATE_COLUMNS
from ascend_jax.kernels.geometry import Geometry
from ascend_jax.kernels.kernel import Path, Stream, Transfer, VectorOps
from ascend_jax.workload.attention import Attention
from ascend_jax.workload.layout import contiguous_rows

SOFTMAX_STARTS, RESCALE_STARTS = 8.0, 2.0
"""Vector instructions of one softmax and of one rescale that start on a drained pipe: each waits for the one before. A fused
vector function (950) starts once instead."""


def load_q(work: Attention, shape: Geometry, path: Path) -> Transfer:
    """Q rows of a task from GM."""
    return _rows(work, path, "q", shape.rows, work.head_dim, work.q_heads)


def load_k(work: Attention, shape: Geometry, path: Path) -> Transfer:
    """K rows of a tile from GM."""
    return _rows(work, path, "kv", shape.keys, work.head_dim, work.kv_heads)


def load_v(work: Attention, shape: Geometry, path: Path, again: bool = False) -> Transfer:
    """V rows of a tile from GM; where they came with K nothing, or the same rows ``again``, from L2."""
    loaded = _rows(work, path, "kv", shape.keys, work.value_dim, work.kv_heads)
    if not work.latent:
        return loaded
    return replace(loaded, stream="again") if again else replace(loaded, bursts=0 * loaded.bursts, instructions=0.0)


def store_o(work: Attention, shape: Geometry) -> Transfer:
    """Finished rows of O to GM, each vector core its own."""
    stored = _rows(work, "ub_to_gm", "out", shape.vector_rows, work.value_dim, work.q_heads)
    return replace(stored, units=shape.vector_cores)


def _rows(work: Attention, path: Path, stream: Stream, rows: Array, dim: Array, heads: Array) -> Transfer:
    together = contiguous_rows(work.layout, heads, rows)
    return Transfer(path=path, stream=stream, bursts=rows / together, burst_bytes=together * dim * work.element_bytes)


def load_mask(shape: Geometry, steps: Leaf = 1.0) -> Transfer:
    """One byte an element of the mask, in ``steps`` transfers, for the tiles that it cuts through."""
    return Transfer(
        path="gm_to_ub",
        stream="mask",
        bursts=shape.vector_rows * shape.partial,
        burst_bytes=shape.keys,
        instructions=shape.partial * steps,
        units=shape.vector_cores,
    )


def softmax(work: Attention, shape: Geometry, starts: Leaf, fused: bool = False) -> VectorOps:
    """Online softmax of one tile's scores on one vector core: mask, max, exp, sum and cast, and the rows' state.

    ``starts`` is how many instructions start on an idle pipe; ``fused``: they are one vector function.
    """
    scores = shape.vector_rows * shape.keys
    state = shape.vector_rows * STATE_COLUMNS
    elements = {
        "scale": scores,
        "select": scores * shape.partial,
        "row_max": scores,
        "subtract": scores + state,
        "exp": scores + state,
        "row_sum": scores,
        "multiply": state,
        "add": 2 * state,
    }
    if work.element_bytes < 4:
        elements["cast"] = scores
    return VectorOps(elements=elements, instructions=starts, fused=fused)


def rescale(work: Attention, shape: Geometry, starts: Leaf, fused: bool = False) -> VectorOps:
    """``O = O · exp(m_old - m_new) + ΔO`` on one vector core."""
    elements = shape.vector_rows * work.value_dim
    return VectorOps(elements={"multiply": elements, "add": elements}, instructions=starts, fused=fused)


def finalise(work: Attention, shape: Geometry, starts: Leaf, fused: bool = False) -> VectorOps:
    """``O / sum`` and the cast to the output type, once per task, on one vector core."""
    elements = shape.vector_rows * work.value_dim
    ops = {"divide": elements} | ({"cast": elements} if work.element_bytes < 4 else {})
    return VectorOps(elements=ops, instructions=starts, fused=fused)
