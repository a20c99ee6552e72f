"""How many measurements does a session need on a machine that its model does not know? See README.md.

python experiments/hardware_in_the_loop/run.py --json -
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, TextIO

import click
import jax
import numpy as np

if not __package__:
    sys.path.insert(0, str(Path(__file__).parents[2]))
from ascend_jax import Attention, NpuSpec, Tiling, Verdict, evaluate_batch, load_chip, load_preset
from ascend_jax.kernels.schedules import SCHEDULES
from experiments.hardware_in_the_loop.truth import Machine, machine, perturbed
from tiling_search.session.begin import begin
from tiling_search.session.loop import Plan, measure_loop
from tiling_search.session.session import Session, Told

CHIP, KERNEL, NOISE, MOST = "910b3", "flash_attention_score", 0.02, 40
SMALL = Attention(batch=1, q_heads=8, kv_heads=8, q_len=2048, kv_len=2048, head_dim=128, mask="causal")
WORKLOADS = {
    "b1-h8-s2048-d128-causal": SMALL,
    "llama3-8b-prefill-8k": load_preset("llama3-8b-prefill-8k"),
    "b8-h32-8-kv4096-decode": Attention(batch=8, q_heads=32, kv_heads=8, q_len=1, kv_len=4096, head_dim=128),
}
NEAR = 1.01


@click.command()
@click.option(
    "--json", "target", type=click.File("w", atomic=True), default="-", help="File for the JSON, or - for stdout [-]."
)
@click.option("--seeds", type=click.IntRange(min=1), default=20, help="Machines with other constants, in closed form [20].")
@click.option("--timeline-seeds", type=click.IntRange(min=0), default=3, help="Of these, how many also event by event [3].")
@click.option("--tilings", type=click.IntRange(min=1), default=256, help="Size of the pool [256].")
@click.option(
    "--workloads", type=click.Choice(list(WORKLOADS)), multiple=True, default=list(WORKLOADS), help="May be given again [all]."
)
def main(target: TextIO, seeds: int, timeline_seeds: int, tilings: int, workloads: tuple[str, ...]) -> None:
    """Print the measurements that each session needed as JSON."""
    with jax.enable_x64(True):
        chips = [perturbed(load_chip(CHIP), seed) for seed in range(seeds)]
        cases = [case for name in workloads for case in _cases(name, chips, timeline_seeds, tilings)]
    needed = [count for case in cases for count in case["to_1pct"]]
    found = {"noise": NOISE, "cases": cases, "model_ranked": {"to_1pct_median": float(np.median(needed))}}
    target.write(json.dumps(found, indent=2) + "\n")


def _cases(name: str, chips: list[NpuSpec], timelines: int, tilings: int) -> Iterator[dict[str, Any]]:
    """One workload on all ``chips`` in closed form, and on the first ``timelines`` of them event by event."""
    work = WORKLOADS[name]
    session = begin(load_chip(CHIP), work, name=name, most=tilings)
    yield _case(name, "closed form", session, closed_form(chips, work, session.tilings))
    if few := chips[:timelines]:
        machines = [machine(chip, work, session.tilings, SCHEDULES[KERNEL]) for chip in few]
        yield _case(name, "timeline", session, machines)


def closed_form(chips: list[NpuSpec], work: Attention, tilings: tuple[Tiling, ...]) -> list[Machine]:
    """The other schedule's own closed form: the same constants are wrong, and no event is."""
    columns = {item.name: np.array([getattr(one, item.name) for one in tilings], float) for item in fields(Tiling)}
    report = evaluate_batch(chips, work, Tiling(**columns), kernel=SCHEDULES[KERNEL])
    fits = np.asarray(report.occupancy.verdict) == Verdict.FITS
    return [Machine(np.where(row, seconds, np.inf)) for row, seconds in zip(fits, np.asarray(report.seconds), strict=True)]


def _case(name: str, kind: str, session: Session, machines: list[Machine]) -> dict[str, Any]:
    needed = [to_near(session, one, seed) for seed, one in enumerate(machines)]
    regrets = [regret(session, one, seed) for seed, one in enumerate(machines)]
    near = [one.seconds <= NEAR * one.seconds.min() for one in machines]
    found = {
        "workload": name,
        "truth": f"{KERNEL}, {kind}",
        "tilings": len(session.tilings),
        "within_1pct_median": float(np.median([one.sum() for one in near])),
        "to_1pct": needed,
        "to_1pct_median": float(np.median(needed)),
        "in_the_models_order_median": float(np.median([np.argmax(one) + 1 for one in near])),
        "at_random_median": float(np.median([_at_random(one) for one in near])),
        "first_choice_regret_median": float(np.median([one.seconds[0] / one.seconds.min() - 1 for one in machines])),
        "regret_after_20_median": float(np.median(regrets)),
        "regret_after_20_most": max(regrets),
    }
    print(f"{name}, {kind}: {found['to_1pct_median']:.0f} measurements (most {max(needed)})", file=sys.stderr)
    return found


def to_near(session: Session, truth: Machine, seed: int) -> int:
    """Measurements until one of a tiling within 1 % of the pool's true optimum; ``MOST`` + 1 where that is not enough."""
    draw = np.random.default_rng(seed)
    for count in range(1, MOST + 1):
        session, (place,) = session.ask(1)
        if truth.seconds[place] <= NEAR * truth.seconds.min():
            return count
        seconds = truth.measure(place, draw, NOISE)
        session = session.tell([Told(place, seconds) if np.isfinite(seconds) else Told(place, None, "runtime", "failed")])
    return MOST + 1


def regret(session: Session, truth: Machine, seed: int) -> float:
    """By how much the tiling that a loop of 20 measurements and a final of three names is slower than the true optimum."""
    draw = np.random.default_rng(seed)
    found = measure_loop(session, lambda tiling: truth.measure(session.place_of(tiling), draw, NOISE), Plan(evaluations=20))
    return float(truth.seconds[found.finalists[0].place] / truth.seconds.min() - 1)


def _at_random(near: np.ndarray) -> int:
    """The median of how many tilings one draws, without putting any back, until one is near."""
    left, count = 1.0, 0
    while left > 0.5:
        left *= 1 - near.sum() / (len(near) - count)
        count += 1
    return count


if __name__ == "__main__":
    main()
