"""A timeline written down: trace, pipes and use of memories, in one pass over its events and in bounded memory."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from io import TextIOWrapper
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from ascend_jax import KERNELS, Attention, NpuSpec, Tiling, Verdict
from ascend_jax._compile import SELDOM
from ascend_jax.kernels.kernel import Kernel
from ascend_jax.timeline.events import Events, Simulated
from ascend_jax.timeline.numbers import Numbers, numbers, numbers_jit
from ascend_jax.timeline.pipe_csv import Clocks, PipeTotals
from ascend_jax.timeline.series import OccupancySeries
from ascend_jax.timeline.simulate import simulate
from ascend_jax.timeline.trace import Ids, TraceWriter
from ascend_jax.workload.problem import Problem
from tiling_search.compile_cache import start_compile_cache
from tiling_search.jsonfile import Json, replacing
from tiling_search.jsonout import evaluation_dict, workload_dict
from tiling_search.programs import compiled
from tiling_search.result import Candidate

INSIGHT_BYTES = 2**30
INSIGHT_NAME = re.compile(r"(trace_view|trace|msprof(_slice)?(_[0-9]{1,15}){1,4})\.json")
"""Most bytes and names of the files that MindStudio Insight opens."""


class Wanted(NamedTuple):
    """What to write, and what of the timeline.

    Attributes:
      trace, csv, series: files, None for none.
      cores: indices of cube cores; None for all.
      tasks: only the first tasks of each core; None for all.
      ids, arrow_every: see ``TraceWriter``.
    """

    trace: Path | None = None
    csv: Path | None = None
    series: Path | None = None
    cores: tuple[int, ...] | None = (0,)
    tasks: int | None = None
    ids: Ids = "names"
    arrow_every: int = 1

    def check(self) -> None:
        """Raise ValueError where two files are one."""
        files = [file.resolve() for file in (self.trace, self.csv, self.series) if file]
        if len(set(files)) < len(files):
            raise ValueError("--trace, --csv and --series name one file twice: give each a file of its own")


def simulation(
    spec: NpuSpec,
    name: str,
    work: Attention,
    tiling: Tiling,
    kernel: Kernel,
    wanted: Wanted,
    *,
    programs: Path | None = None,
) -> Json:
    """Simulate ``work``, called ``name``, and write the files that are wanted, unless ``tiling`` does not fit.

    Compiled programs are kept in the folder ``programs``.

    Raises:
      ValueError, OSError: as :func:`write_timeline`.
    """
    wanted.check()
    with jax.enable_x64(True):  # whole bytes and blocks
        timeline = simulate(spec, work, tiling, kernel=kernel, numbers_of=stored_numbers(programs))
        found = Candidate(tiling, jax.device_get(timeline.report))
        data = evaluation_dict(spec.name, workload_dict(name, work), kernel.name, "simulated", found)
        if found.verdict != Verdict.FITS:
            return data | {"timeline": None}
        about = {key: str(data[key]) for key in ("chip", "kernel", "tiling")} | {"workload": name}
        clocks = Clocks(float(spec.cube_clock_hz), float(spec.vector_clock_hz))
        return data | {"timeline": write_timeline(timeline, wanted, clocks, about)}


def stored_numbers(folder: Path | None) -> Callable[[NpuSpec, Problem, Tiling, Kernel], Numbers]:
    """The model's part of a timeline, by a program in ``folder`` that is traced and compiled once; None keeps nothing."""

    def stored(spec: NpuSpec, given: Problem, tiling: Tiling, kernel: Kernel) -> Numbers:
        if folder is None or kernel is not KERNELS.get(kernel.name):
            return numbers_jit(spec, given, tiling, kernel)
        inputs = (spec, given, tiling)

        def trace() -> Iterator[tuple[Any, dict[str, Any]]]:
            yield jax.jit(numbers, static_argnums=3).trace(*inputs, kernel), SELDOM

        leaves = [(np.shape(leaf), str(leaf.dtype)) for leaf in jax.tree.leaves(inputs)]
        [program] = compiled(folder, f"timeline|{kernel.name}|{leaves}|{jax.tree.structure(inputs)}", [inputs], trace)
        start_compile_cache(folder)
        return program(*inputs)

    return stored


