"""The recurrence: a core's steps one after the other, each start the latest of what it waits for.

Everything is elementwise, so that one formula serves one timeline (rank 0) and many at once (lanes ``[L]``, such as cores,
or tilings). Times are relative to a base that moves along, so that float32 stays exact over millions of tiles.
"""

from collections.abc import Callable, Mapping
from functools import cache, partial, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.experimental.xla_metadata import set_xla_metadata

from ascend_jax._compile import SELDOM, options
from ascend_jax.timeline.program import Moment, Node, Program, Wait
from ascend_jax.timeline.skips import Skipped, skip
from ascend_jax.timeline.state import NEVER, State, Steps, less

BLOCK = 16
"""Steps between two moves of the base."""
LANES = 128
"""Timelines that a pass best carries: their state lies in the first-level cache, and a loop over them pays."""
AS_ONE_KERNEL = {"xla_cpu_small_call": "true", "inlineable": "false"}
"""XLA then compiles the whole loop to one function, as it does by itself for very small loops: 3 to 50 times as fast as an
operation at a time. It is a hint: elsewhere it changes nothing."""
FAST = {"xla_cpu_prefer_vector_width": 512, "xla_cpu_enable_fast_min_max": True, "xla_disable_hlo_passes": "fusion"}
"""Fused, each start would be computed anew for all that wait for it: four times the work."""

BEGIN = Moment("dispatch", "stage")
"""How long every queue waits before it begins a task."""
ROW_SHARE = Moment("", "share")
"""What a task adds to the share of the tile before its first."""

Weights = Mapping[Moment, Array]
"""Seconds from a stage's start to a moment: ``[C]``, one per class of tile, or ``[1]`` for all; with lanes ``[C, L]``."""
_Apart = Mapping[Moment, Array | tuple[Array, ...]]


class _At(NamedTuple):
    """What the stages that are a certain number of steps behind do in this step."""

    on: tuple[Array, ...]
    """Per place of the group: 0 if there is a tile, else ``NEVER``."""
    begins: Array
    ends: Array
    """0 if its task begins, or ends; else ``NEVER``."""
    first: Array
    kinds: tuple[Array, ...]
    """Per place: the class of the tile."""


def _read(program: Program, code: Array, sequence: Array | None, dtype: Any) -> _At:
    code = code.astype(jnp.int32)
    tiles, masked = code & 7, code >> 5
    first, last = (code & 8) > 0, (code & 16) > 0
    zero, never = jnp.zeros((), dtype), jnp.asarray(NEVER, dtype)
    kinds = [(tiles - masked <= place).astype(jnp.int32) for place in range(program.group)]
    if sequence is not None:
        kinds = [kind + 2 * sequence for kind in kinds]
    return _At(
        on=tuple(jnp.where(tiles > place, zero, never) for place in range(program.group)),
        begins=jnp.where(first, zero, never),
        ends=jnp.where(last, zero, never),
        first=first,
        kinds=tuple(kinds),
    )


def _of_kind(weight: Array | tuple[Array, ...], kind: Array) -> Array:
    """The weight of a tile of class ``kind``; a tuple holds one or two classes apart."""
    if isinstance(weight, tuple):
        return weight[0] if len(weight) == 1 else jnp.where(kind > 0, weight[1], weight[0])
    return weight[kind] if weight.ndim == 1 else jnp.take_along_axis(weight, kind[None], axis=0)[0]


def _apart(weight: Array) -> Array | tuple[Array, ...]:
    """Few classes apart, once and not in every step."""
    return tuple(weight) if weight.shape[0] <= 2 else weight


