"""What a step does to a core's state where it lets what has passed repeat."""

from typing import NamedTuple

import jax
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
    assert state.marks is not None and steps.marks is not None
    assert steps.skip_tiles is not None and steps.skip_tasks is not None
    by_tile = advancing(program, state, by_task=False)
    by_tiles, tile_doubt = _repeated(by_tile, state.marks[0], steps.skip_tiles)
    tile_mark, task_mark = (mark - by_tiles[None] for mark in state.marks)
    state = state._replace(held=jax.tree.map(lambda moment: moment - by_tiles, state.held), end=state.end - by_tiles)
    by_task = advancing(program, state, by_task=True)
    by_tasks, task_doubt = _repeated(by_task, task_mark, steps.skip_tasks)
    marks = (
        jnp.where((steps.marks & 1)[None] > 0, by_tile, tile_mark),
        jnp.where((steps.marks & 2)[None] > 0, by_task, task_mark),
    )
    moved, doubt = skipped.moved + by_tiles + by_tasks, skipped.doubt + tile_doubt + task_doubt
    return state._replace(marks=marks), Skipped(moved, doubt)


def _repeated(now: Array, then: Array, times: Array) -> tuple[Array, Array]:
    """``times`` the largest advance; and how far the smallest lies below it. The first part is a clock, which always runs."""
    known = (now > NEVER / 2) & (then > NEVER / 2)
    passed = jnp.where(known, now - then, (now - then)[:1])
    most, zero = jnp.max(passed, axis=0), jnp.zeros_like(times)
    spread = most - jnp.min(passed, axis=0)
    return jnp.where(times > 0, times * most, zero), jnp.where(times > 0, times * spread, zero)
