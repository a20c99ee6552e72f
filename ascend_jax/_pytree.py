"""How a data class of this package becomes a pytree, and how its numbers become arrays.

The house idiom: ``@register_dataclass`` over ``@dataclass(frozen=True, kw_only=True)``; what may be swept or
differentiated is a leaf, what selects a formula is static. Objects a person makes hold plain Python numbers and are
validated in ``__post_init__``; jax rebuilds them with tracers, arrays or placeholders, which ``all_numbers`` tells apart.
"""

import math
from numbers import Real
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

T = TypeVar("T")
Leaf = Any
"""A leaf of a data class: a plain number as a person gives it, an array as the formulas see it (see ``as_arrays``)."""


def all_numbers(*values: Any) -> bool:
    """Whether every value is a plain number that a person could have typed (not a tracer, array or placeholder).

    Raises:
      ValueError: a value is text.
    """
    for value in values:
        if isinstance(value, str):
            raise ValueError(f"{value!r} is text where a number is due: leave out the quotes")
    return all(isinstance(value, Real | np.number) for value in values)


def is_whole(value: Any, least: int) -> bool:
    """Whether ``value`` is a whole number of at least ``least`` (``8`` and ``8.0`` are; ``True`` and ``8.5`` are not)."""
    return not isinstance(value, bool) and math.isfinite(value) and value == int(value) and value >= least


def as_arrays(tree: T) -> T:
    """``tree`` with every leaf as an array of the default float dtype (float64 under x64, else float32).

    One dtype for all leaves keeps weak types and integers out of the formulas: a Python float after a float32 leaf
    would trace again, and int32 products of lengths wrap.
    """
    dtype = jnp.result_type(float)
    return jax.tree.map(lambda leaf: _as_array(leaf, dtype), tree)


def _as_array(leaf: Any, dtype: Any) -> Any:
    return jnp.asarray(leaf, dtype) if isinstance(leaf, jax.Array) else np.asarray(leaf, dtype)
