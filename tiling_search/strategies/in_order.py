"""The two strategies that learn nothing: every point in order, and every point in random order."""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, random

from tiling_search.points import NONE, Points

ROUNDS = 8
"""Of the cipher that shuffles; short halves need more of them than long ones to look random."""


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


class Shuffle(NamedTuple):
    """Keys of the rounds that shuffle, uint32 ``[ROUNDS]``, and how many ranks were asked for."""

    keys: Array
    done: Array


@dataclass(frozen=True)
class Random:
    """All points in a random order, without listing them: a block cipher on as many bits as ranks have is a permutation.

    What the cipher turns into no rank is enciphered again until it is one (Black and Rogaway, "Ciphers with arbitrary finite
    domains", 2002), so that a search of a few points in a large space costs only those.
    """

    batch: int = 16
    traceable: bool = True

    def init(self, points: Points, key: Array) -> Shuffle:
        """Keys for the cipher."""
        del points
        return Shuffle(random.bits(key, (ROUNDS,), jnp.uint32), jnp.int32(0))

    def ask(self, points: Points, state: Shuffle) -> tuple[Array, Shuffle]:
        """The next ``batch`` ranks of the order."""
        places = state.done + jnp.arange(self.batch, dtype=jnp.int32)
        ranks = shuffled(state.keys, jnp.minimum(places, points.count - 1), points.count)
        ranks = jnp.where(places < points.count, ranks, jnp.int32(NONE))
        return ranks, state._replace(done=state.done + jnp.int32(self.batch))

    def tell(self, points: Points, state: Shuffle, ranks: Array, values: Array) -> Shuffle:
        """Nothing is learnt."""
        del points, ranks, values
        return state


def shuffled(keys: Array, places: Array, count: int) -> Array:
    """Where a permutation of 0 … ``count`` − 1, chosen by ``keys`` (uint32 ``[ROUNDS]``), takes ``places`` (int32 ``[N]``)."""
    half = max((count - 1).bit_length() + 1, 2) // 2
    once = partial(_enciphered, keys, half)

    def again(ranks: Array) -> Array:
        return jnp.where(ranks < count, ranks, once(ranks))

    found = jax.lax.while_loop(lambda ranks: jnp.any(ranks >= count), again, once(places.astype(jnp.uint32)))
    return found.astype(jnp.int32)


def _enciphered(keys: Array, half: int, numbers: Array) -> Array:
    """A Feistel network on numbers of twice ``half`` bits; its rounds mix as MurmurHash3 ends."""
    mask = np.uint32(2**half - 1)
    left, right = numbers >> np.uint32(half), numbers & mask
    for at in range(ROUNDS):
        mixed = (right ^ keys[at]) * np.uint32(0x85EBCA6B)
        mixed = (mixed ^ (mixed >> np.uint32(13))) * np.uint32(0xC2B2AE35)
        left, right = right, left ^ ((mixed ^ (mixed >> np.uint32(16))) & mask)
    return (left << np.uint32(half)) | right
