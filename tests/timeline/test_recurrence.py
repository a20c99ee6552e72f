"""The recurrence against a slow simulator of queues, and what must hold of any timeline."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import queue_oracle
from timeline_cases import GRAPHS, draw, starts

from ascend_jax.timeline.jump import every_step
from ascend_jax.timeline.passes import makespan, passes
from ascend_jax.timeline.program import Stuck
from ascend_jax.timeline.recurrence import BLOCK, advance, advance_jit
from ascend_jax.timeline.state import Steps, begin, finish
from ascend_jax.timeline.tasks import Run
from ascend_jax.timeline.weights import weigh

SEEDS = (0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", GRAPHS)
def test_every_start_is_that_of_a_slow_simulator_of_queues(name: str, seed: int) -> None:
    """Any slots, preload, pieces, tasks and masked tiles; and the two agree on what would wait for itself."""
    case = draw(name, seed)
    try:
        expected = queue_oracle.simulate(case.queues)
    except RuntimeError:
        with pytest.raises(Stuck):
            _ = case.program
        return
    found, end = starts(case)
    assert found.keys() == expected.start.keys()
    np.testing.assert_allclose([found[key] for key in found], [expected.start[key] for key in found], rtol=1e-12, atol=1e-9)
    np.testing.assert_allclose(end, expected.finish, rtol=1e-12)


def test_the_draws_reach_what_they_should() -> None:
    """Most of them run; some are stuck."""
    stuck = 0
    for name in GRAPHS:
        for seed in range(3):
            try:
                _ = draw(name, seed).program
            except Stuck:
                stuck += 1
    assert 1 <= stuck < len(GRAPHS)


def test_more_preload_than_slots_is_stuck_and_more_slots_free_it() -> None:
    case = draw("coupled", 0)
    few = replace(case, preload=3, slots=dict.fromkeys(case.slots, 1), pieces={})
    with pytest.raises(Stuck, match="wait for itself"):
        _ = few.program
    assert replace(few, slots=dict.fromkeys(case.slots, 4)).program.nodes


def test_lanes_equal_a_loop_over_them() -> None:
    """Tilings side by side: one program, different numbers and different tasks in each lane."""
    cases = [draw("separated", seed, tasks=(Run(5 + seed, 2, 0, 3 + seed), Run(3, 1, 0, 4))) for seed in range(5)]
    cases = [replace(case, slots=cases[0].slots, pieces=cases[0].pieces, preload=1) for case in cases]
    step = cases[0].program
    every = [weigh(step, case.graph, case.durations) for case in cases]
    alone = [makespan(step, weights, [case.tasks], "full") for weights, case in zip(every, cases, strict=True)]
    wide = {moment: jnp.stack([jnp.broadcast_to(one[moment], 2) for one in every], axis=-1) for moment in every[0]}
    codes = [np.concatenate([task["codes"] for task in every_step(step, case.tasks)]) for case in cases]
    length = -(-(max(map(len, codes)) + step.drain) // BLOCK) * BLOCK
    steps = Steps(jnp.stack([jnp.pad(jnp.asarray(code), (0, length - len(code))) for code in codes], axis=1))
    passed = advance_jit(step)(wide, begin(step, steps, jnp.float64), steps)
    np.testing.assert_allclose(passed.bases.sum(axis=0) + finish(passed.state), alone, rtol=1e-12)


def test_float32_stays_within_a_millionth_over_two_hundred_thousand_tiles() -> None:
    case = draw("separated", 1, tasks=(Run(1000, 3, 0, 200),))
    step = case.program
    weights = weigh(step, case.graph, case.durations)
    exact = makespan(step, weights, [case.tasks], "full")
    with jax.enable_x64(False):
        found = makespan(step, weights, [case.tasks], "full")
    assert abs(found / exact - 1) < 1e-6


def test_memory_does_not_grow_with_the_steps() -> None:
    """What a pass hands on is a state of fixed size; steps are made as they are needed."""
    case = draw("direct", 1, tasks=(Run(7, 1, 0, 100_000),))
    step = case.program
    weights = weigh(step, case.graph, case.durations)
    made = 0

    def counted():
        nonlocal made
        for task in every_step(step, case.tasks):
            made += 1
            yield task

    sizes = []
    for _, passed in passes(step, weights, [counted()]):
        sizes.append(sum(leaf.nbytes for leaf in jax.tree.leaves(passed.state)))
        if len(sizes) == 3:
            break
    assert len(set(sizes)) == 1
    assert made < 2000


def test_steps_come_in_whole_blocks() -> None:
    case = draw("direct", 1)
    steps = Steps(jnp.zeros(BLOCK + 1, jnp.uint8))
    with pytest.raises(ValueError, match=f"multiple of {BLOCK}"):
        advance(case.program, {}, begin(case.program, steps, jnp.float64), steps)
