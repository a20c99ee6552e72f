"""Gradient search: block sizes as continuous numbers that fit by construction, everything else enumerated.

For each choice of the other axes (a *branch*) the two block sizes are ``16 · exp(sigmoid(θ) · log(most / 16))``, where ``most``
is the largest that fits: for the first block beside the smallest second, for the second beside the first as it is. So no
penalty is needed, and the optimum may lie on the edge of what fits. Adam moves many starts at once; what it finds is snapped to
the lattice, downwards only where rounding up would not fit. It gives starts to a local search, which polishes them by exact
values.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array, random

from ascend_jax._compile import SLOPES, quick_jit
from tiling_search.points import NONE, Points, indices, ranks_of

CHUNK = 2048
"""Most starts a call, so that threads can share them; how many threads there are makes no difference to what is found."""

Relaxed = Callable[[Array], Array]
"""Value of a point whose axes have any values in between: float32 ``[A]`` → rank 0, differentiable by the relaxed axes.

A pytree, so that its numbers may change without a new compilation; ``jax.tree_util.Partial`` makes one of a function.
"""


class Branches(NamedTuple):
    """The choices of all axes that are not relaxed, and what fits beside them.

    Attributes:
      others: indices of the other axes, 0 on the relaxed ones; int32 ``[K, A]``.
      least: index of the smallest first block that fits, ``most`` the largest; int32 ``[K]``.
      most_second: the largest second block, as a value, by index of the first; float32 ``[K, size]``, 0 where none fits.
    """

    others: Array
    least: Array
    most: Array
    most_second: Array


class Found(NamedTuple):
    """Where the starts ended.

    Attributes:
      ranks: snapped, int32 ``[S]``.
      sizes: the relaxed block sizes, float32 ``[S, 2]``.
      values: relaxed values, float32 ``[S]``.
    """

    ranks: Array
    sizes: Array
    values: Array


@dataclass(frozen=True)
class GradientParameters:
    """How to descend: which two axes are relaxed, how many starts in all, Adam's steps and rate."""

    axes: tuple[str, str] = ("block_q", "block_kv")
    starts: int = 256
    steps: int = 100
    rate: float = 0.1


def branches(points: Points, axes: tuple[str, str]) -> Branches:
    """The branches of ``points`` that have any; what fits beside each is read off the feasible points.

    Raises:
      ValueError: an axis that the points do not have.
    """
    if missing := [name for name in axes if name not in points.names]:
        raise ValueError(f"points have no axis {missing[0]!r}: there are {', '.join(points.names)}")
    first, second = (points.names.index(name) for name in axes)
    places = np.asarray(indices(points, jnp.arange(points.count, dtype=jnp.int32)))
    rest = places.copy()
    rest[:, [first, second]] = 0
    others, branch = np.unique(rest, axis=0, return_inverse=True)
    most_second = np.zeros((len(others), points.shape[first]), np.float32)
    np.maximum.at(most_second, (branch.ravel(), places[:, first]), np.asarray(points.axes[second])[places[:, second]])
    fits = most_second > 0
    least, most = fits.argmax(axis=1), fits.shape[1] - 1 - fits[:, ::-1].argmax(axis=1)
    others, least, most = (jnp.asarray(part, jnp.int32) for part in (others, least, most))
    return Branches(others, least, most, jnp.asarray(most_second))


def block_sizes(points: Points, given: Branches, how: GradientParameters, branch: Array, theta: Array) -> Array:
    """The two block sizes of ``theta`` ``[2]`` in one branch, float32 ``[2]``: they fit, whatever ``theta`` is."""
    first, second = (points.axes[points.names.index(name)] for name in how.axes)
    share = jax.nn.sigmoid(theta)
    low, high = first[given.least[branch]], first[given.most[branch]]
    one = low * jnp.exp(share[0] * jnp.log(high / low))
    limits = jnp.where(given.most_second[branch] > 0, given.most_second[branch], second[0])
    limit = jnp.interp(one, first, limits)
    return jnp.stack([one, second[0] * jnp.exp(share[1] * jnp.log(limit / second[0]))])


