"""The exhaustive search against a plain enumeration, and what must hold of the best whatever the numbers."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ascend_jax import KERNELS, Attention, Mask, Tiling, Verdict, chip_names, evaluate, evaluate_batch, load_chip, load_preset
from tiling_search import tune
from tiling_search.nearest import nearest_that_fits
from tiling_search.result import Candidate, TuningResult
from tiling_search.space import BLOCK_FIELDS, DEPTH_FIELDS, build_space, tiling_of

SMALL = Attention(batch=2, q_heads=4, kv_heads=2, q_len=40, kv_len=100, head_dim=64, value_dim=64, mask=Mask(kind="causal"))


def every_tiling(space_of: tuple[str, Attention, str]) -> Tiling:
    """All candidates one by one, as one batch ``[C]``."""
    chip, work, kernel = space_of
    space = build_space(load_chip(chip), work, KERNELS[kernel])
    rows = product(space.block_q, space.block_kv, map(tuple, space.others), map(tuple, space.depths))
    table = np.array([(q, kv, *other, *depth) for q, kv, other, depth in rows], float)
    assert len(table) == space.size
    fields = dict(zip((*BLOCK_FIELDS, *DEPTH_FIELDS), table.T, strict=True))
    return Tiling(l0_depth=np.full(len(table), 2.0), **fields)


def ub(one: Candidate) -> float:
    return float(one.report.occupancy.used_bytes["UB"])


@pytest.mark.parametrize(
    ("chip", "kernel", "ub_kib", "l1_kib"),
    [
        pytest.param("910B3", "separated", 12, 100, marks=pytest.mark.slow),
        pytest.param("310P3", "coupled", 30, 60, marks=pytest.mark.slow),
        pytest.param("950PR", "direct", 20, 60, marks=pytest.mark.slow),
        ("910A", "ub_resident", 40, 64),
    ],
)
def test_the_search_equals_evaluating_all_one_by_one(chip: str, kernel: str, ub_kib: int, l1_kib: int) -> None:
    spec = replace(load_chip(chip), ub_bytes=ub_kib * 1024, l1_bytes=l1_kib * 1024)
    batch = every_tiling((chip, SMALL, kernel))
    reports = jax.tree.map(np.asarray, evaluate_batch(spec, SMALL, batch, kernel=kernel))
    verdicts, fits = reports.occupancy.verdict, reports.occupancy.verdict == Verdict.FITS
    result = tune(spec, SMALL, kernel=kernel, top=5)

    assert result.exact and (result.candidates, result.feasible) == (len(verdicts), int(fits.sum()))
    counts = Counter(Verdict(int(code)).name for code in verdicts[~fits])
    assert result.rejected == counts and counts
    best = float(reports.seconds[fits].min())
    assert result.best is not None and float(result.best.report.seconds) == pytest.approx(best, rel=1e-12)

    blocks = np.stack([getattr(batch, name) for name in BLOCK_FIELDS], axis=1)
    blocks[:, 2] = np.minimum(blocks[:, 2], np.ceil(blocks[:, 0] / spec.vector_cores_per_cube))  # longer steps are alike
    per_block = sorted(
        float(reports.seconds[fits & np.all(blocks == row, axis=1)].min()) for row in np.unique(blocks[fits], axis=0)
    )
    assert [float(one.report.seconds) for one in result.top] == pytest.approx(per_block[:5], rel=1e-9)

    size, seconds = reports.occupancy.used_bytes["UB"][fits], reports.seconds[fits]
    for one in result.pareto:
        assert float(one.report.seconds) == pytest.approx(float(seconds[size <= ub(one)].min()), rel=1e-6)
    assert ub(result.pareto[-1]) == size.min()


def test_what_is_returned_fits_and_is_ordered() -> None:
    result = tune(load_chip("910B4"), load_preset("qwen2.5-7b-prefill-4k"), top=7)
    assert len(result.top) == 7
    assert all(one.verdict is Verdict.FITS for one in (*result.top, *result.pareto))
    times = [float(one.report.seconds) for one in result.top]
    assert times == sorted(times) and result.best is result.top[0]
    front = [(float(one.report.seconds), ub(one)) for one in result.pareto]
    assert all(slow > fast and small < large for (fast, large), (slow, small) in pairwise(front))
    assert result.feasible + sum(result.rejected.values()) == result.candidates


def test_equally_fast_depths_are_reported_with_the_fewest_slots() -> None:
    spec = load_chip("910B3")
    best = tune(spec, load_preset("llama3-8b-prefill-8k"), top=1).best
    assert best is not None
    for name in (*DEPTH_FIELDS, "ub_depth"):
        fewer = getattr(best.tiling, name) - 1
        if fewer >= (0 if name == "preload" else 1):
            slower = evaluate(spec, load_preset("llama3-8b-prefill-8k"), replace(best.tiling, **{name: fewer}))
            assert float(slower.seconds) > float(best.report.seconds)


@pytest.mark.parametrize("chip", chip_names())
def test_no_chip_beats_its_roofline(chip: str) -> None:
    spec, work = load_chip(chip), load_preset("llama3-8b-prefill-8k")
    best = tune(spec, work, top=1).best
    assert best is not None
    report = best.report
    moved = 2 * 8192 * 128 * (2 * 32 + 2 * 8)  # Q and O of 32 heads, K and V of 8, two bytes each, once
    compute_s = float(report.flops / report.peak_flops_per_s)
    assert float(report.flops) == 4 * 32 * 128 * (8192 * 8193 // 2)
    assert float(report.seconds) > max(compute_s, moved / spec.gm_bytes_per_s)


@pytest.mark.slow
def test_better_chips_are_faster_and_causal_costs_half() -> None:
    def best_s(chip: str, preset: str = "llama3-8b-prefill-8k", **changes: Mask) -> float:
        best = tune(load_chip(chip), replace(load_preset(preset), **changes), top=1).best
        assert best is not None
        return float(best.report.seconds)

    assert best_s("910B1") <= best_s("910B3")
    assert best_s("950PR") < best_s("910B2")
    for chip in ("910A", "910B3", "950PR"):
        ratio = best_s(chip, "llama3-8b-prefill-32k") / best_s(chip, "llama3-8b-prefill-32k", mask=Mask())
        assert 0.5 <= ratio <= 0.6


@pytest.mark.slow
@settings(max_examples=12)
@given(
    chip=st.sampled_from(["910A", "910B3", "950PR"]),
    memory=st.sampled_from(["ub_bytes", "l1_bytes", "l0a_bytes", "l0b_bytes", "l0c_bytes", "l2_bytes"]),
    factor=st.sampled_from([1.25, 1.5, 2, 4]),
    dim=st.sampled_from([64, 80, 128]),
    lengths=st.sampled_from([(1, 512), (200, 200), (512, 1024)]),
)
def test_a_bigger_buffer_never_makes_the_best_slower(
    chip: str, memory: str, factor: float, dim: int, lengths: tuple[int, int]
) -> None:
    q_len, kv_len = lengths
    work = Attention(
        batch=2, q_heads=8, kv_heads=2, q_len=q_len, kv_len=kv_len, head_dim=dim, value_dim=dim, mask=Mask(kind="causal")
    )
    spec = load_chip(chip)
    small, large = (tune(one, work, top=1).best for one in (spec, replace(spec, **{memory: getattr(spec, memory) * factor})))
    assert small is not None and large is not None
    assert float(large.report.seconds) <= float(small.report.seconds) * (1 + 1e-9)


def nothing_fits(**changes: int) -> TuningResult:
    wide = replace(SMALL, head_dim=4096, value_dim=4096)
    return tune(replace(load_chip("910A"), **changes), wide, kernel="ub_resident")


def test_where_nothing_fits_the_result_says_what_is_nearest() -> None:
    result = nothing_fits()
    assert result.best is None and result.pareto == () and result.feasible == 0
    assert sum(result.rejected.values()) == result.candidates
    assert result.nearest is not None
    assert (result.nearest.tiling.block_q, result.nearest.tiling.block_kv) == (16, 16)
    assert result.nearest.message.startswith("UB overflow: 524,800 bytes asked, 262,144 available")  # (4·16·4096 + 16²)·2
    assert result.would_fit == "head_dim 2032 would fit"  # (4·16·D + 16²)·2 ≤ 262,144


def test_a_full_gm_asks_for_a_smaller_batch() -> None:
    once = tiling_of(np.array([16, 16, 16, 1, 1]), np.array([1, 1, 1, 1, 0]))
    crowd = replace(SMALL, batch=10**9)
    text = nearest_that_fits(load_chip("910A"), crowd, once, KERNELS["coupled"])
    most = int(text.split()[1])
    assert text == f"batch {most} would fit"
    fitting, one_more = (evaluate(load_chip("910A"), replace(SMALL, batch=count), once) for count in (most, most + 1))
    assert (int(fitting.occupancy.verdict), int(one_more.occupancy.verdict)) == (Verdict.FITS, Verdict.GM_OVERFLOW)


@pytest.mark.parametrize("changes", [{"batch": 0}, {"q_len": 0}, {"kv_len": 0}, {"q_len": 1, "kv_len": 1}], ids=str)
def test_empty_and_tiny_workloads_have_a_best(changes: dict[str, int]) -> None:
    best = tune(load_chip("910B3"), replace(SMALL, **changes), top=1).best
    assert best is not None and np.isfinite(float(best.report.seconds))


@pytest.mark.slow
def test_variable_lengths_are_searched_together() -> None:
    ragged = replace(SMALL, q_len=(17, 300, 17), kv_len=(17, 300, 17), layout="TND", batch=1)
    best = tune(load_chip("910B3"), ragged, top=1).best
    assert best is not None
    assert float(best.report.seconds) == pytest.approx(
        float(evaluate(load_chip("910B3"), ragged, best.tiling).seconds), rel=1e-9
    )


def test_progress_ends_at_the_whole_space() -> None:
    seen: list[tuple[int, int]] = []
    result = tune(load_chip("950PR"), SMALL, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (result.candidates, result.candidates) and seen == sorted(seen)


def test_top_must_be_positive() -> None:
    with pytest.raises(ValueError, match="top=0 must be at least 1"):
        tune(load_chip("950PR"), SMALL, top=0)


def test_programs_on_disk_give_the_same_answer_and_bad_ones_are_compiled_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def search() -> TuningResult:
        monkeypatch.setattr("tiling_search.programs._COMPILED", {})
        return tune(load_chip("310P3"), SMALL, top=3, programs=tmp_path)

    first = search()
    (stored,) = tmp_path.iterdir()
    with monkeypatch.context() as patch:
        patch.setattr("tiling_search.exhaustive.prepare_blocks", None)  # tracing would fail
        second = search()
    assert [one.tiling for one in first.top] == [one.tiling for one in second.top]
    assert [float(one.report.seconds) for one in first.top] == [float(one.report.seconds) for one in second.top]
    stored.write_bytes(stored.read_bytes()[:1000])
    assert [one.tiling for one in search().top] == [one.tiling for one in first.top]


@pytest.mark.slow
def test_keys_are_split_where_cores_would_idle() -> None:
    """64 tasks of a decode on 20 cores are four rounds for some and three for others; parts of them deal out evenly."""
    spec, work = load_chip("910B3"), load_preset("llama3-8b-decode-32k")
    best = tune(spec, work, top=1).best
    assert best is not None and best.tiling.kv_split > 1
    rng = np.random.default_rng(0)
    count = 4096
    sizes = {name: rng.integers(1, 4, count) for name in (*DEPTH_FIELDS[:-1], "ub_depth")}
    sizes |= {"preload": rng.integers(0, 4, count), "kv_split": rng.integers(1, 9, count), "l0_depth": np.full(count, 2)}
    blocks = {"block_q": np.full(count, 16), "block_kv": 16 * rng.integers(1, 100, count)}
    steps = {"vector_rows": 8 * 2 ** rng.integers(0, 4, count)}
    found = evaluate_batch(spec, work, Tiling(**blocks, **steps, **sizes))
    fits = np.asarray(found.occupancy.verdict) == Verdict.FITS
    assert float(best.report.seconds) <= float(np.asarray(found.seconds)[fits].min()) * (1 + 1e-12)
