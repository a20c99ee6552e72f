"""What every operator asks of an argument first: that it is a tensor, or a number that is known when the call is traced."""

import operator
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from ascend_jax.attention.errors import ParamInvalidError


def check_tensor(name: str, given: Any) -> None:
    """``given`` has a shape and a dtype, or is None; raises ParamInvalidError."""
    if given is not None and not (hasattr(given, "shape") and hasattr(given, "dtype")):
        raise ParamInvalidError(f"{name} of type {type(given).__name__}", "must be a tensor", f"pass jnp.asarray({name})")


def whole_number(name: str, given: Any) -> int:
    """An attribute that is a whole number; raises ParamInvalidError.

    >>> whole_number("head_num", np.int64(8))
    8
    """
    try:
        return operator.index(given)
    except TypeError:
        rule = "must be a whole number that is known when the call is traced"
        raise ParamInvalidError(f"{name}={given!r}", rule, f"pass a number as {name}") from None


def real_number(name: str, given: Any) -> Any:
    """An attribute that is a number, as a float; a traced one stays what it is. Raises ParamInvalidError."""
    if isinstance(given, Tracer) and given.shape == () and not jnp.issubdtype(given.dtype, jnp.complexfloating):
        return given
    try:
        return float(given)
    except (TypeError, ValueError):
        raise ParamInvalidError(f"{name}={given!r}", "must be a number", f"pass a number as {name}") from None


def traced(number: Any) -> bool:
    """Whether the value is known only when the program runs: rules about it cannot be checked."""
    return isinstance(number, Tracer)


def whole_numbers(name: str, given: Any) -> tuple[int, ...]:
    """A list of whole numbers, or a concrete array of them, as a tuple; () for None; raises ParamInvalidError.

    >>> whole_numbers("actual_seq_qlen", [3, 5])
    (3, 5)
    """
    try:
        values = np.asarray(() if given is None else given).reshape(-1)
    except (TypeError, ValueError):  # traced, or lists of several lengths
        values = np.array([np.nan])
    if values.size and not np.issubdtype(values.dtype, np.integer):
        rule = "must be whole numbers that are known when the call is traced"
        raise ParamInvalidError(f"{name}={given!r}", rule, f"pass {name} as a list of whole numbers")
    return tuple(int(number) for number in values)
