"""Cross-validation: each group of rows predicted with constants that were fitted without it."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ascend_jax.calibration.fit import fit
from ascend_jax.calibration.identify import ROWS_PER_CONSTANT
from ascend_jax.calibration.problem import Problem


@dataclass(frozen=True, kw_only=True)
class Errors:
    """Absolute relative errors ``|predicted / measured - 1|`` of some rows; None where there is no row."""

    rows: int
    mean: float | None
    median: float | None
    p90: float | None


@dataclass(frozen=True, kw_only=True)
class CrossValidation:
    """Errors of each group when it was left out, and of all rows together.

    Attributes:
      groups: by name, in the order of their first row.
      overall: of all rows that some fit had left out.
      residuals: log(predicted / measured) ``[R]``; NaN for rows without weight and for groups that could not be left out.
      skipped: why a group could not be left out, by name.
    """

    groups: dict[str, Errors]
    overall: Errors
    residuals: np.ndarray
    skipped: dict[str, str]


def leave_one_group_out(problem: Problem, progress: Callable[[int], None] = lambda done: None) -> CrossValidation:
    """Fit without each group (its rows at weight 0), scale and choice of constants anew; ``progress`` gets the groups done."""
    groups, used = np.array(problem.groups), problem.weights > 0
    residuals = np.full(len(groups), np.nan)
    skipped = {}
    for done, group in enumerate(dict.fromkeys(problem.groups)):
        progress(done)
        inside = groups == group
        rest = int(np.count_nonzero(used & ~inside))
        if rest < ROWS_PER_CONSTANT:
            skipped[group] = f"without it {rest} rows are left, fewer than {ROWS_PER_CONSTANT}"
        elif np.any(used & inside):
            without = fit(problem, np.where(inside, 0.0, problem.weights))
            residuals = np.where(used & inside, without.residuals, residuals)
    found = {group: errors_of(residuals[groups == group]) for group in dict.fromkeys(problem.groups)}
    return CrossValidation(
        groups={group: errors for group, errors in found.items() if errors.rows},
        overall=errors_of(residuals),
        residuals=residuals,
        skipped=skipped,
    )


def errors_of(residuals: np.ndarray) -> Errors:
    """The errors behind ``log(predicted / measured)``; NaN are left out.

    >>> import numpy as np
    >>> errors_of(np.log([1.1, 0.5, np.nan])).mean
    0.3
    """
    errors = np.abs(np.expm1(residuals[np.isfinite(residuals)]))
    if not len(errors):
        return Errors(rows=0, mean=None, median=None, p90=None)
    mean, median, p90 = np.mean(errors), np.median(errors), np.percentile(errors, 90)
    return Errors(rows=len(errors), mean=round(float(mean), 12), median=round(float(median), 12), p90=round(float(p90), 12))
