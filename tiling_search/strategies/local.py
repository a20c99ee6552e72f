"""Local search with restarts: walkers that take the first better neighbour, and start again where they find none."""

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, random

from tiling_search.points import Points
from tiling_search.strategies.moves import moved_each
from tiling_search.strategies.protocol import History, admit, begin, first_fresh, next_key, random_fresh


class Walkers(NamedTuple):
    """Where each of ``batch`` walkers is.

    Attributes:
      history: what was asked for.
      at, value: rank and value of each walker; ``inf`` before its first, and after it gave up.
      idle: evaluations since each walker last found a better point.
      scouts: random points still to try before the walkers set out.
    """

    history: History
    at: Array
    value: Array
    idle: Array
    scouts: Array


@dataclass(frozen=True)
class LocalSearch:
    """First-improvement descent over random ordinal moves, from the best of a few random points.

    Attributes:
      batch: walkers, each of which asks for one point a batch.
      scouts: random points before the walkers set out, all from the best of them.
      patience: evaluations without a better point after which a walker starts again from a random one.
      tries: moves drawn to find one to a point not asked for.
      scale: mean step as a share of an axis.
    """

    batch: int = 4
    scouts: int = 16
    patience: int = 24
    tries: int = 8
    scale: float = 0.06
    traceable: bool = True

    def init(self, points: Points, key: Array) -> Walkers:
        """All walkers nowhere."""
        nowhere = jnp.zeros(self.batch, jnp.int32)
        return Walkers(begin(points, key), nowhere, jnp.full(self.batch, jnp.inf, jnp.float32), nowhere, jnp.int32(self.scouts))

    def ask(self, points: Points, state: Walkers) -> tuple[Array, Walkers]:
        """For each walker a random point, or a neighbour of where it is."""
        key, history = next_key(state.history)
        near_key, far_key = random.split(key)
        near = first_fresh(history, moved_each(points, near_key, state.at, self.tries, self.scale))
        lost = ~jnp.isfinite(state.value) | (state.scouts > 0) | (near < 0)
        ranks, history = admit(history, jnp.where(lost, random_fresh(history, far_key, self.batch), near))
        return ranks, state._replace(history=history)

    def tell(self, points: Points, state: Walkers, ranks: Array, values: Array) -> Walkers:
        """Walkers go where it is better; those without patience start again."""
        del points
        better = (ranks >= 0) & (values < state.value)
        level = (ranks >= 0) & (values <= state.value)  # slots that change nothing make plateaus: walk on along them
        at, value = jnp.where(level, ranks, state.at), jnp.where(level, values, state.value)
        scouts = jnp.maximum(state.scouts - self.batch, 0)
        best = jnp.argmin(value)
        gather = (state.scouts > 0) & (scouts == 0)
        at, value = jnp.where(gather, at[best], at), jnp.where(gather, value[best], value)
        idle = jnp.where(better | (scouts > 0), jnp.int32(0), state.idle + 1)
        tired = idle > self.patience
        value = jnp.where(tired, jnp.float32(jnp.inf), value)
        return Walkers(state.history, at, value, jnp.where(tired, jnp.int32(0), idle), scouts)
