"""The three feasible spaces of the race, one a dataflow, each with the times that every tuner measures."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ascend_jax import Attention, NpuSpec, Tiling, Verdict, evaluate_batch, load_chip, load_preset
from experiments.hardware_in_the_loop.truth import perturbed
from tiling_search.feasible import Feasible, feasible_points
from tiling_search.points import Points, lattice_points, values
from tiling_search.space import L0_DEPTH

FIXED: dict[str, tuple[str, str, dict[str, float]]] = {
    "910b3-separated": (
        "910B3",
        "llama3-8b-prefill-8k",
        {"vector_rows": 32, "ub_depth": 2, "score_depth": 2, "out_depth": 2},
    ),
    "950pr-direct": ("950PR_957x", "llama3-8b-prefill-8k", {"ub_depth": 2, "score_depth": 2, "out_depth": 2}),
    "310p3-coupled": ("310P3", "gpt2-prefill-1k", {}),
}
"""By name: chip, workload, and the fields that are held, so that Kernel Tuner can list what is left."""
TRUTH = 0
"""Seed of the machine that everyone measures, if not told another: the model's own formulas with the constants off that no
document settles."""


@dataclass(frozen=True)
class Space:
    """A space of the race.

    Attributes:
      name: its key in ``FIXED``.
      points: the feasible points; axes with one value are left out.
      table: "measured" seconds of each rank, float32 ``[P]``.
      columns: the tiling's fields of each rank, by name, float64 ``[P]``.
      spec, work, found: the chip, the workload and the whole feasible space; ``None`` for a space without a chip.
    """

    name: str
    points: Points
    table: np.ndarray
    columns: dict[str, np.ndarray]
    spec: NpuSpec | None = None
    work: Attention | None = None
    found: Feasible | None = None

    @property
    def configurations(self) -> list[tuple[int, ...]]:
        """Values of the axes of each rank, in the order of ranks."""
        rows = np.asarray(values(self.points, jnp.arange(self.points.count, dtype=jnp.int32)))
        return [tuple(int(value) for value in row) for row in rows]


def race_space(name: str, truth: int = TRUTH) -> Space:
    """One of ``FIXED``, measured on the machine of seed ``truth``.

    Raises:
      KeyError: no such space.
    """
    chip, workload, held = FIXED[name]
    spec, work = load_chip(chip), load_preset(workload)
    found = feasible_points(spec, work)
    ranks = jnp.arange(found.points.count, dtype=jnp.int32)
    rows = np.asarray(values(found.points, ranks), np.float64)
    for field, value in held.items():
        rows = rows[rows[:, found.points.names.index(field)] == value]
    columns = dict(zip(found.points.names, rows.T, strict=True))
    (seconds,) = measured([perturbed(spec, truth)], work, columns, found.kernel)
    return Space(name, points_of(columns), seconds.astype(np.float32), columns, spec, work, found)


def points_of(columns: dict[str, np.ndarray]) -> Points:
    """Points of tilings that are given by field, in lexical order; fields with one value are no axes.

    Raises:
      ValueError: the rows are not in lexical order, so that ranks would not be rows.
    """
    free = {name: np.unique(column) for name, column in columns.items() if np.ptp(column) > 0}
    places = np.stack([np.searchsorted(axis, columns[name]) for name, axis in free.items()])
    feasible = np.zeros([len(axis) for axis in free.values()], bool)
    feasible[tuple(places)] = True
    codes = np.ravel_multi_index(tuple(places), feasible.shape)
    if np.any(np.diff(codes) <= 0):
        raise ValueError("rows must be distinct and in lexical order of the fields")
    return lattice_points(tuple(free), list(free.values()), feasible)


def measured(specs: list[NpuSpec], work: Attention, columns: dict[str, np.ndarray], kernel: Any) -> np.ndarray:
    """Seconds of every tiling on every machine in float64, ``[machines, P]``; ``inf`` where it does not fit."""
    with jax.enable_x64(True):
        count = len(next(iter(columns.values())))
        report = evaluate_batch(specs, work, Tiling(l0_depth=np.full(count, L0_DEPTH), **columns), kernel=kernel)
        fits = np.asarray(report.occupancy.verdict) == Verdict.FITS
        return np.where(fits, np.asarray(report.seconds), np.inf)
