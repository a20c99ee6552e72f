"""``Mask``: which keys a row may see. Every mask of the operator is a band of diagonals, a prefix of columns, or both."""

import re
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

import jax.numpy as jnp
from jax import Array
from jax.tree_util import register_dataclass

from ascend_jax._pytree import Leaf, all_numbers, is_whole

Whole = Leaf
Kind = Literal["none", "left_up_causal", "causal", "band", "prefix"]


class Bounds(NamedTuple):
    """Row i sees key j iff ``lower ≤ j - i ≤ upper`` or ``j < prefix``. Finite for every mask; ``prefix`` is 0 without one."""

    lower: Array
    upper: Array
    prefix: Array


@register_dataclass
@dataclass(frozen=True, kw_only=True)
class Mask:
    """One of the operator's masks, for any lengths (row i of q_len, key j of kv_len; sparse_mode of FlashAttentionScore).

    ``none``: every key. ``left_up_causal`` (mode 2): ``j ≤ i``. ``causal`` (mode 3, right-down): ``j ≤ i + kv_len - q_len``.
    ``band`` (mode 4, origin at the lower right): ``-pre ≤ j - i - (kv_len - q_len) ≤ next``. ``prefix`` (modes 5 and 6):
    ``causal`` or ``j < prefix``.

    Raises:
      ValueError: an unknown kind, a band that is empty (``pre + next < 0``), a negative prefix, or one that is not whole.
    """

    kind: str = field(default="none", metadata={"static": True})
    pre: Whole = 0
    next: Whole = 0
    prefix: Whole = 0

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise ValueError(f"mask kind={self.kind!r} must be one of {', '.join(get_args(Kind))}")
        if not all_numbers(self.pre, self.next, self.prefix):
            return
        if not (is_whole(abs(self.pre), 0) and is_whole(abs(self.next), 0)):
            raise ValueError(f"band pre={self.pre}, next={self.next} must be whole numbers (either may be negative)")
        if self.pre + self.next < 0:
            raise ValueError(f"band pre={self.pre}, next={self.next} keeps no key: pre + next must be at least 0")
        if not is_whole(self.prefix, 0):
            raise ValueError(f"prefix={self.prefix} must be a whole number of at least 0")

    @classmethod
    def parse(cls, text: str) -> "Mask":
        """``none``, ``causal``, ``left-up-causal``, ``band:PRE,NEXT`` or ``prefix:N`` as a mask.

        >>> Mask.parse("band:4096,0")
        Mask(kind='band', pre=4096, next=0, prefix=0)
        """
        if text in ("none", "causal", "left-up-causal"):
            return cls(kind=text.replace("-", "_"))
        if found := re.fullmatch(r"band:(-?\d+),(-?\d+)", text):
            return cls(kind="band", pre=int(found[1]), next=int(found[2]))
        if found := re.fullmatch(r"prefix:(\d+)", text):
            return cls(kind="prefix", prefix=int(found[1]))
        raise ValueError(f"mask {text!r} must be none, causal, left-up-causal, band:PRE,NEXT or prefix:N (whole numbers)")

    def __str__(self) -> str:
        """The text that :meth:`parse` reads."""
        match self.kind:
            case "band":
                return f"band:{self.pre},{self.next}"
            case "prefix":
                return f"prefix:{self.prefix}"
        return self.kind.replace("_", "-")

    def bounds(self, q_len: Array, kv_len: Array) -> Bounds:
        """The mask's band and prefix for float lengths of rank 0; an open side lies just outside the matrix."""
        shift = kv_len - q_len
        lower, upper, prefix = -q_len, kv_len, jnp.zeros_like(kv_len)
        match self.kind:
            case "left_up_causal":
                upper = jnp.zeros_like(kv_len)
            case "causal":
                upper = shift
            case "band":
                # Clipped to the matrix: a side far outside (the operator's default is 2^31 - 1) is no whole number in float32.
                lower, upper = jnp.clip(shift - self.pre, -q_len, kv_len), jnp.clip(shift + self.next, -q_len, kv_len)
            case "prefix":
                upper, prefix = shift, jnp.minimum(self.prefix + 0 * kv_len, kv_len)
        return Bounds(lower, upper, prefix)
