"""Evaluate every candidate of a space: the blocks once, then all depths on them, in chunks of one size."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import partial, wraps
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ascend_jax._compile import OFTEN, SELDOM
from ascend_jax._pytree import as_arrays
from ascend_jax.cost.finish import finish, score
from ascend_jax.cost.overlap import OVERLAPS, Overlap
from ascend_jax.cost.prepare import Prepared, prepare
from ascend_jax.cost.report import Report, report
from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.kernels import KERNELS
from ascend_jax.kernels.kernel import Kernel
from ascend_jax.occupancy import occupancy
from ascend_jax.rounding import EXACT
from ascend_jax.tiling.batch import batch
from ascend_jax.tiling.rules import STEP
from ascend_jax.tiling.tiling import Tiling
from ascend_jax.verdict import Verdict
from ascend_jax.workload.attention import Attention
from ascend_jax.workload.problem import Problem, problem
from tiling_search.programs import Output, Program, compiled
from tiling_search.space import BLOCK_FIELDS, DEPTH_FIELDS, L0_DEPTH, Space, depth_rows, named_blocks

CHUNK = 512
"""Blocks a call: with all depths, some 300,000 candidates, whose results stay in the processor's cache. One size for all
spaces, so that they share a compilation."""
LEAST = 16_384
"""Blocks a call with the fewest slots."""
REPORTS = 64
"""Reports a call, for the same reason."""

MILLIONS = OFTEN | {"xla_cpu_prefer_vector_width": 512}
"""For scores: wide registers halve the time where there are any, and change no bit."""

Columns = tuple[Any, ...]
F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def in_float64(function: F) -> F:
    """Run ``function`` with 64-bit types, whatever the process uses."""

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        with jax.enable_x64(True):
            return function(*args, **kwargs)

    return run  # type: ignore[return-value]


class Scores(NamedTuple):
    """One chunk: seconds (``inf`` where it does not fit), verdicts, and bytes of UB, each ``[blocks, depths]``."""

    seconds: np.ndarray
    verdicts: np.ndarray
    ub_bytes: np.ndarray


class Share(Protocol):
    """Which rows of a chunk this process has the results of, where several processes work on it."""

    def rows(self, count: int) -> slice:
        """Its rows of a chunk of ``count``."""
        ...

    def gather(self, own: T) -> list[T]:
        """What each process gives, in the order of their rows. All processes must call it, in the same order."""
        ...


class Alone:
    """The share of the only process: everything."""

    def rows(self, count: int) -> slice:
        return slice(0, count)

    def gather(self, own: T) -> list[T]:
        return [own]


ALONE = Alone()


@dataclass(frozen=True)
class Evaluator:
    """Scores blocks of one problem on one chip, and reports on tilings; compiled once for chunks of fixed sizes.

    Blocks are prepared in float64; scores are float32 of those, which is twice as fast, and reports are float64.
    """

    spec: NpuSpec
    given: Problem
    depths: np.ndarray
    fit_least: Callable[..., Array]
    fit: Callable[..., Array]
    prepare: Callable[..., Prepared]
    score: Callable[..., tuple[Array, Array, Array]]
    prepare_here: Callable[..., Prepared]
    """As ``prepare``, with all rows in this process, for reports."""
    report: Callable[..., Report]
    share: Share = ALONE

    @classmethod
    @in_float64
    def build(cls, spec: NpuSpec, work: Attention, kernel: Kernel, overlap: Overlap, folder: Path | None = None) -> "Evaluator":
        """Compile the five computations, or load them from ``folder`` if they are there."""
        numbers, given = as_arrays(spec), problem(work)
        rows = depth_rows(kernel)
        blocks, depths = columns_of(np.ones((CHUNK, len(BLOCK_FIELDS)))), columns_of(rows)
        many, one = columns_of(np.ones((LEAST, len(BLOCK_FIELDS)))), columns_of(rows[:1])
        tilings = batch([Tiling(block_q=STEP, block_kv=STEP)], REPORTS).tiling

        def trace() -> Iterator[tuple[Any, dict[str, Any]]]:
            first = prepare_blocks.trace(numbers, given, blocks, kernel, overlap)
            ready, few = stand_ins(first.out_info)
            yield first, SELDOM
            yield score_depths.trace(numbers, given, ready, blocks, depths, kernel), MILLIONS
            yield report_tilings.trace(numbers, given, few, tilings, kernel), SELDOM
            yield fit_depths.trace(numbers, given, blocks, depths, kernel), OFTEN
            yield fit_depths.trace(numbers, given, many, one, kernel), OFTEN

        inputs = [
            (numbers, given, blocks),
            (numbers, given, Output(0), blocks, depths),
            (numbers, given, Output(0), tilings),
            (numbers, given, blocks, depths),
            (numbers, given, many, one),
        ]
        prepare, score, report, fit, fit_least = model_programs(folder, (kernel, overlap), inputs, trace)
        return cls(numbers, given, rows, fit_least, fit, prepare, score, prepare, report)

    @in_float64
    def least(self, blocks: np.ndarray) -> np.ndarray:
        """Verdicts by occupancy alone of the fewest slots on any number of ``blocks``, int8 ``[N]``.

        Occupancy grows with every slot: a block that overflows a memory here does so with all depths.
        """
        found = [np.zeros(0, np.int8)]
        for start in range(0, len(blocks), LEAST):
            some = blocks[start : start + LEAST]
            columns = columns_of(filled(some, LEAST))
            out = self.fit_least(self.spec, self.given, columns, columns_of(self.depths[:1]))
            found.append(np.asarray(out)[: len(some), 0])
        return np.concatenate(found)

    @in_float64
    def verdicts(self, blocks: np.ndarray) -> np.ndarray:
        """Verdicts by occupancy alone of all depths on ``blocks`` (1 to ``CHUNK`` of them), int8 ``[N, F]``.

        Of several processes, each gets those of its ``share.rows``; so it is with ``scores``.
        """
        out = self.fit(self.spec, self.given, columns_of(filled(blocks, CHUNK)), columns_of(self.depths))
        return self._own(out, len(blocks))

    @in_float64
    def scores(self, blocks: np.ndarray) -> Scores:
        """Scores of all depths on ``blocks`` (rows of ``BLOCK_FIELDS``, 1 to ``CHUNK`` of them)."""
        columns = columns_of(filled(blocks, CHUNK))
        prepared = self.prepare(self.spec, self.given, columns)
        out = self.score(self.spec, self.given, prepared, columns, columns_of(self.depths))
        return Scores(*(self._own(part, len(blocks)) for part in out))

    @in_float64
    def reports(self, tilings: Sequence[Tiling]) -> list[Report]:
        """A report for each tiling, its leaves numpy float64."""
        prepare, report = partial(self.prepare_here, self.spec, self.given), partial(self.report, self.spec, self.given)
        return reports_of(tilings, (BLOCK_FIELDS, CHUNK), prepare, report)

    def _own(self, rows: Any, count: int) -> np.ndarray:
        """Of a chunk's results, those of this process, without what only fills the chunk up."""
        own = self.share.rows(count)
        return np.asarray(rows)[: own.stop - own.start]


