"""Moves from point to point: ordinal steps, mostly small, that land on feasible points only."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, random

from tiling_search.points import Points, indices, ranks_of

ONE_AXIS, TWO_AXES, MOST_AXES = 0.5, 0.4, 3
"""Shares of moves along one axis and two; the others change three."""
HALF = np.float32(0.5)
"""Not a Python float, whose draws would follow the process's default float."""


def moved(points: Points, key: Array, rank: Array, tries: int, scale: float) -> Array:
    """``tries`` random moves from one rank, int32 ``[tries]``; −1 where a move leaves the feasible points.

    A move changes one axis or a few. Its step is geometric with a mean of ``scale`` times the axis's size, at least 1, so that
    near points are the likeliest and no point of the axis is out of reach; axes with one value do not move.
    """
    place = indices(points, rank)
    return ranks_of(points, place[None, :] + steps(points, key, tries, scale))


def steps(points: Points, key: Array, tries: int, scale: float) -> Array:
    """Random steps of indices, int32 ``[tries, A]``; see :func:`moved`."""
    movable = np.array([axis for axis, size in enumerate(points.shape) if size > 1] or [0], np.int32)
    axis_key, many_key, length_key, sign_key = random.split(key, 4)
    axes = jnp.asarray(movable)[random.randint(axis_key, (tries, MOST_AXES), 0, len(movable), jnp.int32)]
    share = random.uniform(many_key, (tries, 1), jnp.float32)
    used = jnp.concatenate([share >= 0, share > ONE_AXIS, share > ONE_AXIS + TWO_AXES], axis=1)
    mean = np.maximum(np.array(points.shape, np.float32) * np.float32(scale), np.float32(1.001))
    rate = jnp.asarray(-np.log1p(-1 / mean), jnp.float32)  # of the exponential whose whole part makes the wanted geometric
    uniform = random.uniform(length_key, (tries, MOST_AXES), jnp.float32, 1e-6, 1.0)
    length = 1 + jnp.floor(-jnp.log(uniform) / rate[axes]).astype(jnp.int32)
    step = jnp.where(random.bernoulli(sign_key, HALF, length.shape), length, -length)
    place = jnp.arange(len(points.shape), dtype=jnp.int32)[None, None, :]
    chosen = (axes[:, :, None] == place) & used[:, :, None]
    return jnp.sum(jnp.where(chosen, step[:, :, None], jnp.int32(0)), axis=1, dtype=jnp.int32)


def crossed(points: Points, key: Array, one: Array, other: Array, tries: int) -> Array:
    """``tries`` mixtures of two ranks, each axis from either, int32 ``[tries]``; −1 where a mixture is not feasible."""
    from_one = random.bernoulli(key, HALF, (tries, len(points.shape)))
    return ranks_of(points, jnp.where(from_one, indices(points, one)[None, :], indices(points, other)[None, :]))


def moved_each(points: Points, key: Array, ranks: Array, tries: int, scale: float) -> Array:
    """:func:`moved` from each of ``ranks`` ``[N]``, int32 ``[N, tries]``."""
    keys = random.split(key, ranks.shape[0])
    return jax.vmap(lambda own, rank: moved(points, own, rank, tries, scale))(keys, ranks)
