"""``tune``: the fastest tiling of a workload on a chip, proven by evaluating all of them."""

import platform
import time
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from ascend_jax.cost.evaluate import chosen
from ascend_jax.cost.overlap import PIPELINED, Overlap
from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.kernels.kernel import Kernel
from ascend_jax.tiling.tiling import Tiling
from ascend_jax.verdict import Verdict
from ascend_jax.workload.attention import Attention
from tiling_search.effort import FULL, Effort
from tiling_search.exhaustive import Evaluator, chunks, within_ub
from tiling_search.kept import Found, Outcome, best_depths, count_verdicts, keep, merged
from tiling_search.nearest import nearest_that_fits
from tiling_search.result import Candidate, TuningResult
from tiling_search.space import SPACES, Space, tiling_of
from tiling_search.wide import search_wide
from tiling_search.wide_evaluator import WideEvaluator

COARSE = 128
"""From this power of two on, block sizes are alike for a search that may be stopped."""


def tune(  # noqa: PLR0913 (each is a choice of the caller's)
    spec: NpuSpec,
    work: Attention,
    *,
    name: str = "",
    kernel: str | Kernel = "auto",
    overlap: str | Overlap = PIPELINED,
    top: int = 10,
    progress: Callable[[int, int], None] | None = None,
    programs: Path | None = None,
    effort: Effort = FULL,
    space: str = "usual",
    evaluators: Callable[..., Evaluator] = Evaluator.build,
) -> TuningResult:
    """Evaluate every tiling of ``work`` on ``spec`` and return the best, exactly; or, within an ``effort``, the best so far.

    Scores are float32, whatever the process's default; winners are evaluated again in float64 and ranked by that; of equally
    fast depths the fewest slots win.

    Args:
      spec: the chip.
      work: the attention call.
      name: what to call the workload in the result.
      kernel, overlap: as in :func:`ascend_jax.evaluate`.
      top: how many of the fastest blocks to return, each with its best depths.
      progress: called with the candidates done and the total after every chunk.
      programs: a folder to keep compiled programs in, so that the next process need not trace and compile.
      effort: when to stop before all were evaluated; coarse blocks then come first, and the result is ``exact`` only if it
        was not stopped.
      space: ``usual``, or ``wide``: 1 to 4 slots of every buffer, L0 included, and splits of the keys whatever the cores do.
        Its points are evaluated or ruled out by a bound, so that the result is as exact.
      evaluators: builds what evaluates, as ``Evaluator.build`` does; for several devices. The usual space's only.

    Raises:
      ValueError: no such kernel, overlap or space, a path that the chip lacks, ``top`` below 1, or ``evaluators`` for a
        wide space.

    >>> from ascend_jax.hardware import load_chip
    >>> from ascend_jax.workload.presets import load_preset
    >>> result = tune(load_chip("310P3"), load_preset("gpt2-prefill-1k"), top=3)
    >>> result.exact, len(result.top), result.best.verdict.name
    (True, 3, 'FITS')
    """
    if top < 1:
        raise ValueError(f"top={top} must be at least 1")
    kernel, overlap = chosen(spec, kernel, overlap)
    make_space, build = _space(space, evaluators)
    among = make_space(spec, work, kernel)
    evaluator = build(spec, work, kernel, overlap, programs)
    started = time.perf_counter()
    search: Callable[..., Outcome] = search_wide if isinstance(evaluator, WideEvaluator) else _search
    outcome = search(evaluator, among, top, progress, effort)
    search_s = time.perf_counter() - started
    fits = [one for one in _exact(evaluator, _refine(evaluator, outcome.found)) if one.verdict is Verdict.FITS]
    nearest = None if fits else _nearest(evaluator, among)
    return TuningResult(
        chip=spec.name or spec.architecture,
        workload=work,
        workload_name=name,
        kernel=kernel.name,
        overlap=overlap.name,
        top=tuple(_distinct(fits, int(spec.vector_cores_per_cube))[:top]),
        pareto=tuple(_pareto(fits)),
        rejected=_rejected(outcome.found),
        candidates=among.size,
        feasible=outcome.found.verdicts[Verdict.FITS],
        exact=outcome.exact,
        evaluated=outcome.evaluated,
        bounded=outcome.bounded,
        search_s=search_s,
        nearest=nearest,
        would_fit=nearest_that_fits(spec, work, nearest.tiling, kernel) if nearest else "",
        provenance=_provenance(kernel, overlap),
    )


def _space(name: str, evaluators: Callable[..., Evaluator]) -> tuple[Callable[..., Space], Callable[..., Any]]:
    """What makes the space called ``name``, and what builds its evaluator."""
    if name not in SPACES:
        raise ValueError(f"space={name!r} must be one of {', '.join(SPACES)}")
    if name != "wide":
        return SPACES[name], evaluators
    if evaluators != Evaluator.build:
        raise ValueError("space='wide' has an evaluator of its own: leave evaluators out, or search the usual space")
    return SPACES[name], WideEvaluator.build


def _rejected(found: Found) -> dict[str, int]:
    return {Verdict(code).name: count for code, count in sorted(found.verdicts.items()) if code and count}


