"""The tilings of one workload that fit one chip, as the points that strategies search, each with its modelled time.

Occupancy decides first, row by row (blocks × all depths); what fits is evaluated once, which also finds the schedules that
would deadlock. So the whole table of times is there before a strategy asks for the first.
"""

from dataclasses import dataclass
from functools import cached_property

import jax.numpy as jnp
import numpy as np
from jax import Array

from ascend_jax.cost.evaluate import chosen
from ascend_jax.cost.overlap import PIPELINED, Overlap
from ascend_jax.cost.report import Report
from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.kernels.kernel import Kernel
from ascend_jax.tiling.tiling import Tiling
from ascend_jax.verdict import Verdict
from ascend_jax.workload.attention import Attention
from tiling_search.exhaustive import Evaluator, chunks, within_ub
from tiling_search.points import Points, row_points
from tiling_search.space import BLOCK_FIELDS, DEPTH_FIELDS, Space, build_space, tiling_of


@dataclass(frozen=True)
class Feasible:
    """What fits, and how long it takes.

    Attributes:
      spec, work, kernel, overlap: what the verdicts are of.
      evaluator: the compiled model.
      space: all candidates.
      blocks: the rows of ``BLOCK_FIELDS`` that occupancy was asked about, ``[N, 5]``; the others overflow UB at their smallest.
      verdicts: of every depth on every one of ``blocks``, int8 ``[N, F]``.
      points: the feasible points, with axes ``BLOCK_FIELDS`` and ``DEPTH_FIELDS``.
      seconds: modelled time of each rank, float32 ``[P]``.
    """

    spec: NpuSpec
    work: Attention
    kernel: Kernel
    overlap: Overlap
    evaluator: Evaluator
    space: Space
    blocks: np.ndarray
    verdicts: np.ndarray
    points: Points
    seconds: np.ndarray

    @cached_property
    def table(self) -> Array:
        """``seconds`` on the device."""
        return jnp.asarray(self.seconds)

    def objective(self, ranks: Array) -> Array:
        """Modelled seconds of ranks, float32 of their shape; ``inf`` for −1. Traceable."""
        return jnp.where(ranks < 0, jnp.float32(jnp.inf), self.table[jnp.maximum(ranks, 0)])

    def rows(self, ranks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows of ``BLOCK_FIELDS`` and of ``DEPTH_FIELDS`` of ranks ``[N]``: float64 ``[N, 5]`` each."""
        cells = np.asarray(self.points.cells)[np.asarray(ranks)]
        row, column = np.divmod(cells, len(self.space.depths))
        return self.blocks[np.asarray(self.points.row_codes)[row]], self.space.depths[column]

    def tiling(self, rank: int) -> Tiling:
        """The tiling of one rank."""
        (block,), (depth,) = self.rows(np.array([rank]))
        return tiling_of(block, depth)

    def rank(self, tiling: Tiling) -> int:
        """The rank of a tiling, or −1 where it does not fit or is not in the space."""
        block, depth = ([float(getattr(tiling, name)) for name in names] for names in (BLOCK_FIELDS, DEPTH_FIELDS))
        code = np.flatnonzero(np.all(self.blocks == block, axis=1))
        column = np.flatnonzero(np.all(self.space.depths == depth, axis=1))
        row = np.asarray(self.points.row_at)[code[0]] if len(code) and len(column) else -1
        return int(np.asarray(self.points.rank_at)[row, column[0]]) if row >= 0 else -1

    def reports(self, ranks: np.ndarray) -> list[Report]:
        """Reports of ranks ``[N]`` in float64."""
        return self.evaluator.reports([self.tiling(int(rank)) for rank in ranks])


def feasible_points(
    spec: NpuSpec, work: Attention, *, kernel: str | Kernel = "auto", overlap: str | Overlap = PIPELINED
) -> Feasible:
    """Every tiling of ``work`` that fits ``spec`` and can run, with its time.

    Raises:
      ValueError: no such kernel or overlap, a path that the chip lacks, or nothing fits.

    >>> from ascend_jax import load_chip, load_preset
    >>> found = feasible_points(load_chip("310P3"), load_preset("gpt2-prefill-1k"))
    >>> best = int(found.seconds.argmin())
    >>> found.rank(found.tiling(best)) == best, len(found.seconds) == found.points.count
    (True, True)
    """
    kernel, overlap = chosen(spec, kernel, overlap)
    space = build_space(spec, work, kernel)
    evaluator = Evaluator.build(spec, work, kernel, overlap)
    blocks, sizes = within_ub(evaluator, space)
    verdicts = np.concatenate([evaluator.verdicts(chunk) for chunk in chunks(blocks)])
    rows = np.flatnonzero(np.any(verdicts == Verdict.FITS, axis=1))
    scores = [evaluator.scores(chunk) for chunk in chunks(blocks[rows])]
    if scores:
        verdicts[rows] = np.concatenate([one.verdicts for one in scores])  # with those that would deadlock
    codes = np.flatnonzero(np.any(verdicts == Verdict.FITS, axis=1))
    fits = verdicts[codes] == Verdict.FITS
    axes = [space.block_q[: sizes[0]], space.block_kv[: sizes[1]], *_axes(space.others), *_axes(space.depths)]
    points = row_points((*BLOCK_FIELDS, *DEPTH_FIELDS), axes, len(BLOCK_FIELDS), codes, fits)
    times = np.concatenate([one.seconds for one in scores])[np.isin(rows, codes)][fits]
    return Feasible(spec, work, kernel, overlap, evaluator, space, blocks, verdicts, points, times)


def _axes(rows: np.ndarray) -> list[np.ndarray]:
    """The axes of which ``rows`` is the product."""
    return [np.unique(column) for column in rows.T]
