"""Which tasks there are, how many tiles each has, and which core gets which. NumPy, outside of jit."""

import heapq
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from ascend_jax._pytree import as_arrays
from ascend_jax.tiling.tiling import Tiling
from ascend_jax.workload.blocks import row_counts
from ascend_jax.workload.problem import Problem

ROW_STEP = 64
"""Block rows are counted in whole multiples of this many, so that a few compilations serve all lengths."""

AT_ONCE = 16
"""Tasks alike per core that are dealt one by one; more are dealt at once."""


class Run(NamedTuple):
    """``times`` tasks alike, one after the other: tiles, how many of them (the last) the mask cuts through, which lengths."""

    tiles: int
    masked: int
    sequence: int
    times: int


def runs_of(given: Problem, tiling: Tiling, tiles: ArrayLike) -> list[Run]:
    """All tasks of a workload with any tile, those alike together. ``tiles``: those of all heads, ``[U]`` or one number."""
    lengths = [np.atleast_1d(np.asarray(column, np.float64)) for column in (given.lengths.q_len, given.lengths.kv_len)]
    found: dict[tuple[int, int, int], int] = {}
    for sequence, (q_len, kv_len) in enumerate(zip(*lengths, strict=True)):
        computed, partial = _rows(given, float(q_len), float(kv_len), tiling)
        heads = round(float(np.atleast_1d(tiles)[sequence]) / max(int(computed.sum()), 1))  # packed ones together
        pairs, counts = np.unique(np.stack([computed, partial], axis=1), axis=0, return_counts=True)
        for (row_tiles, masked), count in zip(pairs.tolist(), counts.tolist(), strict=True):
            for part, part_masked, parts in _parts(row_tiles, masked, int(tiling.kv_split)):
                key = (part, part_masked, sequence)
                found[key] = found.get(key, 0) + parts * count * heads
    return [Run(*key, count) for key, count in sorted(found.items(), reverse=True) if count > 0]


def _rows(given: Problem, q_len: float, kv_len: float, tiling: Tiling) -> tuple[np.ndarray, np.ndarray]:
    """Computed and partial blocks of each block row."""
    rows = -(-int(q_len) // int(tiling.block_q))
    padded = max(-(-rows // ROW_STEP) * ROW_STEP, ROW_STEP)
    sizes = as_arrays((q_len, kv_len, float(tiling.block_q), float(tiling.block_kv)))
    index = as_arrays(np.minimum(np.arange(padded), max(rows - 1, 0)))
    computed, partial = _row_counts()(given.work.mask, *sizes, index)
    return np.asarray(computed)[:rows].astype(int), np.asarray(partial)[:rows].astype(int)


@cache
def _row_counts():
    def count(mask, q_len, kv_len, block_q, block_kv, row):
        counts = row_counts(mask, q_len, kv_len, block_q, block_kv, row)
        return counts.computed + jnp.zeros_like(row), counts.partial + jnp.zeros_like(row)

    return jax.jit(count)


def _parts(tiles: int, masked: int, split: int) -> list[tuple[int, int, int]]:
    """A block row's tiles dealt to ``split`` tasks, neighbours together: tiles, masked tiles (the last ones), how often."""
    parts = min(split, tiles)
    found: dict[tuple[int, int], int] = {}
    for part in range(parts):
        begin, end = part * tiles // parts, (part + 1) * tiles // parts
        key = end - begin, min(max(end - (tiles - masked), 0), end - begin)
        found[key] = found.get(key, 0) + 1
    return [(*key, times) for key, times in found.items()]


def deal(runs: Sequence[Run], seconds: Sequence[float], cores: int) -> tuple[list[tuple[Run, ...]], np.ndarray]:
    """Tasks dealt longest first, each to the core with the least so far; each core's runs, and its load.

    ``seconds``: of one task, per run. Many tasks alike are dealt at once: up to a level that all cores reach.
    """
    loads, dealt = np.zeros(cores), [[] for _ in range(cores)]
    for index in np.argsort(-np.asarray(seconds), kind="stable"):
        each, run = max(float(seconds[index]), 1e-15), runs[index]
        counts = np.zeros(cores, int)
        if run.times > AT_ONCE * cores:
            counts = np.floor(np.maximum(_level(loads, each, run.times) - loads, 0.0) / each).astype(int)
        heap = list(zip((loads + counts * each).tolist(), range(cores), strict=True))
        heapq.heapify(heap)
        for _ in range(run.times - int(counts.sum())):
            load, core = heap[0]
            counts[core] += 1
            heapq.heapreplace(heap, (load + each, core))
        loads = loads + counts * each
        for core in np.flatnonzero(counts):
            dealt[core].append(run._replace(times=int(counts[core])))
    return [tuple(mine) for mine in dealt], loads


def _level(loads: np.ndarray, each: float, count: int) -> float:
    """A load up to which whole tasks of ``each`` seconds fill the cores without using more than ``count``."""
    low, high = float(loads.min()), float(loads.min()) + each * (count + 1)
    for _ in range(60):
        middle = (low + high) / 2
        used = np.floor(np.maximum(middle - loads, 0.0) / each).sum()
        low, high = (middle, high) if used <= count else (low, middle)
    return low
