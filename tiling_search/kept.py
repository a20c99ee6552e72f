"""What a search keeps of the chunks that it evaluates: the fastest blocks, the fastest per UB size, and how often each verdict
came. Of equals the smaller block stays, so that the order of the chunks makes no difference."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ascend_jax.verdict import Verdict
from tiling_search.exhaustive import Scores

UB_UNIT = 32
"""UB bytes come in blocks of this size."""


Timed = tuple[float, np.ndarray]
"""Best seconds over the depths, and the block row."""


class Found(NamedTuple):
    """What one pass over a space keeps."""

    best: list[Timed]
    """The fastest blocks so far."""
    front: dict[int, Timed]
    """The fastest block per number of UB blocks."""
    verdicts: Counter[int]
    """How often each came."""


class Outcome(NamedTuple):
    """What a search found, points evaluated one by one, legal ones that a bound rules out, and whether that is all."""

    found: Found
    evaluated: int
    bounded: int
    exact: bool


def merged(parts: Sequence[Found], most: int) -> Found:
    """What several processes found, each in rows of its own, as one would have found it in all rows."""
    if len(parts) == 1:
        return parts[0]
    best = sorted((entry for part in parts for entry in part.best), key=_by_time)[:most]
    front = _staircase([item for part in parts for item in part.front.items()])
    return Found(best, front, sum((part.verdicts for part in parts), Counter()))


def count_verdicts(verdicts: np.ndarray) -> Counter[int]:
    """How often each verdict occurs; the usual ones are looked for first, and no more once all are found."""
    counts: Counter[int] = Counter()
    for code in (Verdict.UB_OVERFLOW, Verdict.L1_OVERFLOW, *Verdict):
        if code not in counts and counts.total() < verdicts.size:
            counts[int(code)] = int(np.count_nonzero(verdicts == code))
    return counts


def keep(found: Found, blocks: np.ndarray, scores: Scores, most: int) -> Found:
    """Merge a chunk into what is kept: the ``most`` fastest blocks, the fastest per UB size, and the verdicts."""
    if not len(blocks):
        return found
    per_block = scores.seconds.min(axis=1)
    fastest = np.argsort(per_block, kind="stable")[:most]
    best = [(float(per_block[row]), blocks[row]) for row in fastest if np.isfinite(per_block[row])]
    best = sorted(found.best + best, key=_by_time)[:most]
    return Found(best, _merge_front(found.front, blocks, scores), found.verdicts + count_verdicts(scores.verdicts))


def _by_time(entry: Timed) -> tuple[float, tuple[float, ...]]:
    """By seconds; of equals the smaller block first."""
    return entry[0], tuple(entry[1])


def _merge_front(front: dict[int, Timed], blocks: np.ndarray, scores: Scores) -> dict[int, Timed]:
    """The staircase of ``front`` and a chunk."""
    seconds, units = _best_per_ub(scores)
    order = np.lexsort((seconds.ravel(), units.ravel()))
    improving = np.minimum.accumulate(seconds.ravel()[order])
    keep = order[np.flatnonzero(np.diff(improving, prepend=np.inf) < 0)]
    entries = [(int(units.ravel()[at]), (float(seconds.ravel()[at]), blocks[at // seconds.shape[1]])) for at in keep]
    return _staircase([*front.items(), *entries])


def _staircase(entries: Iterable[tuple[int, Timed]]) -> dict[int, Timed]:
    """The fastest per UB size; a size stays only if no smaller one is as fast."""
    merged: dict[int, Timed] = {}
    least = np.inf
    for size, entry in sorted(entries, key=lambda item: (item[0], *_by_time(item[1]))):
        if entry[0] < least:
            merged[size], least = entry, entry[0]
    return merged


def _best_per_ub(scores: Scores) -> tuple[np.ndarray, np.ndarray]:
    """Of the depths that take the same UB, the fastest: seconds and UB blocks, ``[N, G]``."""
    _, group = np.unique(scores.ub_bytes[:: max(len(scores.ub_bytes) // 8, 1)], axis=1, return_inverse=True)
    columns = [np.flatnonzero(group == number) for number in range(group.max() + 1)]
    if any(np.any(scores.ub_bytes[:, alike] != scores.ub_bytes[:, alike[:1]]) for alike in columns):
        columns = [np.array([column]) for column in range(scores.ub_bytes.shape[1])]  # alike in the sample only
    seconds = np.stack([scores.seconds[:, alike].min(axis=1) for alike in columns], axis=1)
    return seconds, scores.ub_bytes[:, [alike[0] for alike in columns]] // UB_UNIT


def best_depths(blocks: np.ndarray, scores: Scores) -> Iterator[tuple[np.ndarray, int]]:
    """Each block with the number of its best depths within each UB size that it can have."""
    for block, seconds, ub_bytes in zip(blocks, scores.seconds, scores.ub_bytes, strict=True):
        for size in np.unique(ub_bytes[np.isfinite(seconds)]):
            yield block, int(np.argmin(np.where(ub_bytes <= size, seconds, np.inf)))
