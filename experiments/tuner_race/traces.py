"""Runs of one seed each, kept as lines of a file, so that a race that was killed goes on where it was."""

import hashlib
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from experiments.tuner_race.rivals import Run
from experiments.tuner_race.spaces import Space


def runs_of(
    space: Space, tuner: str, one: Callable[[int, int], Run], seeds: Sequence[int], evaluations: int, folder: Path | None
) -> list[Run]:
    """``one(seed, evaluations)`` of every seed, those in ``folder`` from there; new ones are added to it as they end.

    Files are named after the space's own times too, so that runs of another table are never taken for runs of this one.
    """
    path = folder / f"{space.name}-{_digest(space)}-{tuner}-{evaluations}.jsonl" if folder else None
    known = _read(path) if path and path.exists() else {}
    for seed in seeds:
        if seed in known:
            continue
        known[seed] = one(seed, evaluations)
        if path:
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"seed": seed, "ranks": known[seed].ranks, "cpu_s": known[seed].cpu_s}) + "\n")
        print(f"{space.name}, {tuner}, seed {seed}: {known[seed].cpu_s:.2f} s", file=sys.stderr)
    return [known[seed] for seed in seeds]


def best_so_far(space: Space, runs: Sequence[Run], evaluations: int) -> np.ndarray:
    """Least value after each evaluation, ``[runs, evaluations]``; a run that ended before stays where it was."""
    rows = [np.minimum.accumulate(space.table[run.ranks[:evaluations]]) for run in runs]
    return np.stack([np.pad(row, (0, evaluations - len(row)), mode="edge") for row in rows])


def _digest(space: Space) -> str:
    return hashlib.sha256(space.table.tobytes() + np.asarray(space.points.cells).tobytes()).hexdigest()[:12]


def _read(path: Path) -> dict[int, Run]:
    """What a file holds; a last line that was cut off by a kill is left out."""
    found = {}
    for line in path.read_text("utf-8").splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        found[row["seed"]] = Run(row["ranks"], row["cpu_s"])
    return found
