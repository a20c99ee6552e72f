"""Jump mode against every tile simulated."""

import numpy as np
import pytest
from timeline_cases import GRAPHS, draw

from ascend_jax.kernels import KERNELS
from ascend_jax.timeline.jump import every_step, with_skips
from ascend_jax.timeline.passes import makespan
from ascend_jax.timeline.program import Stuck
from ascend_jax.timeline.tasks import Run
from ascend_jax.timeline.weights import weigh

LONG_ROWS = (Run(150, 2, 0, 2), Run(93, 0, 0, 1), Run(40, 3, 0, 3))
MANY_TASKS = (Run(3, 1, 0, 120), Run(1, 0, 0, 60), Run(25, 2, 0, 50))


NAMES = [pytest.param(name, marks=() if name in KERNELS else pytest.mark.slow) for name in GRAPHS]


@pytest.mark.parametrize("name", NAMES)
def test_skipped_periods_cost_what_they_would_have(name: str) -> None:
    """To a part in a million: where the pace is not yet known so well, jump mode looks at more tiles."""
    for seed in range(2):
        case = draw(name, seed, LONG_ROWS)
        try:
            step = case.program
        except Stuck:
            continue
        weights = weigh(step, case.graph, case.durations)
        for tasks in (LONG_ROWS, MANY_TASKS):
            full, jumped = (makespan(step, weights, [tasks], mode) for mode in ("full", "jump"))
            assert abs(jumped / full - 1) < 1e-6


def test_few_steps_stand_for_many() -> None:
    step = draw("direct", 1).program
    tasks = (Run(1000, 2, 0, 500),)
    every, few = (sum(len(task["codes"]) for task in steps(step, tasks)) for steps in (every_step, with_skips))
    assert every == 500_000
    assert few < 1000


def test_what_does_not_repeat_is_simulated_whole() -> None:
    step = draw("direct", 1).program
    tasks = (Run(12, 12, 0, 3), Run(9, 0, 0, 1))
    for whole, kept in zip(every_step(step, tasks), with_skips(step, tasks), strict=True):
        np.testing.assert_array_equal(whole["codes"], kept["codes"])
        assert not kept["skip_tiles"].any()
        assert not kept["skip_tasks"].any()
