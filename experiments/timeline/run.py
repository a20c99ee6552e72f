"""How many tile-steps a CPU-second: the recurrence over many tilings at once, and jump mode against every tile.

``python experiments/timeline/run.py [--json FILE|-] [--repeats N]``
"""

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, TextIO

import click
import jax
import jax.numpy as jnp
import numpy as np

from ascend_jax import Tiling, kernel_for, load_chip, load_preset
from ascend_jax._pytree import as_arrays
from ascend_jax.timeline.jump import every_step
from ascend_jax.timeline.numbers import depths_of, durations, numbers
from ascend_jax.timeline.passes import CHUNK, Work, makespans
from ascend_jax.timeline.program import Program
from ascend_jax.timeline.recurrence import LANES, advance_jit
from ascend_jax.timeline.schedule import program
from ascend_jax.timeline.simulate import contenders, task_seconds
from ascend_jax.timeline.state import Steps, begin
from ascend_jax.timeline.tasks import Run, deal, runs_of
from ascend_jax.timeline.weights import Weights, weigh
from ascend_jax.workload.problem import problem

CHIPS = {"separated": "910B3", "direct": "950PR_957x", "coupled": "910A"}
WORKLOAD = "llama3-8b-prefill-32k"
CHUNKS = 8
"""Chunks that one timed call runs, for ``LANES`` tilings each."""
BASE = Tiling(block_q=128, block_kv=128, vector_rows=16, ub_depth=1, score_depth=2, prob_depth=2, out_depth=2)


def tilings(kernel: str) -> list[Tiling]:
    """Tilings of one program: the same depths, any blocks."""
    rows, keys = range(32, 257, 16), range(32, 513, 32)
    some = [replace(BASE, block_q=q, block_kv=k, vector_rows=max(q // 2, 16)) for q in rows for k in keys]
    chosen = np.random.default_rng(0).choice(len(some), len(some), replace=False)
    return [some[index] for index in chosen]


def works(kernel_name: str) -> tuple[Program, list[Work]]:
    """``LANES`` timelines of the most frequent program among the tilings."""
    spec, given = load_chip(CHIPS[kernel_name]), problem(load_preset(WORKLOAD))
    kernel, every = kernel_for(spec, kernel_name), tilings(kernel_name)
    stacked = Tiling(**{item.name: jnp.asarray([float(getattr(one, item.name)) for one in every]) for item in fields(Tiling)})
    batched = jax.jit(jax.vmap(lambda tiling: numbers(as_arrays(spec), given, tiling, kernel)))
    found = jax.device_get(batched(stacked))
    by_program: dict[Program, list[Work]] = {}
    for index, tiling in enumerate(every):
        one = jax.tree.map(lambda leaf, i=index: leaf[i], found)
        depths, held = depths_of(kernel, one, tiling.preload)
        step = program(kernel.graph, depths)
        runs = runs_of(given, tiling, one.tiles)
        dealt, loads = deal(runs, task_seconds(runs, one), int(spec.cube_cores))
        work = Work(weigh(step, kernel.graph, durations(spec, kernel, one, held)), contenders(dealt, loads)[:1])
        by_program.setdefault(step, []).append(work)
    step = max(by_program, key=lambda step: len(by_program[step]))
    return step, (by_program[step] * LANES)[:LANES]


def side_by_side(step: Program, lanes: list[Work]) -> tuple[Weights, np.ndarray]:
    """Weights ``[C, L]`` and codes of the lanes' first steps ``[T, L]``."""
    weights = {}
    for moment in lanes[0].weights:
        classes = max(len(work.weights[moment]) for work in lanes)
        weights[moment] = np.stack([np.broadcast_to(work.weights[moment], classes) for work in lanes], axis=1)
    length = CHUNK * CHUNKS
    codes = np.zeros((length, len(lanes)), np.uint8)
    for lane, work in enumerate(lanes):
        tasks = every_step(step, [Run(*run[:3], min(run.times, length)) for run in work.cores[0]] * length)
        filled = 0
        for task in tasks:
            part = task["codes"][: length - filled]
            codes[filled : filled + len(part), lane] = part
            filled += len(part)
            if filled == length:
                break
    return weights, codes


def recurrence(step: Program, lanes: list[Work]) -> tuple[Callable[[], Any], int]:
    """A call that advances all lanes, and its tile-steps: one is one tile through all stages of the kernel."""
    weights, codes = side_by_side(step, lanes)
    on_device = {moment: jnp.asarray(weight, jnp.float32) for moment, weight in weights.items()}
    chunks = [Steps(jnp.asarray(part)) for part in np.split(codes, CHUNKS)]
    run, first = advance_jit(step, often=True), begin(step, chunks[0], jnp.float32)

    def call() -> None:
        state = first
        for steps in chunks:
            state = run(on_device, state, steps).state
        jax.block_until_ready(state)

    return call, int((codes & 7).sum())


def cpu_seconds(call: Callable[[], Any], repeats: int) -> float:
    """Median CPU seconds of the process, after one call that does not count."""
    call()
    spent = []
    for _ in range(repeats):
        started = time.process_time()
        call()
        spent.append(time.process_time() - started)
    return statistics.median(spent)


def report(repeats: int) -> dict[str, Any]:
    """Tile-steps a CPU-second, and what jump mode makes of them."""
    found = {}
    for kernel in CHIPS:
        step, lanes = works(kernel)
        call, tiles = recurrence(step, lanes)
        seconds = cpu_seconds(call, repeats)
        whole = sum(run.tiles * run.times for work in lanes for run in work.cores[0])
        jumped = cpu_seconds(lambda step=step, lanes=lanes: makespans(step, lanes, "jump"), max(repeats // 5, 1))
        full, jump = (makespans(step, lanes, mode) for mode in ("full", "jump"))
        found[kernel] = {
            "stages": len({node.stage for node in step.nodes if node.when != "begin"}),
            "tile_steps_per_cpu_s": tiles / seconds,
            "jump_tiles_per_cpu_s": whole / jumped,
            "jump_largest_error": float(np.max(np.abs(jump / full - 1))),
        }
    return found


@click.command()
@click.option(
    "--json", "target", type=click.File("w", atomic=True), default="-", help="File for the JSON, or - for stdout [-]."
)
@click.option("--repeats", type=click.IntRange(min=1), default=15, help="Timed calls; the median counts [15].")
def main(target: TextIO, repeats: int) -> None:
    """Print the figures as JSON."""
    target.write(json.dumps(report(repeats), indent=2) + "\n")


if __name__ == "__main__":
    main()
