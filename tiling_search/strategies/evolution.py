"""Steady-state evolution for ordinal axes: the best points so far breed by crossover and small ordinal steps."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, random

from tiling_search.points import NONE, Points
from tiling_search.strategies.moves import crossed, moved
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
      tries: moves drawn to find one to a point not asked for.
      scale: mean step as a share of an axis.
    """

    batch: int = 4
    size: int = 16
    crossover: float = 0.5
    pressure: int = 3
    tries: int = 8
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
        children = jax.vmap(lambda own: self._child(points, state, own))(random.split(child_key, self.batch))
        near = first_fresh(history, children)
        young = state.ranks[-1] < 0
        ranks = jnp.where(young | (near < 0), random_fresh(history, far_key, self.batch), near)
        ranks, history = admit(history, ranks)
        return ranks, state._replace(history=history)

    def _child(self, points: Points, state: Population, key: Array) -> Array:
        """Candidates for one child, int32 ``[3 · tries]``: the likeliest first."""
        parents_key, mix_key, cross_key, one_key, other_key = random.split(key, 5)
        drawn = random.randint(parents_key, (2, self.pressure), 0, self.size, jnp.int32).min(axis=1)
        one, other = state.ranks[drawn[0]], state.ranks[drawn[1]]
        mixed = crossed(points, cross_key, one, other, self.tries)
        mixture = mixed[jnp.argmax(mixed >= 0)]
        start = jnp.where((mixture >= 0) & random.bernoulli(mix_key, jnp.float32(self.crossover)), mixture, one)
        after = moved(points, one_key, start, self.tries, self.scale)
        return jnp.concatenate([after, moved(points, other_key, one, self.tries, self.scale)])

    def tell(self, points: Points, state: Population, ranks: Array, values: Array) -> Population:
        """The best of old and new survive; of equals the older."""
        del points
        values = jnp.where(ranks < 0, jnp.float32(jnp.inf), values)
        known = ranks >= 0
        every = jnp.concatenate([state.values, values])
        order = jnp.lexsort((jnp.concatenate([state.ranks < 0, ~known]), every))[: self.size]
        return Population(state.history, jnp.concatenate([state.ranks, ranks])[order], every[order])
