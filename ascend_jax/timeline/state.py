"""What a core is told in each step, and what it remembers between steps."""

from functools import partial, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ascend_jax.timeline.program import Program

NEVER = -1e12
"""Seconds: long before anything that a start could wait for."""


class Steps(NamedTuple):
    """What happens in each step: ``[T]``, or with lanes ``[T, L]``; see :func:`code_of`.

    Attributes:
      codes: uint8: tiles under work, whether a task begins or ends, and how many of the tiles the mask cuts through.
      marks: uint8: 1 where tiles, 2 where tasks begin to repeat; None if every tile is simulated.
      skip_tiles, skip_tasks: how many times what has passed since the mark repeats after this step.
      sequences: int32, of which distinct lengths the task is; None where all are alike.
    """

    codes: Array
    marks: Array | None = None
    skip_tiles: Array | None = None
    skip_tasks: Array | None = None
    sequences: Array | None = None


def code_of(tiles: Any, first: Any, last: Any, masked: Any) -> Any:
    """A step's code: tiles (0 to 7), whether its first one begins a task, its last one ends it, masked ones at its end."""
    return tiles + 8 * first + 16 * last + 32 * masked


class State(NamedTuple):
    """What a core remembers between steps; all times relative to the base.

    Attributes:
      clocks: when each queue is free.
      moments: what ``Program.moments`` names, the latest first.
      held: what ``Program.held`` asks for: the moments of the tasks before, the latest first.
      end: the last moment so far that nothing waits for.
      marks: everything above when tiles, and tasks, began to repeat: ``[N]``, or ``[N, L]``; see ``advancing``. None where
        every tile is simulated.
      delay: codes (and sequences) of the steps before, which the stages behind have still to do; the latest first.
    """

    clocks: tuple[Array, ...]
    moments: tuple[tuple[Array, ...], ...]
    held: tuple[tuple[Array, ...], ...]
    end: Array
    marks: tuple[Array, Array] | None
    delay: tuple[tuple[Array, ...], ...]


def begin(program: Program, steps: Steps, dtype: Any) -> State:
    """A core at time 0 that has done nothing, for lanes as in ``steps``."""
    shape = steps.codes.shape[1:]
    zero, never = jnp.zeros(shape, dtype), jnp.full(shape, NEVER, dtype)
    waiting = [jnp.zeros(shape, column.dtype) for column in (steps.codes, steps.sequences) if column is not None]
    clocks = (zero,) * len(program.queues)
    moments = tuple((never,) * depth for _, depth in program.moments)
    held = tuple((never,) * (wait.tasks + wait.latest) for _, wait in program.held)
    state = State(clocks, moments, held, zero, None, tuple((column,) * program.drain for column in waiting))
    if steps.marks is None:
        return state
    shapes = [jax.eval_shape(partial(advancing, program, by_task=by_task), state).shape for by_task in (False, True)]
    return state._replace(marks=(jnp.zeros(shapes[0], dtype), jnp.zeros(shapes[1], dtype)))


def advancing(program: Program, state: State, by_task: bool) -> Array:
    """All that moves on from tile to tile, or from task to task: where it does so evenly, a core repeats itself."""
    of_tiles = {node.queue for node in program.nodes if node.when == "tile"}
    found = [clock for queue, clock in zip(program.queues, state.clocks, strict=True) if queue in of_tiles]
    for (moment, _), ring in zip(program.moments, state.moments, strict=True):
        if by_task or program.node(moment.stage).when == "tile":
            found += ring
    held = [moment for ring in state.held for moment in ring]
    return jnp.stack(found + held if by_task else found)


def less(state: State, base: Array) -> State:
    """The same state, seen from a later base."""
    moved = jax.tree.map(lambda time: time - base, state._replace(delay=(), marks=None))
    return moved._replace(delay=state.delay, marks=jax.tree.map(lambda mark: mark - base[None], state.marks))


def finish(state: State) -> Array:
    """When all is done, relative to the base."""
    return reduce(jnp.maximum, state.clocks, state.end)
