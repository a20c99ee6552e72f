"""What a search returns: the best tiling, the runners-up, the Pareto front, and why the others were rejected."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from ascend_jax.cost.report import Report
from ascend_jax.occupancy import explain
from ascend_jax.tiling.tiling import Tiling
from ascend_jax.verdict import Verdict
from ascend_jax.workload.attention import Attention


@dataclass(frozen=True)
class Candidate:
    """A tiling with its report (all leaves plain numbers)."""

    tiling: Tiling
    report: Report

    @property
    def verdict(self) -> Verdict:
        """Whether it fits, or the first thing that is wrong."""
        return Verdict(int(self.report.occupancy.verdict))

    @property
    def message(self) -> str:
        """The verdict as a sentence with bytes and remedy."""
        return explain(self.report.occupancy)


@dataclass(frozen=True)
class TuningResult:
    """The outcome of one search.

    Attributes:
      chip: the chip's name.
      workload: what was asked, and ``workload_name``, the preset or a description.
      kernel, overlap: the dataflow and overlap model searched with.
      top: best candidates, fastest first; empty when nothing fits.
      pareto: candidates that no other beats in both latency and UB bytes, fastest first.
      rejected: how many candidates got each verdict other than FITS.
      candidates, feasible: size of the space, and how many of it fit.
      evaluated: candidates looked at one by one; the others overflow with the fewest slots, or are ``bounded``.
      bounded: candidates that fit and that a lower bound rules out; 0 in the usual space.
      exact: whether every candidate was evaluated, ruled out, or cannot fit, so that no better one is in the space.
      search_s: seconds spent evaluating.
      nearest: when nothing fits, the smallest candidate, which comes closest.
      would_fit: when nothing fits, the nearest workload that would, as words.
      provenance: versions, seed, model.
    """

    chip: str
    workload: Attention
    workload_name: str
    kernel: str
    overlap: str
    top: tuple[Candidate, ...]
    pareto: tuple[Candidate, ...]
    rejected: Mapping[str, int]
    candidates: int
    feasible: int
    evaluated: int
    bounded: int
    exact: bool
    search_s: float
    nearest: Candidate | None
    would_fit: str
    provenance: Mapping[str, Any]

    @property
    def best(self) -> Candidate | None:
        """The fastest candidate, or None when nothing fits."""
        return self.top[0] if self.top else None

    @property
    def evaluations_per_s(self) -> float:
        """Candidates looked at one by one, per second of the search."""
        return self.evaluated / self.search_s if self.search_s > 0 else 0.0


def tiling_dict(tiling: Tiling) -> dict[str, int]:
    """A tiling as whole numbers by field name."""
    return {item.name: int(getattr(tiling, item.name)) for item in fields(tiling)}
