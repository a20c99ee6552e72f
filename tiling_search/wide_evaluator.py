"""Times and verdicts of the blocks of a wide space, and for each block a bound that none of its legal depths is faster than.

A wide space has so many depths that most blocks need no look at all of them. Two facts rule the others out:

- More slots never take fewer bytes. What overflows with the fewest does so with all, what fits with the most does so with all.
- More slots never make a kernel slower: they add tiles to the loops that set its pace (``ascend_jax.cost.loops``), which does
  not hold for ``preload``, nor for a schedule in groups, whose pace is run and not worked out.

So each choice of ``OUTER`` depths is asked twice, with the fewest and with the most slots of the others. The time with the
most, whether they fit or not, is a bound for all in between.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ascend_jax._compile import OFTEN, SELDOM
from ascend_jax._pytree import as_arrays
from ascend_jax.cost.finish import finish
from ascend_jax.cost.overlap import Overlap
from ascend_jax.cost.prepare import Prepared
from ascend_jax.cost.report import Report
from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.kernels.kernel import Kernel
from ascend_jax.rounding import EXACT
from ascend_jax.tiling.batch import batch
from ascend_jax.tiling.rules import STEP
from ascend_jax.tiling.tiling import Tiling
from ascend_jax.verdict import Verdict
from ascend_jax.workload.attention import Attention
from ascend_jax.workload.problem import Problem, problem
from tiling_search.exhaustive import (
    ALONE,
    MILLIONS,
    REPORTS,
    Columns,
    Scores,
    Share,
    columns_of,
    filled,
    in_float64,
    model_programs,
    prepare_blocks,
    report_tilings,
    reports_of,
    single,
    stand_ins,
    tiling_from,
)
from tiling_search.programs import Output
from tiling_search.space import DEPTH_FIELDS, WIDE_DEPTHS, WIDE_FIELDS, depth_rows

BLOCKS, SLAB = 1024, 32
"""Blocks and depths a call."""
OUTER = ("kv_depth", "preload")
"""The depths that are asked about one by one; of the others, the fewest and the most."""


class Probed(NamedTuple):
    """What two questions for each choice of ``OUTER`` depths say of blocks.

    Attributes:
      bound_s: no legal depths are faster; ``inf`` where none is legal. float32 ``[N]``.
      ub_bytes: no legal depths take fewer; ``inf`` where none is legal. float32 ``[N]``.
      verdicts: of all depths with these outer ones, where ``decided``; int8 ``[N, O]``.
      decided: whether ``verdicts`` says all; else depths have to be looked at one by one. bool ``[N]``.
    """

    bound_s: np.ndarray
    ub_bytes: np.ndarray
    verdicts: np.ndarray
    decided: np.ndarray


@dataclass(frozen=True)
class WideEvaluator:
    """Scores, bounds and reports for one problem on one chip; blocks are rows of ``WIDE_FIELDS``."""

    spec: NpuSpec
    given: Problem
    depths: np.ndarray
    corners: np.ndarray
    """The fewest slots for each choice of ``OUTER``, then the most; ``[2 O, 5]``."""
    bounds: bool
    """Whether the bound holds for this kernel."""
    prepare: Any
    time: Any
    report: Any
    share: Share = ALONE

    @classmethod
    @in_float64
    def build(
        cls, spec: NpuSpec, work: Attention, kernel: Kernel, overlap: Overlap, folder: Path | None = None
    ) -> "WideEvaluator":
        """Compile the three computations, or load them from ``folder`` if they are there."""
        numbers, given = as_arrays(spec), problem(work)
        blocks, depths = columns_of(np.ones((BLOCKS, len(WIDE_FIELDS)))), columns_of(np.ones((SLAB, len(DEPTH_FIELDS))))
        tilings = batch([Tiling(block_q=STEP, block_kv=STEP)], REPORTS).tiling

        def trace() -> Iterator[tuple[Any, dict[str, Any]]]:
            first = prepare_blocks.trace(numbers, given, blocks, kernel, overlap)
            ready, few = stand_ins(first.out_info)
            yield first, OFTEN
            yield time_depths.trace(numbers, given, ready, blocks, depths, kernel), MILLIONS
            yield report_tilings.trace(numbers, given, few, tilings, kernel), SELDOM

        inputs = [(numbers, given, blocks), (numbers, given, Output(0), blocks, depths), (numbers, given, Output(0), tilings)]
        prepare, time, report = model_programs(folder, (kernel, overlap), inputs, trace)
        rows = depth_rows(kernel, WIDE_DEPTHS)
        return cls(numbers, given, rows, corners_of(rows), kernel.graph.group == 1, prepare, time, report)

    @in_float64
    def probe(self, blocks: np.ndarray) -> Probed:
        """What is known of 1 to ``BLOCKS`` blocks by two questions for each choice of ``OUTER`` depths."""
        each = self._timed(blocks, self.corners)
        outer = len(self.corners) // 2
        fewest, most = each.verdicts[:, :outer], each.verdicts[:, outer:]
        runs = (fewest == Verdict.FITS) | (fewest == Verdict.PIPELINE_DEADLOCK)
        decided = np.all(~runs | (fewest == most), axis=1)
        bound_s = np.where(runs, each.seconds[:, outer:], np.inf).min(axis=1)
        ub_bytes = np.where(runs, each.ub_bytes[:, :outer], np.inf).min(axis=1)
        return Probed(bound_s if self.bounds else np.where(np.isfinite(bound_s), 0, np.inf), ub_bytes, fewest, decided)

    @in_float64
    def scores(self, blocks: np.ndarray) -> Scores:
        """Scores of all depths on 1 to ``BLOCKS`` blocks."""
        each = self._timed(blocks, self.depths)
        return each._replace(seconds=np.where(each.verdicts == Verdict.FITS, each.seconds, np.inf))

    @in_float64
    def reports(self, tilings: Sequence[Tiling]) -> list[Report]:
        """A report for each tiling, its leaves numpy float64."""
        prepare, report = partial(self.prepare, self.spec, self.given), partial(self.report, self.spec, self.given)
        return reports_of(tilings, (WIDE_FIELDS, BLOCKS), prepare, report)

    def _timed(self, blocks: np.ndarray, depths: np.ndarray) -> Scores:
        """Seconds whether it fits or not, verdicts, and bytes of UB, of any number of depths."""
        columns = columns_of(filled(blocks, BLOCKS))
        prepared = self.prepare(self.spec, self.given, columns)
        parts = []
        for start in range(0, len(depths), SLAB):
            some = depths[start : start + SLAB]
            out = self.time(self.spec, self.given, prepared, columns, columns_of(filled(some, SLAB)))
            parts.append([np.asarray(part)[: len(blocks), : len(some)] for part in out])
        return Scores(*(np.concatenate(part, axis=1) for part in zip(*parts, strict=True)))


def corners_of(depths: np.ndarray) -> np.ndarray:
    """Each choice of ``OUTER`` among ``depths`` with the fewest slots of the others, then each with the most, ``[2 O, 5]``."""
    at = [DEPTH_FIELDS.index(name) for name in OUTER]
    ends = []
    for rest in (depths.min(axis=0), depths.max(axis=0)):
        ends.append(np.tile(rest, (len(depths), 1)))
        ends[-1][:, at] = depths[:, at]
    return np.concatenate([np.unique(rows, axis=0) for rows in ends])


@partial(jax.jit, static_argnums=(5,))
def time_depths(
    spec: NpuSpec, given: Problem, prepared: Prepared, blocks: Columns, depths: Columns, kernel: Kernel
) -> tuple[Array, Array, Array]:
    """Seconds whether it fits or not (float32), verdicts (int8) and bytes of UB, ``[N, F]``, for columns ``[N]`` of blocks and
    ``[F]`` of depths."""
    spec, given, prepared, blocks, depths = single((spec, given, prepared, blocks, depths))

    def one(ready: Prepared, block: Columns, depth: Columns) -> tuple[Array, Array, Array]:
        done = finish(spec, given, tiling_from(block, depth), kernel, ready, EXACT)
        return done.seconds, done.occupancy.verdict.astype(jnp.int8), done.occupancy.used_bytes["UB"]

    return jax.vmap(jax.vmap(one, in_axes=(None, None, 0)), in_axes=(0, 0, None))(prepared, blocks, depths)
