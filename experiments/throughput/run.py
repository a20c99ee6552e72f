"""How many evaluations a CPU-second: the model in JAX, and the same formulas written out as NumPy and as plain Python.

``python experiments/throughput/run.py [--json FILE|-] [--repeats N]``
"""

import json
import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TextIO

import click
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from transcribe import transcribe

from ascend_jax import KERNELS, STRAIGHT_THROUGH, Tiling, Verdict, load_chip, load_preset
from ascend_jax._compile import SLOPES
from ascend_jax._pytree import as_arrays
from ascend_jax.cost.finish import score
from ascend_jax.cost.overlap import PIPELINED
from ascend_jax.cost.prepare import Prepared, prepare
from ascend_jax.rounding import EXACT, Rounding
from ascend_jax.workload.problem import problem
from tiling_search.slopes import GridSlopes, grid_slopes
from tiling_search.space import BLOCK_FIELDS, DEPTH_FIELDS, build_space

CHIP, WORKLOAD = "910B3", "llama3-8b-prefill-8k"
CANDIDATES = 1_000_000
SAMPLE = 2_000
"""Candidates that plain Python evaluates; a million would take minutes."""
GRADIENT_CHUNK = 4096
SIZES = 3
"""Block sizes that gradients are by: block_q, block_kv, vector_rows."""
FAST = {"xla_cpu_prefer_vector_width": 512}

CHOSEN, KERNEL = load_chip(CHIP), KERNELS["separated"]
SPEC, GIVEN = as_arrays(CHOSEN), problem(load_preset(WORKLOAD))
Columns = tuple[Any, ...]
Runs = dict[str, Callable[[], Any]]
THREADS = os.cpu_count() or 1
BEFORE = {"xla_disable_hlo_passes": "fusion"}
"""The compiler options of gradients before ``SLOPES``."""


def tiling_of(block: Columns, depth: Columns) -> Tiling:
    """A tiling of a block choice and a depth choice (columns of the tuner's space)."""
    fields = dict(zip(BLOCK_FIELDS, block, strict=True)) | dict(zip(DEPTH_FIELDS, depth, strict=True))
    return Tiling(l0_depth=block[0] * 0 + 2, **fields)


def ready(block: Columns, rounding: Rounding = EXACT) -> Prepared:
    """What the blocks decide; no depth is read."""
    return prepare(SPEC, GIVEN, tiling_of(block, (1.0,) * 5), KERNEL, PIPELINED, rounding)


def seconds(prepared: Prepared, block: Columns, depth: Columns, rounding: Rounding = EXACT) -> tuple[Array, Array]:
    """Seconds (``inf`` where it does not fit) and verdict: pace, balance, occupancy, verdict."""
    return score(SPEC, GIVEN, tiling_of(block, depth), KERNEL, prepared, rounding)[:2]


def whole(block: Columns, depth: Columns) -> tuple[Array, Array]:
    """Both halves for one candidate."""
    return seconds(ready(block), block, depth)


