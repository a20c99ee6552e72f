"""What a fit is asked: rows, weights, constants and a model of them; and the loss that it lowers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ascend_jax.calibration.constants import Constant, to_values
from ascend_jax.calibration.minimise import Minimum, adam, lbfgs

WEIGHTS = {"A": 1.0, "B": 0.5, "C": 0.0}
"""By a row's quality: a weight of a half says twice the variance."""
KNEE = 1.5
"""Where the loss turns from square to straight, in deviations of the residuals: outliers beyond pull with constant force."""
PredictLog = Callable[[Array], Array]
"""Values ``[P]`` → natural logarithm of the predicted seconds ``[R]``; traced and differentiated by jax."""
METHODS = {"L-BFGS": lbfgs, "Adam": adam}


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


class Target(NamedTuple):
    """The numbers of one minimisation: data, prior, scale and which constants are free."""

    measured_log: Array
    root_weights: Array
    scale: Array
    free: Array
    start_log: Array
    prior_log: Array
    prior_log_std: Array


def loss(predict_log: PredictLog, constants: Sequence[Constant], theta: Array, target: Target) -> Array:
    """Pseudo-Huber of the weighted residuals ``log(predicted / measured)`` over the scale, plus the priors."""
    logs = jnp.where(target.free, jnp.log(to_values(constants, theta)), target.start_log)
    residuals = target.root_weights * (predict_log(jnp.exp(logs)) - target.measured_log) / target.scale
    rows = jnp.sum(KNEE**2 * (jnp.sqrt(1 + (residuals / KNEE) ** 2) - 1))
    pulls = jnp.where(target.free, (logs - target.prior_log) / target.prior_log_std, 0.0)
    return rows + 0.5 * jnp.sum(pulls**2)


# Compiled once for each model of the rows: other times, weights, scales and starts are arguments.


@partial(jax.jit, static_argnums=(0, 1, 2))
def minimum(
    predict_log: PredictLog,
    constants: tuple[Constant, ...],
    method: Literal["L-BFGS", "Adam"],
    theta: Array,
    target: Target,
) -> Minimum:
    """The lowest loss that a descent from ``theta`` sees."""
    return METHODS[method](lambda free: loss(predict_log, constants, free, target), theta)


@partial(jax.jit, static_argnums=0)
def predicted(predict_log: PredictLog, logs: Array) -> Array:
    """Logarithms of the values ``[P]`` → log seconds ``[R]``."""
    return predict_log(jnp.exp(logs))


@partial(jax.jit, static_argnums=0)
def jacobian(predict_log: PredictLog, logs: Array) -> Array:
    """Logarithms of the values ``[P]`` → d log seconds / d log value ``[R, P]``."""
    return jax.jacfwd(lambda at: predict_log(jnp.exp(at)))(logs)
