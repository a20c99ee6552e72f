"""Bayesian optimisation: a Gaussian process learns from the values so far, and the largest expected improvement is next."""

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, random
from scipy.special import log_ndtr

from tiling_search.points import NONE, Points, indices, values
from tiling_search.strategies.design import at_quantiles, spread_quantiles
from tiling_search.strategies.process import Told, expected_scales, fitted, predicted

WORST = 1.0
"""What a failure counts as, in logarithms above the worst value seen."""
ROUNDEST = 3
"""Powers of two beyond the least of an axis that still make a value rounder."""
FEW = 4
"""Values of an axis up to which it has no notion of round ones."""


class Learnt(NamedTuple):
    """What is known.

    Attributes:
      places, features: indices and features of every point, integers ``[A, P]`` and ``[P, D]``; they never change.
      start: ranks to try first.
      ranks, logs: what was told, in order, with the logarithms of its values; ``inf`` for a failure.
      waiting: ranks that were asked for and not told.
      scales: of the process, from the last fit.
      seed, turn: of what is drawn next.
    """

    places: np.ndarray
    features: np.ndarray
    start: np.ndarray
    ranks: np.ndarray
    logs: np.ndarray
    waiting: np.ndarray
    scales: np.ndarray
    seed: int
    turn: int


@dataclass(frozen=True)
class Bayesian:
    """Expected improvement under a Gaussian process on logarithms of values, for when a measurement is dear.

    Slow values count as hardly worse than the median, so that the process spends itself on where it is fast. It proposes from
    what differs from one of the best points along one axis or little along all, and from random points; in a space with no more
    than ``everything`` points, from all of them. Runs on the host, so that it cannot be part of a jitted search.

    Attributes:
      batch: points an ``ask`` proposes; each after the first as if those before had turned out as expected.
      scouts: points before the first process: the middle of the space, and a Latin hypercube.
      memory: points that the process is fitted to: half of them the best, half the latest.
      often: up to so many points the process is fitted anew each time, then every fourth.
      steps: of L-BFGS-B a fit.
      leaders: best points whose surroundings are looked at.
      random_candidates, near_candidates: points to choose from, at random and near each leader.
      everything: size of a space up to which all points are looked at.
    """

    batch: int = 1
    scouts: int = 4
    memory: int = 100
    often: int = 30
    steps: int = 12
    leaders: int = 4
    random_candidates: int = 512
    near_candidates: int = 200
    everything: int = 1024
    traceable: bool = False

    def init(self, points: Points, key: Array) -> Learnt:
        """Nothing known; the first points drawn.

        Raises:
          ValueError: fewer than one scout, or no room for what they find.
        """
        if not 1 <= self.scouts <= self.memory:
            raise ValueError(f"scouts={self.scouts} must be from 1 to memory={self.memory}")
        seed = int(random.randint(key, (), 0, 2**31 - 1, jnp.int32))
        every = jnp.arange(points.count, dtype=jnp.int32)
        places, features = np.asarray(indices(points, every)), features_of(np.asarray(values(points, every), np.float64))
        wanted = spread_quantiles(self.scouts, places.shape[1], np.random.default_rng(seed))
        start = np.array([at_quantiles(places, one) for one in wanted], np.int32)
        start = start[np.sort(np.unique(start, return_index=True)[1])]
        none = np.zeros(0, np.int32)
        columns = np.ascontiguousarray(places.T, np.int16 if max(points.shape) < 2**15 else np.int32)
        return Learnt(columns, features, start, none, np.zeros(0), none, expected_scales(features.shape[1]), seed, 0)

    def ask(self, points: Points, state: Learnt) -> tuple[Array, Learnt]:
        """The first points, then those with the largest expected improvement."""
        chosen = list(state.start[: self.batch])
        state = state._replace(start=state.start[self.batch :], turn=state.turn + 1)
        taken = np.zeros(points.count, bool)
        taken[state.ranks], taken[state.waiting], taken[state.start], taken[chosen] = True, True, True, True
        draw = np.random.default_rng((state.seed, state.turn))
        if len(chosen) < self.batch and (len(state.ranks) <= self.often or state.turn % 4 == 0):
            state = state._replace(scales=self._scales(state))
        while len(chosen) < self.batch and not taken.all():
            chosen.append(self._next(state, chosen, taken, draw))
            taken[chosen[-1]] = True
        ranks = np.full(self.batch, NONE, np.int32)
        ranks[: len(chosen)] = chosen
        return jnp.asarray(ranks), state._replace(waiting=np.append(state.waiting, np.asarray(chosen, np.int32)))

    def tell(self, points: Points, state: Learnt, ranks: Array, values: Array) -> Learnt:
        """Remember them."""
        del points
        told = np.asarray(ranks) >= 0
        new, seconds = np.asarray(ranks)[told], np.asarray(values, np.float64)[told]
        logs = np.log(np.maximum(seconds, np.finfo(np.float32).tiny))
        waiting = np.setdiff1d(state.waiting, new)
        return state._replace(ranks=np.append(state.ranks, new), logs=np.append(state.logs, logs), waiting=waiting)

    def _told(self, state: Learnt) -> tuple[np.ndarray, Told]:
        """Ranks that the process learns from, and what it learns: logarithms, cut off above the median and standardised."""
        logs = _without_failures(state.logs)
        kept = np.arange(len(logs))
        if len(logs) > self.memory:
            half = self.memory // 2
            kept = np.unique(np.concatenate([np.argsort(logs, kind="stable")[:half], kept[-half:]]))
        ranks, logs = state.ranks[kept], logs[kept]
        median, least = np.median(logs), logs.min()
        logs = np.minimum(logs, 2 * median - least + 1e-3)
        return ranks, Told(state.features[ranks], (logs - logs.mean()) / (logs.std() + 1e-9))

    def _scales(self, state: Learnt) -> np.ndarray:
        if not len(state.ranks):
            return state.scales
        fresh = expected_scales(state.features.shape[1])
        _, told = self._told(state)
        return fitted(told, [state.scales, fresh] if len(told.targets) < self.often else [state.scales], self.steps)

    def _next(self, state: Learnt, believed: list[int], taken: np.ndarray, draw: np.random.Generator) -> int:
        if not len(state.ranks):
            return int(draw.choice(np.flatnonzero(~taken)))
        _, told = self._told(state)
        best = told.targets.min()
        if believed:
            expected, _ = predicted(told, state.scales, state.features[believed])
            told = Told(np.concatenate([told.features, state.features[believed]]), np.append(told.targets, expected))
        pool = self._pool(state, taken, draw)
        mean, deviation = predicted(told, state.scales, state.features[pool])
        return int(pool[np.argmax(log_improvement((best - mean) / deviation) + np.log(deviation))])

    def _pool(self, state: Learnt, taken: np.ndarray, draw: np.random.Generator) -> np.ndarray:
        """Ranks to choose from."""
        free = np.flatnonzero(~taken)
        if len(taken) <= self.everything:
            return free
        found = [draw.choice(free, min(self.random_candidates, len(free)), replace=False)]
        for rank in state.ranks[np.argsort(state.logs, kind="stable")[: self.leaders]]:
            beside, near = (np.flatnonzero(these & ~taken) for these in _surroundings(state.places, rank))
            found.append(beside)
            found.append(near if len(near) <= self.near_candidates else draw.choice(near, self.near_candidates, replace=False))
        return np.unique(np.concatenate(found))


