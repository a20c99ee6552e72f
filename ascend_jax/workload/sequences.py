"""``Sequences``: the distinct lengths of a workload and how often each occurs, so that a cost is summed over few shapes."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.tree_util import register_dataclass

from ascend_jax._pytree import as_arrays
from ascend_jax.workload.attention import Attention


@register_dataclass
@dataclass(frozen=True)
class Sequences:
    """``count`` sequences of ``q_len`` rows and ``kv_len`` keys: floats of rank 0, or ``[U]`` for variable lengths."""

    count: Array
    q_len: Array
    kv_len: Array


def sequences(work: Attention) -> Sequences:
    """The lengths of ``work`` in the default float dtype: rank 0 where all sequences share one, else ``[U]``.

    Outside jit, equal pairs of lengths are merged (sorted by ``q_len``, then ``kv_len``; their counts added), so call it
    before jit: U is a shape, and under jit, where lengths are tracers, every entry stays apart.

    >>> ragged = dict(q_heads=8, kv_heads=8, head_dim=64, value_dim=64, layout="TND")
    >>> found = sequences(Attention(batch=1, q_len=(512, 128, 512), kv_len=(512, 128, 512), **ragged))
    >>> found.count.tolist(), found.q_len.tolist(), found.kv_len.tolist()
    ([1.0, 2.0], [128.0, 512.0], [128.0, 512.0])
    """
    columns: Any = as_arrays((work.batch, work.q_len, work.kv_len))
    if not isinstance(work.q_len, tuple):
        return Sequences(*columns)
    entries = len(work.q_len)
    columns = [column if isinstance(column, tuple) else (column,) * entries for column in columns]
    if any(isinstance(value, Array) for column in columns for value in column):
        return Sequences(*(jnp.stack([jnp.asarray(value) for value in column]) for column in columns))
    return _merged(*(np.stack(column) for column in columns))


def _merged(counts: np.ndarray, q_lens: np.ndarray, kv_lens: np.ndarray) -> Sequences:
    pairs, index = np.unique(np.stack([q_lens, kv_lens], axis=1), axis=0, return_inverse=True)
    columns: Any = np.bincount(index, counts).astype(counts.dtype), pairs[:, 0], pairs[:, 1]
    return Sequences(*columns)
