"""The largest of several numbers or ratios, with a gradient that selects instead of following a chain of rules."""

from collections.abc import Iterable
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax


def largest(values: Iterable[Any]) -> Array:
    """``max(values)`` elementwise. Its gradient goes to the first of the largest; a chain of ``jnp.maximum`` splits ties.

    >>> float(jax.grad(lambda x: largest([2 * x, x + 1, 5 * x]))(2.0))
    5.0
    """
    return _largest(tuple(values))


@jax.custom_jvp
def _largest(values: tuple[Array, ...]) -> Array:
    return reduce(lax.max, values)


@_largest.defjvp
def _largest_jvp(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Array, Array]:
    ((values,), (slopes,)) = primals, tangents
    most = _largest(values)
    slope = slopes[-1]
    for value, other in zip(reversed(values[:-1]), reversed(slopes[:-1]), strict=True):
        slope = jnp.where(value == most, other, slope)
    return most, slope


def largest_ratio(times: Iterable[Any], counts: Iterable[Any]) -> Array:
    """``max(time / count)`` elementwise; its gradient goes to the first of the largest.

    >>> float(jax.grad(lambda x: largest_ratio([x, 1.0], [x * x, 4.0]))(2.0))
    -0.25
    """
    return _largest_ratio(tuple(times), tuple(counts))


@jax.custom_jvp
def _largest_ratio(times: tuple[Array, ...], counts: tuple[Array, ...]) -> Array:
    return reduce(lax.max, map(lax.div, times, counts))


@_largest_ratio.defjvp
def _largest_ratio_jvp(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Array, Array]:
    most = _largest_ratio(*primals)
    rows = list(zip(*primals, *tangents, strict=True))
    _, count, time_slope, count_slope = rows[-1]
    for time, other, *slopes in reversed(rows[:-1]):
        chosen = time / other == most
        count = jnp.where(chosen, other, count)
        time_slope, count_slope = jnp.where(chosen, slopes[0], time_slope), jnp.where(chosen, slopes[1], count_slope)
    return most, (time_slope - most * count_slope) / count
