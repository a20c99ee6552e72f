"""Which steps are simulated: all of them, or the first few of what repeats.

Between two changes a core does the same thing over and over: a full tile, or a task of a given length. A max-plus system
with fixed delays then settles into a period (Baccelli et al., *Synchronization and Linearity*, 1992, section 3.7), after a
few tiles if its buffers have few slots. So the first tiles of a task are simulated, whole periods are skipped, and the
rest is simulated; and so with tasks alike.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import gcd, lcm

import numpy as np

from ascend_jax.timeline.program import Program
from ascend_jax.timeline.state import code_of
from ascend_jax.timeline.tasks import Run

SETTLE = 4
"""Steps after which a tile's pace is taken as steady at first, beside those that the last stages are behind."""

Columns = dict[str, np.ndarray]
"""The columns of ``Steps`` for some steps, by name, ``[T]`` each."""


def every_step(program: Program, runs: Sequence[Run]) -> Iterator[Columns]:
    """The steps of ``runs``, one task after the other, a task at a time."""
    for run in runs:
        for _ in range(run.times):
            yield _task(program, run)


def with_skips(program: Program, runs: Sequence[Run], settle: int = SETTLE) -> Iterator[Columns]:
    """The steps that jump mode simulates, in place of :func:`every_step`: ``settle`` steps before anything repeats."""
    for run in runs:
        task = _with_tiles_skipped(program, run._replace(times=1), settle)
        first = 2 + -(-(program.drain + settle) * program.group // run.tiles)
        period = lcm(*(slots // gcd(slots, run.tiles) for slots in program.tile_slots), *program.task_slots)
        periods = (run.times - first - period) // period
        if periods < 1:
            yield from (task for _ in range(run.times))
            continue
        yield from (task for _ in range(first - 1))
        yield _with(task, marks=2)
        yield from (task for _ in range(period - 1))
        yield _with(task, skip_tasks=periods)
        yield from (task for _ in range(run.times - first - (periods + 1) * period))


def _task(program: Program, run: Run) -> Columns:
    """Every step of one task; not to be written to."""
    return _steps(program.group, run.tiles, run.masked, run.sequence)


@lru_cache(maxsize=256)
def _steps(group: int, count: int, of_them_masked: int, sequence: int) -> Columns:
    begins = np.arange(0, count, group)
    tiles = np.minimum(count - begins, group)
    masked = np.clip(begins + tiles - (count - of_them_masked), 0, tiles)
    codes = code_of(tiles, begins == 0, begins + tiles == count, masked).astype(np.uint8)
    return {
        "codes": codes,
        "marks": np.zeros(len(codes), np.uint8),
        "skip_tiles": np.zeros(len(codes)),
        "skip_tasks": np.zeros(len(codes)),
        "sequences": np.full(len(codes), sequence, np.int32),
    }


@lru_cache(maxsize=1024)
def _with_tiles_skipped(program: Program, run: Run, settle: int) -> Columns:
    """One task of ``run`` without the middle of its steps that are alike; not to be written to."""
    task = _task(program, run)
    alike = int(np.count_nonzero(task["codes"] == code_of(program.group, False, False, 0)))
    period = lcm(*program.tile_slots, program.group) // program.group
    head = 1 + program.drain + settle  # the first step, which opens the task, is unlike the others
    periods = (alike - (head - 1) - period - 1) // period
    if periods < 2:
        return task
    kept = np.r_[0 : head + period, head + period + periods * period : len(task["codes"])]
    found = {name: column[kept] for name, column in task.items()}
    found["marks"][head - 1] = 1
    found["skip_tiles"][head + period - 1] = periods
    return found


def _with(task: Columns, marks: int = 0, skip_tasks: float = 0.0) -> Columns:
    """``task`` with a mark or a skip at its end."""
    found = {name: column.copy() for name, column in task.items()}
    found["marks"][-1] |= marks
    found["skip_tasks"][-1] = skip_tasks
    return found
