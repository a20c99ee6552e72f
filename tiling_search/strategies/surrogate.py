"""Model-guided search: a forest learns from the values so far, and the point with the most expected improvement is next."""

from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, random

from tiling_search.points import Points, values
from tiling_search.strategies.moves import moved_each
from tiling_search.strategies.protocol import NEVER, History, admit, begin, next_key, random_fresh

LEADERS = 8
"""Best points whose surroundings are looked at besides random points."""
WORST = 1.0
"""What a failure counts as, in logarithms above the worst value seen: forests take no infinities."""


class Known(NamedTuple):
    """What the forest learns from: ranks and values in the order of asking, and a seed of its own."""

    history: History
    ranks: np.ndarray
    values: np.ndarray
    seed: int


@dataclass(frozen=True)
class Guided:
    """Expected improvement over extremely randomised trees (scikit-learn), on logarithms of values.

    Needs ``pip install "ascend-jax[surrogate]"``. Runs on the host, so that it cannot be part of a jitted search.

    Attributes:
      batch: points a forest proposes, the best of them first.
      scouts: random points before the first forest.
      trees: in the forest.
      random_candidates: points drawn at random to choose from; in a space with fewer, all of them.
      near_candidates: moves from each of the best points to choose from.
    """

    batch: int = 2
    scouts: int = 12
    trees: int = 40
    random_candidates: int = 2048
    near_candidates: int = 64
    traceable: bool = False

    def init(self, points: Points, key: Array) -> Known:
        """Nothing known.

        Raises:
          ImportError: scikit-learn is missing.
        """
        if find_spec("sklearn") is None:
            raise ImportError('scikit-learn is not installed: pip install "ascend-jax[surrogate]"')
        own, seed_key = random.split(key)
        seed = int(random.randint(seed_key, (), 0, NEVER, jnp.int32))
        return Known(begin(points, own), np.zeros(0, np.int32), np.zeros(0, np.float32), seed)

    def ask(self, points: Points, state: Known) -> tuple[Array, Known]:
        """Random points first, then those with the most expected improvement."""
        key, history = next_key(state.history)
        if len(state.ranks) < self.scouts:
            ranks, history = _admit(history, random_fresh(history, key, self.batch))
            return ranks, state._replace(history=history)
        leaders = jnp.asarray(state.ranks[np.argsort(state.values, kind="stable")[np.arange(LEADERS) % len(state.ranks)]])
        pool = np.unique(np.asarray(_candidates(self, points, history, key, leaders)))
        pool = pool[pool >= 0]
        pool = pool[np.asarray(history.place)[pool] == NEVER]
        if len(pool):
            gain = self._expected_improvement(points, state, pool)
            pool = pool[np.argsort(-gain, kind="stable")]
        chosen = np.full(self.batch, -1, np.int32)
        chosen[: len(pool)] = pool[: self.batch]
        ranks, history = _admit(history, jnp.asarray(chosen))
        return ranks, state._replace(history=history, seed=(state.seed + 1) % NEVER)

    def _expected_improvement(self, points: Points, state: Known, pool: np.ndarray) -> np.ndarray:
        """Of each rank of ``pool``: the mean over the trees of how far they put it below the best, plus a share of spread."""
        known = np.isfinite(state.values)
        logs = np.log(np.maximum(state.values, np.finfo(np.float32).tiny), where=known, out=np.zeros(len(known)))
        logs[~known] = logs[known].max(initial=0.0) + WORST
        ensemble: Any = import_module("sklearn.ensemble")  # an optional extra, and slow to import
        forest = ensemble.ExtraTreesRegressor(self.trees, random_state=state.seed, min_samples_leaf=1, bootstrap=False)
        forest.fit(_features(points, state.ranks), logs)
        asked = _features(points, pool).astype(np.float32)
        each = np.stack([tree.predict(asked) for tree in forest.estimators_])
        mean, spread = each.mean(axis=0), each.std(axis=0) + 1e-9
        return _normal_improvement(logs.min() - mean, spread)

    def tell(self, points: Points, state: Known, ranks: Array, values: Array) -> Known:
        """Remember them."""
        del points
        new = np.asarray(ranks) >= 0
        told = np.asarray(values)[new].astype(np.float32)
        return state._replace(ranks=np.append(state.ranks, np.asarray(ranks)[new]), values=np.append(state.values, told))


def _normal_improvement(gap: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """``E[max(gap + spread · N(0, 1), 0)]``."""
    ratio = gap / spread
    density = np.exp(-0.5 * ratio**2) / np.sqrt(2 * np.pi)
    below = 0.5 * (1 + np.asarray(jax.scipy.special.erf(ratio / np.sqrt(2)), np.float64))
    return gap * below + spread * density


def _features(points: Points, ranks: np.ndarray) -> Any:
    """Logarithms of the values on each axis, ``[N, A]``."""
    return np.log2(np.maximum(np.asarray(values(points, jnp.asarray(ranks)), np.float64), 0.5))


@jax.jit
def _admit(history: History, ranks: Array) -> tuple[Array, History]:
    return admit(history, ranks)


def _candidates(strategy: Guided, points: Points, history: History, key: Array, leaders: Array) -> Array:
    """Ranks to choose from; −1 and repetitions among them."""
    far_key, near_key = random.split(key)
    if points.count <= strategy.random_candidates:
        return jnp.arange(points.count, dtype=jnp.int32)
    far = random.randint(far_key, (strategy.random_candidates,), 0, points.count, jnp.int32)
    return jnp.concatenate([far, moved_each(points, near_key, leaders, strategy.near_candidates, 0.06).ravel()])
