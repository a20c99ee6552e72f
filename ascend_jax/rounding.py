"""How the formulas round up and down: a static strategy object, passed as an argument, never a flag inside a formula."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array
from jax.lax import stop_gradient

Step = Array | float


def floor_div(value: Array, step: Step) -> Array:
    """``⌊value / step⌋`` for whole floats below 2^22 (float32) or 2^51 (float64).

    ``jnp.floor(value / step)`` alone is not enough: with a constant ``step`` XLA multiplies by its reciprocal, and
    ``floor(41 * (1 / 41))`` is 0 in float32. Half a unit keeps the quotient clear of the next whole number. A literal
    power of two has an exact reciprocal: it needs no help, takes fractions, and is exact for any value.
    """
    if isinstance(step, int | float) and math.frexp(step)[0] == 0.5:
        return jnp.floor(value * (1 / step))
    return jnp.floor((value + 0.5) / step)


def ceil_div(value: Array, step: Step) -> Array:
    """``⌈value / step⌉`` for whole floats; as exact as :func:`floor_div`."""
    if isinstance(step, int | float) and math.frexp(step)[0] == 0.5:
        return jnp.ceil(value * (1 / step))
    return jnp.ceil((value - 0.5) / step)


@dataclass(frozen=True)
class Rounding:
    """Rounding up, down and to a count.

    Attributes:
      name: for people.
      count: takes an exact result and its continuous counterpart (float arrays) and returns the one to use.
    """

    name: str
    count: Callable[[Array, Array], Array]

    def ceil(self, value: Array) -> Array:
        """``⌈value⌉`` of any value."""
        return self.count(jnp.ceil(value), value)

    def ceil_div(self, value: Array, step: Step) -> Array:
        """``⌈value / step⌉`` of whole numbers."""
        return self.count(ceil_div(value, step), value / step)

    def floor_div(self, value: Array, step: Step) -> Array:
        """``⌊value / step⌋`` of whole numbers."""
        return self.count(floor_div(value, step), value / step)

    def round_up(self, value: Array, step: Step) -> Array:
        """``value`` rounded up to a multiple of ``step``."""
        return self.count(ceil_div(value, step) * step, value)

    def round_down(self, value: Array, step: Step) -> Array:
        """``value`` rounded down to a multiple of ``step``."""
        return self.count(floor_div(value, step) * step, value)


def _straight_through(exact: Array, smooth: Array) -> Array:
    return smooth + stop_gradient(exact - smooth)


EXACT = Rounding("exact", lambda exact, smooth: exact)
"""What the hardware does; its gradient by a block size is 0 almost everywhere."""

STRAIGHT_THROUGH = Rounding("straight_through", _straight_through)
"""The exact value with the gradient of the smooth one."""

SMOOTH = Rounding("smooth", lambda exact, smooth: smooth)
"""No rounding at all: differentiable by block sizes, and a little below the exact value while blocks lie within the lengths."""