def write_timeline(timeline: Simulated, wanted: Wanted, clocks: Clocks, about: Mapping[str, str]) -> Json:
    """Write the files that are wanted, and sum up the pipes; each file appears whole or not at all.

    Raises:
      ValueError: a core that has no task, or one file for two purposes.
      OSError: a file cannot be written.
    """
    wanted.check()
    cores = _cores(timeline, wanted)
    extent = {"cores": f"{_ranges(cores)} of {timeline.cores} cube cores with tasks"}
    if wanted.tasks is not None:
        extent["cut"] = f"the first {wanted.tasks} tasks of each core"
    totals = PipeTotals(timeline, clocks)
    written: Json = {}
    with ExitStack() as stack:
        trace = series = None
        if wanted.trace:
            file = _text(stack, wanted.trace)
            trace = TraceWriter(file, timeline, {**about, **extent}, ids=wanted.ids, arrow_every=wanted.arrow_every)
        if wanted.series:
            kind = "json" if wanted.series.suffix.lower() == ".json" else "csv"
            series = OccupancySeries(_text(stack, wanted.series), timeline, kind)
        events = 0
        for chunk in _chunks(timeline, cores, wanted.tasks):
            events += chunk.stage.size
            for sink in filter(None, (trace, series, totals)):
                sink.add(chunk)
        if trace and wanted.trace:
            written["trace"] = {"file": str(wanted.trace), **trace.close()._asdict()}
        if series and wanted.series:
            written["series"] = {"file": str(wanted.series), "rows": series.close(), "peak_bytes": series.peak_bytes}
        if wanted.csv:
            written["csv"] = {"file": str(wanted.csv), "rows": totals.write(_text(stack, wanted.csv))}
    return {
        "active_cores": timeline.cores,
        "cores": list(cores),
        "tasks": wanted.tasks,
        "events": events,
        "pipes": _pipes(totals),
        "written": written,
        "note": viewer_note(wanted, wanted.trace.stat().st_size if wanted.trace else 0),
    }


def viewer_note(wanted: Wanted, trace_bytes: int) -> str | None:
    """Why MindStudio Insight would not open the trace; None where every viewer does, or where there is no trace."""
    if wanted.trace is None:
        return None
    reasons = {
        f"it opens only names such as trace.json, not {wanted.trace.name}": not INSIGHT_NAME.fullmatch(wanted.trace.name),
        "it needs --ids names": wanted.ids != "names",
        "it takes 1 GiB at most: --tasks N writes less": trace_bytes > INSIGHT_BYTES,
    }
    found = "; ".join(reason for reason, applies in reasons.items() if applies)
    return f"not for MindStudio Insight, but for chrome://tracing and Perfetto: {found}" if found else None


def _text(stack: ExitStack, path: Path) -> TextIOWrapper:
    """A text file that takes the place of ``path`` when ``stack`` ends without an error."""
    return stack.enter_context(TextIOWrapper(stack.enter_context(replacing(path)), encoding="utf-8", newline="\n"))


def _cores(timeline: Simulated, wanted: Wanted) -> tuple[int, ...]:
    cores = tuple(range(timeline.cores)) if wanted.cores is None else wanted.cores
    if absent := [core for core in cores if not 0 <= core < timeline.cores]:
        raise ValueError(f"cube core {absent[0]} has no task: those from 0 to {timeline.cores - 1} have; see --cores")
    return cores


def _chunks(timeline: Simulated, cores: tuple[int, ...], tasks: int | None) -> Iterator[Events]:
    """The chunks of ``cores``, of the first ``tasks`` only: a core ends when all of its stages are past them."""
    for core in cores:
        beyond: set[int] = set()
        for chunk in timeline.chunks([core]):
            if tasks is None:
                yield chunk
                continue
            beyond |= set(np.unique(chunk.stage[chunk.task >= tasks]).tolist())
            yield _only(chunk, chunk.task < tasks)
            if len(beyond) == len(timeline.stages):
                break


def _only(chunk: Events, kept: np.ndarray) -> Events:
    columns = ("stage", "task", "tile", "start_s", "end_s", "done_s")
    return Events(core=chunk.core, stages=chunk.stages, **{name: getattr(chunk, name)[kept] for name in columns})


def _ranges(cores: tuple[int, ...]) -> str:
    """``0, 4-7`` for 0, 4, 5, 6, 7."""
    firsts = [core for core in cores if core - 1 not in cores]
    lasts = [core for core in cores if core + 1 not in cores]
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(firsts, lasts, strict=True))


def _pipes(totals: PipeTotals) -> list[Json]:
    """Busy seconds of every pipe, and its share of its core's time."""
    return [
        {
            "core": core,
            "part": part,
            "pipe": pipe,
            "busy_s": busy_s,
            "share": busy_s / totals.core_s[core, part] if totals.core_s[core, part] else 0.0,
        }
        for (core, part, pipe), busy_s in totals.busy_s.items()
    ]
