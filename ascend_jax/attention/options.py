"""What may be asked of the tiled attention: which keys a row sees, how it is cut, and what is done to the scores."""

from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from jax import Array

from ascend_jax.attention.arguments import flag, in_a_line, traced
from ascend_jax.attention.errors import ParamInvalidError
from ascend_jax.tiling.tiling import Tiling

FAR = 2**29
"""Farther than any row or key: sides of a window are clipped to it, so that sums of them stay within int32."""


class Window(NamedTuple):
    """Row i sees key j iff ``lower ≤ j - i ≤ upper`` or ``j < prefix``: whole numbers, or int arrays ``[sequences]``."""

    lower: Any = -FAR
    upper: Any = FAR
    prefix: Any = 0

    @classmethod
    def full(cls) -> "Window":
        """Every key."""
        return cls()


@dataclass(frozen=True)
class Settings:
    """How scores are made, and how the work is cut. ``scale``, ``alibi_shift`` and ``keep_prob`` are numbers of the program:
    they may be traced, and another value compiles nothing anew. All else is fixed when the program is compiled.

    Attributes:
      scale: multiplies the scores; traced, it has a gradient.
      block_q, block_kv: rows of Q, and of K and V, of one block. A block longer than the sequence is the sequence.
      pse_type: 1 adds the bias before the scale, 0 after it; 2 and 3 add ``slope · -|j - i - alibi_shift|`` and the same of
        its square root, after the scale.
      alibi_shift: ``q_start_idx - kv_start_idx``.
      keep_prob: share of the probabilities that dropout keeps.
      zero_empty_rows: a row that sees no key gives 0, with maximum ``-FLT_MAX`` and sum ``+FLT_MAX`` (``inner_precise`` 2).
        Otherwise it gives the mean of V over the keys of its computed blocks, as the kernel does.
      round_probs: the Cube's own rounding: P to the input type before P·V, and dS before dQ and dK. Without it nothing but the
        results is rounded, and a gradient that is given a saved output, which is, computes it again.
    """

    scale: Any = 1.0
    block_q: int = 128
    block_kv: int = 128
    pse_type: int = 1
    alibi_shift: Any = 0
    keep_prob: Any = 1.0
    zero_empty_rows: bool = False
    round_probs: bool = False


class Fixed(NamedTuple):
    """What of :class:`Settings` is fixed when a program is compiled."""

    block_q: int
    block_kv: int
    pse_type: int
    zero_empty_rows: bool
    round_probs: bool

    @classmethod
    def of(cls, settings: Settings) -> "Fixed":
        """The part of ``settings``."""
        return cls(*(getattr(settings, name) for name in cls._fields))


class Numbers(NamedTuple):
    """The rest: scalars, which a program takes as it takes tensors."""

    scale: Any
    alibi_shift: Any
    keep_prob: Any


class How(NamedTuple):
    """What a user says of the numerics of an operator, beside its own arguments; fields as in :class:`Settings`."""

    block_q: int
    block_kv: int
    round_probs: bool

    @classmethod
    def of(cls, tiling: Tiling | None, default: tuple[int, int], round_probs: bool) -> "How":
        """The blocks of ``tiling``, or the ``default`` ones without it; raises ParamInvalidError."""
        if tiling is not None and not isinstance(tiling, Tiling):
            raise ParamInvalidError(f"tiling={in_a_line(tiling)}", "must be a Tiling", "pass ascend_jax.Tiling(…)")
        blocks = default if tiling is None else (int(tiling.block_q), int(tiling.block_kv))
        return cls(*blocks, flag("round_probs", round_probs))


class Extras(NamedTuple):
    """Tensors beside Q, K and V. ``sequences`` is the batch, or the number of packed sequences with S1, S2 the longest.

    Attributes:
      bias: ``[sequences|1, N1|1, S1|1, S2]``, pse of type 0 or 1.
      slopes: ``[sequences|1, N1]`` float32, pse of type 2 or 3.
      masked: bool ``[sequences|1, N1|1, S1, S2]``, True where the key is masked; for packed sequences also ``[T, T2]``, of
        all tokens of Q and of K/V.
      keep: bool ``[sequences|1, N1|1, S1, S2]``, True where dropout keeps the probability.
      philox: ``(seed, offset)``, each a ``(low, high)`` pair of uint32: the same, drawn block by block; one sequence draws
        behind the other. ``block_kv`` is then a multiple of 16, as many keys as a draw serves.
      sink: float ``[N1]``: one more score per row whose probability goes to no key.
    """

    bias: Array | None = None
    slopes: Array | None = None
    masked: Array | None = None
    keep: Array | None = None
    philox: tuple[Any, Any] | None = None
    sink: Array | None = None


@dataclass(frozen=True)
class Packed:
    """Sequences that lie behind one another in one row of tokens: first token and length of each, in Q and in K/V.

    Lists, arrays, or traced arrays. Of traced ones nothing is checked: sequences that do not lie within the tokens, or share
    some, give wrong numbers.
    """

    q_starts: Any
    q_lens: Any
    kv_starts: Any
    kv_lens: Any

    def __post_init__(self) -> None:
        for field in fields(self):
            given = getattr(self, field.name)
            if not traced(given):
                object.__setattr__(self, field.name, tuple(int(number) for number in given))

    @property
    def known(self) -> bool:
        """Whether the host knows all of them."""
        return not any(traced(getattr(self, field.name)) for field in fields(self))


class Sequences(NamedTuple):
    """The same as a program takes it, int32 ``[sequences]`` each."""

    q_starts: Any
    q_lens: Any
    kv_starts: Any
    kv_lens: Any


class Used(NamedTuple):
    """How many rows and keys of each sequence of a batch exist: int arrays ``[B]``; None: all."""

    q_lens: Any = None
    kv_lens: Any = None


class Attended(NamedTuple):
    """``out [B, N1, S1, Dv]``, ``softmax_max`` and ``softmax_sum [B, N1, S1]``, ``blocks [B, N1, q blocks]`` computed.

    Of packed sequences ``blocks`` has a place for as many as the shapes allow, with zeros at its end.
    """

    out: Array
    softmax_max: Array
    softmax_sum: Array
    blocks: Array


def clipped(side: Any) -> Any:
    """A side of a window within ±``FAR``; numbers and numpy arrays stay on the host."""
    if isinstance(side, Array):
        return side.clip(-FAR, FAR).astype(np.int32)
    return np.clip(np.asarray(side, np.int64), -FAR, FAR).astype(np.int32)
