"""Left padding: used rows and keys stand at the right of their tensors, before ``padding_size`` unused ones."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from ascend_jax.attention.infer.facts import Facts
from ascend_jax.attention.infer.spans import Spans


class Padding(NamedTuple):
    """First used row and key of each batch, int32 ``[B]`` or None where nothing is padded; ``fits``: they exist."""

    first_row: Array | None
    first_key: Array | None
    fits: Any

    def rows(self, x: Array) -> Array:
        """``[B|1, N, S1, …]`` with the first used row at 0."""
        return _turned(x, self.first_row, 2)

    def keys(self, x: Array) -> Array:
        """``[B, N, S2, D]`` with the first used key at 0."""
        return _turned(x, self.first_key, 2)

    def columns(self, x: Array) -> Array:
        """``[B|1, N, S1, S2]`` with the first used key at 0."""
        return _turned(x, self.first_key, 3)

    def rows_back(self, x: Array) -> Array:
        """The opposite of ``rows``."""
        return x if self.first_row is None else _turned(x, -self.first_row, 2)


def padding_of(f: Facts, spans: Spans) -> Padding:
    """Where used rows and keys begin; a batch whose padding leaves no room for them is not computed."""
    row = _first(f.call.query_padding_size, f.s1, spans.q) if f.q_padded else None
    key = _first(f.call.kv_padding_size, f.s2, spans.kv) if f.kv_padded else None
    fits = True
    for first in (row, key):
        fits = fits if first is None else fits & (first >= 0)
    return Padding(row, key, fits)


def _first(padding: Any, length: int, used: Any) -> Array:
    unused = jnp.maximum(jnp.asarray(padding).reshape(()).astype(jnp.int32), 0)
    return length - jnp.asarray(used, jnp.int32) - unused


def _turned(x: Array, first: Array | None, axis: int) -> Array:
    """``x`` turned along ``axis``, in each batch, so that place ``first`` comes to 0."""
    if first is None:
        return x
    x = jnp.broadcast_to(x, (first.shape[0], *x.shape[1:]))
    places = (jnp.arange(x.shape[axis], dtype=jnp.int32)[None] + first[:, None]) % x.shape[axis]
    shape = tuple({0: x.shape[0], axis: x.shape[axis]}.get(place, 1) for place in range(x.ndim))
    return jnp.take_along_axis(x, places.reshape(shape), axis=axis)
