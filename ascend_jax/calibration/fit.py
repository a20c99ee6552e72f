"""``fit``: named constants from measured rows, by robust least squares with weak priors; with what is sure and what is not."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import jax
import numpy as np

from ascend_jax.calibration.constants import Constant, bounds, rounded
from ascend_jax.calibration.identify import ROWS_PER_CONSTANT, select
from ascend_jax.calibration.minimise import Minimum, adam, lbfgs
from ascend_jax.calibration.problem import KNEE, Loss, Problem, evaluate

SMALLEST_SCALE = 0.01
"""No model of a chip is better than 1 %, and measurements repeat no better."""
FIRST_SCALE = 0.2
SCALE_ROUNDS = 4
SAME_SCALE = 0.02
KINK_GAIN = 1e-4
NARROWED, UNMOVED = 0.7, 0.95
"""A constant is weakly identified if the rows leave it more than the one share of its prior's deviation, and is given up if
they leave it more than the other."""
CORRELATED = 0.95
NEAR_BOUND = 0.02
MAD_TO_STD = 1.4826


@dataclass(frozen=True, kw_only=True)
class FittedConstant:
    """One constant after the fit.

    Attributes:
      start, value: before and after, in the unit of the field; ``value`` to five digits.
      log_std: standard error of the logarithm of ``value``: rows and prior together, from the Gauss-Newton Hessian.
      fitted: whether it was free.
      notes: why it was not fitted, or why it is weakly identified; empty if all is well.
    """

    constant: Constant
    start: float
    value: float
    log_std: float
    fitted: bool
    notes: tuple[str, ...]

    @property
    def weak(self) -> bool:
        """Whether the rows hardly determine it, though it was fitted."""
        return self.fitted and bool(self.notes)


@dataclass(frozen=True, kw_only=True)
class Fit:
    """The outcome. ``scale`` is the robust standard deviation of the residuals' logarithm for a row of weight 1."""

    constants: tuple[FittedConstant, ...]
    scale: float
    rows: int
    residuals: np.ndarray
    """log(predicted / measured) ``[R]``, at the fitted values."""
    start_residuals: np.ndarray
    """The same at the start values."""
    correlation: np.ndarray
    """Of the fitted constants' logarithms ``[P, P]``; 0 for those that were not."""
    loss: float
    steps: int
    method: str
    converged: bool

    @property
    def values(self) -> np.ndarray:
        """``[P]``, fitted or not."""
        return np.array([found.value for found in self.constants])


def fit(problem: Problem, weights: np.ndarray | None = None) -> Fit:
    """Fit as many of the constants as the rows can tell apart; float64 whatever the caller's setting.

    Args:
      problem: what to fit.
      weights: ``[R]`` in place of the problem's own (cross-validation leaves rows out so; nothing compiles again).

    Raises:
      ValueError: fewer than three rows with weight, or a row without a finite prediction.
    """
    weights = problem.weights if weights is None else weights
    with jax.enable_x64(True):
        start_residuals = _start_residuals(problem, weights)
        chosen, reasons = select(_jacobians(problem), weights, problem.column("prior_log_std"), _names(problem))
        points = [bounds(problem.constants).theta(start) for start in _starts(problem)]
        best, method, loss = _solve(Loss(problem=problem, weights=weights, free=chosen, scale=FIRST_SCALE), points)
        deviation, correlation = _uncertainty(loss, best.theta)
        while (kept := _kept(loss, deviation)).max(initial=0.0) > UNMOVED:
            worst = int(kept.argmax())  # one at a time: of two that hide each other, one may stay
            reasons[worst] = f"the rows leave {kept[worst]:.0%} of its prior's deviation"
            chosen = loss.free & (np.arange(len(kept)) != worst)
            best, method, loss = _solve(replace(loss, free=chosen), [best.theta])
            deviation, correlation = _uncertainty(loss, best.theta)
        logs, residuals = loss.logs(best.theta), loss.residuals(best.theta)
    notes = [_notes(problem, place, logs, deviation, correlation) for place in range(len(logs))]
    constants = tuple(
        FittedConstant(
            constant=constant,
            start=float(problem.start[place]),
            value=rounded(float(np.exp(logs[place]))) if chosen[place] else float(problem.start[place]),
            log_std=float(deviation[place]),
            fitted=bool(chosen[place]),
            notes=notes[place] if chosen[place] else (reasons[place],),
        )
        for place, constant in enumerate(problem.constants)
    )
    return Fit(
        constants=constants,
        scale=loss.scale,
        rows=int(np.count_nonzero(weights > 0)),
        residuals=residuals,
        start_residuals=start_residuals,
        correlation=correlation,
        loss=best.loss,
        steps=best.steps,
        method=method,
        converged=best.converged,
    )


def _start_residuals(problem: Problem, weights: np.ndarray) -> np.ndarray:
    used = int(np.count_nonzero(weights > 0))
    if used < ROWS_PER_CONSTANT:
        raise ValueError(f"{used} rows with weight: {ROWS_PER_CONSTANT} are the least for one constant; give more rows")
    residuals = evaluate(problem.predict_log, np.log(problem.start))[0] - np.log(problem.measured_s)
    if bad := [row for row, residual in zip(problem.ids, residuals, strict=True) if not np.isfinite(residual)]:
        raise ValueError(f"no finite prediction for the rows {', '.join(bad)}: leave them out")
    return residuals


