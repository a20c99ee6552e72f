"""The last error of a thread: every public call of the runtime leaves what it raised."""

from types import FunctionType
from typing import TypeVar

from ascend_jax.runtime.errors import recorded

Kind = TypeVar("Kind", bound=type)


def recorded_calls(kind: Kind) -> Kind:
    """The class with :func:`errors.recorded` around each of its own public methods."""
    for name, method in list(vars(kind).items()):
        if isinstance(method, FunctionType) and not name.startswith("_"):
            setattr(kind, name, recorded(method))
    return kind
