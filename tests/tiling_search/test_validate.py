"""Validation: what is said of each row, and totals against plain loops and scipy."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from toy_predictor import ToyPredictor

from ascend_jax.calibration.rows import Refused, Row
from tiling_search.error_stats import rank_correlation
from tiling_search.jsonfile import dumps
from tiling_search.validate import validate

ISSUE_KEYS = {"id", "measured_s", "predicted_s", "error", "kernel", "tiling", "bound_by", "skipped"}
TOTALS = {"n", "mean_abs_error", "median_abs_error", "p90_abs_error", "mean_error", "rank_correlation"}


def row(name: str, value: float = 10.0, factor: float = 1.0, **changes: Any) -> Row:
    """A row of ``value`` µs that the toy predictor takes for ``factor`` times as long."""
    given: dict[str, Any] = {"unit": "us", "metric": "latency", "op": "FA", "category": "attention"}
    given |= {"catalog_chip": "910B2", "quality": "A", "note": str(factor)}
    return Row(id=name, value=value, **(given | changes))


def check(*entries: Row | Refused, predictor: ToyPredictor | None = None) -> dict[str, Any]:
    return validate(entries, predictor=predictor or ToyPredictor())


def by_id(data: dict[str, Any]) -> dict[str, Any]:
    return {one["id"]: one for one in data["rows"]}


def plain_totals(pairs: list[tuple[float, float]]) -> dict[str, Any]:
    """The totals of (measured, predicted) as anyone would write them."""
    errors = [(predicted - measured) / measured for measured, predicted in pairs]
    sizes = sorted(abs(error) for error in errors)
    at = 0.9 * (len(sizes) - 1)
    low, high = sizes[math.floor(at)], sizes[math.ceil(at)]
    middle = (sizes[(len(sizes) - 1) // 2] + sizes[len(sizes) // 2]) / 2
    return {
        "n": len(pairs),
        "mean_abs_error": sum(sizes) / len(sizes),
        "median_abs_error": middle,
        "p90_abs_error": low + (high - low) * (at - math.floor(at)),
        "mean_error": sum(errors) / len(errors),
    }


def spearman(one: Any, other: Any) -> float:
    """Scipy's rank correlation."""
    found: Any = stats.spearmanr(one, other)
    return found.statistic


def test_a_row_has_the_agreed_keys_and_a_signed_relative_error() -> None:
    data = check(row("slow", 10.0, 1.25), row("fast", 20.0, 0.5, tiling="64x64"))
    assert set(data) == {"rows", "groups", "overall"}
    slow, fast = data["rows"]
    assert set(slow) == set(fast) >= ISSUE_KEYS
    assert (slow["id"], slow["kernel"], slow["bound_by"], slow["skipped"]) == ("slow", "separated", "Cube", None)
    assert (slow["measured_s"], slow["predicted_s"]) == (pytest.approx(1e-5), pytest.approx(1.25e-5))
    assert (slow["error"], fast["error"]) == (pytest.approx(0.25), pytest.approx(-0.5))
    assert (slow["tiling"]["block_q"], slow["tiling"]["block_kv"]) == (128, 256)  # the tuner's
    assert (fast["tiling"]["block_q"], fast["tiling"]["block_kv"]) == (64, 64)  # the row's own
    assert json.loads(dumps(data)) == data


def test_only_rows_without_a_tiling_are_tuned() -> None:
    predictor = ToyPredictor()
    check(row("a"), row("b", tiling="64x64"), row("c"), predictor=predictor)
    assert predictor.tuned == ["a", "c"]
    assert predictor.batches == [3]


def test_what_cannot_be_modelled_is_listed_in_place_with_the_reason() -> None:
    data = check(
        Refused(id="bad", reason="row 'bad': value=0 must be above 0"),
        Refused(id=None, reason="row number 2: no id"),
        row("gemm", category="gemm"),
        row("odd", category="vector"),
        row("rate", metric="bandwidth", unit="GB/s"),
        row("big", head_dim=7),
        row("good"),
    )
    assert [one["id"] for one in data["rows"]] == ["bad", None, "gemm", "odd", "rate", "big", "good"]
    said = [one["skipped"] for one in data["rows"]]
    assert said[:3] == ["row 'bad': value=0 must be above 0", "row number 2: no id", "a matrix multiplication is not attention"]
    for words, text in zip(("KeyError: 'vector'", "bandwidth in GB/s", "head_dim 4 would fit"), said[3:6], strict=True):
        assert words in text
    assert said[6] is None
    for one in data["rows"][:6]:
        assert {one[name] for name in ("predicted_s", "error", "kernel", "tiling", "bound_by")} == {None}
        assert one["counted"] is False
    assert [data["overall"][name] for name in ("rows", "modelled", "skipped", "n")] == [7, 1, 6, 1]
    assert by_id(data)["gemm"]["measured_s"] == pytest.approx(1e-5)


@pytest.mark.parametrize("bad", [{0}, {4}, {2, 3}, {0, 1, 2, 3, 4, 5, 6}])
def test_a_row_that_makes_the_predictor_fail_takes_no_other_with_it(bad: set[int]) -> None:
    predictor = ToyPredictor(fails=lambda one: int(one.id) in bad)
    data = check(*(row(str(number), factor=1 + number) for number in range(7)), predictor=predictor)
    for number, one in enumerate(data["rows"]):
        if number in bad:
            assert one["skipped"] == "ZeroDivisionError: no cores"
        else:
            assert one["error"] == pytest.approx(number)


