"""Steady-state evolution for ordinal axes: the best points so far breed by crossover and small ordinal steps."""

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, random
from jax.lax import top_k

from tiling_search.points import NONE, Points
from tiling_search.strategies.moves import MOST_AXES, crossed, mixture_words, moved, pick, uniform
from tiling_search.strategies.protocol import History, admit, begin, first_fresh, next_key, random_fresh


class Population(NamedTuple):
    """The best points so far: ranks and values, best first, ``[size]``; −1 and ``inf`` where there are fewer."""

    history: History
    ranks: Array
    values: Array


@dataclass(frozen=True)
class Evolution:
    """(μ + λ) evolution whose mutation keeps the order of an axis: steps are geometric, so that near values are the likeliest.

    Attributes:
      batch: children a generation (λ).
      size: points that survive (μ); the first generations, as many points, are random.
      crossover: share of children that mix two parents before they move.
      pressure: parents are the best of so many drawn at random.
      tries: mixtures drawn to find a feasible one; moves drawn from it, and as many from its first parent, to find a point
        not asked for.
      scale: mean step as a share of an axis.
    """

    batch: int = 4
    size: int = 16
    crossover: float = 0.5
    pressure: int = 3
    tries: int = 4
    scale: float = 0.06
    traceable: bool = True

    def init(self, points: Points, key: Array) -> Population:
        """Nobody yet."""
        nobody = jnp.full(self.size, NONE, jnp.int32), jnp.full(self.size, jnp.inf, jnp.float32)
        return Population(begin(points, key), *nobody)

    def ask(self, points: Points, state: Population) -> tuple[Array, Population]:
        """Random points until the population is full, then children."""
        key, history = next_key(state.history)
        child_key, far_key = random.split(key)
        near = first_fresh(history, self._children(points, state, child_key))
        young = state.ranks[-1] < 0
        ranks = jnp.where(young | (near < 0), random_fresh(history, far_key, self.batch), near)
        ranks, history = admit(history, ranks)
        return ranks, state._replace(history=history)

    def _children(self, points: Points, state: Population, key: Array) -> Array:
        """Candidates for each child, int32 ``[batch, 2 · tries]``: the likeliest first."""
        mixture, move = self.tries * mixture_words(points), 2 * self.tries * MOST_AXES
        words = random.bits(key, (self.batch, 1 + 2 * self.pressure + mixture + move), jnp.uint32)
        chance, parent, mixture, move = jnp.split(words, np.cumsum([1, 2 * self.pressure, mixture]), axis=1)
        drawn = pick(parent.reshape(self.batch, 2, self.pressure), 16, 16, self.size).min(axis=2)
        one, other = state.ranks[drawn[:, :1]], state.ranks[drawn[:, 1:]]
        mixed = crossed(points, mixture.reshape(self.batch, self.tries, -1), one, other)
        mixed = jnp.take_along_axis(mixed, jnp.argmax(mixed >= 0, axis=1)[:, None], axis=1)
        start = jnp.where((mixed >= 0) & (uniform(chance, 9, 23) < self.crossover), mixed, one)
        start = jnp.repeat(jnp.concatenate([start, one], axis=1), self.tries, axis=1)
        return moved(points, move.reshape(self.batch, -1, MOST_AXES), start, self.scale)

    def tell(self, points: Points, state: Population, ranks: Array, values: Array) -> Population:
        """The best of old and new survive; of equals the older."""
        del points
        values = jnp.where(ranks < 0, jnp.float32(jnp.inf), values)
        ranks, values = jnp.concatenate([state.ranks, ranks]), jnp.concatenate([state.values, values])
        failed = jnp.minimum(values, jnp.finfo(jnp.float32).max)  # a failure comes before nobody
        order = top_k(jnp.where(ranks < 0, -jnp.float32(jnp.inf), -failed), self.size)[1]
        return Population(state.history, ranks[order], values[order])
