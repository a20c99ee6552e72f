"""``pool``: the tilings that are worth measuring, with what the model says of them. Made once, when a session begins."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ascend_jax.cost.evaluate import chosen
from ascend_jax.cost.overlap import PIPELINED, Overlap
from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.kernels.kernel import Kernel
from ascend_jax.tiling.tiling import Tiling
from ascend_jax.verdict import Verdict
from ascend_jax.workload.attention import Attention
from tiling_search.exhaustive import Evaluator, chunks
from tiling_search.space import BLOCK_FIELDS, DEPTH_FIELDS, build_space, tiling_of

WITHIN = 2.0
"""A tiling this many times slower than the best is not worth measuring, even by a model that is far off."""
MOST = 2048
TWO = 2
"""Slots that let the next transfer run beside the work on this one. Where the model sees no use for them, a machine may."""


@dataclass(frozen=True)
class Pool:
    """Tilings that fit, fastest first by the model.

    Attributes:
      tilings: P of them.
      seconds: the model's, ``[P]``.
      limits: for each limit of the report (columns), the share of the time that it alone would take, ``[P, L]``.
    """

    tilings: tuple[Tiling, ...]
    seconds: np.ndarray
    limits: np.ndarray


def make_pool(
    spec: NpuSpec,
    work: Attention,
    *,
    kernel: str | Kernel = "auto",
    overlap: str | Overlap = PIPELINED,
    most: int = MOST,
    within: float = WITHIN,
    programs: Path | None = None,
) -> Pool:
    """The ``most`` fastest of two tilings a choice of blocks and preload: the best depths, and the best of two slots or more.

    Raises:
      ValueError: nothing fits; no such kernel or overlap.
    """
    kernel, overlap = chosen(spec, kernel, overlap)
    space = build_space(spec, work, kernel)
    evaluator = Evaluator.build(spec, work, kernel, overlap, programs)
    groups = _groups(space.depths)
    found: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    for chunk in chunks(_fitting(evaluator, space.blocks(*_largest(evaluator, space.probes())))):
        seconds = evaluator.scores(chunk).seconds
        best = np.stack([columns[np.argmin(seconds[:, columns], axis=1)] for columns in groups], axis=1)
        times = np.take_along_axis(seconds, best, axis=1)
        found.append((times.ravel(), np.repeat(chunk, len(groups), axis=0), best.ravel()))
    if not found:
        raise ValueError("nothing fits: tiling-search tune says why, and what would")
    times, blocks, depths = (np.concatenate(part) for part in zip(*found, strict=True))
    fastest = np.argsort(times, kind="stable")[: 4 * most]
    fastest = fastest[times[fastest] <= within * times.min()]
    tilings = [tiling_of(blocks[at], space.depths[depths[at]]) for at in fastest]
    return _with_reports(evaluator, _apart(tilings, int(spec.vector_cores_per_cube))[:most])


def _largest(evaluator: Evaluator, probes: np.ndarray) -> tuple[int, int]:
    fits = np.concatenate([evaluator.verdicts(chunk)[:, 0] for chunk in chunks(probes)]) != Verdict.UB_OVERFLOW
    most_q, most_kv = (int(probes[fits, column].max(initial=0)) for column in (0, 1))
    return most_q, most_kv


def _fitting(evaluator: Evaluator, blocks: np.ndarray) -> np.ndarray:
    fits = [np.any(evaluator.verdicts(chunk) == Verdict.FITS, axis=1) for chunk in chunks(blocks)]
    return blocks[np.concatenate(fits)] if fits else blocks


def _groups(depths: np.ndarray) -> list[np.ndarray]:
    """Indices of depths of which one is chosen: for each preload all of them, and those of two slots or more where there are
    any; fewest slots first in each. Which of these is best depends on latencies, which the model knows least."""
    preload, slots = depths[:, DEPTH_FIELDS.index("preload")], np.delete(depths, DEPTH_FIELDS.index("preload"), axis=1)
    ample = np.all(slots >= np.minimum(TWO, slots.max(axis=0)), axis=1)
    choices = [(preload == ahead) & kind for ahead in np.unique(preload) for kind in (np.ones_like(ample), ample)]
    return [np.flatnonzero(choice) for choice in choices]


def _apart(tilings: list[Tiling], vector_cores: int) -> list[Tiling]:
    """The first of tilings that run alike: ``vector_rows`` beyond a vector core's share of the block make no difference."""
    seen: dict[tuple[int, ...], Tiling] = {}
    for one in tilings:
        rows = min(one.vector_rows, -(-one.block_q // vector_cores))
        same = (rows, *(getattr(one, name) for name in (*BLOCK_FIELDS, *DEPTH_FIELDS) if name != "vector_rows"))
        seen.setdefault(same, one)
    return list(seen.values())


def _with_reports(evaluator: Evaluator, tilings: list[Tiling]) -> Pool:
    reports = evaluator.reports(tilings)
    seconds = np.array([float(report.seconds) for report in reports])
    order = np.argsort(seconds, kind="stable")
    limits = np.array([np.asarray(reports[at].bounds, np.float64) for at in order])
    return Pool(tuple(tilings[at] for at in order), seconds[order], limits)
