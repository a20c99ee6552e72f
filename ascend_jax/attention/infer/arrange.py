"""Tensors of any layout as ``[B, N, S, D]`` and back; packed sequences are one batch of T tokens."""

from typing import Any

import jax.numpy as jnp
from jax import Array

from ascend_jax.attention.infer.facts import Facts
from ascend_jax.attention.layouts import heads_first


def query_of(f: Facts) -> Array:
    """The query with its rope behind it, ``[B, N1, S1, D + D_rope]``."""
    query = heads_first(f.call.query, f.q_layout, f.n1)
    if f.rope != "split":
        return query
    return jnp.concatenate([query, heads_first(f.call.query_rope, f.q_layout, f.n1)], axis=3)


def keys_of(f: Facts) -> tuple[Array, Array]:
    """Keys with their rope, and values, ``[B, N2, S2, D]``; the shared prefix comes first in every sequence."""
    key, value = _dense(f, f.call.key), _dense(f, f.call.value)
    if f.rope == "split":
        key = jnp.concatenate([key, _dense(f, (f.call.key_rope,))], axis=3)
    if not f.prefix:
        return key, value
    shared = (heads_first(x, f.kv_layout, f.n2) for x in (f.call.key_shared_prefix, f.call.value_shared_prefix))
    first = [jnp.broadcast_to(x[:, :, : f.prefix_len], (f.b, f.n2, f.prefix_len, x.shape[3])) for x in shared]
    return jnp.concatenate([first[0], key], axis=2), jnp.concatenate([first[1], value], axis=2)


def _dense(f: Facts, tensors: tuple[Any, ...]) -> Array:
    several = [heads_first(x, f.kv_layout, f.n2) for x in tensors]
    if f.storage == "paged":
        return _gathered(f, several[0])
    if len(several) == 1:
        return several[0]
    return jnp.concatenate([jnp.pad(x, ((0, 0), (0, 0), (0, f.s2 - x.shape[2]), (0, 0))) for x in several])


def _gathered(f: Facts, pages: Array) -> Array:
    """The pages of each sequence in order, ``[B, N2, f.gathered, D]``; packed: one sequence's behind the other's, B = 1."""
    table = jnp.asarray(f.call.block_table)[:, : f.gathered // f.call.block_size]
    found = jnp.moveaxis(jnp.take(pages, table, axis=0, mode="clip"), 2, 1)  # [B, N2, blocks, page, D]
    dense = found.reshape(table.shape[0], f.n2, -1, pages.shape[3])
    return jnp.moveaxis(dense, 0, 1).reshape(1, f.n2, -1, pages.shape[3]) if f.packed else dense