def candidates() -> tuple[np.ndarray, np.ndarray]:
    """About a million candidates of the tuner's space: blocks ``[P, 5]`` that UB may admit, depths ``[F, 5]``."""
    space = build_space(load_chip(CHIP), load_preset(WORKLOAD), KERNEL)
    rng, blocks = np.random.default_rng(0), space.blocks(600, 1700)
    rows = rng.choice(len(blocks), -(-CANDIDATES // len(space.depths)), replace=False)
    return blocks[rows].astype(np.float32), space.depths.astype(np.float32)


def columns(rows: np.ndarray) -> Columns:
    """The columns of a table, each contiguous."""
    return tuple(np.ascontiguousarray(column) for column in rows.T)


def jax_scores(blocks: Columns, depths: Columns, top: int = 0) -> Callable[[], Any]:
    """Scores of all candidates, or their ``top``; blocks prepared once, then all depths on them, as the tuner does."""
    first = jax.jit(lambda blocks: jax.vmap(lambda *block: ready(block))(*blocks), compiler_options=FAST)
    pairs = jax.vmap(jax.vmap(lambda p, b, d: seconds(p, b, d)[0], in_axes=(None, None, 0)), in_axes=(0, 0, None))
    second = jax.jit(pairs, compiler_options=FAST)
    if not top:
        return lambda: jax.block_until_ready(second(first(blocks), blocks, depths))
    select = jax.jit(partial(fastest, top=top))
    return lambda: jax.block_until_ready(select(second(first(blocks), blocks, depths)))


def fastest(scores: Array, top: int) -> tuple[Array, Array]:
    """The ``top`` smallest of ``[P, F]`` scores and where they are, all in the ``top`` rows with the smallest minima."""
    _, rows = lax.top_k(-jnp.min(scores, axis=1), top)
    found, at = lax.top_k(-scores[rows].ravel(), top)
    return -found, rows[at // scores.shape[1]] * scores.shape[1] + at % scores.shape[1]


def numpy_scores(blocks: Columns, depths: Columns, share: bool) -> Callable[[], Any]:
    """The transcript over all candidates at once; ``share`` prepares each block once, as the JAX side does."""
    example = (tuple(map(np.float32, (128, 256, 16, 1, 1))), tuple(map(np.float32, (2, 2, 2, 2, 1))))
    if not share:
        run = transcribe(whole, *example, vectorised=True)
        flat = [np.repeat(column, len(depths[0])) for column in blocks] + [np.tile(column, len(blocks[0])) for column in depths]
        return lambda: run(*flat)
    prepared = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), jax.eval_shape(ready, example[0]))
    first = transcribe(ready, example[0], vectorised=True)
    second = transcribe(seconds, prepared, *example, vectorised=True)
    tall, wide = [column[:, None] for column in blocks], [column[None, :] for column in depths]
    return lambda: second(*first(*tall), *tall, *wide)


def python_scores(blocks: np.ndarray, depths: np.ndarray) -> Callable[[], Any]:
    """The transcript on floats, one candidate after the other, on a sample."""
    run = transcribe(whole, (1.0,) * 5, (1.0,) * 5, vectorised=False)
    rng = np.random.default_rng(1)
    pairs = zip(rng.choice(blocks, SAMPLE), rng.choice(depths, SAMPLE), strict=True)
    rows = [(*map(float, block), *map(float, depth)) for block, depth in pairs]
    return lambda: [run(*row) for row in rows]


def value(sizes: Columns, block: Columns, depth: Columns) -> Array:
    """Seconds of one tiling, differentiable by ``sizes``; 0 where it does not fit."""
    sized = (*sizes, *block[SIZES:])
    found = seconds(ready(sized, STRAIGHT_THROUGH), sized, depth, STRAIGHT_THROUGH)[0]
    return jnp.where(jnp.isfinite(found), found, 0.0)


def of_pair(one: Callable[..., Any]) -> Callable[..., Any]:
    """``one`` of a pair of a block and depths."""
    return lambda pair: one(pair[0][:SIZES], *pair)


def gradient_runs(blocks: np.ndarray, depths: np.ndarray) -> Runs:
    """Value, and value with its gradient by the sizes in reverse mode, each of its own tiling."""
    rng = np.random.default_rng(2)
    flat = tuple(map(columns, (rng.choice(blocks, CANDIDATES), rng.choice(depths, CANDIDATES))))
    halves = [jax.tree.map(lambda column, part=part: np.array_split(column, THREADS)[part], flat) for part in range(THREADS)]
    chunked = partial(lax.map, of_pair(jax.value_and_grad(value)), batch_size=GRADIENT_CHUNK)
    forward, before = jax.jit(jax.vmap(of_pair(value))), jax.jit(chunked, compiler_options=BEFORE)
    both = jax.jit(chunked, compiler_options=SLOPES)
    return {
        "value": lambda: jax.block_until_ready(forward(flat)),
        "value_and_grad_before": lambda: jax.block_until_ready(before(flat)),
        "value_and_grad": lambda: jax.block_until_ready(both(flat)),
        "value_and_grad_on_all_cores": lambda: on_all_cores(both, halves),
    }


def grid_runs(blocks: np.ndarray, depths: np.ndarray) -> Runs:
    """Gradients of all depths on each block, which share what the blocks decide."""
    run, halves = partial(grid_of, depths=depths), np.array_split(blocks, THREADS)
    return {
        "value_and_grad_sharing": lambda: jax.block_until_ready(run(blocks)),
        "value_and_grad_sharing_on_all_cores": lambda: on_all_cores(run, halves),
    }


def grid_of(blocks: np.ndarray, depths: np.ndarray) -> GridSlopes:
    """The package's own gradients of all ``depths`` on ``blocks``."""
    return grid_slopes(CHOSEN, load_preset(WORKLOAD), blocks, depths, kernel=KERNEL)


def on_all_cores(run: Callable[[Any], Any], parts: list[Any]) -> None:
    """``run`` of each part, in a thread of its own."""
    with ThreadPoolExecutor(len(parts)) as pool:
        list(pool.map(lambda part: jax.block_until_ready(run(part)), parts))


def check_slopes(blocks: np.ndarray, depths: np.ndarray) -> None:
    """Forward mode over a grid and reverse mode one by one agree."""
    rows = np.random.default_rng(3).choice(len(blocks), 64, replace=False)
    grid = grid_of(blocks[rows], depths)
    fits = np.asarray(grid.verdicts) == Verdict.FITS
    found, slopes = np.where(fits, grid.seconds, 0.0), np.where(fits[..., None], grid.slopes, 0.0)
    block, depth = columns(np.repeat(blocks[rows], len(depths), axis=0)), columns(np.tile(depths, (len(rows), 1)))
    reverse = jax.jit(jax.vmap(lambda *pair: of_pair(jax.value_and_grad(value))(pair)), compiler_options=SLOPES)
    expected, gradients = reverse(block, depth)
    np.testing.assert_allclose(found.ravel(), expected, rtol=1e-5)
    gradients = np.stack(gradients, axis=-1)
    scale = np.abs(gradients).max(axis=-1, keepdims=True)
    assert np.all(np.abs(slopes.reshape(gradients.shape) - gradients) <= 1e-4 * scale) and np.any(scale > 0)


def wall_seconds(runs: Runs, repeats: int) -> dict[str, float]:
    """Least wall seconds of each, interleaved."""
    spent: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            started = time.perf_counter()
            run()
            spent[name].append(time.perf_counter() - started)
    return {name: min(times) for name, times in spent.items()}


def measure(runs: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Median CPU seconds of each, interleaved, after one call that does not count."""
    spent: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run()
    for _ in range(repeats):
        for name, run in runs.items():
            started = time.process_time()
            run()
            spent[name].append(time.process_time() - started)
    return {name: statistics.median(times) for name, times in spent.items()}


def check(blocks: np.ndarray, depths: np.ndarray) -> None:
    """The three agree before they are timed."""
    few = blocks[:7]
    ours = np.asarray(jax_scores(columns(few), columns(depths))())
    theirs = np.broadcast_to(numpy_scores(columns(few), columns(depths), share=True)()[0], ours.shape)
    run = transcribe(whole, (1.0,) * 5, (1.0,) * 5, vectorised=False)
    plain = np.array([[run(*map(float, block), *map(float, depth))[0] for depth in depths] for block in few])
    best, at = jax_scores(columns(few), columns(depths), top=5)()
    np.testing.assert_array_equal(best, np.sort(ours.ravel())[:5])
    np.testing.assert_array_equal(ours.ravel()[at], best)
    np.testing.assert_allclose(ours, theirs, rtol=1e-4)
    np.testing.assert_allclose(ours, plain, rtol=1e-4)


def report(repeats: int) -> dict[str, Any]:
    """All figures of the bar."""
    blocks, depths = candidates()
    check(blocks, depths)
    total = len(blocks) * len(depths)
    cut, deep = columns(blocks), columns(depths)
    runs = {"jax": jax_scores(cut, deep), "jax_top20": jax_scores(cut, deep, top=20)}
    spent = measure(runs | {"numpy_sharing": numpy_scores(cut, deep, share=True)}, repeats)
    slow = {"numpy": numpy_scores(cut, deep, share=False), "python": python_scores(blocks, depths)}
    spent |= measure(slow, max(repeats // 5, 1))
    check_slopes(blocks, depths)
    alone, shared = gradient_runs(blocks, depths), grid_runs(blocks, depths)
    spent |= measure(alone | shared, max(repeats // 5, 1))
    sizes = dict.fromkeys(spent, total) | {"python": SAMPLE} | dict.fromkeys(alone, CANDIDATES)
    rates = {name: sizes[name] / seconds for name, seconds in spent.items()}
    slopes = {name: run for name, run in (alone | shared).items() if name.startswith("value_and_grad")}
    walls = wall_seconds(slopes, max(repeats // 5, 1))
    return {
        "candidates": total,
        "evaluations_per_cpu_s": rates,
        "jax_over_numpy": rates["jax"] / rates["numpy"],
        "jax_over_numpy_sharing": rates["jax"] / rates["numpy_sharing"],
        "jax_over_python": rates["jax"] / rates["python"],
        "top20_over_scores": spent["jax_top20"] / spent["jax"],
        "value_and_grad_over_value": spent["value_and_grad"] / spent["value"],
        "gradients_per_wall_s": {name: sizes[name] / seconds for name, seconds in walls.items()},
    }


@click.command()
@click.option(
    "--json", "target", type=click.File("w", atomic=True), default="-", help="File for the JSON, or - for stdout [-]."
)
@click.option("--repeats", type=click.IntRange(min=1), default=15, help="Timed calls of each; the median counts [15].")
def main(target: TextIO, repeats: int) -> None:
    """Print the figures as JSON."""
    target.write(json.dumps(report(repeats), indent=2) + "\n")


if __name__ == "__main__":
    main()