def snapped(points: Points, given: Branches, how: GradientParameters, branch: Array, sizes: Array) -> Array:
    """The rank of the lattice point nearest to relaxed ``sizes`` that fits."""
    first, second = (points.names.index(name) for name in how.axes)
    at = jnp.clip(_nearest(points.axes[first], sizes[0]), given.least[branch], given.most[branch])
    ceiling = jnp.minimum(sizes[1], given.most_second[branch, at])
    place = given.others[branch].at[first].set(at).at[second].set(_nearest(points.axes[second], ceiling))
    return ranks_of(points, place)


def _nearest(axis: Array, value: Array) -> Array:
    return jnp.argmin(jnp.abs(axis - value)).astype(jnp.int32)


def point_values(points: Points, given: Branches, how: GradientParameters, branch: Array, sizes: Array) -> Array:
    """Values on all axes of one branch with relaxed ``sizes``, float32 ``[A]``."""
    place = given.others[branch]
    columns = [axis[place[at]] for at, axis in enumerate(points.axes)]
    for name, size in zip(how.axes, sizes, strict=True):
        columns[points.names.index(name)] = size
    return jnp.stack(columns)


def descend(points: Points, given: Branches, how: GradientParameters, relaxed: Relaxed, key: Array) -> Found:
    """Adam on ``log relaxed`` from ``how.starts`` random starts, spread evenly over the branches, on all cores.

    Not traceable.
    """
    branch_key, theta_key = random.split(key)
    count = given.others.shape[0]
    order = random.permutation(branch_key, jnp.arange(count, dtype=jnp.int32))
    branch = order[jnp.arange(how.starts, dtype=jnp.int32) % count]
    theta = random.uniform(theta_key, (how.starts, 2), jnp.float32, -3.0, 3.0)
    parts = -(-how.starts // CHUNK)
    rows = np.arange(-(-how.starts // parts) * parts).reshape(parts, -1) % how.starts  # parts of one size: one compilation

    def some(part: np.ndarray) -> Found:
        return jax.block_until_ready(_descend(points, given, how, relaxed, (branch[part], theta[part])))

    first = some(rows[0])  # which compiles
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = [first, *pool.map(some, rows[1:])]
    return Found(*(jnp.concatenate(leaves)[: how.starts] for leaves in zip(*found, strict=True)))


def _descend_some(
    points: Points, given: Branches, how: GradientParameters, relaxed: Relaxed, starts: tuple[Array, Array]
) -> Found:
    return jax.vmap(lambda branch, theta: _descend_one(points, given, how, relaxed, (branch, theta)))(*starts)


def _descend_one(
    points: Points, given: Branches, how: GradientParameters, relaxed: Relaxed, start: tuple[Array, Array]
) -> Found:
    branch, theta = start
    adam = optax.adam(how.rate)

    def loss(theta: Array) -> Array:
        sizes = block_sizes(points, given, how, branch, theta)
        return jnp.log(relaxed(point_values(points, given, how, branch, sizes)))

    def step(carry: Any, _: None) -> tuple[Any, None]:
        theta, state, best = carry
        value, slope = jax.value_and_grad(loss)(theta)
        best = jax.tree.map(lambda new, old: jnp.where(value < best[0], new, old), (value, theta), best)
        slope = jnp.where(jnp.isfinite(slope), slope, jnp.float32(0))
        with jax.numpy_dtype_promotion("standard"):  # optax raises a float to an int32 step
            update, state = adam.update(slope, state, theta)
        return (optax.apply_updates(theta, update), state, best), None

    first = (theta, adam.init(theta), (jnp.float32(jnp.inf), theta))
    (_, _, (value, theta)), _ = jax.lax.scan(step, first, None, length=how.steps)
    sizes = block_sizes(points, given, how, branch, theta)
    return Found(snapped(points, given, how, branch, sizes), sizes, jnp.exp(value))


_descend = quick_jit(_descend_some, static_argnums=(2,), wanted=SLOPES)


def best_first(found: Found) -> np.ndarray:
    """The snapped ranks in order of relaxed value, each once."""
    ranks = np.asarray(found.ranks)[np.argsort(np.asarray(found.values), kind="stable")]
    ranks = ranks[ranks != NONE]
    return ranks[np.sort(np.unique(ranks, return_index=True)[1])]
