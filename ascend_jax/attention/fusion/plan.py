"""What the host decides of a call besides whether it may run: which keys each row meets, and what becomes of empty rows."""

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """How the keys that a block of rows meets are found; of ``mask`` kinds the mask given by the user hides more."""

    ALL = "all"  # every key
    CAUSAL = "causal"  # j ≤ i, from the top left
    CAUSAL_RIGHT = "causal_right"  # j ≤ i, from the bottom right
    BAND = "band"  # -pre ≤ j - i ≤ next, from the top left
    BAND_RIGHT = "band_right"  # the same from the bottom right
    PREFIX = "prefix"  # causal from the bottom right, or j < prefix
    BAND_LAST = "band_last"  # the last packed sequence is BAND_RIGHT, the others CAUSAL_RIGHT
    BAND_FIRST = "band_first"  # the first packed sequence is BAND_RIGHT, the others CAUSAL


@dataclass(frozen=True)
class Sparse:
    """The keys that rows meet. ``pre``, ``next``: the sides of a band. ``compressed``: the mask is the fixed small one.

    ``empty_rows``: the host noticed that rows may see no key, and asks for zeros there.
    """

    kind: Kind = Kind.ALL
    pre: int = 0
    next: int = 0
    prefix: tuple[int, ...] = ()
    compressed: bool = False
    empty_rows: bool = False
