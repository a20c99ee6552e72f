"""Minimise a function of a few numbers: L-BFGS, or Adam where that gets stuck. The loop is Python's.

A model of many rows takes a minute to compile and milliseconds to run; a line search inside jit (optax's) would compile it
several times over. So the rules are optax's, and one compiled evaluation serves every step and every backtracking.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

MOST_STEPS, MOST_ADAM_STEPS = 200, 500
MOST_HALVINGS = 25
SMALL_GRADIENT = 1e-5
"""Of the largest entry: where a step of 1 changes a loss of the order of 1 by nothing that matters."""
SMALL_GAIN = 1e-8
PATIENCE = 5
"""Steps in a row that gain less than ``SMALL_GAIN`` of the loss end the search: at a kink the gradient never gets small."""
ARMIJO = 1e-4
"""The share of the promised gain that a step has to bring."""
_LBFGS = optax.scale_by_lbfgs(memory_size=10)
_ADAM = optax.adam(optax.exponential_decay(0.1, MOST_ADAM_STEPS // 10, 0.6))

ValueAndGrad = Callable[[np.ndarray], tuple[float, np.ndarray]]


class Minimum(NamedTuple):
    """Where, how low, after how many steps; ``converged`` if the gradient vanished or nothing was gained any more."""

    theta: np.ndarray
    loss: float
    steps: int
    converged: bool


@partial(jax.jit, static_argnums=0)
def _update(rule: Any, grad: Any, state: Any, theta: Any) -> tuple[Any, Any]:
    return rule.update(grad, state, theta)


def _direction(rule: Any, grad: np.ndarray, state: Any, theta: np.ndarray) -> tuple[np.ndarray, Any]:
    with jax.numpy_dtype_promotion("standard"):  # optax adds int32 to int64
        updates, state = _update(rule, jnp.asarray(grad), state, jnp.asarray(theta))
    return np.asarray(updates), state


def lbfgs(function: ValueAndGrad, theta: np.ndarray) -> Minimum:
    """From ``theta`` ``[P]``, where ``function`` must be finite: L-BFGS directions, halved until they go down enough."""
    value, grad = function(theta)
    state, idle = _LBFGS.init(jnp.asarray(theta)), 0
    for step in range(MOST_STEPS):
        if np.max(np.abs(grad)) < SMALL_GRADIENT or idle >= PATIENCE:
            return Minimum(theta, value, step, True)
        ascent, state = _direction(_LBFGS, grad, state, theta)
        found = _halve(function, theta, value, grad, ascent) if ascent @ grad > 0 else None
        if found is None:  # negative curvature or a kink lies behind: begin anew
            state, ascent = _LBFGS.init(jnp.asarray(theta)), grad / max(1.0, float(np.linalg.norm(grad)))
            found = _halve(function, theta, value, grad, ascent)
        if found is None:
            rounding = float(ascent @ grad) < SMALL_GAIN * abs(value)  # there was no more than that to gain
            return Minimum(theta, value, step, rounding)
        before = value
        theta, value, grad = found
        idle = idle + 1 if before - value <= SMALL_GAIN * abs(value) else 0
    return Minimum(theta, value, MOST_STEPS, False)


def _halve(
    function: ValueAndGrad, theta: np.ndarray, value: float, grad: np.ndarray, ascent: np.ndarray
) -> tuple[np.ndarray, float, np.ndarray] | None:
    """The first of the full step, half of it, and so on that brings its share of the gain; None if none does."""
    slope = float(ascent @ grad)
    for halvings in range(MOST_HALVINGS):
        size = 0.5**halvings
        trial = theta - size * ascent
        found, slopes = function(trial)
        if np.isfinite(found) and np.all(np.isfinite(slopes)) and found <= value - ARMIJO * size * slope:
            return trial, found, slopes
    return None


def adam(function: ValueAndGrad, theta: np.ndarray) -> Minimum:
    """The best point on Adam's way from ``theta``, with steps that shrink: slow, but no line search that can get stuck."""
    state = _ADAM.init(jnp.asarray(theta))
    best, lowest = theta, np.inf
    for step in range(MOST_ADAM_STEPS):
        value, grad = function(theta)
        if not (np.isfinite(value) and np.all(np.isfinite(grad))):
            return Minimum(best, lowest, step, False)
        if value < lowest:
            best, lowest = theta, value
        if np.max(np.abs(grad)) < SMALL_GRADIENT:
            return Minimum(best, lowest, step, True)
        updates, state = _direction(_ADAM, grad, state, theta)
        theta = theta + updates
    return Minimum(best, lowest, MOST_ADAM_STEPS, True)
