"""How the formulas round up and down: a static strategy object, passed as an argument, never a flag inside a formula."""

from collections.abc import Callable
from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array
from jax.lax import stop_gradient


@dataclass(frozen=True)
class Rounding:
    """Rounding up, down and to a count.

    Attributes:
      name: for people.
      ceil, floor: elementwise on float arrays.
      count: takes an exact count and its continuous counterpart (both float arrays) and returns the one to use.
    """

    name: str
    ceil: Callable[[Array], Array]
    floor: Callable[[Array], Array]
    count: Callable[[Array, Array], Array]

    def ceil_div(self, value: Array, step: Array) -> Array:
        """``⌈value / step⌉``."""
        return self.ceil(value / step)

    def round_up(self, value: Array, step: Array) -> Array:
        """``value`` rounded up to a multiple of ``step``."""
        return self.ceil(value / step) * step

    def round_down(self, value: Array, step: Array) -> Array:
        """``value`` rounded down to a multiple of ``step``."""
        return self.floor(value / step) * step


def _straight_through(exact: Array, smooth: Array) -> Array:
    return smooth + stop_gradient(exact - smooth)


EXACT = Rounding("exact", jnp.ceil, jnp.floor, lambda exact, smooth: exact)
"""What the hardware does; its gradient by a block size is 0 almost everywhere."""

STRAIGHT_THROUGH = Rounding(
    "straight_through",
    lambda x: _straight_through(jnp.ceil(x), x),
    lambda x: _straight_through(jnp.floor(x), x),
    lambda exact, smooth: _straight_through(stop_gradient(exact), smooth),
)
"""The exact value with the gradient of the smooth one."""

SMOOTH = Rounding("smooth", lambda x: x, lambda x: x, lambda exact, smooth: smooth)
"""No rounding at all: a lower bound that is differentiable by block sizes."""
