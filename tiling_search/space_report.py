"""What a space holds: its size, what of it fits, what was rejected by which memory, and by how much."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.kernels.kernel import Kernel
from ascend_jax.occupancy import occupancy
from ascend_jax.tiling.tiling import Tiling
from ascend_jax.verdict import OVERFLOWS, REMEDIES, Verdict
from ascend_jax.workload.problem import Problem
from tiling_search.exhaustive import chunks
from tiling_search.feasible import Feasible
from tiling_search.space import BLOCK_FIELDS, DEPTH_FIELDS, L0_DEPTH


@dataclass(frozen=True)
class Rejected:
    """The candidates of one verdict.

    Attributes:
      verdict: its name.
      count: how many candidates have it.
      unlisted: how many of these were not looked at one by one, since a smaller one overflows UB already.
      least_over, median_over: bytes asked over bytes available, less 1, of the nearest miss and in the middle of those looked
        at; None for a verdict that is not about memory.
      nearest: the candidate of ``least_over``.
      remedy: what a person may change.
    """

    verdict: str
    count: int
    unlisted: int
    least_over: float | None
    median_over: float | None
    nearest: dict[str, int] | None
    remedy: str


@dataclass(frozen=True)
class SpaceReport:
    """A space in numbers: all candidates, the feasible ones and their share, the axes, and the rejected by verdict."""

    size: int
    feasible: int
    share: float
    axes: dict[str, tuple[float, ...]]
    rejected: tuple[Rejected, ...]


def space_report(found: Feasible) -> SpaceReport:
    """The report of the space that ``found`` was made from.

    >>> from ascend_jax import load_chip, load_preset
    >>> from tiling_search.feasible import feasible_points
    >>> report = space_report(feasible_points(load_chip("310P3"), load_preset("gpt2-prefill-1k")))
    >>> report.size == report.feasible + sum(one.count for one in report.rejected)
    True
    """
    over = np.concatenate(list(_overshoots(found)))
    outside = found.space.size - found.verdicts.size
    fits = int(np.count_nonzero(found.verdicts == Verdict.FITS))
    codes = [Verdict(int(code)) for code in np.unique(found.verdicts) if code != Verdict.FITS]
    if outside and Verdict.UB_OVERFLOW not in codes:
        codes.append(Verdict.UB_OVERFLOW)
    axes = {name: tuple(map(float, axis)) for name, axis in zip(found.points.names, found.points.axes, strict=True)}
    rejected = tuple(_rejected(found, code, over, outside) for code in sorted(codes))
    return SpaceReport(found.space.size, fits, fits / found.space.size, axes, rejected)


def _rejected(found: Feasible, code: Verdict, over: np.ndarray, outside: int) -> Rejected:
    alike = found.verdicts == code
    unlisted = outside if code is Verdict.UB_OVERFLOW else 0
    count = int(np.count_nonzero(alike)) + unlisted
    if code.memory is None or count == unlisted:
        return Rejected(code.name, count, unlisted, None, None, None, REMEDIES[code])
    place = int(np.argmin(np.where(alike, over, np.inf)))
    row, column = divmod(place, over.shape[1])
    names = (*BLOCK_FIELDS, *DEPTH_FIELDS)
    nearest = {name: int(value) for name, value in zip(names, (*found.blocks[row], *found.space.depths[column]), strict=True)}
    amounts = float(over[row, column]), float(np.median(over[alike]))
    return Rejected(code.name, count, unlisted, *amounts, nearest, REMEDIES[code])


def _overshoots(found: Feasible) -> Iterator[np.ndarray]:
    """Per chunk of blocks, bytes asked over bytes available less 1 of the first memory that overflows, float32 ``[N, F]``."""
    depths = tuple(np.ascontiguousarray(column, np.float32) for column in found.space.depths.T)
    spec, given = (jax.tree.map(np.float32, tree) for tree in (found.evaluator.spec, found.evaluator.given))
    for chunk in chunks(found.blocks):
        columns = tuple(np.ascontiguousarray(column, np.float32) for column in chunk.T)
        yield np.asarray(_overshoot_grid(spec, given, columns, depths, found.kernel))


@partial(jax.jit, static_argnums=(4,))
def _overshoot_grid(spec: NpuSpec, given: Problem, blocks: Any, depths: Any, kernel: Kernel) -> Array:
    def one(block: Any, depth: Any) -> Array:
        fields = dict(zip(BLOCK_FIELDS, block, strict=True)) | dict(zip(DEPTH_FIELDS, depth, strict=True))
        tiling = Tiling(l0_depth=jnp.full_like(block[0], L0_DEPTH), **fields)
        held = occupancy(spec, given.work, given.lengths, tiling, kernel)
        over = jnp.zeros_like(block[0])
        for memory in reversed(OVERFLOWS):
            ratio = held.used_bytes[memory] / held.capacity_bytes[memory]
            over = jnp.where(ratio > 1, ratio - 1, over)
        return over

    return jax.vmap(jax.vmap(one, in_axes=(None, 0)), in_axes=(0, None))(blocks, depths)
