"""Our strategies on a space of the race: scores, and how many proposals a CPU-second."""

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.tuner_race.rivals import Run
from experiments.tuner_race.spaces import Space
from tiling_search.strategies import search, search_table, strategy

JITTED = ("random", "evolution", "local")
"""Strategies that run for all seeds at once."""
LARGE = 256
"""Searches at once when their speed is measured."""


def bayesian(space: Space, seed: int, evaluations: int) -> Run:
    """One search of ``bayesian`` with its defaults."""
    before = time.process_time()
    found = search(strategy("bayesian"), space.points, lambda ranks: space.table[ranks], jax.random.key(seed), evaluations)
    return Run(found.ranks.tolist(), time.process_time() - before)


def jitted(space: Space, name: str, seeds: int, evaluations: int, batch: int) -> list[Run]:
    """``seeds`` searches of one of ``JITTED`` in one program; ``batch`` 1 measures one by one, as the rivals do."""
    keys = jax.random.split(jax.random.key(0), seeds)
    made: Any = strategy(name, batch=batch)
    ranks, _ = search_table(made, space.points, jnp.asarray(space.table), keys, evaluations)
    return [Run([rank for rank in row if rank >= 0], 0.0) for row in np.asarray(ranks).tolist()]


def rates(space: Space, evaluations: int) -> dict[str, dict[str, float]]:
    """Proposals a CPU-second of each of ``JITTED`` with its defaults: many searches at once, and one, once compiled."""
    table, found = jnp.asarray(space.table), {}
    for name in JITTED:
        made, keys = strategy(name), jax.random.split(jax.random.key(1), LARGE)

        def together(made: Any = made, keys: Any = keys) -> Any:
            return jax.block_until_ready(search_table(made, space.points, table, keys, evaluations))

        def alone(made: Any = made, keys: Any = keys) -> Any:
            return search(made, space.points, lambda ranks: space.table[ranks], keys[0], evaluations)

        found[name] = {"together": LARGE * evaluations / _cpu_s(together), "alone": evaluations / _cpu_s(alone)}
    return found


def _cpu_s(call: Any) -> float:
    """CPU seconds of a call, the first of which compiles and does not count: the least of three."""
    call()
    taken = []
    for _ in range(3):
        before = time.process_time()
        call()
        taken.append(time.process_time() - before)
    return min(taken)