def stand_ins(prepared: Any) -> tuple[Any, Any]:
    """Shapes of what is prepared for a chunk of blocks, from those of the program's output, and for the blocks of reports."""
    ready = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), prepared)
    return ready, jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((REPORTS, *leaf.shape[1:]), leaf.dtype), ready)


def model_programs(
    folder: Path | None,
    model: tuple[Kernel, Overlap],
    inputs: Sequence[tuple[Any, ...]],
    trace: Callable[[], Iterator[tuple[Any, dict[str, Any]]]],
) -> list[Program]:
    """:func:`tiling_search.programs.compiled` of one model; those of a model of a person's own are not kept in ``folder``."""
    kernel, overlap = model
    named = kernel is KERNELS.get(kernel.name) and overlap is OVERLAPS.get(overlap.name)
    shapes = [np.shape(leaf) for leaf in jax.tree.leaves(inputs)]
    key = f"{(kernel.name, overlap.name) if named else model}|{shapes}|{jax.tree.structure(inputs)}"
    return compiled(folder if named else None, key, inputs, trace)


def reports_of(
    tilings: Sequence[Tiling], chunk: tuple[tuple[str, ...], int], prepare: Callable[..., Any], report: Callable[..., Report]
) -> list[Report]:
    """A report for each tiling. ``chunk``: the block fields that ``prepare`` takes columns of, and how many at once."""
    found: list[Report] = []
    names, (block_fields, size) = [item.name for item in fields(Tiling)], chunk
    for start in range(0, len(tilings), size):
        rows = np.array([[getattr(one, name) for name in names] for one in tilings[start : start + size]], np.float64)
        columns = columns_of(filled(rows, size))
        blocks = tuple(columns[names.index(name)] for name in block_fields)
        ready = Tiling(**dict(zip(names, columns, strict=True))), jax.tree.map(np.asarray, prepare(blocks))
        for at in range(0, len(rows), REPORTS):
            tiling, few = jax.tree.map(lambda leaf, at=at: leaf[at : at + REPORTS], ready)
            leaves, structure = jax.tree.flatten(report(few, tiling))
            each = zip(*map(np.asarray, leaves), strict=True)
            found += [structure.unflatten(one) for one in islice(each, len(rows) - at)]
    return found


