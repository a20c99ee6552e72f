"""Our tuner beside Kernel Tuner and Optuna on the same three spaces. See README.md.

python experiments/tuner_race/run.py --seeds 100 --json -
"""

import json
import math
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import click
import numpy as np

if not __package__:
    sys.path.insert(0, str(Path(__file__).parents[2]))
from experiments.tuner_race.ours import JITTED, bayesian, jitted, rates
from experiments.tuner_race.ranked import model_ranked
from experiments.tuner_race.rivals import KernelTuner, Optuna, Run, write_cache
from experiments.tuner_race.score import budget_of, score, to_near
from experiments.tuner_race.spaces import FIXED, TRUTH, Space, race_space
from experiments.tuner_race.traces import best_so_far, runs_of

LONGER = 64
"""Evaluations of every search at least: where the 95 % point is before that, searches go on to look for the optimum."""


@click.command()
@click.option("--seeds", type=click.IntRange(min=1), default=10, help="Searches of each strategy [10].")
@click.option(
    "--optuna-seeds", type=click.IntRange(min=1), multiple=True, help="Fewer for Optuna; once, or once a space in their order."
)
@click.option("--truth", type=int, default=TRUTH, help=f"Seed of the machine that everyone measures [{TRUTH}].")
@click.option("--machines", type=click.IntRange(min=1), default=20, help="Machines for the search by the model [20].")
@click.option("--spaces", type=click.Choice(list(FIXED)), multiple=True, default=list(FIXED), help="May be given again [all].")
@click.option(
    "--traces",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder that keeps every run, so that a race that was killed goes on.",
)
@click.option(
    "--json", "target", type=click.File("w", atomic=True), default="-", help="File for the JSON, or - for stdout [-]."
)
def main(  # noqa: PLR0917 - click's options
    seeds: int,
    optuna_seeds: tuple[int, ...],
    truth: int,
    machines: int,
    spaces: tuple[str, ...],
    traces: Path | None,
    target: TextIO,
) -> None:
    """Print every tuner's scores on each space as JSON."""
    if len(optuna_seeds) not in (0, 1, len(spaces)):
        raise click.UsageError(
            f"--optuna-seeds is given {len(optuna_seeds)} times for {len(spaces)} spaces: once, or once each"
        )
    if traces:
        traces.mkdir(parents=True, exist_ok=True)
    limits = optuna_seeds if len(optuna_seeds) > 1 else (optuna_seeds or (seeds,)) * len(spaces)
    rows, needed = [], {}
    for name, limit in zip(spaces, limits, strict=True):
        space = race_space(name, truth)
        rows.append(race(space, seeds, min(limit, seeds), traces))
        needed[name] = model_ranked(space, machines)
    every = [count for counts in needed.values() for count in counts]
    medians = {name: float(np.median(counts)) for name, counts in needed.items()}
    ranked = {"to_1pct_median": float(np.median(every)), "most": max(every), "machines": machines, "spaces": medians}
    found = {"seeds": seeds, "truth": truth, "spaces": rows, "model_ranked": ranked}
    target.write(json.dumps(found, indent=2) + "\n")


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
