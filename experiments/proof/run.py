"""How long a proven optimum of a space of 10^8 legal tilings takes from the shell, and whether it is that of all of them.

``python experiments/proof/run.py [--chip CHIP ...] [--runs N] [--check/--no-check] [--json FILE|-]``
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from typing import Any, TextIO

import click

from ascend_jax import Attention, Verdict, load_chip
from ascend_jax.cost.evaluate import chosen
from tiling_search.effort import FULL
from tiling_search.space import build_wide_space
from tiling_search.wide import search_wide
from tiling_search.wide_evaluator import WideEvaluator

WORK = Attention(batch=1, q_heads=8, kv_heads=8, q_len=2048, kv_len=2048, head_dim=128, value_dim=128)
COMMAND = "tune --q-heads 8 --q-len 2048 --head-dim 128 --space wide --json - --chip"
TOP = 10


def from_the_shell(chip: str, folder: str) -> tuple[dict[str, float], dict[str, Any]]:
    """Wall and CPU seconds of one process, start to end, and what it prints; programs are kept in ``folder``."""
    own = {"TILING_SEARCH_CACHE_DIR": folder, "TILING_SEARCH_STORE": os.path.join(folder, "store.db")}
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, "-m", "tiling_search", *COMMAND.split(), chip]
    done = subprocess.run(command, capture_output=True, check=True, env=os.environ | own)
    wall_s, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return {"wall_s": wall_s, "cpu_s": cpu_s}, json.loads(done.stdout)


def timed(chip: str, runs: int) -> dict[str, Any]:
    """Medians of processes that find no compiled programs and of those that do, and what they found."""
    cold, cached, found = [], [], {}
    for _ in range(runs):
        with tempfile.TemporaryDirectory() as folder:
            cold.append(from_the_shell(chip, folder)[0])
            spent, found = from_the_shell(chip, folder)
            cached.append(spent)
    named = {"cold": cold, "cached": cached}
    return {
        "chip": found["chip"],
        **found["space"],
        "exact": found["exact"],
        "best": {"tiling": found["best"]["tiling"], "latency_s": found["best"]["latency_s"]},
        **{
            name: {unit: statistics.median(one[unit] for one in spent) for unit in ("wall_s", "cpu_s")}
            for name, spent in named.items()
        },
    }


def without_bound(chip: str) -> dict[str, Any]:
    """The same search with and without its bound, which then evaluates every block with any legal point one by one."""
    spec = load_chip(chip)
    kernel, overlap = chosen(spec, "auto", "pipelined")
    space, evaluator = build_wide_space(spec, WORK, kernel), WideEvaluator.build(spec, WORK, kernel, overlap)
    with_bound = search_wide(evaluator, space, TOP, None, FULL)
    started = time.process_time()
    everything = search_wide(replace(evaluator, bounds=False), space, TOP, None, FULL)
    times = [[seconds for seconds, _ in one.found.best[:TOP]] for one in (with_bound, everything)]
    fronts = [{size: seconds for size, (seconds, _) in one.found.front.items()} for one in (with_bound, everything)]
    return {
        "evaluated": everything.evaluated,
        "ruled_out_by_bound": everything.bounded,
        "legal": everything.found.verdicts[Verdict.FITS],
        "same_verdicts": with_bound.found.verdicts == everything.found.verdicts,
        "same_fastest": times[0] == times[1],
        "same_front": fronts[0] == fronts[1],
        "cpu_s": time.process_time() - started,
    }


@click.command()
@click.option(
    "--chip", "chips", multiple=True, default=("910b3", "910b1", "950pr_957x"), help="Chips [910b3, 910b1, 950pr_957x]."
)
@click.option("--runs", type=click.IntRange(min=1), default=5, help="Processes of each kind; the median counts [5].")
@click.option("--check/--no-check", default=True, help="Also search without the bound and compare [yes].")
@click.option(
    "--json", "target", type=click.File("w", atomic=True), default="-", help="File for the JSON, or - for stdout [-]."
)
def main(chips: tuple[str, ...], runs: int, check: bool, target: TextIO) -> None:
    """Print the figures as JSON."""
    found = [timed(chip, runs) | ({"without_bound": without_bound(chip)} if check else {}) for chip in chips]
    target.write(json.dumps({"cores": os.cpu_count(), "chips": found}, indent=2) + "\n")


if __name__ == "__main__":
    main()
