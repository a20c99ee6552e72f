"""``search``: one loop for every strategy and every objective; what was asked, in order, and the best."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from tiling_search.points import NONE, Points
from tiling_search.strategies.protocol import Strategy

Objective = Callable[[Any], Any]
"""Values (less is better, ``inf`` or NaN for a failure) of ranks ``[N]``; asked about −1 it may say anything."""
IDLE_ROUNDS = 64
"""Batches without a single new point after which a search ends: the strategy knows of no more."""


@dataclass(frozen=True)
class Trace:
    """What a search asked for.

    Attributes:
      ranks: int32 ``[N]`` in the order of asking, each once.
      values: float32 ``[N]``; ``inf`` for a failure.
    """

    ranks: np.ndarray
    values: np.ndarray

    @property
    def best_value(self) -> float:
        """The least value; ``inf`` where everything failed."""
        return float(self.values.min(initial=np.inf))

    @property
    def best_rank(self) -> int:
        """The rank of the least value, of equals the first asked for; −1 where everything failed."""
        return int(self.ranks[np.argmin(self.values)]) if np.isfinite(self.best_value) else NONE

    @property
    def best_so_far(self) -> np.ndarray:
        """The least value after each evaluation, ``[N]``."""
        return np.minimum.accumulate(self.values)


def search(strategy: Strategy, points: Points, objective: Objective, key: Array, evaluations: int) -> Trace:
    """Ask, evaluate, tell, until ``evaluations`` points have a value or the strategy has no more to propose.

    Same strategy, points, values and key: same trace, bit for bit, in any process.

    Args:
      strategy: its parameters.
      points: what may be asked for.
      objective: takes numpy ranks and returns an array of values. It is called once a batch.
      key: a jax key.
      evaluations: most points to evaluate, each once.

    Raises:
      ValueError: ``evaluations`` below 1.
    """
    if evaluations < 1:
        raise ValueError(f"evaluations={evaluations} must be at least 1")
    ask, tell = (_ask, _tell) if strategy.traceable else (_ask_on_host, _tell_on_host)
    state = _init(strategy, points, key) if strategy.traceable else strategy.init(points, key)
    asked: list[np.ndarray] = []
    told: list[np.ndarray] = []
    done = idle = 0
    while done < evaluations and idle < IDLE_ROUNDS:
        ranks, state = ask(strategy, points, state)
        ranks = _within_budget(np.asarray(ranks), evaluations - done)
        new = ranks >= 0
        values = np.full(len(ranks), np.inf, np.float32)
        if new.any():
            values[new] = np.asarray(objective(ranks[new]), np.float32)
        values[np.isnan(values)] = np.inf
        state = tell(strategy, points, state, jnp.asarray(ranks), jnp.asarray(values))
        asked.append(ranks[new])
        told.append(values[new])
        done += int(new.sum())
        idle = 0 if new.any() else idle + 1
    return Trace(np.concatenate(asked), np.concatenate(told))


def _within_budget(ranks: np.ndarray, left: int) -> np.ndarray:
    """The first ``left`` points of a batch; −1 for the others."""
    return np.where(np.cumsum(ranks >= 0) <= left, ranks, np.int32(NONE)).astype(np.int32)


def search_table(strategy: Strategy, points: Points, table: Array, keys: Array, evaluations: int) -> tuple[Array, Array]:
    """:func:`search` with values from ``table`` (float32 ``[P]``) for many keys ``[S]`` at once, compiled as one program.

    Returns:
      Ranks and values, ``[S, evaluations]``; −1 and ``inf`` after a search that ended before.
    """
    if not strategy.traceable:
        found = [search(strategy, points, lambda ranks: np.asarray(table)[ranks], key, evaluations) for key in keys]
        short = [evaluations - len(one.ranks) for one in found]
        ranks = [np.pad(one.ranks, (0, left), constant_values=NONE) for one, left in zip(found, short, strict=True)]
        told = [np.pad(one.values, (0, left), constant_values=np.inf) for one, left in zip(found, short, strict=True)]
        return jnp.asarray(np.stack(ranks)), jnp.asarray(np.stack(told))
    return _search_keys(strategy, points, table, keys, evaluations)


@partial(jax.jit, static_argnums=(0, 4))
def _search_keys(strategy: Strategy, points: Points, table: Array, keys: Array, evaluations: int) -> tuple[Array, Array]:
    """The loop of :func:`search` inside jit, with the same arithmetic, until the last of the searches is over.

    A search that is over goes on with nothing to evaluate. Were the loop itself mapped over the keys, every step would copy
    every state, to keep those that are over as they were.
    """

    def unfinished(carry: Any) -> Array:
        _, _, _, done, idle = carry
        return jnp.any((done < evaluations) & (idle < IDLE_ROUNDS))

    def once(carry: Any) -> Any:
        state, asked, told, done, idle = carry
        ranks, state = strategy.ask(points, state)
        place = done + jnp.cumsum((ranks >= 0).astype(jnp.int32)) - 1
        ranks = jnp.where((place < evaluations) & (idle < IDLE_ROUNDS), ranks, jnp.int32(NONE))
        new = ranks >= 0
        values = jnp.where(new, table[jnp.maximum(ranks, 0)], jnp.float32(jnp.inf))
        state = strategy.tell(points, state, ranks, values)
        place = jnp.where(new, place, evaluations)
        asked, told = asked.at[place].set(ranks, mode="drop"), told.at[place].set(values, mode="drop")
        return state, asked, told, done + new.sum(dtype=jnp.int32), jnp.where(new.any(), jnp.int32(0), idle + 1)

    searches = keys.shape[0]
    asked, told = jnp.full((searches, evaluations), NONE, jnp.int32), jnp.full((searches, evaluations), jnp.inf, jnp.float32)
    nothing = jnp.zeros(searches, jnp.int32)
    start = jax.vmap(lambda key: strategy.init(points, key))(keys), asked, told, nothing, nothing
    _, asked, told, _, _ = jax.lax.while_loop(unfinished, jax.vmap(once), start)
    return asked, told


def _init_plain(strategy: Strategy, points: Points, key: Array) -> Any:
    return strategy.init(points, key)


def _ask_on_host(strategy: Strategy, points: Points, state: Any) -> tuple[Array, Any]:
    return strategy.ask(points, state)


def _tell_on_host(strategy: Strategy, points: Points, state: Any, ranks: Array, values: Array) -> Any:
    return strategy.tell(points, state, ranks, values)


_init = jax.jit(_init_plain, static_argnums=0)
_ask = jax.jit(_ask_on_host, static_argnums=0, donate_argnums=2)
_tell = jax.jit(_tell_on_host, static_argnums=0, donate_argnums=2)
