"""What a strategy is: parameters and state apart, ``init``/``ask``/``tell``, batches of one size, jax keys.

A strategy sees ranks of feasible points and their values, nothing of the chip. It never asks for the same rank twice; where it
has fewer than ``batch`` to propose, the rest of the batch is −1.
"""

from typing import Any, NamedTuple, Protocol

import jax.numpy as jnp
from jax import Array, random

from tiling_search.points import NONE, Points

State = Any
NEVER = 2**31 - 1
PROBES = 16
"""Ranks after a random one that are tried for one that was not asked for before."""


class Strategy(Protocol):
    """Frozen parameters; hashable, so that jit takes a strategy as a static argument."""

    @property
    def batch(self) -> int:
        """Ranks an ``ask`` returns."""
        ...

    @property
    def traceable(self) -> bool:
        """Whether ``ask`` and ``tell`` may run inside jit; one that calls a library of the host may not."""
        ...

    def init(self, points: Points, key: Array) -> State:
        """The state before the first ``ask``: a pytree."""
        ...

    def ask(self, points: Points, state: State) -> tuple[Array, State]:
        """Ranks to evaluate next, int32 ``[batch]``, −1 where there is none."""
        ...

    def tell(self, points: Points, state: State, ranks: Array, values: Array) -> State:
        """Take the values (float32 ``[batch]``, less is better, ``inf`` for a failure) of what was asked; −1 says nothing."""
        ...


class History(NamedTuple):
    """What most strategies remember.

    Attributes:
      key: for what is drawn next.
      turn: ranks proposed so far, int32.
      place: when each rank was asked for, int32 ``[P]``; ``NEVER`` for those that were not.
    """

    key: Array
    turn: Array
    place: Array


def begin(points: Points, key: Array) -> History:
    """Nothing asked for yet."""
    return History(key, jnp.int32(0), jnp.full(points.count, NEVER, jnp.int32))


def next_key(history: History) -> tuple[Array, History]:
    """A key to use now, and the history with another."""
    key, now = random.split(history.key)
    return now, history._replace(key=key)


def admit(history: History, ranks: Array) -> tuple[Array, History]:
    """``ranks`` with −1 for those asked for before or twice in the batch; the others are asked for from now on."""
    now = history.turn + jnp.arange(ranks.shape[0], dtype=jnp.int32)
    target = jnp.where(ranks < 0, history.place.shape[0], ranks)
    place = history.place.at[target].min(now, mode="drop")
    fresh = jnp.where((ranks >= 0) & (place[jnp.maximum(ranks, 0)] == now), ranks, jnp.int32(NONE))
    return fresh, History(history.key, history.turn + jnp.int32(ranks.shape[0]), place)


def random_fresh(history: History, key: Array, count: int) -> Array:
    """``count`` ranks not asked for before, by probing on from uniform ones; −1 where the probes find none. They may repeat."""
    size = history.place.shape[0]
    start = random.randint(key, (count,), 0, size, jnp.int32)
    tried = (start[:, None] + jnp.arange(PROBES, dtype=jnp.int32)[None, :]) % size
    return first_fresh(history, tried)


def first_fresh(history: History, ranks: Array) -> Array:
    """Of each row of ``ranks`` (``[N, K]``) the first that is a point not asked for before, −1 where there is none."""
    usable = (ranks >= 0) & (history.place[jnp.maximum(ranks, 0)] == NEVER)
    first = jnp.argmax(usable, axis=1)
    chosen = jnp.take_along_axis(ranks, first[:, None], axis=1)[:, 0]
    return jnp.where(usable.any(axis=1), chosen, jnp.int32(NONE))
