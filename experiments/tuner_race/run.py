"""Our tuner beside Kernel Tuner and Optuna on the same three spaces. See README.md.

python experiments/tuner_race/run.py --seeds 100 --json -
"""

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

if not __package__:
    sys.path.insert(0, str(Path(__file__).parents[2]))
from experiments.tuner_race.ours import JITTED, bayesian, jitted, rates
from experiments.tuner_race.ranked import model_ranked
from experiments.tuner_race.rivals import KernelTuner, Optuna, Run, write_cache
from experiments.tuner_race.score import budget_of, score, to_near
from experiments.tuner_race.spaces import FIXED, TRUTH, Space, race_space
from experiments.tuner_race.traces import best_so_far, runs_of
from tiling_search.jsonfile import write_atomically

LONGER = 64
"""Evaluations of every search at least: where the 95 % point is before that, searches go on to look for the optimum."""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--optuna-seeds", type=int, nargs="+", default=[], help="fewer for Optuna: one number, or one a space")
    parser.add_argument("--truth", type=int, default=TRUTH, help="seed of the machine that everyone measures")
    parser.add_argument("--machines", type=int, default=20, help="machines with other constants for the search by the model")
    parser.add_argument("--spaces", nargs="+", default=list(FIXED), choices=list(FIXED))
    parser.add_argument("--traces", type=Path, help="folder that keeps every run, so that a race that was killed goes on")
    parser.add_argument("--json", default="-", metavar="FILE|-")
    asked = parser.parse_args(arguments)
    if asked.traces:
        asked.traces.mkdir(parents=True, exist_ok=True)
    limits = (asked.optuna_seeds or [asked.seeds]) * (1 if len(asked.optuna_seeds) > 1 else len(asked.spaces))
    rows, needed = [], {}
    for name, limit in zip(asked.spaces, limits, strict=True):
        space = race_space(name, asked.truth)
        rows.append(race(space, asked.seeds, min(limit, asked.seeds), asked.traces))
        needed[name] = model_ranked(space, asked.machines)
    every = [count for counts in needed.values() for count in counts]
    medians = {name: float(np.median(counts)) for name, counts in needed.items()}
    ranked = {"to_1pct_median": float(np.median(every)), "most": max(every), "machines": asked.machines, "spaces": medians}
    text = json.dumps({"seeds": asked.seeds, "truth": asked.truth, "spaces": rows, "model_ranked": ranked}, indent=2) + "\n"
    if asked.json == "-":
        print(text, end="")
    else:
        write_atomically(Path(asked.json), text)


def race(space: Space, seeds: int, optuna_seeds: int, traces: Path | None) -> dict[str, Any]:
    """Every tuner on one space."""
    budget = budget_of(space.table)
    longer = min(max(budget, LONGER), space.points.count)
    runs = partial(runs_of, space, seeds=range(seeds), folder=traces)
    found: dict[str, Any] = {"bayesian": runs("bayesian", partial(bayesian, space), evaluations=longer)}
    found |= {name: jitted(space, name, seeds, longer, 1) for name in JITTED}
    own = [summary(space, name, found[name], budget, longer) for name in found]
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder) / "cache.json"
        write_cache(space, cache)
        tuner = KernelTuner(space, cache)
        short, long = (runs(tuner.strategy, tuner.run, evaluations=count) for count in (budget, longer))
    kernel_tuner = summary(space, tuner.strategy, short, budget, budget) | near(space, long, longer)
    studies = runs_of(space, "tpe", Optuna(space).run, range(optuna_seeds), longer, traces)
    optuna = summary(space, "tpe", studies, budget, longer)
    kernel_tuner["proposals_per_cpu_s"], optuna["proposals_per_cpu_s"] = speed(long), speed(studies)
    return {
        "name": space.name,
        "points": space.points.count,
        "within_1pct": int(np.sum(space.table <= 1.01 * space.table.min())),
        "budget": budget,
        "evaluations": longer,
        "ours": max(own, key=lambda one: one["score"]),
        "kernel_tuner": kernel_tuner,
        "optuna": optuna,
        "our_strategies": own,
        "our_proposals_per_cpu_s": rates(space, longer) | {"bayesian": {"alone": speed(found["bayesian"])}},
    }


def summary(space: Space, name: str, runs: Sequence[Run], budget: int, evaluations: int) -> dict[str, Any]:
    """Score up to ``budget``, with its standard error, and measurements to within 1 % of all ``evaluations``."""
    best = best_so_far(space, runs, evaluations)
    alone = [score(space.table, row[None, :budget]) for row in best]
    error = float(np.std(alone, ddof=1) / math.sqrt(len(alone))) if len(alone) > 1 else None
    head = {"strategy": name, "seeds": len(runs), "score": score(space.table, best[:, :budget]), "score_error": error}
    return head | near(space, runs, evaluations)


def near(space: Space, runs: Sequence[Run], evaluations: int) -> dict[str, Any]:
    """Median of the measurements to within 1 %, ``None`` where most searches never are, and the share that is."""
    counts = to_near(space.table, best_so_far(space, runs, evaluations))
    median = float(np.median(counts))
    return {
        "to_1pct_median": median if median <= evaluations else None,
        "to_1pct_share": float(np.mean(counts <= evaluations)),
    }


def speed(runs: Sequence[Run]) -> float:
    """Proposals a CPU-second of runs one by one."""
    return sum(len(run.ranks) for run in runs) / sum(run.cpu_s for run in runs)


if __name__ == "__main__":
    main()
