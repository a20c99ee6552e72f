"""What a step does to a core's state where it lets what has passed repeat."""

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from ascend_jax.timeline.program import Program
from ascend_jax.timeline.state import NEVER, State, Steps, advancing


class Skipped(NamedTuple):
    """How far skips have moved the base in a block, and how far that may be off."""

    moved: Array
    doubt: Array


def skip(program: Program, state: State, skipped: Skipped, steps: Steps) -> tuple[State, Skipped]:
    """Let what has passed since a mark repeat: the base moves on, and what belongs to tasks stays behind.

    The pace in the end lies between the smallest and the largest advance of the parts of the state (as with any max-plus
    system); the largest is taken, and their difference is in doubt.
    """
    assert steps.marks is not None and steps.skip_tiles is not None and steps.skip_tasks is not None
    now = [advancing(program, state.clocks, state.moments, state.held, by_task) for by_task in (False, True)]
    by_tiles, tile_doubt = _repeated(now[0], state.marks[0], steps.skip_tiles)
    held = tuple(tuple(moment - by_tiles for moment in ring) for ring in state.held)
    task_mark = [then - by_tiles for then in state.marks[1]]
    now[1] = advancing(program, state.clocks, state.moments, held, by_task=True)
    by_tasks, task_doubt = _repeated(now[1], task_mark, steps.skip_tasks)
    before = [[then - by_tiles for then in state.marks[0]], task_mark]
    marks = tuple(
        tuple(jnp.where((steps.marks & bit) > 0, one, then) for one, then in zip(ones, thens, strict=True))
        for bit, ones, thens in zip((1, 2), now, before, strict=True)
    )
    state = state._replace(held=held, marks=marks, end=state.end - by_tiles)
    return state, Skipped(skipped.moved + by_tiles + by_tasks, skipped.doubt + tile_doubt + task_doubt)


def _repeated(now: Sequence[Array], then: Sequence[Array], times: Array) -> tuple[Array, Array]:
    """``times`` the largest advance; and how far the smallest lies below it. The first part is a clock, which always runs."""
    first, zero = now[0] - then[0], jnp.zeros_like(times)
    passed = [first] + [
        jnp.where((one > NEVER / 2) & (other > NEVER / 2), one - other, first)
        for one, other in zip(now[1:], then[1:], strict=True)
    ]
    most = reduce(jnp.maximum, passed)
    spread = most - reduce(jnp.minimum, passed)
    return jnp.where(times > 0, times * most, zero), jnp.where(times > 0, times * spread, zero)
