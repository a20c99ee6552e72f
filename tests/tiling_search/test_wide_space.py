"""The wide space: bounds that nothing beats, and the answer of the one-by-one evaluation of every point."""

from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import pairwise, product

import jax
import numpy as np
import pytest

from ascend_jax import KERNELS, Attention, Mask, Tiling, Verdict, evaluate, evaluate_batch, load_chip
from ascend_jax.cost.evaluate import chosen
from ascend_jax.kernels import kernel_for
from ascend_jax.kernels.schedules import SCHEDULES
from tiling_search import tune
from tiling_search.effort import Effort
from tiling_search.exhaustive import Evaluator
from tiling_search.result import Candidate
from tiling_search.space import DEPTH_FIELDS, SLOTS, WIDE_FIELDS, build_wide_space
from tiling_search.wide_evaluator import OUTER, WideEvaluator, corners_of

SMALL = Attention(batch=1, q_heads=4, kv_heads=2, q_len=40, kv_len=48, head_dim=64, value_dim=64, mask=Mask(kind="causal"))
CASES = [
    ("910B3", "separated", {"ub_bytes": 8 * 1024, "l1_bytes": 60 * 1024}),
    ("950PR_957x", "direct", {"ub_bytes": 24 * 1024, "l1_bytes": 60 * 1024}),
    ("310P3", "coupled", {"ub_bytes": 30 * 1024, "l1_bytes": 60 * 1024}),
    ("910A", "ub_resident", {"ub_bytes": 30 * 1024}),
]


def ub(one: Candidate) -> float:
    return float(one.report.occupancy.used_bytes["UB"])


def every_point(chip: str, kernel: str) -> np.ndarray:
    """All candidates one by one, rows of ``WIDE_FIELDS`` and ``DEPTH_FIELDS``."""
    space = build_wide_space(load_chip(chip), SMALL, KERNELS[kernel])
    rows = product(space.block_q, space.block_kv, map(tuple, space.others), map(tuple, space.depths))
    table = np.array([(q, kv, *other, *depth) for q, kv, other, depth in rows], float)
    assert len(table) == space.size
    return table