def chunks(blocks: np.ndarray) -> Iterator[np.ndarray]:
    """``blocks`` in pieces of at most ``CHUNK`` rows."""
    for start in range(0, len(blocks), CHUNK):
        yield blocks[start : start + CHUNK]


def within_ub(evaluator: Evaluator, space: Space) -> tuple[np.ndarray, tuple[int, int]]:
    """The blocks of ``space`` up to the largest that fit UB beside the smallest other block, and how many sizes of block_q
    and of block_kv they have."""
    probes = space.probes()
    within = evaluator.least(probes) != Verdict.UB_OVERFLOW
    most_q, most_kv = (int(probes[within, column].max(initial=0)) for column in (0, 1))
    sizes = int(np.count_nonzero(space.block_q <= most_q)), int(np.count_nonzero(space.block_kv <= most_kv))
    return space.blocks(most_q, most_kv), sizes


def filled(blocks: np.ndarray, count: int) -> np.ndarray:
    """``blocks`` with copies of the last row up to ``count``."""
    return np.concatenate([blocks, np.repeat(blocks[-1:], count - len(blocks), axis=0)])


def columns_of(rows: np.ndarray) -> Columns:
    """The columns of ``rows``, each contiguous in float64."""
    return tuple(np.ascontiguousarray(column, np.float64) for column in rows.T)


def tiling_from(block: Columns, depth: Columns | None = None) -> Tiling:
    """A tiling from traced fields; depths that ``prepare`` does not read are 1."""
    one = jnp.ones_like(block[0])
    depths = depth or (one,) * len(DEPTH_FIELDS)
    values = {"l0_depth": one * L0_DEPTH} | named_blocks(block) | dict(zip(DEPTH_FIELDS, depths, strict=True))
    return Tiling(**values)


@partial(jax.jit, static_argnums=(4,))
def fit_depths(spec: NpuSpec, given: Problem, blocks: Columns, depths: Columns, kernel: Kernel) -> Array:
    """Verdicts by occupancy alone (int8), ``[N, F]``, for columns ``[N]`` of blocks and ``[F]`` of depths."""
    spec, given, blocks, depths = single((spec, given, blocks, depths))

    def one(block: Columns, depth: Columns) -> Array:
        return occupancy(spec, given.work, given.lengths, tiling_from(block, depth), kernel).verdict.astype(jnp.int8)

    return jax.vmap(jax.vmap(one, in_axes=(None, 0)), in_axes=(0, None))(blocks, depths)


def single(tree: Any) -> Any:
    """The numbers of ``tree`` as float32."""
    return jax.tree.map(lambda leaf: leaf.astype(jnp.float32), tree)


@partial(jax.jit, static_argnums=(3, 4))
def prepare_blocks(spec: NpuSpec, given: Problem, blocks: Columns, kernel: Kernel, overlap: Overlap) -> Prepared:
    """What the blocks decide, leaves ``[N, …]`` for columns ``[N]``."""
    return jax.vmap(lambda *block: prepare(spec, given, tiling_from(block), kernel, overlap, EXACT))(*blocks)


@partial(jax.jit, static_argnums=(5,))
def score_depths(
    spec: NpuSpec, given: Problem, prepared: Prepared, blocks: Columns, depths: Columns, kernel: Kernel
) -> tuple[Array, Array, Array]:
    """Seconds (float32), verdicts (int8) and bytes of UB, ``[N, F]``, for columns ``[N]`` of blocks, ``[F]`` of depths."""
    spec, given, prepared, blocks, depths = single((spec, given, prepared, blocks, depths))

    def one(ready: Prepared, block: Columns, depth: Columns) -> tuple[Array, Array, Array]:
        seconds, verdict, ub_bytes = score(spec, given, tiling_from(block, depth), kernel, ready, EXACT)
        return seconds, verdict.astype(jnp.int8), ub_bytes

    return jax.vmap(jax.vmap(one, in_axes=(None, None, 0)), in_axes=(0, 0, None))(prepared, blocks, depths)


@partial(jax.jit, static_argnums=(4,))
def report_tilings(spec: NpuSpec, given: Problem, prepared: Prepared, tilings: Tiling, kernel: Kernel) -> Report:
    """Reports, leaves ``[N]``, of tilings ``[N]`` whose blocks are prepared."""

    def one(ready: Prepared, tiling: Tiling) -> Report:
        return report(spec, given, ready, finish(spec, given, tiling, kernel, ready, EXACT))

    return jax.vmap(one)(prepared, tilings)
