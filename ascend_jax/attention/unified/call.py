"""One call of ``flash_attn``: every argument, as given, and how arguments are shown in messages."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jax.typing import ArrayLike

from ascend_jax.attention.arguments import check_tensor, check_text, real_number, whole_number, whole_numbers

PAGED = ("PA_BBND", "PA_BNBD", "PA_NZ")
"""Layouts of keys and values that lie in pages."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """The arguments of one call. Tensors are anything with ``shape`` and ``dtype``; None: not given.

    Attributes:
      q, k, v: in ``layout_q``, ``layout_kv``, ``layout_kv``.
      block_table: int32 ``[B, pages per sequence]``: the pages of each sequence.
      cu_seqlens_q, cu_seqlens_kv: int32 ``[B + 1]``: where packed sequences begin and end.
      seqused_q, seqused_kv: int32 ``[B]``: rows and keys of each sequence that count.
      sinks: float32 ``[N1]``; attn_mask: int8 ``[2048, 2048]``; metadata: int32 ``[any]``.
      softmax_scale: multiplies the scores.
      mask_mode: 0 all keys, 3 causal (the last row sees the last key), 4 a band.
      win_left, win_right: keys that a row of mode 4 sees before and behind its own; -1: all.
      max_seqlen_q, max_seqlen_kv: longest lengths, -1 if not known; nothing here needs them.
      return_softmax_lse: whether the logarithm of the softmax's sum is wanted.
    """

    q: Any
    k: Any
    v: Any
    block_table: Any = None
    cu_seqlens_q: Any = None
    cu_seqlens_kv: Any = None
    seqused_q: Any = None
    seqused_kv: Any = None
    sinks: Any = None
    attn_mask: Any = None
    metadata: Any = None
    softmax_scale: Any = 1.0
    mask_mode: int = 0
    win_left: int = -1
    win_right: int = -1
    max_seqlen_q: int = -1
    max_seqlen_kv: int = -1
    layout_q: str = "BSND"
    layout_kv: str = "BSND"
    layout_out: str = "BSND"
    return_softmax_lse: bool = False

    @property
    def paged(self) -> bool:
        """Whether keys and values lie in pages."""
        return self.layout_kv in PAGED


def with_numbers(call: Call) -> Call:
    """The call with its attributes as plain numbers, its tensors known to be tensors; raises ParamInvalidError."""
    for name in ("q", "k", "v", "block_table", "sinks", "attn_mask", "metadata"):
        check_tensor(name, getattr(call, name))
    for name in ("layout_q", "layout_kv", "layout_out"):
        check_text(name, getattr(call, name))
    whole = ("mask_mode", "win_left", "win_right", "max_seqlen_q", "max_seqlen_kv", "return_softmax_lse")
    numbers: dict[str, Any] = {name: whole_number(name, getattr(call, name)) for name in whole}
    return replace(call, **numbers, softmax_scale=real_number("softmax_scale", call.softmax_scale))


def as_int32(name: str, x: ArrayLike | Sequence[int] | None) -> Any:
    """Whole numbers as an int32 array; tensors stay what they are. Raises ParamInvalidError.

    >>> as_int32("cu_seqlens_q", (0, 3)).dtype
    dtype('int32')
    """
    if x is None or hasattr(x, "shape"):
        return x
    whole_numbers(name, x)
    return np.atleast_1d(np.asarray(x, np.int32))


def shown(name: str, x: Any) -> str:
    """A tensor in a message.

    >>> shown("k", np.zeros((2, 3), np.int8))
    'k int8[2, 3]'
    """
    return f"{name} {x.dtype}{list(x.shape)}"
