"""How well the closed form agrees with the timeline: random feasible chips, workloads, tilings and kernels.

``python experiments/timeline/agreement.py [--cases N] [--seed S] [--worst K] [--json FILE|-]``
"""

import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, TextIO

import click
import jax
import jax.numpy as jnp
import numpy as np

from ascend_jax import Attention, Mask, NpuSpec, Tiling, Verdict, kernel_for, load_chip
from ascend_jax._compile import OFTEN, options
from ascend_jax._pytree import as_arrays
from ascend_jax.timeline.numbers import Numbers, depths_of, durations, numbers
from ascend_jax.timeline.passes import Work, makespans
from ascend_jax.timeline.program import Program, Stuck
from ascend_jax.timeline.schedule import program
from ascend_jax.timeline.simulate import contenders, task_seconds
from ascend_jax.timeline.tasks import deal, runs_of
from ascend_jax.timeline.weights import weigh
from ascend_jax.workload.problem import Problem, problem

CHIPS = {
    "separated": ("910B1", "910B2", "910B3", "910B4", "910_9391"),
    "direct": ("950PR_957x", "950DT_958x"),
    "coupled": ("910A", "310P3"),
    "ub_resident": ("910B3", "910B4"),
    "flash_attention_score": ("910B1", "910B3"),
    "cann_direct": ("950PR_957x",),
    "falite_v3": ("950PR_957x",),
    "falite_v5": ("950PR_957x",),
    "falite_v8": ("950PR_957x",),
}
"""Kernels, and chips that they run on."""
MASKS = ("none", "causal", "band")
POOL = 3
"""Choices of depths per kernel and seed: a program is compiled for each."""
BATCH = 256
GROUPS = {"S >= 4096": 4096, "S >= 1024": 1024, "all": 0}


@dataclass(frozen=True)
class Case:
    """One comparison."""

    kernel: str
    chip: str
    work: Attention
    tiling: Tiling


@dataclass(frozen=True)
class Outcome:
    """Seconds of both, without launch, and what the closed form said the bound was."""

    case: Case
    formula_s: float
    timeline_s: float
    launch_s: float
    bound_by: str

    @property
    def error(self) -> float:
        """Of the closed form, relative and signed."""
        return self.formula_s / self.timeline_s - 1


def draw(kernel: str, mask: str, rng: np.random.Generator, pool: list[dict[str, int]]) -> Case:
    """Any shape and blocks; most are such as people ask for."""
    length = int(2 ** rng.uniform(9, 16))
    length = length if rng.random() < 0.3 else 2 ** round(np.log2(length))
    kv_heads, group = int(rng.choice([1, 2, 8])), int(rng.choice([1, 4, 8]))
    dim = int(rng.choice([64, 128, 128, 192]))
    before = int(length * rng.uniform(0.1, 0.9))
    work = Attention(
        batch=int(rng.choice([1, 1, 2, 4, 8])),
        q_heads=kv_heads * group,
        kv_heads=kv_heads,
        q_len=length,
        kv_len=length,
        head_dim=dim,
        value_dim=min(dim, 128),
        mask=Mask(kind=mask, pre=before, next=0),
    )
    blocks = {
        "block_q": 16 * int(2 ** rng.uniform(1, 5)),
        "block_kv": 16 * int(2 ** rng.uniform(1.5, 6)),
        "vector_rows": int(rng.choice([8, 16, 32, 64])),
    }
    depths = pool[rng.integers(len(pool))]
    return Case(kernel, str(rng.choice(CHIPS[kernel])), work, Tiling(**blocks, **depths))


def depth_pool(rng: np.random.Generator) -> list[dict[str, int]]:
    """Choices of slots and preload."""
    most = {"kv_depth": 3, "score_depth": 3, "prob_depth": 3, "out_depth": 3, "ub_depth": 2}
    pool = [{name: int(rng.integers(1, slots + 1)) for name, slots in most.items()} for _ in range(POOL)]
    return [depths | {"preload": int(rng.integers(0, 4)), "l0_depth": 2 - int(rng.random() < 0.1)} for depths in pool]


@cache
def chip_of(name: str) -> NpuSpec:
    """The chip, read once."""
    return load_chip(name)


@cache
def _batched(kernel: str) -> Any:
    of_one = lambda spec, given, tiling: numbers(spec, given, tiling, kernel_for(spec, kernel))  # noqa: E731
    return jax.jit(jax.vmap(of_one), compiler_options=options(OFTEN))


def found_numbers(cases: list[Case]) -> list[Numbers]:
    """The numbers of cases with one kernel and kind of mask, in one call."""
    stack = lambda trees: jax.tree.map(lambda *leaves: jnp.stack(leaves), *map(as_arrays, trees))  # noqa: E731
    specs = stack([chip_of(case.chip) for case in cases])
    given: Problem = stack([problem(case.work) for case in cases])
    every = jax.device_get(_batched(cases[0].kernel)(specs, given, stack([case.tiling for case in cases])))
    return [jax.tree.map(lambda leaf, i=index: leaf[i], every) for index in range(len(cases))]


