"""Moves from point to point: ordinal steps, mostly small, that land on feasible points only.

What is random comes in as words, uint32 drawn at once for a whole batch: on CPUs drawing costs more than moving.
"""

import jax.numpy as jnp
import numpy as np
from jax import Array, random

from tiling_search.points import Points, indices, ranks_of

ONE_AXIS, TWO_AXES, MOST_AXES = 0.5, 0.4, 3
"""Shares of moves along one axis and two; the others change three. A move takes a word for each of the three."""
WORD = 32


def moved(points: Points, words: Array, ranks: Array, scale: float) -> Array:
    """A random move from each of ``ranks`` ``[…]``, int32 ``[…]``; −1 where a move leaves the feasible points.

    A move changes one axis or a few. Its step is geometric with a mean of ``scale`` times the axis's size, at least 1, so that
    near points are the likeliest; axes with one value do not move.

    Args:
      points: where to stay.
      words: uint32 ``[…, MOST_AXES]``.
      ranks: from where, of a shape that broadcasts with that of the words.
      scale: mean step as a share of an axis.
    """
    return ranks_of(points, indices(points, ranks) + steps(points, words, scale))


def steps(points: Points, words: Array, scale: float) -> Array:
    """Random steps of indices, int32 ``[…, A]``, of words ``[…, MOST_AXES]``; see :func:`moved`.

    Of a word, 8 bits choose the axis, 15 the length and one the direction; the last 8 of the first choose how many axes.
    """
    movable = np.array([axis for axis, size in enumerate(points.shape) if size > 1] or [0], np.int32)
    mean = np.maximum(np.array(points.shape, np.float32)[movable] * np.float32(scale), np.float32(1.001))
    longest = jnp.asarray(1 / np.log1p(-1 / mean), jnp.float32)  # of the exponential whose whole part makes the geometric
    which = pick(words, 0, 8, len(movable))
    length = 1 + jnp.floor(jnp.log(uniform(words, 8, 15)) * longest[which]).astype(jnp.int32)
    share = uniform(words[..., :1], 24, 8)
    used = jnp.concatenate([share > 0, share > ONE_AXIS, share > ONE_AXIS + TWO_AXES], axis=-1)
    step = jnp.where(used, jnp.where(pick(words, 23, 1, 2) > 0, length, -length), jnp.int32(0))
    by_axis = jnp.asarray(np.eye(len(points.shape), dtype=np.int32)[movable])[which]
    return jnp.sum(step[..., None] * by_axis, axis=-2, dtype=jnp.int32)


def crossed(points: Points, words: Array, one: Array, other: Array) -> Array:
    """A mixture of each pair of ranks, each axis from either, int32 ``[…]``; −1 where a mixture is not feasible.

    Args:
      points: where to stay.
      words: uint32 ``[…, mixture_words(points)]``, a bit an axis.
      one, other: ranks, of shapes that broadcast with that of the words.
    """
    axes = np.arange(len(points.shape), dtype=np.uint32)
    shift = jnp.asarray(axes % WORD).reshape((1,) * (words.ndim - 1) + (-1,))
    from_one = words[..., axes // WORD] >> shift & 1
    return ranks_of(points, jnp.where(from_one > 0, indices(points, one), indices(points, other)))


def mixture_words(points: Points) -> int:
    """Words that :func:`crossed` takes for a mixture."""
    return -(-len(points.shape) // WORD)


def moved_each(points: Points, key: Array, ranks: Array, tries: int, scale: float) -> Array:
    """``tries`` of :func:`moved` from each of ``ranks`` ``[N]``, int32 ``[N, tries]``."""
    words = random.bits(key, (ranks.shape[0], tries, MOST_AXES), jnp.uint32)
    return moved(points, words, ranks[:, None], scale)


def pick(words: Array, low: int, bits: int, count: int) -> Array:
    """An index below ``count``, int32, from ``bits`` bits of each word from bit ``low`` on; likelihoods differ by 2^−bits."""
    return (_cut(words, low, bits) * np.uint32(count) >> np.uint32(bits)).astype(jnp.int32)


def uniform(words: Array, low: int, bits: int) -> Array:
    """A number between 0 and 1, float32, neither included, from ``bits`` (at most 23) bits of each word from bit ``low`` on."""
    return (_cut(words, low, bits).astype(jnp.float32) + np.float32(0.5)) * np.float32(2.0**-bits)


def _cut(words: Array, low: int, bits: int) -> Array:
    return words >> np.uint32(low) & np.uint32(2**bits - 1)
