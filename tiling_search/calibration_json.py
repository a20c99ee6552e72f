"""A calibration as plain numbers and texts: what ``--json`` writes and the tables show."""

import numpy as np

from ascend_jax.calibration.fit import Fit
from ascend_jax.calibration.leave_out import CrossValidation, errors_of
from ascend_jax.calibration.problem import Problem
from tiling_search.calibrate import Calibration
from tiling_search.jsonfile import Json


def calibration_dict(found: Calibration) -> Json:
    """Everything about a calibration; errors are ``predicted / measured - 1``."""
    head = {"chip": found.chip, "source": found.source.name}
    skipped = [{"id": name, "reason": reason} for name, reason in found.skipped]
    return head | fit_dict(found.problem, found.fit, found.cross_validation) | {"skipped": skipped}


def fit_dict(problem: Problem, fitted: Fit, without: CrossValidation | None) -> Json:
    """How a fit went, its constants, its errors, and what each of its rows makes of it."""
    left_out = np.full(len(problem.ids), np.nan) if without is None else without.residuals
    return {
        "method": fitted.method,
        "converged": fitted.converged,
        "steps": fitted.steps,
        "residual_scale": fitted.scale,
        "constants": [_constant_dict(fitted, place) for place in range(len(fitted.constants))],
        "errors": {"before": vars(errors_of(fitted.start_residuals)), "after": vars(errors_of(fitted.residuals))},
        "cross_validation": without
        and {
            "groups": {group: vars(errors) for group, errors in without.groups.items()},
            "overall": vars(without.overall),
            "skipped": without.skipped,
        },
        "rows": [_row_dict(problem, fitted, place, left_out[place]) for place in range(len(problem.ids))],
    }


def _constant_dict(fitted: Fit, place: int) -> Json:
    found = fitted.constants[place]
    constant = found.constant
    return {
        "name": constant.name,
        "field": constant.field,
        "relative": constant.relative,
        "start": found.start,
        "value": found.value,
        "log_standard_error": found.log_std,
        "lower": constant.lower,
        "upper": constant.upper,
        "prior": constant.prior,
        "prior_log_std": constant.prior_log_std,
        "fitted": found.fitted,
        "weakly_identified": found.weak,
        "notes": list(found.notes),
        "correlation": {
            other.constant.name: float(strength)
            for other, strength in zip(fitted.constants, fitted.correlation[place], strict=True)
            if other is not found and strength
        },
    }


def _row_dict(problem: Problem, fitted: Fit, place: int, left_out: float) -> Json:
    measured = float(problem.measured_s[place])
    return {
        "id": problem.ids[place],
        "group": problem.groups[place],
        "weight": float(problem.weights[place]),
        "measured_s": measured,
        "predicted_s": measured * float(np.exp(fitted.residuals[place])),
        "error": float(np.expm1(fitted.residuals[place])),
        "error_before": float(np.expm1(fitted.start_residuals[place])),
        "error_left_out": float(np.expm1(left_out)) if np.isfinite(left_out) else None,
    }
