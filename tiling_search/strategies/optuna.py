"""An Optuna sampler as a strategy of ours: the sampler suggests an index on each axis, within what can still be feasible."""

from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, random

from tiling_search.points import NONE, Points, indices


class Studied(NamedTuple):
    """A study in memory, the indices of all points, what is known of each, and the trials that wait for a value."""

    study: Any
    places: np.ndarray
    values: dict[int, float]
    waiting: dict[int, Any]
    draws: np.random.Generator


@dataclass(frozen=True)
class OptunaSampler:
    """A sampler of Optuna under ask and tell, seeded by the key. Needs ``pip install "ascend-jax[optuna]"``.

    Attributes:
      sampler: the name of a class of ``optuna.samplers`` that takes a seed.
      options: further keywords for it, as pairs.
      repeats: suggestions of known points after which an ``ask`` proposes a random one instead.
    """

    sampler: str = "TPESampler"
    options: tuple[tuple[str, Any], ...] = ()
    repeats: int = 100
    batch: int = 1
    traceable: bool = field(default=False, init=False)

    def init(self, points: Points, key: Array) -> Studied:
        """A new study.

        Raises:
          ImportError: Optuna is missing.
        """
        if find_spec("optuna") is None:
            raise ImportError('Optuna is not installed: pip install "ascend-jax[optuna]"')
        optuna: Any = import_module("optuna")
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        seed = int(random.randint(key, (), 0, 2**31 - 1, jnp.int32))
        sampler = getattr(optuna.samplers, self.sampler)(seed=seed, **dict(self.options))
        places = np.asarray(indices(points, jnp.arange(points.count, dtype=jnp.int32)))
        return Studied(optuna.create_study(sampler=sampler), places, {}, {}, np.random.default_rng(seed))

    def ask(self, points: Points, state: Studied) -> tuple[Array, Studied]:
        """``batch`` points that were not asked for; a suggestion of a known one is answered at once."""
        ranks = np.full(self.batch, NONE, np.int32)
        for slot in range(self.batch):
            ranks[slot] = _next_point(self, points, state)
        return jnp.asarray(ranks), state

    def tell(self, points: Points, state: Studied, ranks: Array, values: Array) -> Studied:
        """Values to the trials that asked; a failure is a failed trial."""
        del points
        for rank, value in zip(np.asarray(ranks).tolist(), np.asarray(values).tolist(), strict=True):
            if rank >= 0:
                state.values[rank] = value
                _answer(state.study, state.waiting.pop(rank, None), value)
        return state


def _next_point(sampler: OptunaSampler, points: Points, state: Studied) -> int:
    if len(state.values) + len(state.waiting) >= points.count:
        return NONE
    for _ in range(sampler.repeats):
        trial = state.study.ask()
        rank = _suggested(points, state.places, trial)
        if rank in state.values:
            _answer(state.study, trial, state.values[rank])
        elif rank in state.waiting:
            _answer(state.study, trial, np.inf)
        else:
            state.waiting[rank] = trial
            return rank
    fresh = np.setdiff1d(np.arange(points.count), [*state.values, *state.waiting])
    rank = int(state.draws.choice(fresh))
    state.waiting[rank] = None
    return rank


def _suggested(points: Points, places: np.ndarray, trial: Any) -> int:
    """The point of the indices that ``trial`` suggests, axis by axis among the points that agree with the axes before.

    What is suggested within the range but matches no point becomes the nearest index that does.
    """
    within = np.arange(len(places))
    for axis, name in enumerate(points.names):
        column = places[within, axis]
        low, high = int(column.min()), int(column.max())
        asked = trial.suggest_int(name, low, high) if high > low else low
        nearest = column[np.argmin(np.abs(column - asked))]
        within = within[column == nearest]
    return int(within[0])


def _answer(study: Any, trial: Any, value: float) -> None:
    if trial is None:
        return
    if np.isfinite(value):
        study.tell(trial, value)
    else:
        study.tell(trial, state=import_module("optuna").trial.TrialState.FAIL)
