"""What every operator asks of an argument first: that it is a tensor, or a number that is known when the call is traced."""

import operator
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from ascend_jax.attention.errors import ParamInvalidError

INT64 = np.iinfo(np.int64)
LONGEST_SHOWN = 100
"""Characters of a wrong value that a message shows."""


def check_tensor(name: str, given: Any) -> None:
    """``given`` has a shape and a dtype, or is None; raises ParamInvalidError."""
    if given is not None and not (hasattr(given, "shape") and hasattr(given, "dtype")):
        raise ParamInvalidError(f"{name} of type {type(given).__name__}", "must be a tensor", f"pass jnp.asarray({name})")


def whole_number(name: str, given: Any) -> int:
    """An attribute that is a whole number of 64 bits, as the operator takes it; raises ParamInvalidError.

    >>> whole_number("head_num", np.int64(8))
    8
    """
    try:
        number = operator.index(given)
    except TypeError:
        rule = "must be a whole number that is known when the call is traced"
        raise ParamInvalidError(f"{name}={in_a_line(given)}", rule, f"pass a number as {name}") from None
    if not INT64.min <= number <= INT64.max:
        raise ParamInvalidError(f"{name}={number}", "must be a whole number of 64 bits", f"pass a smaller number as {name}")
    return number


def check_text(name: str, given: Any) -> None:
    """An attribute that is a name, such as a layout; raises ParamInvalidError."""
    if not isinstance(given, str):
        raise ParamInvalidError(f"{name}={in_a_line(given)}", "must be a string", f"pass {name} as a string")


def flag(name: str, given: Any) -> bool:
    """An attribute that is true or false: a bool, or 0 or 1; raises ParamInvalidError."""
    if isinstance(given, bool | np.bool_):
        return bool(given)
    number = whole_number(name, given)
    if number not in (0, 1):
        raise ParamInvalidError(f"{name}={number}", "must be True or False", f"pass {name}=True or {name}=False")
    return number == 1


def in_a_line(given: Any) -> str:
    """What was given, for the first line of a message.

    >>> in_a_line(np.eye(2))
    'array([[1., 0.], [0., 1.]])'
    """
    shown = " ".join(repr(given).split())
    return shown if len(shown) <= LONGEST_SHOWN else shown[:LONGEST_SHOWN] + "…"


def real_number(name: str, given: Any) -> Any:
    """An attribute that is a number, as a float; a traced one stays what it is. Raises ParamInvalidError."""
    if isinstance(given, Tracer) and given.shape == () and not jnp.issubdtype(given.dtype, jnp.complexfloating):
        return given
    try:
        return float(given)
    except (TypeError, ValueError, OverflowError):
        raise ParamInvalidError(f"{name}={in_a_line(given)}", "must be a number", f"pass a number as {name}") from None


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
        raise ParamInvalidError(f"{name}={in_a_line(given)}", rule, f"pass {name} as a list of whole numbers")
    return tuple(int(number) for number in values)
