"""The gradient strategy under ask and tell, and gradient search of a chip's own model with its relaxation gap."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.tree_util import register_dataclass

from ascend_jax.cost.evaluate import model
from ascend_jax.cost.overlap import Overlap
from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.kernels.kernel import Kernel
from ascend_jax.rounding import STRAIGHT_THROUGH
from ascend_jax.tiling.tiling import Tiling
from ascend_jax.workload.problem import Problem
from tiling_search.feasible import Feasible
from tiling_search.points import NONE, Points, neighbours
from tiling_search.space import L0_DEPTH
from tiling_search.strategies.local import LocalSearch, Walkers
from tiling_search.strategies.protocol import admit
from tiling_search.strategies.relaxed import Branches, GradientParameters, Relaxed, best_first, branches, descend


class Descended(NamedTuple):
    """Starts still to be tried, best relaxed value first (int32, −1 after the last), and the walkers that polish them."""

    queue: Array
    walkers: Walkers


@dataclass(frozen=True)
class Gradient:
    """Descend a differentiable stand-in of the objective, then polish the best ends by values told.

    Attributes:
      relaxed: the stand-in, of values of all axes.
      how: the descent.
      tried: ends that are evaluated before the walkers set out from the best of them.
      walk: the local search that polishes.
    """

    relaxed: Relaxed
    how: GradientParameters = field(default_factory=GradientParameters)
    tried: int = 16
    walk: LocalSearch = field(default_factory=LocalSearch)
    traceable: bool = False
    """The branches are read off the points outside jit."""

    @property
    def batch(self) -> int:
        """That of the walkers."""
        return self.walk.batch

    def init(self, points: Points, key: Array) -> Descended:
        """All the descent happens here, without one evaluation of the objective."""
        down, walk = jax.random.split(key)
        ends = best_first(descend(points, branches(points, self.how.axes), self.how, self.relaxed, down))[: self.tried]
        queue = np.full(-(-len(ends) // self.batch) * self.batch, NONE, np.int32)
        queue[: len(ends)] = ends
        return Descended(jnp.asarray(queue), self.walk.init(points, walk)._replace(scouts=jnp.int32(len(queue))))

    def ask(self, points: Points, state: Descended) -> tuple[Array, Descended]:
        """The ends of the descent, then neighbours of the best."""
        if not len(state.queue):
            ranks, walkers = _ask(self.walk, points, state.walkers)
            return ranks, Descended(state.queue, walkers)
        ranks, history = admit(state.walkers.history, state.queue[: self.batch])
        return ranks, Descended(state.queue[self.batch :], state.walkers._replace(history=history))

    def tell(self, points: Points, state: Descended, ranks: Array, values: Array) -> Descended:
        """As the walkers do."""
        return state._replace(walkers=_tell(self.walk, points, state.walkers, ranks, values))


_ask = jax.jit(LocalSearch.ask, static_argnums=0)
_tell = jax.jit(LocalSearch.tell, static_argnums=0)


@dataclass(frozen=True)
class GradientResult:
    """What a gradient search of the model found.

    Attributes:
      rank, seconds: the best point after polish, and its exact time.
      relaxed_seconds, snapped_seconds: of the end that led there, before and after it was snapped to the lattice.
      starts, distinct: descents, and how many different points they ended at.
      polished: exact evaluations that the polish took.
    """

    rank: int
    seconds: float
    relaxed_seconds: float
    snapped_seconds: float
    starts: int
    distinct: int
    polished: int

    @property
    def gap(self) -> float:
        """The relaxation gap: how much slower the snapped point is than the relaxed model promised, as a share."""
        return self.snapped_seconds / self.relaxed_seconds - 1


@register_dataclass
@dataclass(frozen=True)
class RelaxedSeconds:
    """The model's seconds of any values of the axes, rounded sizes passed straight through; a pytree, so that chips share
    a compilation.

    At lattice points it equals the exact model; between them it keeps the model's ``ceil``, with the gradient of what is
    inside, since a model without it has its optimum elsewhere.
    """

    spec: NpuSpec
    given: Problem
    names: tuple[str, ...] = field(metadata={"static": True})
    kernel: Kernel = field(metadata={"static": True})
    overlap: Overlap = field(metadata={"static": True})

    def __call__(self, point: Array) -> Array:
        """Seconds of the values ``point`` ``[A]`` of ``names``."""
        tiling = Tiling(l0_depth=jnp.full_like(point[0], L0_DEPTH), **dict(zip(self.names, point, strict=True)))
        return model(self.spec, self.given, tiling, self.kernel, self.overlap, STRAIGHT_THROUGH).seconds


def relaxed_seconds(found: Feasible, dtype: Any = jnp.float32) -> RelaxedSeconds:
    """The differentiable stand-in for the times of ``found``, computed in ``dtype``."""
    spec, given = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), (found.evaluator.spec, found.evaluator.given))
    return RelaxedSeconds(spec, given, found.points.names, found.kernel, found.overlap)


def gradient_search(found: Feasible, key: Array, how: GradientParameters | None = None, tried: int = 8) -> GradientResult:
    """Descend, snap, polish the ``tried`` best ends to the bottom of their exact neighbourhoods, and return the best.

    Args:
      found: the feasible points and the exact times of the polish.
      key: a jax key.
      how: the descent.
      tried: ends that are polished.
    """
    how = how or GradientParameters()
    given: Branches = branches(found.points, how.axes)
    ends = descend(found.points, given, how, relaxed_seconds(found), key)
    values = np.asarray(ends.values)
    ranks = best_first(ends)
    best: tuple[float, int, int] = (np.inf, NONE, NONE)
    polished = 0
    for start in ranks[:tried]:
        rank, looked = polish(found, int(start))
        polished += looked
        best = min(best, (float(found.seconds[rank]), rank, int(start)))
    seconds, rank, start = best
    promised = float(values[np.asarray(ends.ranks) == start].min())
    return GradientResult(rank, seconds, promised, float(found.seconds[start]), how.starts, len(ranks), polished)


def polish(found: Feasible, rank: int, reach: int = 2) -> tuple[int, int]:
    """Steepest descent over points up to ``reach`` steps off on one axis, or one on two: where it ends, and the points seen."""
    seen = {rank}
    while True:
        around = np.unique(np.asarray(_around(found.points, jnp.int32(rank), reach)))
        around = around[around >= 0]
        seen.update(around.tolist())
        next_rank = int(around[np.argmin(found.seconds[around])])
        if found.seconds[next_rank] >= found.seconds[rank]:
            return rank, len(seen)
        rank = next_rank


def _around_plain(points: Points, rank: Array, reach: int) -> Array:
    near = neighbours(points, rank, reach)
    diagonal = jax.vmap(lambda one: neighbours(points, one))(neighbours(points, rank))
    known = jnp.where(neighbours(points, rank)[:, None] >= 0, diagonal, jnp.int32(NONE))
    return jnp.concatenate([rank[None], near, known.ravel()])


_around = jax.jit(_around_plain, static_argnums=2)
