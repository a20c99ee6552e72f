"""Statistics as the operator lays them out, and tensors of packed sequences by sequence."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ascend_jax.attention.fusion.axes import Axes

COPIES = 8
"""The kernel writes each statistic eight times, a unit of 32 bytes."""


def pack_statistics(x: Array, packed: bool, softmax_layout: str) -> Array:
    """``[B, N, S]`` as softmax_max or softmax_sum: ``[B, N, S, 8]``, packed ``[T, N, 8]``.

    Packed statistics lie in memory heads first, under the shape ``[T, N, 8]``, unless softmax_layout is "TND". Source:
    aclnnFlashAttentionVarLenScoreV4.md of flash_attention_score in ops-transformer.
    """
    copies = jnp.broadcast_to(x[..., None], (*x.shape, COPIES))
    if not packed:
        return copies
    _, heads, tokens = x.shape
    if softmax_layout == "TND":
        return jnp.swapaxes(copies[0], 0, 1)
    return copies.reshape(tokens, heads, COPIES)


def unpack_statistics(x: Array, packed: bool, softmax_layout: str) -> Array:
    """The way back: ``[B, N, S]``."""
    if not packed:
        return x[..., 0]
    tokens, heads, _ = x.shape
    if softmax_layout == "TND":
        return jnp.swapaxes(x[..., 0], 0, 1)[None]
    return x.reshape(1, heads, tokens, COPIES)[..., 0]


def by_sequence(flat: Array, axes: Axes, rows: tuple[int, ...]) -> Array:
    """Pieces ``[N1, rows[b], S2[b]]`` in a row as ``[sequences, N1, longest rows, longest S2]``, zeros between."""
    heights, widths = (np.asarray(lens, np.int32) for lens in (rows, axes.kv_lens))
    sizes = axes.n1 * heights * widths
    return _pieces(flat, np.cumsum(sizes, dtype=np.int32) - sizes, heights, widths, (axes.n1, max(rows), axes.s2))


@partial(jax.jit, static_argnums=4)
def _pieces(flat: Array, starts: Array, heights: Array, widths: Array, shape: tuple[int, int, int]) -> Array:
    """One gather for all of them: ``[sequences, *shape]``."""
    start, height, width = (x[:, None, None, None] for x in (starts, heights, widths))
    n, i, j = (lax.broadcasted_iota(jnp.int32, shape, axis)[None] for axis in range(3))
    exists = (i < height) & (j < width)
    found = jnp.take(flat, jnp.where(exists, start + (n * height + i) * width + j, 0), mode="clip")
    return jnp.where(exists, found, jnp.zeros((), flat.dtype))
