"""``simulate``: one tiling of one workload on one chip, event by event. The same arguments as ``evaluate``, the same report."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import jax
import numpy as np

from ascend_jax._pytree import as_arrays
from ascend_jax.cost.evaluate import chosen
from ascend_jax.cost.overlap import PIPELINED
from ascend_jax.cost.report import Report
from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.kernels.kernel import Graph, Kernel
from ascend_jax.rounding import EXACT
from ascend_jax.tiling.tiling import Tiling
from ascend_jax.timeline.events import Events, FlowInfo, StageInfo
from ascend_jax.timeline.jump import every_step
from ascend_jax.timeline.numbers import Numbers, depths_of, durations, numbers_jit
from ascend_jax.timeline.passes import Mode, makespan, passes
from ascend_jax.timeline.program import Program, Stuck
from ascend_jax.timeline.record import Recorder, stage_infos
from ascend_jax.timeline.schedule import program
from ascend_jax.timeline.tasks import Run, deal, runs_of
from ascend_jax.timeline.weights import Durations, Weights, weigh
from ascend_jax.verdict import Verdict
from ascend_jax.workload.attention import Attention
from ascend_jax.workload.problem import Problem, problem

CONTENDERS = 4
"""Cores with the most work that are simulated for the time of all; those with the same tasks count as one."""


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """A simulated call.

    Attributes:
      report: as that of ``evaluate``, with the seconds of the simulation.
      core_runs: what each core has to do, of the cores that have anything.
      program, weights: what a core does in a step, and how long; None where the kernel would wait for itself.
      durations: what each stage takes.
      slots, slot_bytes, memory: per buffer.
    """

    report: Report
    graph: Graph
    core_runs: tuple[tuple[Run, ...], ...]
    program: Program | None
    weights: Weights
    durations: Durations
    slots: Mapping[str, int]
    slot_bytes: Mapping[str, float]
    memory: Mapping[str, str]
    cube_clock_hz: float
    vector_cores_per_cube: int

    @property
    def seconds(self) -> float:
        """From launch to completion; infinite where the kernel would wait for itself."""
        return float(self.report.seconds)

    @property
    def cores(self) -> int:
        """Cube cores that have any task."""
        return len(self.core_runs)

    @property
    def stages(self) -> tuple[StageInfo, ...]:
        """The stages of a task and of its tiles, and the scalar work before them."""
        return stage_infos(self.graph)

    @property
    def flows(self) -> tuple[FlowInfo, ...]:
        """The hand-offs between them."""
        every = self.graph.flows
        return tuple(FlowInfo(one.producer, one.consumer, one.buffer, one.handoff, one.chunked, one.lag) for one in every)

    def chunks(self, cores: Sequence[int] = (0,)) -> Iterator[Events]:
        """The events of these cube cores, core by core, in order of start; memory holds one chunk at a time.

        Raises:
          ValueError: there is no such core with any task.
        """
        for core in cores:
            if not 0 <= core < self.cores:
                raise ValueError(f"core {core} has no task: give 0 to {self.cores - 1}")
            if self.program is not None:
                yield from self._events(core, self.program)

    def _events(self, core: int, program: Program) -> Iterator[Events]:
        recorder = Recorder(core, self.graph, program, self.durations)
        for columns, passed in passes(program, self.weights, [every_step(program, self.core_runs[core])], watch=True):
            yield from recorder.add(columns[0], passed)
        yield from recorder.close()


def simulate(
    spec: NpuSpec,
    work: Attention,
    tiling: Tiling,
    *,
    kernel: str | Kernel = "auto",
    mode: Mode = "jump",
    numbers_of: Callable[[NpuSpec, Problem, Tiling, Kernel], Numbers] = numbers_jit,
) -> Timeline:
    """Simulate ``tiling``: in-order queues, slots, hand-offs, several tasks a core, many cores.

    Args:
      spec: the chip; plain numbers.
      work: the attention call.
      tiling: how it is cut.
      kernel: a dataflow by name, ``auto`` for the chip's own, or a ``Kernel``.
      mode: ``jump`` skips whole periods where tiles or tasks repeat; ``full`` simulates every tile for the report too.
      numbers_of: computes ``Numbers``; for a caller who keeps compiled programs.

    Returns:
      A timeline. One that does not fit is a value, as with ``evaluate``; one that would wait for itself has infinite seconds.

    Raises:
      TypeError, ValueError: as ``evaluate``; an unknown mode.

    >>> from ascend_jax import load_chip, load_preset
    >>> timeline = simulate(load_chip("910B3"), load_preset("llama3-8b-prefill-8k"), Tiling(block_q=128, block_kv=256))
    >>> bool(0.003 < timeline.seconds < 0.02), timeline.cores
    (True, 20)
    """
    if mode not in ("jump", "full"):
        raise ValueError(f"mode {mode!r} must be jump or full")
    kernel, _ = chosen(spec, kernel, PIPELINED)
    given = problem(work)
    found: Numbers = jax.device_get(numbers_of(as_arrays(spec), given, as_arrays(tiling), kernel))
    runs = runs_of(given, tiling, found.tiles)
    dealt, loads = deal(runs, task_seconds(runs, found), int(spec.cube_cores))
    depths, held = depths_of(kernel, found, tiling.preload)
    takes = durations(spec, kernel, found, held)
    try:
        step = program(kernel.graph, depths)
        weights = weigh(step, kernel.graph, takes)
        seconds = makespan(step, weights, contenders(dealt, loads), mode)
    except Stuck:
        step, weights, seconds = None, {}, np.inf
    total = float(found.start_s + found.combine_s) + seconds if float(found.report.tasks) else 0.0
    buffers = jax.eval_shape(partial(kernel.buffers, rounding=EXACT), as_arrays(spec), given.work, as_arrays(tiling))
    return Timeline(
        report=_with_seconds(found.report, total),
        graph=kernel.graph,
        core_runs=tuple(mine for mine in dealt if mine),
        program=step,
        weights=weights,
        durations=takes,
        slots={name: round(float(np.atleast_1d(slots)[0])) for name, slots in found.slots.items()},
        slot_bytes={name: float(size) for name, size in found.slot_bytes.items()},
        memory={name: buffer.memory for name, buffer in buffers.items()},
        cube_clock_hz=float(spec.cube_clock_hz),
        vector_cores_per_cube=int(spec.vector_cores_per_cube),
    )


def task_seconds(runs: Sequence[Run], found: Numbers) -> list[float]:
    """About how long a task of each run takes."""
    period, row = (np.atleast_1d(np.asarray(column, np.float64)) for column in (found.period_s, found.task_s))
    return [run.tiles * period[run.sequence] + row[run.sequence] for run in runs]


def contenders(dealt: Sequence[tuple[Run, ...]], loads: np.ndarray) -> list[tuple[Run, ...]]:
    """The cores that may be the last to finish: those with the most work, each kind of core once."""
    busiest = [dealt[core] for core in np.argsort(-loads, kind="stable") if dealt[core]]
    return list(dict.fromkeys(busiest))[:CONTENDERS]


def _with_seconds(found: Report, seconds: float) -> Report:
    """The report with other seconds, of which each limit takes another share."""
    shares = found.bounds * (found.seconds / seconds) if 0 < seconds < np.inf else np.zeros_like(found.bounds)
    held, stuck = found.occupancy, seconds == np.inf and float(found.occupancy.verdict) == float(Verdict.FITS)
    if stuck:
        held = replace(held, verdict=np.full_like(held.verdict, float(Verdict.PIPELINE_DEADLOCK)))
    return replace(found, seconds=np.full_like(found.seconds, seconds), bounds=shares, occupancy=held)
