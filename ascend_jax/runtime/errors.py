"""What the runtime raises: CANN's codes by number and name, each with its cause and its remedy.

The table is ``error_codes.toml``. The first digit of a code says who can help: 1 the caller, 2 whoever shares out resources,
3 the state of the business, 5 the makers of software and hardware (aclError's documentation of CANN's runtime).
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from functools import cache, wraps
from importlib.resources import files
from typing import Any, ParamSpec, TypeVar

from ascend_jax._toml import read_toml
from ascend_jax.attention.errors import AclnnError

UNKNOWN = 500000
"""What a code that the table does not hold becomes (rule 5 of aclError's documentation)."""

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class ErrorInfo:
    """One row of the table.

    Attributes:
      code, name: the number and the name that CANN gives it.
      meaning, cause, remedy: what it says, why it comes as a rule, and what helps as a rule.
      category: the text code that stands beside it in CANN's log (``EE1001``), or "" where none fits.
    """

    code: int
    name: str
    meaning: str
    cause: str = ""
    remedy: str = ""
    category: str = ""


@cache
def error_table() -> dict[int, ErrorInfo]:
    """Every code of the table, in the order of the file."""
    return {int(code): ErrorInfo(int(code), **row) for code, row in _document()["code"].items()}


@cache
def categories() -> dict[str, str]:
    """The text codes and what they stand for.

    >>> categories()["EE1010"]
    'an object does not belong to the current context'
    """
    return _document()["category"]


def error_info(code: int) -> ErrorInfo:
    """The row of ``code``; that of 500000 for a code that the table does not hold.

    >>> error_info(107002).name, error_info(123456).code
    ('ACL_ERROR_RT_CONTEXT_NULL', 500000)
    """
    table = error_table()
    return table.get(code, table[UNKNOWN])


class AclError(RuntimeError):
    """A call that the runtime refuses, or that failed. ``raise AclError(107002, "thread 'worker' has no current device")``.

    Args:
      code: the number of the table; an unknown one becomes 500000.
      what: what is wrong, with its values: the first line of the message.
      cause, remedy, category: what the table says where they are not given.

    Attributes:
      code, name: the number and its name.
      what, cause, remedy, category: as above.
    """

    def __init__(
        self, code: int, what: str, *, cause: str | None = None, remedy: str | None = None, category: str | None = None
    ) -> None:
        info = error_info(code)
        self.code, self.name, self.what = info.code, info.name, what
        self.cause = info.cause if cause is None else cause
        self.remedy = info.remedy if remedy is None else remedy
        self.category = info.category if category is None else category
        status = f"{self.category} {self.name} ({self.code})".lstrip()
        told = {"": status, "Cause: ": self.cause, "Remedy: ": self.remedy}
        super().__init__("\n".join([what, *(f"{label}{text}" for label, text in told.items() if text)]))

    def __reduce__(self) -> tuple[Callable[..., "AclError"], tuple[object, ...]]:
        return _rebuild, (type(self), self.code, self.what, self.cause, self.remedy, self.category)


class OutOfMemoryError(AclError):
    """The device has no memory for an allocation (207001); ``what`` holds the report."""


class OpErrorCode(IntEnum):
    """The five errors of the articles and the codes of CANN that come nearest.

    >>> OpErrorCode.UB_OOM.error("the tile needs 40 bytes more").code
    561002
    """

    SHAPE_MISMATCH = 1
    TILING_FAILED = 2
    UB_OOM = 3
    COMPILATION_FAILED = 4
    DMA_TIMEOUT = 5

    @property
    def code(self) -> int:
        """CANN's code: UB runs over when the host plans the tiling, not when the kernel runs (that would be 507035)."""
        return {1: 161002, 2: 561002, 3: 561002, 4: 500002, 5: 507014}[self.value]

    def error(self, what: str, *, remedy: str | None = None) -> AclError:
        """The exception for it; ``what`` is the first line of its message."""
        return AclError(self.code, what, remedy=remedy)


class _LastError(threading.local):
    error: AclError | AclnnError | None = None
    message: str = ""


_LAST = _LastError()


def record(error: AclError | AclnnError) -> None:
    """Make ``error`` this thread's last one, as every call of the runtime that fails does."""
    _LAST.error, _LAST.message = error, str(error)


def peek_at_last_error() -> int:
    """The code of this thread's last error, 0 without one; it stays.

    >>> record(AclError(107002, "no device is set"))
    >>> peek_at_last_error(), get_last_error(), get_last_error()
    (107002, 107002, 0)
    """
    return 0 if _LAST.error is None else _LAST.error.code


def get_last_error() -> int:
    """The code of this thread's last error, 0 without one; the next call gives 0."""
    code, _LAST.error = peek_at_last_error(), None
    return code


def get_recent_err_msg() -> str:
    """The text of this thread's last error, "" without one; the next call gives ""."""
    message, _LAST.message = _LAST.message, ""
    return message


def recorded(function: Callable[P, R]) -> Callable[P, R]:
    """A call of the API: an error that leaves it is recorded as this thread's last one."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except (AclError, AclnnError) as error:
            record(error)
            raise

    return call


@cache
def _document() -> dict[str, Any]:
    return read_toml(files("ascend_jax.runtime") / "error_codes.toml")


def _rebuild(kind: type[AclError], code: int, what: str, cause: str, remedy: str, category: str) -> AclError:
    return kind(code, what, cause=cause, remedy=remedy, category=category)
