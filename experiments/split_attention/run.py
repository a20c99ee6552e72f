"""What does splitting attention over devices bring: by heads, or by sequence in a ring?

``python experiments/split_attention/run.py [--json FILE|-] [--chip NAME] [--ranks P] [--seq S]… [--trace FOLDER]``
"""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import click
import numpy as np
from ring_machine import Case, Machine, rows
from split_ways import Outputs, Values, by_heads, by_sequence, contiguous, whole, zigzag

from ascend_jax.runtime.profiler.profile import Profile
from ascend_jax.runtime.profiler.session import profile

WAYS: dict[str, Callable[[Machine, Case, Values], Outputs]] = {
    "one device": whole,
    "heads": by_heads,
    "ring": partial(by_sequence, chunks_of=contiguous),
    "ring, zigzag": partial(by_sequence, chunks_of=zigzag),
}
SMALL = Case(seq=256, q_heads=8, kv_heads=4, head_dim=64, dtype="float16")


def timed(chip: str, ranks: int, case: Case, way: str, trace: Path | None) -> dict[str, Any]:
    """Seconds of the slowest rank, and what they were spent on there."""
    machine = Machine(chip, 1 if way == "one device" else ranks, timing_only=True)
    with profile(machine.system, trace) as found:
        WAYS[way](machine, case, None)
        machine.synchronize()
    return spent(found)


def spent(found: Profile) -> dict[str, Any]:
    """The whole time, and of the device that computes longest how long it computed and talked without computing."""
    worked = [row for row in found.rows if row.kind in ("kernel", "collective")]
    seconds = max(row.end_s for row in worked) - min(row.start_s for row in worked)
    busiest = max((found.overlap(device) for device in found.devices), key=lambda one: one.computing_s)
    least = min(found.overlap(device).computing_s for device in found.devices)
    return {
        "ms": seconds * 1e3,
        "computing_ms": busiest.computing_s * 1e3,
        "least_computing_ms": least * 1e3,
        "communication_ms": busiest.communication_s * 1e3,
        "not_hidden_ms": busiest.exposed_s * 1e3,
    }


def error(chip: str, ranks: int, case: Case, way: str) -> float:
    """The largest difference from attention in float64 on the host, over all ranks, relative to the largest output."""
    rng = np.random.default_rng(0)
    kinds = [(1, heads, case.seq, case.head_dim) for heads in (case.q_heads, case.kv_heads, case.kv_heads)]
    query, key, value = (rng.standard_normal(kind).astype(case.dtype) for kind in kinds)
    exact = in_double(case, query, key, value)
    machine = Machine(chip, 1 if way == "one device" else ranks, timing_only=False)
    outputs = WAYS[way](machine, case, (query, key, value))
    machine.synchronize()
    chunks = {"ring": contiguous, "ring, zigzag": zigzag}.get(way)
    worst = 0.0
    for rank, tensors in enumerate(outputs):
        places = [0] if chunks is None else chunks(rank, ranks)
        total = 1 if chunks is None else ranks * len(places)
        for place, tensor in zip(places, tensors, strict=True):
            found = machine.array(rank, tensor).astype(np.float64)
            worst = max(worst, float(np.max(np.abs(found - rows(exact, place, total)))))
    return worst / float(np.max(np.abs(exact)))


def in_double(case: Case, query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
    """softmax(Q·Kᵀ/√D)·V of all heads at once, in float64."""
    q, k, v = (one.astype(np.float64) for one in (query, key, value))
    k, v = (np.repeat(one, case.q_heads // case.kv_heads, axis=1) for one in (k, v))
    scores = q @ k.swapaxes(2, 3) / np.sqrt(case.head_dim)
    if case.causal:
        scores = np.where(np.tri(case.seq, dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=3, keepdims=True))
    return weights @ v / weights.sum(axis=3, keepdims=True)


def report(chip: str, ranks: int, lengths: tuple[int, ...], trace: Path | None) -> dict[str, Any]:
    """Errors of a small case, times of large ones."""
    found: dict[str, Any] = {"chip": chip, "ranks": ranks, "relative_error": {}, "times": []}
    for causal in (False, True):
        small = replace(SMALL, causal=causal)
        name = "causal" if causal else "full"
        ways = [way for way in WAYS if causal or way != "ring, zigzag"]  # without a mask all have as much to do anyway
        found["relative_error"][name] = {way: error(chip, 4, small, way) for way in ways}
        for length in lengths:
            case = Case(seq=length, causal=causal)
            folders = {way: None if trace is None else trace / f"{name}_{length}_{way}" for way in ways}
            times = {way: timed(chip, ranks, case, way, folder) for way, folder in folders.items()}
            alone = times["one device"]["ms"]
            for way, spent_ms in times.items():
                found["times"].append({"mask": name, "seq": length, "way": way, "speedup": alone / spent_ms["ms"]} | spent_ms)
    return found


@click.command()
@click.option(
    "--json", "target", type=click.File("w", atomic=True), default="-", help="File for the JSON, or - for stdout [-]."
)
@click.option("--chip", default="910b3", help="Chip of all devices [910b3].")
@click.option("--ranks", type=click.IntRange(min=2), default=8, help="Devices of one server [8].")
@click.option("--seq", "lengths", type=int, multiple=True, default=(8192, 32768, 131072), help="Rows; may be given again.")
@click.option("--trace", type=click.Path(path_type=Path), help="Folder for the profile of every run.")
def main(target: TextIO, chip: str, ranks: int, lengths: tuple[int, ...], trace: Path | None) -> None:
    """Print the figures as JSON."""
    target.write(json.dumps(report(chip, ranks, lengths, trace), indent=2) + "\n")


if __name__ == "__main__":
    main()
