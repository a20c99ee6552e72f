"""Passes of the recurrence over the steps of some cores, chunk by chunk, so that memory does not grow with their number."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, zip_longest
from typing import Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from ascend_jax.timeline.jump import Columns, every_step, with_skips
from ascend_jax.timeline.program import Program
from ascend_jax.timeline.recurrence import BLOCK, LANES, Passed, advance_jit
from ascend_jax.timeline.state import Steps, begin, finish
from ascend_jax.timeline.tasks import Run
from ascend_jax.timeline.weights import Weights

Mode = Literal["jump", "full"]
CHUNK = 128 * BLOCK
"""Steps that are simulated, and whose events are held, at a time."""
SHORT_CHUNK = CHUNK // 8
"""The same for those that have few."""
SETTLE = (4, 16, 64, 256, 1024)
"""Steps before what repeats is skipped: first few, then more."""
CERTAIN = 1e-6
"""Share of the time that may be in doubt; more only where the pace still changes after the last of ``SETTLE``."""
LANE_SIZES = (4, 32, LANES)
KINDS = {"codes": np.uint8, "marks": np.uint8, "skip_tiles": float, "skip_tasks": float, "sequences": np.int32}


class Work(NamedTuple):
    """What one timeline consists of: weights, and the tasks of the cores of which the last is waited for."""

    weights: Weights
    cores: Sequence[Sequence[Run]]


def makespan(program: Program, weights: Weights, cores: Sequence[Sequence[Run]], mode: Mode = "jump") -> float:
    """Seconds until the last of ``cores`` is done; see :func:`makespans`."""
    return float(makespans(program, [Work(weights, cores)], mode)[0])


def makespans(program: Program, works: Sequence[Work], mode: Mode = "jump") -> np.ndarray:
    """Seconds of several timelines with one program, ``[N]``.

    Jump mode looks again, at more tiles before each skip, until what it skipped is ``CERTAIN``.
    """
    found = np.zeros(len(works))
    left = np.array([index for index, work in enumerate(works) if work.cores], int)
    for settle in SETTLE if mode == "jump" else (None,):
        ends, doubts = _ends(program, [works[index] for index in left], settle)
        found[left] = ends
        left = left[doubts > CERTAIN * ends]
        if not left.size:
            break
    return found


def _ends(program: Program, works: Sequence[Work], settle: int | None) -> tuple[np.ndarray, np.ndarray]:
    """When the last core of each is done, and how far that may be off."""
    owner = np.array([index for index, work in enumerate(works) for _ in work.cores], int)
    cores = [core for work in works for core in work.cores]
    ends, doubts = np.zeros(len(works)), np.zeros(len(works))
    for start in range(0, len(cores), LANES):
        lanes = slice(start, min(start + LANES, len(cores)))
        weights = works[0].weights if len(works) == 1 else _side_by_side([works[index].weights for index in owner[lanes]])
        end, doubt = _pass(program, weights, cores[lanes], settle)
        np.maximum.at(ends, owner[lanes], end)
        np.maximum.at(doubts, owner[lanes], doubt)
    return ends, doubts


def _side_by_side(weights: Sequence[Weights]) -> Weights:
    """Weights of several lanes as ``[C, L]``; a lane without classes has them all alike."""
    found = {}
    for moment in weights[0]:
        classes = max(one[moment].shape[0] for one in weights)
        found[moment] = np.stack([np.broadcast_to(one[moment], classes) for one in weights], axis=1)
    return found


def _pass(
    program: Program, weights: Weights, cores: Sequence[Sequence[Run]], settle: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """When each core is done, and how far that may be off. Lanes are filled up, so that few sizes are compiled."""
    size = next(size for size in LANE_SIZES if size >= len(cores))
    weights = {moment: _filled(weight, size) for moment, weight in weights.items()}
    lanes = [every_step(program, core) if settle is None else with_skips(program, core, settle) for core in cores]
    lanes += [iter(()) for _ in range(size - len(cores))]
    base, doubt, last = np.zeros(size), np.zeros(size), np.zeros(size)
    long = settle is None and max(sum(run.tiles * run.times for run in core) for core in cores) > CHUNK // 2
    chunk = CHUNK if long else SHORT_CHUNK
    for _, passed in passes(program, weights, lanes, skips=settle is not None, chunk=chunk):
        base = base + np.asarray(passed.bases, np.float64).sum(axis=0)
        doubt = doubt + np.asarray(passed.doubts, np.float64).sum(axis=0)
        last = np.asarray(finish(passed.state))
    return (base + last)[: len(cores)], doubt[: len(cores)]


def _filled(weight: np.ndarray, size: int) -> np.ndarray:
    """``[C, L]`` with as many lanes as ``size``; ``[C]`` as it is."""
    return weight if weight.ndim == 1 else np.pad(weight, ((0, 0), (0, size - weight.shape[1])), mode="edge")


def passes(
    program: Program,
    weights: Weights,
    lanes: Sequence[Iterable[Columns]],
    *,
    skips: bool = False,
    watch: bool = False,
    chunk: int = CHUNK,
) -> Iterator[tuple[list[Columns], Passed]]:
    """The lanes' steps and what came of them, ``chunk`` steps at a time; the last ones drain what is under way."""
    several = any(len(weight) > 2 for weight in weights.values())  # more than full and masked: several lengths
    wanted = {"codes"} | ({"marks", "skip_tiles", "skip_tasks"} if skips else set()) | ({"sequences"} if several else set())
    dtype = jnp.result_type(float)
    on_device = {moment: jnp.asarray(weight, dtype) for moment, weight in weights.items()}
    run, state, nothing = advance_jit(program, watch, often=len(lanes) >= LANES), None, _padded(_joined([]), chunk)
    for parts in zip_longest(*(_chunks(lane, program.drain, chunk) for lane in lanes), fillvalue=nothing):
        columns = list(parts)
        together = {name: np.stack([part[name] for part in columns], axis=1) for name in wanted}
        steps = Steps(**{name: _on_device(column, dtype) for name, column in together.items()})
        state = begin(program, steps, dtype) if state is None else state
        passed = run(on_device, state, steps)
        state = passed.state
        yield columns, passed


def _chunks(tasks: Iterable[Columns], drain: int, size: int) -> Iterator[Columns]:
    """Steps of successive tasks, and ``drain`` empty ones, ``size`` at a time; the last are filled up with empty ones."""
    held: list[Columns] = []
    length = 0
    for task in chain(tasks, [_padded(_joined([]), max(drain, 1))]):
        held.append(task)
        length += len(task["codes"])
        if length >= size:
            joined, whole = _joined(held), length - length % size
            for start in range(0, whole, size):
                yield {name: column[start : start + size] for name, column in joined.items()}
            held, length = [{name: column[whole:] for name, column in joined.items()}], length - whole
    if length:
        yield _padded(_joined(held), size)


def _joined(parts: Sequence[Columns]) -> Columns:
    return {name: np.concatenate([np.zeros(0, kind), *(part[name] for part in parts)]) for name, kind in KINDS.items()}


def _padded(columns: Columns, size: int) -> Columns:
    return {name: np.pad(column, (0, size - len(column))) for name, column in columns.items()}


def _on_device(column: np.ndarray, dtype: np.dtype) -> Array:
    return jnp.asarray(column, dtype if column.dtype.kind == "f" else column.dtype)