def _search(
    evaluator: Evaluator, space: Space, top: int, progress: Callable[[int, int], None] | None, effort: Effort
) -> Outcome:
    """Times of the blocks that fit, then verdicts of those that do not; how many candidates had either, and whether all had.

    Blocks that overflow UB with the fewest slots are not looked at one by one: they do so with all depths.
    """
    depths, started, most = len(space.depths), time.perf_counter(), max(4 * top, 64)
    every, _ = within_ub(evaluator, space)
    least = evaluator.least(every)
    listed = int(np.count_nonzero(least != Verdict.UB_OVERFLOW)) * depths
    found, looked = Found([], {}, Counter()), 0
    for chunk, fits in _order(every, least, effort, depths):
        if fits:
            found = keep(found, chunk[evaluator.share.rows(len(chunk))], evaluator.scores(chunk), most)
        else:
            found = found._replace(verdicts=found.verdicts + count_verdicts(evaluator.verdicts(chunk)))
        looked += len(chunk) * depths
        if progress:
            progress(space.size - listed + looked, space.size)
        effort.watch(looked, found.best[0][0] if found.best else None)
        if any(evaluator.share.gather(effort.over(started))):
            break
    found = merged(evaluator.share.gather(found), most)
    found.verdicts[Verdict.UB_OVERFLOW] += space.size - listed
    return Outcome(found, looked, 0, looked == listed)


def _order(every: np.ndarray, least: np.ndarray, effort: Effort, depths: int) -> Iterator[tuple[np.ndarray, bool]]:
    """Chunks of the blocks that are looked at within ``effort``, and whether they fit: first those that do."""
    fitting, others = every[least == Verdict.FITS], every[(least != Verdict.FITS) & (least != Verdict.UB_OVERFLOW)]
    if effort.max_evals is not None or effort.budget_s is not None:
        fitting = _coarse_first(fitting)
    if effort.max_evals is not None:
        most = max(effort.max_evals // depths, 1)
        fitting, others = fitting[:most], others[: max(most - len(fitting), 0)]
    yield from ((chunk, True) for chunk in chunks(fitting))
    yield from ((chunk, False) for chunk in chunks(others))


def _coarse_first(blocks: np.ndarray) -> np.ndarray:
    """Blocks of which both sizes are multiples of a large power of two before the others, so that any prefix is a grid."""
    sizes = np.gcd(blocks[:, 0].astype(int), blocks[:, 1].astype(int))
    return blocks[np.argsort(COARSE - np.gcd(sizes, COARSE), kind="stable")]


def _refine(evaluator: Evaluator | WideEvaluator, found: Found) -> list[Tiling]:
    """The best depths of each block kept: the fastest, of equals the fewest slots; for the front, of each UB size too."""
    rows = np.unique(np.array([entry[1] for entry in (*found.best, *found.front.values())]), axis=0) if found.best else []
    tilings = []
    for chunk in chunks(np.asarray(rows)):
        own = chunk[evaluator.share.rows(len(chunk))]
        for part in evaluator.share.gather(list(best_depths(own, evaluator.scores(chunk)))):
            tilings += [tiling_of(block, evaluator.depths[depth]) for block, depth in part]
    return list(dict.fromkeys(tilings))


def _exact(evaluator: Evaluator | WideEvaluator, tilings: list[Tiling]) -> list[Candidate]:
    """Reports of ``tilings`` in float64, fastest first; of equals the one with fewer bytes of UB, then smaller blocks."""
    each = [Candidate(tiling, report) for tiling, report in zip(tilings, evaluator.reports(tilings), strict=True)]
    return sorted(each, key=lambda one: (float(one.report.seconds), _ub(one), one.tiling.block_q, one.tiling.block_kv))


def _ub(one: Candidate) -> float:
    return float(one.report.occupancy.used_bytes["UB"])


def _distinct(candidates: list[Candidate], vector_cores: int) -> list[Candidate]:
    """The first candidate of each choice of blocks; ``vector_rows`` beyond a vector core's share of the block are alike."""
    seen: dict[tuple[int, ...], Candidate] = {}
    for one in candidates:
        t = one.tiling
        rows = min(t.vector_rows, -(-t.block_q // vector_cores))
        seen.setdefault((t.block_q, t.block_kv, rows, t.ub_depth, t.l0_depth, t.kv_split), one)
    return list(seen.values())


def _pareto(candidates: list[Candidate]) -> list[Candidate]:
    """Of candidates sorted by time, those with fewer bytes of UB than all faster ones."""
    front: list[Candidate] = []
    for one in candidates:
        if not front or _ub(one) < _ub(front[-1]):
            front.append(one)
    return front


def _nearest(evaluator: Evaluator | WideEvaluator, space: Space) -> Candidate:
    """The smallest tiling of the space: if it does not fit, nothing does."""
    return _exact(evaluator, [tiling_of(space.least, space.depths[0])])[0]


def _provenance(kernel: Kernel, overlap: Overlap) -> dict[str, object]:
    """What it takes to get the same answer again. The search draws no random numbers, so there is no seed."""
    return {
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in ("ascend-jax", "jax", "jaxlib")}},
        "seed": None,
        "model": f"closed form, {kernel.name} kernel, {overlap.name} overlap",
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
