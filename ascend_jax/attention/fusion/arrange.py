"""Statistics as the operator lays them out, and tensors of packed sequences by sequence."""

import jax.numpy as jnp
from jax import Array

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
    pieces, start = [], 0
    for height, keys in zip(rows, axes.kv_lens, strict=True):
        piece = flat[start : start + axes.n1 * height * keys].reshape(axes.n1, height, keys)
        start += axes.n1 * height * keys
        pieces.append(jnp.pad(piece, ((0, 0), (0, max(rows) - height), (0, axes.s2 - keys))))
    return jnp.stack(pieces)
