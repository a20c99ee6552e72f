"""What a fit is asked: rows, weights, constants and a model of them; and the loss that it lowers."""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ascend_jax._compile import SELDOM, quick_jit
from ascend_jax.calibration.constants import Constant, bounds

WEIGHTS = {"A": 1.0, "B": 0.5, "C": 0.0}
"""By a row's quality: a weight of a half says twice the variance."""
KNEE = 1.5
"""Where the loss turns from square to straight, in deviations of the residuals: outliers beyond pull with constant force."""
PredictLog = Callable[[Array], Array]
"""Values ``[P]`` → natural logarithm of the predicted seconds ``[R]``; traced and differentiated by jax."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """What to fit to what. Arrays are NumPy; P constants, R rows.

    Attributes:
      constants: ``[P]``.
      start: ``[P]`` values to begin with, between the bounds (:func:`~ascend_jax.calibration.constants.own_values`).
      predict_log: values ``[P]`` → natural logarithm of the predicted seconds ``[R]``; traced and differentiated by jax.
      measured_s: ``[R]`` seconds.
      weights: ``[R]``, by quality (``WEIGHTS``); 0 for rows that take no part.
      groups: ``[R]`` names; cross-validation leaves out one at a time.
      ids: ``[R]``, for messages.
      starts: how many points to begin from: ``start`` itself, and draws from the priors.
      seed: of those draws.

    Raises:
      ValueError: lengths that disagree, no constants, times or weights that are none.
    """

    constants: tuple[Constant, ...]
    start: np.ndarray
    predict_log: PredictLog
    measured_s: np.ndarray
    weights: np.ndarray
    groups: tuple[str, ...]
    ids: tuple[str, ...]
    starts: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        rows = len(self.ids)
        lengths = {name: len(getattr(self, name)) for name in ("measured_s", "weights", "groups")}
        if wrong := {name: length for name, length in lengths.items() if length != rows}:
            raise ValueError(f"{rows} ids, but {wrong}: give one of each for every row")
        if not self.constants or len(self.start) != len(self.constants):
            raise ValueError(f"{len(self.constants)} constants and {len(self.start)} start values: give one value for each")
        if bad := [row for row, time in zip(self.ids, self.measured_s, strict=True) if not 0 < time < np.inf]:
            raise ValueError(f"rows {', '.join(bad)}: measured_s must be finite and above zero; leave them out")
        if np.min(self.weights, initial=0.0) < 0 or not np.any(self.weights > 0):
            raise ValueError("weights must not be negative, and at least one must be above zero")

    def column(self, name: str) -> np.ndarray:
        """One number of every constant, ``[P]``."""
        return np.array([getattr(constant, name) for constant in self.constants], np.float64)


def evaluate(predict_log: PredictLog, logs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log seconds ``[R]`` at the logarithms of the values ``[P]``, and their derivatives ``[R, P]``; compiled once a model.

    Forward derivatives: there are fewer constants than rows, and the model's backward pass takes far longer to compile.
    """
    predicted, slopes = _evaluate(predict_log, jnp.asarray(logs))
    return np.asarray(predicted), np.asarray(slopes)


def _with_slopes(predict_log: PredictLog, logs: Array) -> tuple[Array, Array]:
    def twice(logs: Array) -> tuple[Array, Array]:
        predicted = predict_log(jnp.exp(logs))
        return predicted, predicted

    slopes, predicted = jax.jacfwd(twice, has_aux=True)(logs)
    return predicted, slopes


_evaluate = quick_jit(_with_slopes, static_argnums=(0,), wanted=SELDOM)


@dataclass(frozen=True, kw_only=True)
class Loss:
    """What a fit lowers: pseudo-Huber of the weighted residuals over ``scale``, plus the priors of the free constants.

    Called with free numbers ``[P]`` (sigmoids between the logarithms of the bounds), it returns the value and its gradient.
    """

    problem: Problem
    weights: np.ndarray
    free: np.ndarray
    scale: float

    def logs(self, theta: np.ndarray) -> np.ndarray:
        """Logarithms of the values ``[P]``; those that are not free stay at the start."""
        return np.where(self.free, bounds(self.problem.constants).logs(theta), np.log(self.problem.start))

    def residuals(self, theta: np.ndarray) -> np.ndarray:
        """log(predicted / measured) ``[R]``."""
        return evaluate(self.problem.predict_log, self.logs(theta))[0] - np.log(self.problem.measured_s)

    def __call__(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        logs, root = self.logs(theta), np.sqrt(self.weights) / self.scale
        predicted, slopes = evaluate(self.problem.predict_log, logs)
        residuals = root * (predicted - np.log(self.problem.measured_s))
        bend = np.sqrt(1 + (residuals / KNEE) ** 2)
        prior, deviation = np.log(self.problem.column("prior")), self.problem.column("prior_log_std")
        pulls = np.where(self.free, (logs - prior) / deviation, 0.0)
        value = np.sum(KNEE**2 * (bend - 1)) + 0.5 * np.sum(pulls**2)
        by_log = slopes.T @ (root * residuals / bend) + pulls / deviation
        return float(value), np.where(self.free, by_log * bounds(self.problem.constants).slope(theta), 0.0)
