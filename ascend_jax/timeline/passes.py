"""Passes of the recurrence over the steps of some cores, chunk by chunk, so that memory does not grow with their number."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, zip_longest
from typing import Literal

import jax.numpy as jnp
import numpy as np
from jax import Array

from ascend_jax.timeline.jump import Columns, every_step, with_skips
from ascend_jax.timeline.program import Program
from ascend_jax.timeline.recurrence import BLOCK, Passed, Steps, advance_jit, begin, finish
from ascend_jax.timeline.tasks import Run
from ascend_jax.timeline.weights import Weights

Mode = Literal["jump", "full"]
CHUNK = 128 * BLOCK
"""Steps that are simulated, and whose events are held, at a time."""
SETTLE = (4, 16, 64)
"""Steps before what repeats is skipped: first few, then more."""
CERTAIN = 1e-6
KINDS = {"codes": np.uint8, "marks": np.uint8, "skip_tiles": float, "skip_tasks": float, "sequences": np.int32}


def makespan(program: Program, weights: Weights, cores: Sequence[Sequence[Run]], mode: Mode = "jump") -> float:
    """Seconds until the last of ``cores`` is done.

    Jump mode looks again, at more tiles before each skip, until what it skipped is known to a ``CERTAIN`` part.
    """
    if not cores:
        return 0.0
    for settle in SETTLE if mode == "jump" else ():
        seconds, doubt = _end(program, weights, [with_skips(program, runs, settle) for runs in cores], skips=True)
        if doubt <= CERTAIN * seconds:
            return seconds
    return _end(program, weights, [every_step(program, runs) for runs in cores], skips=False)[0]


def _end(program: Program, weights: Weights, lanes: Sequence[Iterable[Columns]], skips: bool) -> tuple[float, float]:
    """When the last lane is done, and how far that may be off."""
    base, doubt, last = np.zeros(len(lanes)), np.zeros(len(lanes)), np.zeros(len(lanes))
    for _, passed in passes(program, weights, lanes, skips=skips):
        base = base + np.asarray(passed.bases, np.float64).sum(axis=0)
        doubt = doubt + np.asarray(passed.doubts, np.float64).sum(axis=0)
        last = np.asarray(finish(passed.state))
    return float(np.max(base + last)), float(np.max(doubt))


def passes(
    program: Program, weights: Weights, lanes: Sequence[Iterable[Columns]], skips: bool = False, watch: bool = False
) -> Iterator[tuple[list[Columns], Passed]]:
    """The lanes' steps and what came of them, chunk by chunk; the last one drains what is under way."""
    several = any(len(weight) > 2 for weight in weights.values())  # more than full and masked: several lengths
    dtype = jnp.result_type(float)
    on_device = {moment: jnp.asarray(weight, dtype) for moment, weight in weights.items()}
    run, state = advance_jit(program, watch), None
    for chunk in zip_longest(*(_chunks(lane, program.drain) for lane in lanes)):
        columns = [part if part is not None else _nothing(CHUNK) for part in chunk]
        size = max(len(part["codes"]) for part in columns)
        columns = [_padded(part, size) for part in columns]

        together = {name: np.stack([part[name] for part in columns], axis=1) for name in KINDS}
        wanted = {"codes"} | ({"marks", "skip_tiles", "skip_tasks"} if skips else set()) | ({"sequences"} if several else set())
        steps = Steps(**{name: _on_device(column, dtype) for name, column in together.items() if name in wanted})
        state = begin(program, steps, dtype) if state is None else state
        passed = run(on_device, state, steps)
        state = passed.state
        yield columns, passed


def _chunks(tasks: Iterable[Columns], drain: int) -> Iterator[Columns]:
    """Steps of successive tasks, and ``drain`` empty ones, in chunks; the last one is as long as it has to be."""
    held: list[Columns] = []
    size = 0
    for task in chain(tasks, [_nothing(max(drain, 1))]):
        held.append(task)
        size += len(task["codes"])
        if size >= CHUNK:
            joined = _joined(held)
            for start in range(0, size - size % CHUNK, CHUNK):
                yield {name: column[start : start + CHUNK] for name, column in joined.items()}
            held = [{name: column[size - size % CHUNK :] for name, column in joined.items()}]
            size %= CHUNK
    if size:
        yield _padded(_joined(held), min(CHUNK, BLOCK * 4 ** _log4(-(-size // BLOCK))))


def _log4(count: int) -> int:
    """The smallest power of 4 that is at least ``count``: few lengths, few compilations."""
    return next(power for power in range(16) if 4**power >= count)


def _joined(parts: Sequence[Columns]) -> Columns:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _padded(columns: Columns, size: int) -> Columns:
    return {name: np.pad(column, (0, size - len(column))) for name, column in columns.items()}


def _nothing(size: int) -> Columns:
    return {name: np.zeros(size, kind) for name, kind in KINDS.items()}


def _on_device(column: np.ndarray, dtype: np.dtype) -> Array:
    return jnp.asarray(column, dtype if column.dtype.kind == "f" else column.dtype)
