"""How far predictions are from measurements: the totals of a set of rows, and of every group of them."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from tiling_search.jsonfile import Json

NOT_COUNTED = "C"
"""The grade that says too little of how it was measured: such rows are shown, and count only under their grade."""

Rows = Sequence[Json]

GROUPINGS: Mapping[str, Callable[[Json], str]] = {
    "chip": lambda row: row["chip"] or "unknown",
    "kernel": lambda row: row["group"],
    "chip_kernel": lambda row: f"{row['chip'] or 'unknown'} / {row['group']}",
}


def totals(rows: Rows) -> Json:
    """Of modelled rows: how many, mean, median and 90th percentile of the absolute error, mean error, rank correlation."""
    errors = np.array([row["error"] for row in rows], dtype=float)
    sizes = np.abs(errors)
    return {
        "n": len(rows),
        "mean_abs_error": float(sizes.mean()) if len(rows) else None,
        "median_abs_error": float(np.median(sizes)) if len(rows) else None,
        "p90_abs_error": float(np.percentile(sizes, 90)) if len(rows) else None,
        "mean_error": float(errors.mean()) if len(rows) else None,
        "rank_correlation": rank_correlation(
            [row["measured_s"] for row in rows],
            [row["predicted_s"] for row in rows],
        ),
    }


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Spearman's: the correlation of the ranks; None for fewer than three pairs, or where one side is all alike.

    >>> round(rank_correlation([1.0, 2.0, 3.0, 4.0], [10.0, 20.0, 40.0, 30.0]), 9)
    0.8
    """
    ranks = np.array([_ranks(one), _ranks(other)])
    if len(one) < 3 or np.any(np.ptp(ranks, axis=1) == 0):
        return None
    return float(np.corrcoef(ranks)[0, 1])


def _ranks(values: Sequence[float]) -> np.ndarray:
    """Places from 1 in ascending order; equal values share the mean of theirs."""
    _, place, count = np.unique(np.asarray(values, dtype=float), return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count - 1) / 2)[place]


def all_groups(rows: Rows) -> Json:
    """Totals by chip, kernel, both and grade; and by chip and kernel of the ``core_validation`` rows alone."""
    counted = [row for row in rows if row["counted"]]
    core = [row for row in counted if row["core_validation"]]
    found = {name: _by(key, counted) for name, key in GROUPINGS.items()}
    found["grade"] = _by(lambda row: row["quality"] or "unknown", [row for row in rows if row["error"] is not None])
    return found | {f"core_{name}": _by(key, core) for name, key in GROUPINGS.items()}


def overall(rows: Rows) -> Json:
    """Totals of all counted rows, of the ``core_validation`` ones, and by category; how many rows there are of each fate."""
    counted = [row for row in rows if row["counted"]]
    return totals(counted) | {
        "rows": len(rows),
        "modelled": sum(row["error"] is not None for row in rows),
        "skipped": sum(row["skipped"] is not None for row in rows),
        "not_counted": f"rows of grade {NOT_COUNTED}",
        "core_validation": totals([row for row in counted if row["core_validation"]]),
        "category": _by(lambda row: row["category"] or "unknown", counted),
    }


def _by(key: Callable[[Json], str], rows: Iterable[Json]) -> Json:
    members: dict[str, list[Json]] = {}
    for row in rows:
        members.setdefault(key(row), []).append(row)
    return {name: totals(members[name]) for name in sorted(members)}
