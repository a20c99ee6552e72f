"""``Attention``: what is asked of the chip. Shapes, element type, mask and layout; no tiling and no chip."""

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
from jax.tree_util import register_dataclass

from ascend_jax._pytree import Leaf, all_numbers, is_whole
from ascend_jax.workload.mask import Mask

DType = Literal["float16", "bfloat16", "float32"]
Layout = Literal["BSH", "SBH", "BSND", "BNSD", "TND"]
ELEMENT_BYTES: dict[str, int] = {"float16": 2, "bfloat16": 2, "float32": 4}
ALIASES = {"fp16": "float16", "half": "float16", "bf16": "bfloat16", "fp32": "float32", "float": "float32"}
LEAST = {"batch": 0, "q_heads": 1, "kv_heads": 1, "q_len": 0, "kv_len": 0, "head_dim": 1, "value_dim": 1}

Whole = Leaf
Lengths = Leaf


@register_dataclass
@dataclass(frozen=True, kw_only=True)
class Attention:
    """One attention call.

    Attributes:
      batch: sequences. For variable lengths, how often each entry of ``q_len``/``kv_len`` occurs: one number for all entries
        (1: every entry is one sequence), or a tuple with one count an entry.
      q_heads, kv_heads: query heads and key/value heads; equal (MHA), a divisor (GQA) or 1 (MQA).
      q_len, kv_len: rows of Q and of K/V per sequence; an int, or a list with one length per sequence (TND).
      head_dim, value_dim: columns of Q and K, and of V and O, per head; V is as wide as K unless said.
      mask: which keys a row may see; a ``Mask``, or its text.
      dtype: element type of Q, K, V, O (``float16``, ``bfloat16``, ``float32``), as a name or a dtype.
      layout: order of the axes in GM; decides how long a contiguous burst is.
      latent: V is the first ``value_dim`` columns of K, one tensor that is read once (MLA's cache with absorbed weights).

    Raises:
      ValueError: a value that no operator accepts, with the rule and what would be right.
    """

    batch: Whole
    q_heads: Whole
    kv_heads: Whole
    q_len: Lengths
    kv_len: Lengths
    head_dim: Whole
    value_dim: Whole = None
    mask: Any = field(default_factory=Mask)
    dtype: Any = field(default="float16", metadata={"static": True})
    layout: str = field(default="BNSD", metadata={"static": True})
    latent: bool = field(default=False, metadata={"static": True})

    def __post_init__(self) -> None:
        _as_people_write(self)
        if self.dtype not in ELEMENT_BYTES:
            raise ValueError(f"dtype={self.dtype!r} must be one of {', '.join(ELEMENT_BYTES)} (or {', '.join(ALIASES)})")
        if self.layout not in get_args(Layout):
            raise ValueError(f"layout={self.layout!r} must be one of {', '.join(get_args(Layout))}")
        if not hasattr(self.mask, "bounds"):
            raise ValueError(f"mask={self.mask!r} must be a Mask, or text such as 'causal' that Mask.parse reads")
        _check_numbers(self)

    @property
    def element_bytes(self) -> int:
        """Bytes of one element of Q, K, V or O."""
        return ELEMENT_BYTES[self.dtype]

    @property
    def kv_columns(self) -> Any:
        """Columns of a key/value head's rows in GM: those of K and of V, or of both at once where they are one tensor."""
        return self.head_dim if self.latent else self.head_dim + self.value_dim


def _as_people_write(work: Attention) -> None:
    """Take a dtype of any kind, a mask as text, lists of lengths, and V as wide as K, for what they mean."""
    changes: dict[str, Any] = {}
    if not isinstance(work.dtype, str):
        changes["dtype"] = np.dtype(work.dtype).name
    elif work.dtype in ALIASES:
        changes["dtype"] = ALIASES[work.dtype]
    if isinstance(work.mask, str):
        changes["mask"] = Mask.parse(work.mask)
    if work.value_dim is None:
        changes["value_dim"] = work.head_dim
    for name in ("batch", "q_len", "kv_len"):
        lengths = getattr(work, name)
        if isinstance(lengths, list) or (isinstance(lengths, np.ndarray) and lengths.ndim == 1):
            changes[name] = tuple(int(length) if length == int(length) else length for length in lengths)
    for name, value in changes.items():
        object.__setattr__(work, name, value)


def _check_numbers(work: Attention) -> None:
    for name, least in LEAST.items():
        for value in _entries(getattr(work, name)):
            if all_numbers(value) and not is_whole(value, least):
                raise ValueError(f"{name}={value} must be a whole number of at least {least}")
    if all_numbers(work.q_heads, work.kv_heads) and work.q_heads % work.kv_heads:
        raise ValueError(
            f"q_heads={work.q_heads} must be a multiple of kv_heads={work.kv_heads}: "
            "every key/value head serves the same number of query heads"
        )
    if work.latent and all_numbers(work.head_dim, work.value_dim) and work.value_dim > work.head_dim:
        raise ValueError(f"value_dim={work.value_dim} must be at most head_dim={work.head_dim} where V is part of K (latent)")
    _check_lengths(work)


def _check_lengths(work: Attention) -> None:
    q_len, kv_len, batch = work.q_len, work.kv_len, work.batch
    if isinstance(q_len, tuple) != isinstance(kv_len, tuple):
        raise ValueError("q_len and kv_len must both be one length or both one length per sequence")
    if isinstance(q_len, tuple) and isinstance(kv_len, tuple):
        if len(q_len) != len(kv_len) or not q_len:
            raise ValueError(
                f"q_len has {len(q_len)} lengths and kv_len {len(kv_len)}: give one of each per sequence, at least one"
            )
        if isinstance(batch, tuple) and len(batch) != len(q_len):
            raise ValueError(f"batch has {len(batch)} counts for {len(q_len)} lengths")
        if work.layout != "TND":
            raise ValueError(f"layout={work.layout!r} holds one length for all sequences: use TND for a length per sequence")
    elif isinstance(batch, tuple):
        raise ValueError("batch may be a tuple of counts only where q_len and kv_len are tuples of lengths")


def _entries(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)