def _surroundings(places: np.ndarray, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """Which points differ from ``rank`` along one axis, and which by two steps or less along all, bool ``[P]``."""
    differ, near = np.zeros(places.shape[1], np.int8), np.ones(places.shape[1], bool)
    for axis in places:
        differ += axis != axis[rank]
        near &= (axis >= axis[rank] - 2) & (axis <= axis[rank] + 2)
    return differ == 1, near


def features_of(rows: np.ndarray) -> np.ndarray:
    """Values ``[P, A]`` as features from 0 to 1, ``[P, D]``: logarithms, and how round the values of long axes are.

    What is measured often has steps where a size is a multiple of a power of two, so that logarithms alone look rough.
    """
    columns = []
    for column in rows.T:
        columns.append(np.log2(1 + column - min(column.min(), 0.0)))
    for column in rows.T:
        if len(np.unique(column)) > FEW and np.all((column == np.round(column)) & (column > 0)):
            power = np.log2(np.gcd(column.astype(np.int64), 2**20))
            columns.append(np.minimum(power, power.min() + ROUNDEST))
    varying = [one for one in columns if np.ptp(one) > 0] or [np.zeros(len(rows))]
    return np.stack([(one - one.min()) / max(np.ptp(one), 1e-9) for one in varying], axis=1)


def log_improvement(ratio: np.ndarray) -> np.ndarray:
    """``log E[max(ratio + N(0, 1), 0)]``, which does not vanish where the improvement itself does."""
    log_density = -0.5 * ratio**2 - 0.5 * np.log(2 * np.pi)
    near = np.maximum(ratio, -5.0)
    plain = np.log(np.exp(-0.5 * near**2) / np.sqrt(2 * np.pi) + near * np.exp(log_ndtr(near)))
    return np.where(ratio > -5, plain, log_density - 2 * np.log(np.maximum(-ratio, 5.0)))


def _without_failures(logs: np.ndarray) -> np.ndarray:
    known = np.isfinite(logs)
    return np.where(known, logs, logs[known].max(initial=0.0) + WORST)
