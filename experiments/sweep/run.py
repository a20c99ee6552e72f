"""How long a sweep of more than a billion evaluations takes from the command line, and which way of sharing it is faster.

``python experiments/sweep/run.py [--json FILE|-] [--only billion|ways] [--processes N]``
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from threading import Event, Thread
from typing import Any, TextIO

import click
import numpy as np

from ascend_jax.cost.evaluate import chosen
from ascend_jax.verdict import Verdict
from tiling_search.exhaustive import Evaluator, within_ub
from tiling_search.space import build_space
from tiling_search.sweep.spec import read_sweep

HERE = Path(__file__).parent
BILLION, WAYS = HERE / "billion.toml", HERE / "ways.toml"
SAMPLE_S = 0.5


def run(spec: Path, folder: Path, cache: Path, *flags: str) -> dict[str, Any]:
    """One sweep as a user runs it, with an empty store: its seconds, CPU seconds of all its processes, memory, and rows."""
    command = [sys.executable, "-m", "tiling_search", "sweep", str(spec), "--json", str(folder / "rows.json"), *flags]
    (folder / "store.sqlite").unlink(missing_ok=True)
    environment = os.environ | {"TILING_SEARCH_CACHE_DIR": str(cache)}
    environment.pop(
        "TF_CPP_MIN_LOG_LEVEL", None
    )  # jax sets it where it is imported, as it is here: the user's command would not
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    process = subprocess.Popen([*command, "--store", str(folder / "store.sqlite")], env=environment, stdout=subprocess.DEVNULL)
    ended, peak = Event(), [0]
    sampler = Thread(target=_sample, args=(process.pid, ended, peak))
    sampler.start()
    code = process.wait()
    wall_s = time.perf_counter() - started
    ended.set()
    sampler.join()
    if code:
        raise SystemExit(f"{' '.join(command)} ended with exit status {code}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    rows = json.loads((folder / "rows.json").read_text())
    return {
        "wall_s": wall_s,
        "cpu_s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "peak_rss_bytes": peak[0],
        "store_bytes": (folder / "store.sqlite").stat().st_size,
        "rows": rows,
    }


def _sample(root: int, ended: Event, peak: list[int]) -> None:
    """Keep the most memory that process ``root`` and those below it hold together (resident; shared pages count in each)."""
    while not ended.wait(SAMPLE_S):
        peak[0] = max(peak[0], sum(_resident(pid) for pid in _family(root)))


def _family(root: int) -> set[int]:
    parents = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(entry.parent.name)] = int(entry.read_text().rpartition(")")[2].split()[1])
        except OSError:  # ended meanwhile
            continue
    family, size = {root}, 0
    while len(family) > size:
        size = len(family)
        family |= {pid for pid, parent in parents.items() if parent in family}
    return family


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def timed(spec: Path) -> dict[str, int]:
    """Candidates of a sweep's spaces, counted again: all, and those in blocks that fit with the fewest slots.

    All depths of these blocks get their occupancy and their time. Blocks that overflow UB with the fewest slots get one probe
    and are not counted; those that overflow another memory get occupancy of all depths, and no time.
    """
    counts = {"candidates": 0, "timed": 0}
    for cell in read_sweep(spec):
        kernel, overlap = chosen(cell.spec, cell.kernel, "pipelined")
        space = build_space(cell.spec, cell.work, kernel)
        evaluator = Evaluator.build(cell.spec, cell.work, kernel, overlap)
        fits = evaluator.least(within_ub(evaluator, space)[0]) == Verdict.FITS
        counts["candidates"] += space.size
        counts["timed"] += int(np.count_nonzero(fits)) * len(space.depths)
    return counts


def billion(processes: int) -> dict[str, Any]:
    """The sweep of the bar, nothing compiled before and nothing stored."""
    with tempfile.TemporaryDirectory() as name:
        found = run(BILLION, Path(name), Path(name) / "cache", "--processes", str(processes))
    rows = found.pop("rows")
    counts = timed(BILLION)
    return {
        "cells": len(rows),
        "fit": sum(row["tiling"] is not None for row in rows),
        "processes": processes,
        "evaluations": counts["timed"],
        "occupancies": sum(row["evaluated"] for row in rows),
        "candidates": counts["candidates"],
        **found,
        "load_at_the_end": os.getloadavg()[0],
    }


def ways(processes: int) -> list[dict[str, Any]]:
    """The same cells one by one, shared by cells and shared by blocks, with programs compiled before; the rows must agree."""
    shared = ["--processes", str(processes), "--share"]
    ways = {"one process": [], "cells": [*shared, "cells"], "blocks": [*shared, "blocks"]}
    found = []
    with tempfile.TemporaryDirectory() as name:
        for flags in ways.values():
            run(WAYS, Path(name), Path(name) / "cache", *flags)
        for way, flags in ways.items():
            found.append({"way": way} | run(WAYS, Path(name), Path(name) / "cache", *flags))
    rows = [one.pop("rows") for one in found]
    if any(other != rows[0] for other in rows):
        raise SystemExit("the ways do not agree")
    return [one | {"cells": len(rows[0])} for one in found]


@click.command()
@click.option(
    "--json", "target", type=click.File("w", atomic=True), default="-", help="File for the JSON, or - for stdout [-]."
)
@click.option("--only", type=click.Choice(("billion", "ways")), help="One part [both].")
@click.option("--processes", type=click.IntRange(min=2), default=2, help="Processes that share the sweep [2].")
def main(target: TextIO, only: str | None, processes: int) -> None:
    """Print the figures as JSON."""
    parts = {"billion": billion, "ways": ways}
    data = {name: part(processes) for name, part in parts.items() if only in (None, name)}
    target.write(json.dumps(data, indent=2) + "\n")


if __name__ == "__main__":
    main()
