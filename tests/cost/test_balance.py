"""The busiest core: against dealing the tasks to the cores, longest first, in plain Python."""

import heapq
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import count_block_rows, kept

from ascend_jax import EXACT
from ascend_jax._pytree import as_arrays
from ascend_jax.cost.balance import busiest_core


def dealt(tasks: list[int], cores: int) -> int:
    """Work of the busiest core when each task, the longest first, goes to the core with the least."""
    loads = [0] * cores
    for task in sorted(tasks, reverse=True):
        heapq.heapreplace(loads, loads[0] + task)
    return max(loads)


def formula(tasks: list[int], cores: int) -> float:
    longest = max(tasks)
    numbers: Any = as_arrays((cores, sum(tasks), longest, tasks.count(longest)))
    return float(busiest_core(*numbers, rounding=EXACT))


def block_rows(kind: str, q_len: int, kv_len: int, *, block: int, heads: int) -> list[int]:
    """Computed blocks of each task: every block row of every head."""
    return [computed for _, computed, _ in count_block_rows(kept(kind, q_len, kv_len), block, block)] * heads


many_tasks = st.lists(st.integers(1, 60), min_size=1, max_size=120)


@given(tasks=many_tasks, cores=st.integers(1, 33))
def test_no_deal_is_faster_and_the_real_one_at_most_a_third_slower(tasks: list[int], cores: int) -> None:
    """The formula is a lower bound of the best deal, of which longest first takes at most 4/3 - 1/(3 cores) (Graham, 1969).

    The formula itself may lie below the best deal by up to the longest task.
    """
    bound, busiest = formula(tasks, cores), dealt(tasks, cores)
    assert bound <= busiest * (1 + 1e-12)
    assert busiest <= bound + max(tasks)


@given(length=st.integers(1, 40), count=st.integers(1, 200), cores=st.integers(1, 33))
def test_equal_tasks_are_exact(length: int, count: int, cores: int) -> None:
    assert formula([length] * count, cores) == dealt([length] * count, cores)


@pytest.mark.parametrize("kind", ["none", "causal"])
@given(blocks=st.integers(1, 40), heads=st.integers(1, 24), cores=st.sampled_from([8, 20, 24, 32]), tail=st.integers(0, 3))
def test_the_deal_of_attention_tasks_is_within_fifteen_percent(
    kind: str, blocks: int, heads: int, cores: int, tail: int
) -> None:
    """Four tasks a core and more."""
    tasks = block_rows(kind, 4 * blocks - tail, 4 * blocks - tail, block=4, heads=heads)
    bound, busiest = formula(tasks, cores), dealt(tasks, cores)
    assert bound <= busiest
    if len(tasks) >= 4 * cores:
        assert busiest <= 1.15 * bound


def test_a_single_task_keeps_one_core_busy() -> None:
    assert formula([7], 20) == 7


def test_one_task_more_than_cores_takes_a_second_round() -> None:
    assert formula([5] * 21, 20) == 10


def test_short_causal_rows_fill_the_gaps() -> None:
    """1 to 20 blocks on 10 cores: 21 each."""
    assert formula(list(range(1, 21)), 10) == dealt(list(range(1, 21)), 10) == 21


def test_more_cores_are_never_slower() -> None:
    tasks = [*range(1, 30), *[30] * 11]
    times = [formula(tasks, cores) for cores in range(1, 60)]
    assert times == sorted(times, reverse=True)
    assert np.isclose(times[0], sum(tasks))