class _Step:
    """One step under way."""

    def __init__(self, program: Program, weights: _Apart, state: State, at: Mapping[int, _At]) -> None:
        self.program, self.weights, self.state, self.at = program, weights, state, at
        self.behind = {node.stage: node.behind for node in program.nodes}
        self.clocks = dict(zip(program.queues, state.clocks, strict=True))
        self.before = dict(zip((moment for moment, _ in program.moments), state.moments, strict=True))
        self.held = dict(zip(program.held, state.held, strict=True))
        self.now: dict[tuple[str, int], Array] = {}
        self.moments: dict[tuple[Moment, int], Array] = {}

    def run(self, node: Node) -> None:
        at = self.at[node.behind]
        if node.when == "begin":
            self.now[node.stage, 0] = self.clocks[node.queue]
            wait_s = _of_kind(self.weights[BEGIN], at.kinds[0])
            self.clocks[node.queue] = self.clocks[node.queue] + jnp.where(at.first, wait_s, jnp.zeros_like(wait_s))
            return
        runs = {"open": at.begins, "close": at.ends, "tile": at.on[node.place]}[node.when]
        start = reduce(jnp.maximum, [self.clocks[node.queue], *(self._when(node, wait) for wait in node.waits)])
        self.now[node.stage, node.place] = start + runs
        end = self._moment(Moment(node.stage, "stage"), node.place)
        self.clocks[node.queue] = jnp.maximum(self.clocks[node.queue], end)

    def _moment(self, moment: Moment, place: int) -> Array:
        """``moment`` of the stage's tile in ``place`` of this step."""
        if (moment, place) not in self.moments:
            at, found = self.at[self.behind[moment.stage]], self.now[moment.stage, place]
            if moment.kind != "start":
                found = found + _of_kind(self.weights[moment], at.kinds[place])
            self.moments[moment, place] = found
        return self.moments[moment, place]

    def _when(self, node: Node, wait: Wait) -> Array:
        at = self.at[node.behind]
        back = self.before[wait.moment][wait.back - 1] if wait.back else self._moment(wait.moment, wait.place)
        if wait.moment.kind == "share" and node.place == 0:  # between two tasks passes what comes once per task
            row_s = _of_kind(self.weights[ROW_SHARE], at.kinds[0])
            return back + jnp.where(at.first, row_s, jnp.zeros_like(row_s))
        if (node, wait) not in self.held:
            return back
        ring = self.held[node, wait]
        if wait.latest:
            *ring, latest = ring
            back = jnp.maximum(latest, back)
        ring = [jnp.where(at.first, new, old) for new, old in zip([back, *ring[:-1]], ring, strict=True)]
        self.held[node, wait] = (*ring, back) if wait.latest else tuple(ring)
        return ring[-1]

    def done(self) -> State:
        """What the next steps have to know."""
        ends = [self._moment(moment, 0) for moment in self.program.sinks]
        return self.state._replace(
            clocks=tuple(self.clocks[queue] for queue in self.program.queues),
            moments=tuple(self._shifted(moment) for moment, _ in self.program.moments),
            held=tuple(self.held[at] for at in self.program.held),
            end=reduce(jnp.maximum, [self.state.end, *ends]),
        )

    def _shifted(self, moment: Moment) -> tuple[Array, ...]:
        ring, tiles = self.before[moment], self.program.node(moment.stage).when == "tile"
        for place in range(self.program.group if tiles else 1):
            new = (self._moment(moment, place), *ring[:-1])
            if self.program.group > 1 and tiles:  # a group may be shorter
                there = self.at[self.behind[moment.stage]].on[place] == 0
                new = tuple(jnp.where(there, one, other) for one, other in zip(new, ring, strict=True))
            ring = new
        return ring


class Passed(NamedTuple):
    """What ``advance`` returns.

    Attributes:
      state: after the steps, relative to the new base.
      bases: ``[T / BLOCK]``, how far the base moved after each block of steps.
      doubts: ``[T / BLOCK]``, how far what was skipped in the block may be off, since some queues were not at their pace yet.
      starts: ``[T, nodes]``, starts of the program's nodes relative to the base before their block; None if not watched.
    """

    state: State
    bases: Array
    doubts: Array
    starts: Array | None


def advance(program: Program, weights: Weights, state: State, steps: Steps, watch: bool = False) -> Passed:
    """Run ``T`` steps (a multiple of ``BLOCK``) from ``state``."""
    length = steps.codes.shape[0]
    if length % BLOCK:
        raise ValueError(f"{length} steps: give a multiple of {BLOCK}; a code of 0 does nothing")
    apart = {moment: _apart(weight) for moment, weight in weights.items()}
    blocks = jax.tree.map(lambda column: column.reshape(-1, BLOCK, *column.shape[1:]), steps)

    def block(state: State, steps: Steps) -> tuple[State, tuple[Skipped, Array | None]]:
        skipped = Skipped(jnp.zeros_like(state.end), jnp.zeros_like(state.end))
        (state, skipped), starts = lax.scan(partial(_one, program, apart, watch=watch), (state, skipped), steps)
        base = reduce(jnp.maximum, state.clocks)
        return less(state, base), (skipped._replace(moved=skipped.moved + base), starts)

    state, (skipped, starts) = lax.scan(block, state, blocks)
    return Passed(state, *skipped, None if starts is None else starts.reshape(length, *starts.shape[2:]))


def _one(
    program: Program, weights: _Apart, carried: tuple[State, Skipped], steps: Steps, *, watch: bool
) -> tuple[tuple[State, Skipped], Array | None]:
    state, skipped = carried
    columns = [column for column in (steps.codes, steps.sequences) if column is not None]
    lines = [(column, *line) for line, column in zip(state.delay, columns, strict=True)]
    at = {
        behind: _read(program, lines[0][behind], lines[1][behind] if len(lines) > 1 else None, state.end.dtype)
        for behind in {node.behind for node in program.nodes}
    }
    step = _Step(program, weights, state, at)
    for node in program.nodes:
        step.run(node)
    state = step.done()._replace(delay=tuple(line[:-1] for line in lines))
    starts = jnp.stack([step.now[node.stage, node.place] for node in program.nodes]) if watch else None
    if steps.marks is not None:
        state, skipped = skip(program, state, skipped, steps)
    return (state, skipped), starts


@cache
def advance_jit(program: Program, watch: bool = False, often: bool = False) -> Callable[[Weights, State, Steps], Passed]:
    """:func:`advance`, compiled; ``often``: to fast code for many lanes, at three times the compilation."""

    @jax.jit
    def one(weights: Weights, state: State, steps: Steps) -> Passed:
        with set_xla_metadata(**dict.fromkeys(AS_ONE_KERNEL)):  # the hint is for the call, not for what is in it
            return advance(program, weights, state, steps, watch)

    def hinted(weights: Weights, state: State, steps: Steps) -> Passed:
        with set_xla_metadata(**AS_ONE_KERNEL):
            return one(weights, state, steps)

    return jax.jit(hinted, compiler_options=options(FAST if often else SELDOM))