def feasible(kernel: str, mask: str, count: int, rng: np.random.Generator, seed: int) -> Iterator[tuple[Case, Numbers]]:
    """``count`` cases that fit, with their numbers."""
    pool = depth_pool(np.random.default_rng([seed, *kernel.encode()]))
    while count > 0:
        cases = [draw(kernel, mask, rng, pool) for _ in range(BATCH)]
        for case, found in zip(cases, found_numbers(cases), strict=True):
            if float(found.report.occupancy.verdict) == float(Verdict.FITS) and count > 0:
                count -= 1
                yield case, found


def outcomes(pairs: list[tuple[Case, Numbers]]) -> list[Outcome]:
    """Simulate all, those with one program side by side."""
    grouped: dict[Program, list[tuple[int, Work]]] = defaultdict(list)
    simulated = np.full(len(pairs), np.nan)
    for index, (case, found) in enumerate(pairs):
        spec, given = chip_of(case.chip), problem(case.work)
        kernel = kernel_for(spec, case.kernel)
        runs = runs_of(given, case.tiling, found.tiles)
        dealt, loads = deal(runs, task_seconds(runs, found), int(spec.cube_cores))
        depths, held = depths_of(kernel, found, case.tiling.preload)
        try:
            step = program(kernel.graph, depths)
        except Stuck:
            continue
        weights = weigh(step, kernel.graph, durations(spec, kernel, found, held))
        grouped[step].append((index, Work(weights, contenders(dealt, loads))))
    for step, members in grouped.items():
        simulated[[index for index, _ in members]] = makespans(step, [work for _, work in members])
    return [_outcome(case, found, seconds) for (case, found), seconds in zip(pairs, simulated, strict=True)]


def _outcome(case: Case, found: Numbers, simulated: float) -> Outcome:
    start = float(found.start_s)
    seconds = simulated + float(found.combine_s)
    return Outcome(case, float(found.report.seconds) - start, seconds, start, found.report.bound_by)


def compare(cases: int, seed: int) -> list[Outcome]:
    """All outcomes."""
    rng, found = np.random.default_rng(seed), []
    each = -(-cases // (len(CHIPS) * len(MASKS)))
    for kernel in CHIPS:  # all masks together: they share programs
        part = outcomes([pair for mask in MASKS for pair in feasible(kernel, mask, each, rng, seed)])
        found += part
        print(f"{kernel:24} {summary(part)}", file=sys.stderr, flush=True)
    return found


def summary(found: list[Outcome]) -> dict[str, float]:
    """Quantiles of the absolute error, and the rank correlation."""
    known = [one for one in found if np.isfinite(one.timeline_s) and one.timeline_s > 0]
    errors = np.array([one.error for one in known])
    if not errors.size:
        return {"n": 0}
    whole = np.array([[one.formula_s + one.launch_s, one.timeline_s + one.launch_s] for one in known])
    ranks = [np.argsort(np.argsort(column)) for column in whole.T]
    return {
        "n": len(known),
        "stuck": len(found) - len(known),
        "median": round(float(np.median(np.abs(errors))), 5),
        "p95": round(float(np.quantile(np.abs(errors), 0.95)), 5),
        "p99": round(float(np.quantile(np.abs(errors), 0.99)), 5),
        "max": round(float(np.max(np.abs(errors))), 5),
        "mean_signed": round(float(np.mean(errors)), 5),
        "rank": round(float(np.corrcoef(ranks[0], ranks[1])[0, 1]), 5),
    }


def told(one: Outcome) -> dict[str, Any]:
    """An outcome as a person would enter it again."""
    work = one.case.work
    return {
        "error": round(one.error, 4),
        "formula_s": one.formula_s,
        "timeline_s": one.timeline_s,
        "kernel": one.case.kernel,
        "chip": one.case.chip,
        "bound_by": one.bound_by,
        "work": {item.name: getattr(work, item.name) for item in fields(work) if item.name not in ("mask", "dtype", "layout")},
        "mask": f"{work.mask.kind} {work.mask.pre}",
        "tiling": {item.name: getattr(one.case.tiling, item.name) for item in fields(Tiling)},
    }


@click.command()
@click.option("--cases", default=10_000, help="Cases in all [10000].")
@click.option("--seed", default=0)
@click.option("--worst", default=20, help="Cases to list [20].")
@click.option(
    "--json", "target", type=click.File("w", atomic=True), default="-", help="File for the JSON, or - for stdout [-]."
)
def main(cases: int, seed: int, worst: int, target: TextIO) -> None:
    """Print quantiles of the error by length and kernel, and the worst cases."""
    jax.config.update("jax_enable_x64", True)
    found = compare(cases, seed)
    long = {name: [one for one in found if one.case.work.q_len >= least] for name, least in GROUPS.items()}
    ranked = sorted((one for one in long["S >= 1024"] if np.isfinite(one.timeline_s)), key=lambda one: -abs(one.error))
    kernels = {name: [one for one in long["S >= 1024"] if one.case.kernel == name] for name in CHIPS}
    data = {
        "all": {name: summary(part) for name, part in long.items()},
        "kernels": {name: summary(part) for name, part in kernels.items()},
        "worst": [told(one) for one in ranked[:worst]],
    }
    target.write(json.dumps(data, indent=1, default=str) + "\n")


if __name__ == "__main__":
    main()