def _starts(problem: Problem) -> np.ndarray:
    """``[S, P]`` logarithms to begin from, a little inside the bounds: where a sigmoid is flat nothing moves."""
    low, high = vars(bounds(problem.constants)).values()
    prior, deviation = np.log(problem.column("prior")), problem.column("prior_log_std")
    draws = prior + deviation * np.random.default_rng(problem.seed).normal(size=(max(problem.starts - 1, 0), len(prior)))
    margin = 0.05 * (high - low)
    return np.clip(np.concatenate([np.log(problem.start)[None], draws]), low + margin, high - margin)


def _jacobians(problem: Problem) -> np.ndarray:
    """``[S, R, P]`` at the chip's own values and at the other starts."""
    points = np.concatenate([np.log(problem.start)[None], _starts(problem)[1:]])
    return np.stack([evaluate(problem.predict_log, point)[1] for point in points])


def _solve(loss: Loss, points: Sequence[np.ndarray]) -> tuple[Minimum, str, Loss]:
    """The lowest minimum from ``points``, and the loss at its scale; each follows from the other: found in turns."""
    best, method = _lowest(loss, points)
    for _ in range(SCALE_ROUNDS):
        before, loss = loss, replace(loss, scale=_scale(loss.residuals(best.theta), loss.weights, int(loss.free.sum())))
        if abs(loss.scale - before.scale) < SAME_SCALE * before.scale:
            break
        best, method = _lowest(loss, [best.theta])
    return best, method, loss


def _lowest(loss: Loss, points: Sequence[np.ndarray]) -> tuple[Minimum, str]:
    """From the best of ``points``; where L-BFGS got stuck Adam has a go, and if it gains nothing that was a kink's bottom."""
    found: list[tuple[Minimum, str]] = []
    for point in points:
        first = lbfgs(loss, point)
        if not first.converged:
            second = adam(loss, first.theta)
            if second.loss < first.loss - KINK_GAIN * abs(first.loss):
                found.append((second, "Adam"))
            first = first._replace(converged=True)
        found.append((first, "L-BFGS"))
    return min(found, key=lambda outcome: outcome[0].loss)


def _scale(residuals: np.ndarray, weights: np.ndarray, free: int) -> float:
    """Robust standard deviation of a row of weight 1, about zero, with the constants' degrees of freedom taken off."""
    spread = (np.sqrt(weights) * np.abs(residuals))[weights > 0]
    inflated = MAD_TO_STD * np.median(spread) * np.sqrt(len(spread) / (len(spread) - free))
    return max(float(inflated), SMALLEST_SCALE)


def _kept(loss: Loss, deviation: np.ndarray) -> np.ndarray:
    """How much of its prior's deviation each free constant keeps, ``[P]``; 0 for the others."""
    return np.where(loss.free, deviation / loss.problem.column("prior_log_std"), 0.0)


def _uncertainty(loss: Loss, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Standard errors ``[P]`` of the logarithms and their correlation ``[P, P]``; a constant not fitted keeps its prior's."""
    free, deviation, logs = loss.free, loss.problem.column("prior_log_std"), loss.logs(theta)
    residuals = loss.residuals(theta)
    slopes = evaluate(loss.problem.predict_log, logs)[1][:, free]
    pulls = np.sqrt(loss.weights) * residuals / loss.scale
    robust = loss.weights / np.sqrt(1 + (pulls / KNEE) ** 2)  # what an outlier's row still counts
    hessian = slopes.T @ (slopes * robust[:, None]) / loss.scale**2 + np.diag(1 / deviation[free] ** 2)
    covariance = np.linalg.inv(hessian)
    errors = np.sqrt(np.diag(covariance))
    correlation = np.zeros((len(logs), len(logs)))
    correlation[np.ix_(free, free)] = covariance / np.outer(errors, errors)
    deviation[free] = errors
    return deviation, correlation


def _notes(problem: Problem, place: int, logs: np.ndarray, deviation: np.ndarray, correlation: np.ndarray) -> tuple[str, ...]:
    """Why a fitted constant is weakly identified."""
    constant, notes = problem.constants[place], []
    low, high = (side[place] for side in vars(bounds(problem.constants)).values())
    share = (logs[place] - low) / (high - low)
    if not NEAR_BOUND <= share <= 1 - NEAR_BOUND:
        notes.append(f"at its {'lower' if share < 0.5 else 'upper'} bound")
    if deviation[place] > NARROWED * constant.prior_log_std:
        kept = deviation[place] / constant.prior_log_std
        notes.append(f"the rows leave {kept:.0%} of its prior's deviation")
    for other, strength in enumerate(correlation[place]):
        if other != place and abs(strength) > CORRELATED:
            notes.append(f"correlated {strength:+.2f} with {problem.constants[other].name}")
    return tuple(notes)


def _names(problem: Problem) -> list[str]:
    return [constant.name for constant in problem.constants]
