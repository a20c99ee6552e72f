"""Minimise a smooth function of a few numbers: L-BFGS with a line search, or Adam."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax

MOST_STEPS = 200
MOST_ADAM_STEPS = 1000
SMALL_GRADIENT = 1e-5
"""Of the largest entry: where a step of 1 changes a loss of the order of 1 by nothing that matters."""
SMALL_GAIN = 1e-9
PATIENCE, ADAM_PATIENCE = 5, 50
"""Steps in a row that gain less than ``SMALL_GAIN`` of the loss end the search: a kink's gradient never gets small."""


class Minimum(NamedTuple):
    """Where, how low, after how many steps; ``converged`` if the gradient vanished or nothing was gained any more."""

    theta: Array
    loss: Array
    steps: Array
    converged: Array


class _Search(NamedTuple):
    theta: Array
    state: Any
    best: Array
    lowest: Array
    steps: Array
    idle: Array
    done: Array


def lbfgs(loss: Callable[[Array], Array], theta: Array) -> Minimum:
    """The best point that L-BFGS sees on its way from ``theta`` ``[P]``; jax-traceable."""
    return _descend(loss, theta, optax.lbfgs(), MOST_STEPS, PATIENCE)


def adam(loss: Callable[[Array], Array], theta: Array) -> Minimum:
    """The same for Adam with a step that shrinks: slow, but no line search that can get stuck at a kink."""
    step = optax.exponential_decay(0.1, MOST_ADAM_STEPS // 10, 0.5)
    return _descend(loss, theta, optax.adam(step), MOST_ADAM_STEPS, ADAM_PATIENCE)


def _descend(loss: Callable[[Array], Array], theta: Array, rule: Any, most: int, patience: int) -> Minimum:
    solver = optax.with_extra_args_support(rule)
    value_and_grad = jax.value_and_grad(loss)

    def step(search: _Search) -> _Search:
        value, grad = value_and_grad(search.theta)
        updates: Any
        updates, state = solver.update(grad, search.state, search.theta, value=value, grad=grad, value_fn=loss)
        better = value < search.lowest
        gained = search.lowest - value > SMALL_GAIN * jnp.abs(value)
        idle = jnp.where(gained, 0, search.idle + 1)
        flat = jnp.max(jnp.abs(grad)) < SMALL_GRADIENT
        lost = ~jnp.isfinite(value) | ~jnp.all(jnp.isfinite(grad))
        return _Search(
            theta=jnp.where(lost, search.theta, search.theta + updates),
            state=state,
            best=jnp.where(better, search.theta, search.best),
            lowest=jnp.where(better, value, search.lowest),
            steps=search.steps + 1,
            idle=jnp.where(lost, patience + 1, idle),
            done=flat | lost | (idle >= patience),
        )

    begin = _Search(theta, solver.init(theta), theta, jnp.asarray(jnp.inf), jnp.asarray(0), jnp.asarray(0), jnp.asarray(False))
    with jax.numpy_dtype_promotion("standard"):  # optax adds int32 to int64
        end = lax.while_loop(lambda search: ~search.done & (search.steps < most), step, begin)
    return Minimum(end.best, end.lowest, end.steps, end.done & (end.idle <= patience))
