"""Tasks of a workload, and how they are dealt to the cores."""

import heapq

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import count_blocks, kept

from ascend_jax import Attention, Mask, Tiling
from ascend_jax.timeline import tasks
from ascend_jax.timeline.tasks import Run, deal, runs_of
from ascend_jax.workload.problem import problem


@given(
    q_len=st.integers(1, 300),
    kv_len=st.integers(1, 300),
    mask=st.sampled_from(["causal", "none", "band:60,10"]),
    blocks=st.tuples(*[st.sampled_from([16, 48, 64])] * 2),
    split=st.sampled_from([1, 3]),
)
@settings(max_examples=25)
def test_tasks_are_the_rows_of_blocks_of_a_mask(
    q_len: int, kv_len: int, mask: str, blocks: tuple[int, int], split: int
) -> None:
    heads = 5
    work = Attention(batch=1, q_heads=heads, kv_heads=heads, q_len=q_len, kv_len=kv_len, head_dim=64, mask=mask)
    one = Mask.parse(mask)
    matrix = kept(one.kind, q_len, kv_len, one.pre, one.next, one.prefix)
    rows = [count_blocks(matrix[start : start + blocks[0]], *blocks) for start in range(0, q_len, blocks[0])]
    total = sum(computed for _, computed, _ in rows)
    found = runs_of(
        problem(work), Tiling(block_q=blocks[0], block_kv=blocks[1], kv_split=split), np.array(float(total * heads))
    )
    assert sum(run.times for run in found) == heads * sum(min(split, computed) for _, computed, _ in rows)
    assert sum(run.tiles * run.times for run in found) == heads * total
    assert sum(run.masked * run.times for run in found) == heads * sum(computed - full for _, computed, full in rows)
    if split == 1:
        every = sorted((run.tiles, run.masked) for run in found for _ in range(run.times // heads))
        assert every == sorted((computed, computed - full) for _, computed, full in rows if computed)


def greedy(runs: list[Run], seconds: list[float], cores: int) -> list[float]:
    """Longest first, one by one, each to the core with the least so far."""
    loads = [0.0] * cores
    for _, run in sorted(zip(seconds, runs, strict=True), key=lambda pair: -pair[0]):
        for _ in range(run.times):
            heapq.heapreplace(loads, loads[0] + run.tiles)
    return sorted(loads)


@given(
    runs=st.lists(st.tuples(st.integers(1, 60), st.integers(1, 900)), min_size=1, max_size=6, unique_by=lambda run: run[0]),
    cores=st.integers(1, 33),
)
@settings(max_examples=40)
def test_dealing_many_at_once_is_dealing_one_by_one(runs: list[tuple[int, int]], cores: int) -> None:
    every = [Run(tiles, 0, 0, times) for tiles, times in runs]
    seconds = [float(run.tiles) for run in every]
    dealt, loads = deal(every, seconds, cores)
    np.testing.assert_allclose(sorted(loads), greedy(every, seconds, cores), rtol=1e-9)
    for core, load in zip(dealt, loads, strict=True):
        assert sum(run.tiles * run.times for run in core) == load
    assert sum(run.times for core in dealt for run in core) == sum(run.times for run in every)


def test_parts_of_a_row_are_neighbours() -> None:
    parts = tasks._parts(10, 3, 4)
    assert sorted(parts, reverse=True) == [(3, 3, 1), (3, 0, 1), (2, 0, 2)]
    assert tasks._parts(2, 1, 4) == [(1, 0, 1), (1, 1, 1)]


@pytest.mark.parametrize("cores", [1, 7])
def test_no_core_is_left_out(cores: int) -> None:
    dealt, _ = deal([Run(3, 1, 0, 7)], [1.0], cores)
    assert all(dealt)