@pytest.mark.slow
@pytest.mark.parametrize(("chip", "kernel", "memory"), CASES, ids=[case[1] for case in CASES])
def test_a_wide_search_equals_evaluating_all_one_by_one(chip: str, kernel: str, memory: dict[str, int]) -> None:
    spec = replace(load_chip(chip), **memory)
    table, verdicts, seconds, size = every_point(chip, kernel), [], [], []
    for part in np.array_split(table, -(-len(table) // 2**18)):
        batch = Tiling(**dict(zip((*WIDE_FIELDS, *DEPTH_FIELDS), part.T, strict=True)))
        reports = jax.tree.map(np.asarray, evaluate_batch(spec, SMALL, batch, kernel=kernel))
        verdicts.append(reports.occupancy.verdict)
        seconds.append(reports.seconds)
        size.append(reports.occupancy.used_bytes["UB"])
    verdicts, seconds, size = (np.concatenate(part) for part in (verdicts, seconds, size))
    fits = verdicts == Verdict.FITS
    result = tune(spec, SMALL, kernel=kernel, top=5, space="wide")

    assert result.exact and (result.candidates, result.feasible) == (len(table), int(fits.sum()))
    assert result.feasible + sum(result.rejected.values()) == result.candidates
    assert result.best is not None
    assert float(result.best.report.seconds) == pytest.approx(float(seconds[fits].min()), rel=1e-12)
    table[:, 2] = np.minimum(table[:, 2], np.ceil(table[:, 0] / spec.vector_cores_per_cube))  # longer steps are alike
    _, block = np.unique(table[fits][:, : len(WIDE_FIELDS)], axis=0, return_inverse=True)
    per_block = np.full(block.max() + 1, np.inf)
    np.minimum.at(per_block, block.ravel(), seconds[fits])
    assert [float(one.report.seconds) for one in result.top] == pytest.approx(sorted(per_block)[:5], rel=1e-9)
    for one in result.pareto:
        assert float(one.report.seconds) == pytest.approx(float(seconds[fits & (size <= ub(one))].min()), rel=1e-6)
    assert ub(result.pareto[-1]) == size[fits].min()
    front = [(float(one.report.seconds), ub(one)) for one in result.pareto]
    assert all(slow > fast and small < large for (fast, large), (slow, small) in pairwise(front))


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["separated", "direct", "coupled", "ub_resident", "flash_attention_score", "falite_v0"])
def test_nothing_legal_beats_the_bound_of_its_block(kernel: str) -> None:
    """Random blocks of a real workload, all their depths, against the bound that says whether they are looked at."""
    chip = {"direct": "950PR_957x", "coupled": "310P3", "ub_resident": "910A"}.get(kernel, "910B3")
    work = replace(SMALL, q_len=1024, kv_len=3000, q_heads=8, head_dim=128, value_dim=128)
    spec, rng = load_chip(chip), np.random.default_rng(0)
    dataflow, overlap = chosen(spec, kernel, "pipelined")
    evaluator, space = WideEvaluator.build(spec, work, dataflow, overlap), build_wide_space(spec, work, dataflow)
    sizes = 16 * rng.integers(1, 33, (300, 2))
    blocks = np.column_stack([sizes, rng.choice(space.others, 300)]).astype(float)
    probed, scores = evaluator.probe(blocks), evaluator.scores(blocks)
    best = scores.seconds.min(axis=1)
    some = np.isfinite(best)
    assert evaluator.bounds and some.any() and not some.all()
    assert np.all(probed.bound_s[some] <= best[some] * (1 + 1e-6))
    assert np.all(probed.ub_bytes[some] <= np.where(scores.verdicts == Verdict.FITS, scores.ub_bytes, np.inf).min(axis=1)[some])
    inner = len(space.depths) // probed.verdicts.shape[1]
    for row in np.flatnonzero(probed.decided):
        said, counted = (Counter(part.tolist()) for part in (probed.verdicts[row], scores.verdicts[row]))
        assert inner * said[Verdict.FITS] == counted[Verdict.FITS]
    if kernel == "separated":
        assert np.median(best[some] / probed.bound_s[some]) < 1.05  # a bound of 0 would be as true


@pytest.mark.parametrize("name", [*KERNELS, *SCHEDULES])
def test_only_schedules_in_groups_have_no_bound(name: str) -> None:
    kernel = KERNELS.get(name) or SCHEDULES[name]
    spec = load_chip({"direct": "950PR_957x", "coupled": "310P3"}.get(kernel.runs_on[0], "910B3"))
    assert kernel_for(spec, name) is kernel or name == "ub_resident"
    assert (kernel.graph.group > 1) == (name in ("falite_v3", "falite_v4", "falite_v5"))


def test_the_corners_are_the_fewest_and_the_most_slots_of_each_outer_choice() -> None:
    space = build_wide_space(load_chip("910B3"), SMALL, KERNELS["separated"])
    corners = corners_of(space.depths)
    at = [DEPTH_FIELDS.index(name) for name in OUTER]
    others = [place for place in range(len(DEPTH_FIELDS)) if place not in at]
    fewest, most = np.split(corners, 2)
    assert len(fewest) == 4 * 4 and np.array_equal(fewest[:, at], most[:, at])
    assert np.all(fewest[:, others] == SLOTS[0]) and np.all(most[:, others] == SLOTS[-1])


def test_a_wide_best_is_no_slower_and_evaluate_agrees() -> None:
    spec = load_chip("910A")
    work = Attention(batch=1, q_heads=2, kv_heads=2, q_len=256, kv_len=256, head_dim=64, value_dim=64)
    usual, wide = (tune(spec, work, kernel="ub_resident", top=1, space=space) for space in ("usual", "wide"))
    assert usual.best is not None and wide.best is not None and wide.exact
    assert float(wide.best.report.seconds) <= float(usual.best.report.seconds)
    again = evaluate(spec, work, wide.best.tiling, kernel="ub_resident")
    assert float(again.seconds) == pytest.approx(float(wide.best.report.seconds), rel=1e-9)
    assert wide.feasible > usual.feasible and wide.bounded > 0 and usual.bounded == 0


def test_a_wide_search_that_is_stopped_says_so() -> None:
    seen: list[tuple[int, int]] = []
    spec = load_chip("910A")
    stopped = tune(
        spec,
        SMALL,
        kernel="ub_resident",
        space="wide",
        effort=Effort(max_evals=1),
        progress=lambda done, total: seen.append((done, total)),
    )
    assert (
        not stopped.exact
        and stopped.best is not None
        and stopped.evaluated == len(build_wide_space(spec, SMALL, KERNELS["ub_resident"]).depths)
    )
    assert seen and seen[-1][0] < seen[-1][1] == stopped.candidates


def test_wrong_spaces_are_refused() -> None:
    with pytest.raises(ValueError, match="space='huge' must be one of usual, wide"):
        tune(load_chip("910A"), SMALL, space="huge")
    with pytest.raises(ValueError, match="space='wide' has an evaluator of its own"):
        tune(load_chip("910A"), SMALL, space="wide", evaluators=partial(Evaluator.build))
