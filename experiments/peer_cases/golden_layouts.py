"""Between the layouts of the operators and sequences ``[N, S, D]``, for the goldens; nothing of the package is used."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from experiments.peer_cases.goldens import Floats

Call = dict[str, Any]
Results = dict[str, Floats]


class UncoveredError(Exception):
    """No golden for this form."""


def split(x: Any, layout: str, heads: int) -> Floats:
    """A tensor as ``[B, N, S, D]``, or packed as ``[N, T, D]``."""
    x = np.asarray(x, np.float64)
    if "H" in layout:
        x, layout = x.reshape(*x.shape[:2], heads, x.shape[2] // max(1, heads)), layout.replace("H", "ND")
    return np.transpose(x, [layout.index(axis) for axis in ("NTD" if "T" in layout else "BNSD")])


def join(pieces: list[Floats], starts: Iterable[int], layout: str, tokens: int, rest: float = 0) -> Floats:
    """Sequences ``[N, S, D]`` as the tensor of a layout; ``rest`` where there is none. ``tokens``: S, or T of packed ones."""
    heads, _, width = pieces[0].shape
    packed = "T" in layout
    whole = np.full((heads, tokens, width) if packed else (len(pieces), heads, tokens, width), rest, np.float64)
    for index, (piece, start) in enumerate(zip(pieces, starts, strict=True)):
        target = whole if packed else whole[index]
        target[:, start : start + piece.shape[1]] = piece
    order = layout.replace("H", "ND")
    found = np.transpose(whole, [("NTD" if packed else "BNSD").index(axis) for axis in order])
    return found.reshape(*found.shape[:2], heads * width) if "H" in layout else found


def lens_of(ends: Any) -> tuple[np.ndarray, np.ndarray]:
    """Starts and lengths of packed sequences from where they end; an end before its start is a sequence of nothing."""
    ends = np.asarray(ends, np.int64)
    starts = np.concatenate([[0], ends])[:-1]
    return starts, np.maximum(ends - starts, 0)
