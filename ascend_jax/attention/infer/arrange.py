"""Tensors of any layout as ``[B, N, S, D]`` and back; packed sequences are one batch of T tokens."""

from typing import Any

import jax.numpy as jnp
from jax import Array

from ascend_jax.attention.infer.facts import Facts


def heads_first(x: Any, layout: str, heads: int) -> Array:
    """``[B, N, S, D]`` (``[1, N, T, D]``, ``[pages, N, page, D]``) of a tensor in ``layout``."""
    x = jnp.asarray(x)
    if layout in ("BSH", "BnBsH"):
        x = x.reshape(*x.shape[:2], heads, -1)
        return jnp.moveaxis(x, 2, 1)
    if layout == "BSND":
        return jnp.moveaxis(x, 2, 1)
    if layout == "TND":
        return jnp.moveaxis(x, 1, 0)[None]
    if layout == "NTD":
        return x[None]
    if layout == "NZ":
        return jnp.moveaxis(x, 2, 3).reshape(*x.shape[:2], x.shape[3], -1)
    return x


def laid_out(out: Array, layout: str) -> Array:
    """``[B, N, S, D]`` in the layout of the output."""
    if layout == "BSH":
        return jnp.moveaxis(out, 1, 2).reshape(out.shape[0], out.shape[2], -1)
    if layout == "TND":
        return jnp.moveaxis(out[0], 0, 1)
    if layout == "NTD":
        return out[0]
    places = {"BNSD": (0, 1, 2, 3), "BSND": (0, 2, 1, 3), "NBSD": (1, 0, 2, 3)}
    return jnp.transpose(out, places[layout])


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
    """The pages of each sequence in order, ``[B, N2, S2, D]``; packed: one sequence's behind the other's, B = 1."""
    table = jnp.asarray(f.call.block_table)[:, : f.s2 // f.call.block_size]
    found = jnp.moveaxis(jnp.take(pages, table, axis=0, mode="clip"), 2, 1)  # [B, N2, blocks, page, D]
    dense = found.reshape(table.shape[0], f.n2, -1, pages.shape[3])
    return jnp.moveaxis(dense, 0, 1).reshape(1, f.n2, -1, pages.shape[3]) if f.packed else dense
