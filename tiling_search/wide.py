"""Search of a wide space: every legal point is evaluated, or ruled out by a bound of its block that cannot be beaten.

All blocks are probed first (see ``wide_evaluator``), which counts what is legal; then blocks are evaluated with all depths, the
lowest bounds first, until no bound is below what was found.
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ascend_jax.verdict import Verdict
from tiling_search.effort import Effort
from tiling_search.kept import UB_UNIT, Found, Outcome, count_verdicts, keep
from tiling_search.space import LARGEST_BLOCK, Space
from tiling_search.wide_evaluator import BLOCKS, Probed, WideEvaluator

GROWING = (Verdict.UB_OVERFLOW, Verdict.L1_OVERFLOW, Verdict.GM_OVERFLOW)
"""What overflows with the smallest rest of a block does so with all. L0 is not among them: its steps shrink with its slots."""
SLACK = 1e-5
"""Bounds and times are float32: a block is ruled out only where its bound is larger by this share."""


@dataclass
class _Blocks:
    """All blocks whose sizes fit with the smallest rest, by number: each pair of sizes with each row of ``others``."""

    pairs: np.ndarray
    others: np.ndarray

    def __len__(self) -> int:
        return len(self.pairs) * len(self.others)

    def rows(self, numbers: np.ndarray) -> np.ndarray:
        pair, other = np.divmod(numbers, len(self.others))
        return np.column_stack([self.pairs[pair], self.others[other]]).astype(np.float64)


def search_wide(
    evaluator: WideEvaluator, space: Space, top: int, progress: Callable[[int, int], None] | None, effort: Effort
) -> Outcome:
    """The fastest blocks of ``space`` and its front of time and UB, exactly, unless ``effort`` ends it before.

    A block that overflows a memory with the smallest rest counts under that verdict with every rest and all depths, whatever
    else they overflow.
    """
    started, most = time.perf_counter(), max(4 * top, 64)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        pairs, verdicts = _pairs(evaluator, space, pool)
        blocks = _Blocks(pairs, space.others)
        found, evaluated, bounded = Found([], {}, verdicts), 0, 0
        probed = _probe(evaluator, blocks, pool)
        queue = np.argsort(probed.bound_s, kind="stable")
        while len(queue):
            found, dropped = _drop(found, probed, queue, most, len(space.depths))
            bounded, queue = bounded + dropped.legal, dropped.left
            some = _next(queue, effort, evaluated, len(space.depths))
            for rows, scores in pool.map(lambda part: (part, evaluator.scores(part)), _parts(blocks.rows(some))):
                found = keep(found, rows, scores, most)
            evaluated, queue = evaluated + len(some) * len(space.depths), queue[len(some) :]
            if progress:
                progress(space.size - len(queue) * len(space.depths), space.size)
            effort.watch(evaluated, found.best[0][0] if found.best else None)
            if effort.over(started) or (effort.max_evals is not None and evaluated >= effort.max_evals):
                break
    return Outcome(found, evaluated, bounded, not len(queue))


def _pairs(evaluator: WideEvaluator, space: Space, pool: ThreadPoolExecutor) -> tuple[np.ndarray, Counter[int]]:
    """The pairs of block sizes that fit with the smallest rest, ``[P, 2]``, and the candidates of all others by verdict."""
    least = space.others.min(axis=0)

    def verdicts(pairs: np.ndarray) -> np.ndarray:
        rows = np.column_stack([pairs, np.tile(least, (len(pairs), 1))]).astype(np.float64)
        found = list(pool.map(lambda part: evaluator.probe(part).verdicts[:, 0], _parts(rows)))
        return np.concatenate(found) if found else np.zeros(0, np.int8)

    sizes = [axis[axis <= LARGEST_BLOCK] for axis in (space.block_q, space.block_kv)]
    alone = [np.column_stack([sizes[0], np.full_like(sizes[0], sizes[1][0])])]
    alone += [np.column_stack([np.full_like(sizes[1], sizes[0][0]), sizes[1]])]
    sizes = [size[verdicts(pairs) != Verdict.UB_OVERFLOW] for size, pairs in zip(sizes, alone, strict=True)]
    pairs = np.stack(np.meshgrid(*sizes, indexing="ij"), axis=-1).reshape(-1, 2)
    each, codes = len(space.others) * len(space.depths), verdicts(pairs)
    counts = Counter({int(code): int(np.count_nonzero(codes == code)) * each for code in GROWING})
    counts[int(Verdict.UB_OVERFLOW)] += space.size - len(pairs) * each
    return pairs[~np.isin(codes, GROWING)], counts


def _probe(evaluator: WideEvaluator, blocks: _Blocks, pool: ThreadPoolExecutor) -> Probed:
    """All of ``blocks`` probed."""
    parts = list(pool.map(lambda numbers: evaluator.probe(blocks.rows(numbers)), _parts(np.arange(len(blocks)))))
    if not parts:
        outer = len(evaluator.corners) // 2
        return Probed(np.zeros(0), np.zeros(0), np.zeros((0, outer), np.int8), np.zeros(0, bool))
    return Probed(*(np.concatenate(part) for part in zip(*parts, strict=True)))


class _Dropped(NamedTuple):
    legal: int
    left: np.ndarray


def _drop(found: Found, probed: Probed, queue: np.ndarray, most: int, depths: int) -> tuple[Found, _Dropped]:
    """Without the blocks that need no look: what they hold is counted, and nothing of it can be among what is kept."""
    legal = np.isfinite(probed.bound_s[queue])
    beaten = (1 + SLACK) * np.maximum(_slowest(found, most), _front_s(found, np.where(legal, probed.ub_bytes[queue], 0)))
    out = probed.decided[queue] & ((probed.bound_s[queue] > beaten) | ~legal)
    inner = depths // probed.verdicts.shape[1]
    counts = Counter({code: count * inner for code, count in count_verdicts(probed.verdicts[queue[out]]).items()})
    return found._replace(verdicts=found.verdicts + counts), _Dropped(counts[Verdict.FITS], queue[~out])


def _slowest(found: Found, most: int) -> float:
    """Seconds of the last of the ``most`` fastest blocks; ``inf`` while there are fewer."""
    return found.best[-1][0] if len(found.best) == most else np.inf


def _front_s(found: Found, ub_bytes: np.ndarray) -> np.ndarray:
    """Seconds of the fastest that takes no more than ``ub_bytes``; ``inf`` where there is none."""
    sizes = sorted(found.front)
    seconds = np.array([np.inf, *(found.front[size][0] for size in sizes)])
    return seconds[np.searchsorted(sizes, ub_bytes // UB_UNIT, side="right")]


def _next(queue: np.ndarray, effort: Effort, evaluated: int, depths: int) -> np.ndarray:
    """The blocks to evaluate now: a part for each thread, within the evaluations that are left."""
    left = len(queue) if effort.max_evals is None else max((effort.max_evals - evaluated) // depths, 1)
    return queue[: min(left, BLOCKS * (os.cpu_count() or 1))]


def _parts(rows: np.ndarray) -> Iterator[np.ndarray]:
    for start in range(0, len(rows), BLOCKS):
        yield rows[start : start + BLOCKS]
