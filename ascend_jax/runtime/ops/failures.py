"""Errors that calls of operators add to those of :mod:`ascend_jax.attention.errors`, and the articles' five kinds."""

from ascend_jax.attention.errors import (
    AclnnError,
    FindKernelError,
    InferShapeError,
    NullptrError,
    ParamInvalidError,
    TilingError,
)
from ascend_jax.runtime.errors import AclError, OpErrorCode


class OpNotFoundError(FindKernelError):
    """No package has the operator; the registry's error with the places that it searched is the cause."""

    @property
    def category(self) -> str:
        """EZ3003, what the device's log says for it."""
        return "EZ3003"


class UbOutOfMemoryError(TilingError):
    """Not even the smallest blocks fit on the chip, after every fallback."""


TIMEOUTS = {507014, 507034, 507048}


def op_error_of(error: BaseException) -> OpErrorCode | None:
    """Which of the articles' five errors ``error`` is; None for another.

    >>> op_error_of(ParamInvalidError("head_num=7", "must equal N1=8", "pass head_num=8")).name
    'SHAPE_MISMATCH'
    """
    if isinstance(error, UbOutOfMemoryError):
        return OpErrorCode.UB_OOM
    if isinstance(error, TilingError | NullptrError):
        return OpErrorCode.TILING_FAILED
    if isinstance(error, ParamInvalidError | InferShapeError):
        return OpErrorCode.SHAPE_MISMATCH
    code = error.code if isinstance(error, AclError | AclnnError) else 0
    if code in TIMEOUTS:
        return OpErrorCode.DMA_TIMEOUT
    return OpErrorCode.COMPILATION_FAILED if code in (500002, 100025) else None