@pytest.mark.parametrize("factor", ["nan", "inf", "0", "-1"])
def test_a_prediction_that_is_no_time_is_skipped(factor: str) -> None:
    data = check(row("odd", note=factor), row("good"))
    assert "no time" in by_id(data)["odd"]["skipped"]
    assert data["overall"]["n"] == 1


def test_too_few_predictions_are_not_given_to_the_wrong_rows() -> None:
    class Forgetful(ToyPredictor):
        def predict(self, cases: Any) -> list[Any]:
            return super().predict(cases)[1:]

    data = check(row("a"), row("b"), predictor=Forgetful())
    assert all("0 predictions for 1 rows" in one["skipped"] for one in data["rows"])


def test_an_interrupt_is_no_reason_to_skip() -> None:
    class Interrupted(ToyPredictor):
        def predict(self, cases: Any) -> list[Any]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check(row("a"), predictor=Interrupted())


def test_nothing_modelled_is_still_a_result() -> None:
    data = check(row("gemm", category="gemm"))
    assert data["overall"]["n"] == 0
    assert {data["overall"][name] for name in TOTALS - {"n"}} == {None}
    assert not any(data["groups"].values())
    assert json.loads(dumps(data)) == data


def made_up_rows() -> list[Row]:
    """Forty rows of three chips, two kernels, three grades and two categories."""
    rng = np.random.default_rng(0)
    return [
        row(
            str(number),
            value=float(np.exp(rng.normal(4, 2))),
            factor=float(np.exp(rng.normal(0, 0.2))),
            catalog_chip=["910B2", "950PR", None][number % 3],
            op=["cann", "tilelang"][number % 2],
            quality="ABC"[rng.integers(3)],
            core_validation=bool(rng.integers(2)),
            category=["attention", "memory"][rng.integers(2)],
        )
        for number in range(40)
    ]


def test_totals_are_those_of_a_plain_loop() -> None:
    rows = made_up_rows()
    data = check(*rows)

    def expect(found: dict[str, Any], chosen: list[Row]) -> None:
        pairs = [(one.value * 1e-6, one.value * 1e-6 * float(one.note or 0)) for one in chosen]
        for name, value in plain_totals(pairs).items():
            assert found[name] == pytest.approx(value, rel=1e-12), name
        expected = spearman(*np.array(pairs).T) if len(pairs) > 2 else None
        assert found["rank_correlation"] == pytest.approx(expected, abs=1e-12)

    counted = [one for one in rows if one.quality != "C"]
    core = [one for one in counted if one.core_validation]
    groups, overall = data["groups"], data["overall"]
    expect(overall, counted)
    expect(overall["core_validation"], core)
    for category in ("attention", "memory"):
        expect(overall["category"][category], [one for one in counted if one.category == category])
    for chosen, prefix in ((counted, ""), (core, "core_")):
        for chip in ("910B2", "950PR", None):
            expect(groups[f"{prefix}chip"][chip or "unknown"], [one for one in chosen if one.catalog_chip == chip])
            for op in ("cann", "tilelang"):
                both = [one for one in chosen if (one.catalog_chip, one.op) == (chip, op)]
                expect(groups[f"{prefix}chip_kernel"][f"{chip or 'unknown'} / {op}"], both)
        for op in ("cann", "tilelang"):
            expect(groups[f"{prefix}kernel"][op], [one for one in chosen if one.op == op])
    for grade in "ABC":
        expect(groups["grade"][grade], [one for one in rows if one.quality == grade])


def test_grade_c_is_shown_but_counts_only_under_its_grade() -> None:
    data = check(row("a"), row("c", factor=9, quality="C", core_validation=True))
    assert (by_id(data)["c"]["error"], by_id(data)["c"]["counted"]) == (pytest.approx(8), False)
    assert (data["overall"]["n"], data["overall"]["core_validation"]["n"]) == (1, 0)
    assert data["groups"]["chip"]["910B2"]["n"] == 1
    assert data["groups"]["grade"]["C"]["mean_abs_error"] == pytest.approx(8)
    assert data["overall"]["not_counted"] == "rows of grade C"


@given(st.lists(st.tuples(st.sampled_from([1.0, 2.0, 3.0, 5.0, 8.0]), st.sampled_from([1.0, 2.0, 4.0, 7.0])), max_size=12))
def test_rank_correlation_is_scipys_with_ties(pairs: list[tuple[float, float]]) -> None:
    one, other = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    found = rank_correlation(one, other)
    if len(pairs) < 3 or len(set(one)) == 1 or len(set(other)) == 1:
        assert found is None
    else:
        assert found == pytest.approx(spearman(one, other), abs=1e-12)


def test_progress_ends_with_all_rows() -> None:
    calls: list[tuple[int, int]] = []
    validate([row("a"), row("b")], predictor=ToyPredictor(), progress=lambda *done: calls.append(done))
    assert calls == [(1, 2), (2, 2)]


def test_a_row_may_come_without_chip_grade_and_category(tmp_path: Path) -> None:
    data = check(row("bare", catalog_chip=None, quality=None, category=""), row("theirs", catalog_chip=None, chip="A2"))
    assert set(data["groups"]["chip"]) == {"unknown", "A2"}
    assert set(data["groups"]["grade"]) == {"unknown", "A"}
    assert set(data["overall"]["category"]) == {"unknown", "attention"}
