"""Sums of rounded-down straight lines: how many grid cells lie below a slanted line, without a loop over the columns."""

import jax
import jax.numpy as jnp
from jax import Array, lax


def floor_div(value: Array, step: Array) -> Array:
    """``⌊value / step⌋`` for whole floats, exact where both and their product with the quotient are exact.

    The remainder tells whether the quotient is one off (see ``rounding.floor_div``, which is cheaper but ends earlier).
    """
    quotient = jnp.floor(value / step)
    rest = value - quotient * step
    return quotient + jnp.where(rest >= step, 1, 0) - jnp.where(rest < 0, 1, 0)


def ceil_div(value: Array, step: Array) -> Array:
    """``⌈value / step⌉`` for whole floats; exact where :func:`floor_div` is."""
    return -floor_div(-value, step)


def floor_sum(terms: Array, modulus: Array, slope: Array, offset: Array) -> Array:
    """``Σ ⌊(slope · i + offset) / modulus⌋`` over ``0 ≤ i < terms``, in as many steps as Euclid's algorithm takes.

    Whole numbers in floats of rank 0, none negative, ``modulus`` at least 1. Exact while the sum and
    ``slope · terms + offset`` are below 2^24 (float32) or 2^53 (float64). No reverse mode: a ``while_loop``.

    Each step takes the whole part of slope and offset out of the sum (a triangle and a rectangle); what is left are the
    grid points below a line flatter than 1, counted by columns in the next step: rows become columns.
    Source: floor_sum of the AtCoder Library (2020); Graham, Knuth, Patashnik, Concrete Mathematics, section 3.5.
    """

    def unfinished(state: tuple[Array, ...]) -> Array:
        return state[0] > 0

    def take_whole_parts(state: tuple[Array, ...]) -> tuple[Array, ...]:
        n, m, a, b, total = state
        whole_a, whole_b = floor_div(a, m), floor_div(b, m)
        a, b = a - whole_a * m, b - whole_b * m
        # n · ((n-1)/2) rounds once, at the end; (n·(n-1))/2 would leave 2^24 twice as early.
        total = total + whole_a * (n * ((n - 1) * 0.5)) + whole_b * n
        top = a * n + b
        columns = floor_div(top, m)
        # At a = 0 the sum is finished (top < m, so 0 columns); the next modulus must only not be 0.
        return columns, jnp.maximum(a, 1), m, top - columns * m, total

    start = (terms, modulus, slope, offset, jnp.zeros_like(terms))
    return lax.while_loop(unfinished, take_whole_parts, start)[-1]


def clipped_floor_sum(terms: Array, modulus: Array, slope: Array, offset: Array, least: Array, most: Array) -> Array:
    """``Σ clip(⌊(slope · i + offset) / modulus⌋, least, most)`` over ``0 ≤ i < terms``.

    Whole numbers in floats of rank 0; ``offset`` may be negative, ``slope`` and ``modulus`` are at least 1 and
    ``0 ≤ least ≤ most``. Exact where :func:`floor_sum` is.
    """
    rising = jnp.clip(ceil_div(least * modulus - offset, slope), 0, terms)  # before it every term is clipped to least
    risen = jnp.clip(ceil_div(most * modulus - offset, slope), 0, terms)  # from it on every term is clipped to most
    between = floor_sum(risen - rising, modulus, slope, slope * rising + offset - least * modulus)
    # Where nothing lies between, the offset above may be negative; floor_sum of no terms is 0 whatever it is.
    return least * risen + most * (terms - risen) + between


clipped_floor_sums = jax.vmap(clipped_floor_sum, in_axes=(None, None, None, 0, 0, 0))
"""Several lines of one slope at once (``offset``, ``least``, ``most`` of shape ``[K]``): one loop instead of K."""
