"""The two strategies that learn nothing: every point in order, and every point in random order."""

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, random

from tiling_search.points import NONE, Points


class Order(NamedTuple):
    """An order of all ranks, int32 ``[P]``, and how many were asked for."""

    ranks: Array
    done: Array


@dataclass(frozen=True)
class Exhaustive:
    """Every point in the order of ranks: the oracle of all others."""

    batch: int = 256
    traceable: bool = True

    def init(self, points: Points, key: Array) -> Order:
        """Ranks 0, 1, 2, …; draws nothing from ``key``."""
        del key
        return Order(jnp.arange(points.count, dtype=jnp.int32), jnp.int32(0))

    def ask(self, points: Points, state: Order) -> tuple[Array, Order]:
        """The next ``batch`` ranks of the order."""
        places = state.done + jnp.arange(self.batch, dtype=jnp.int32)
        ranks = jnp.where(places < points.count, state.ranks[jnp.minimum(places, points.count - 1)], jnp.int32(NONE))
        return ranks, state._replace(done=state.done + jnp.int32(self.batch))

    def tell(self, points: Points, state: Order, ranks: Array, values: Array) -> Order:
        """Nothing is learnt."""
        del points, ranks, values
        return state


@dataclass(frozen=True)
class Random(Exhaustive):
    """Uniform over the feasible points, without replacement."""

    batch: int = 16

    def init(self, points: Points, key: Array) -> Order:
        """A random order of all ranks."""
        return Order(random.permutation(key, jnp.arange(points.count, dtype=jnp.int32)), jnp.int32(0))
