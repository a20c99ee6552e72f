"""The race's arithmetic by hand and by Monte Carlo, and the race itself with two seeds on a space without a chip."""

import json
from importlib.util import find_spec
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from click.testing import CliRunner
from toy_points import table, toy

from experiments.tuner_race import run
from experiments.tuner_race.rivals import Run
from experiments.tuner_race.score import budget_of, random_baseline, score, to_near
from experiments.tuner_race.spaces import Space, points_of
from experiments.tuner_race.traces import best_so_far, runs_of
from tiling_search.points import indices

TOY = Space("toy", toy(), table(), {})


def test_the_baseline_is_that_of_all_draws_by_hand_and_of_random_ones() -> None:
    # Of 1, 2 and 4: one draw has a mean of 7/3; two have the best 1, 1 or 2; three have 1.
    np.testing.assert_allclose(random_baseline(np.array([4.0, 1.0, 2.0]), 3), [7 / 3, 4 / 3, 1.0], rtol=1e-15)
    draw = np.random.default_rng(0)
    values = draw.lognormal(size=50)
    orders = draw.permuted(np.tile(values, (20_000, 1)), axis=1)
    best = np.minimum.accumulate(orders, axis=1)
    errors = best.std(axis=0) / np.sqrt(len(best))
    assert np.all(np.abs(random_baseline(values, 50) - best.mean(axis=0)) <= 4 * errors + 1e-12)
    with pytest.raises(ValueError, match="draws=4"):
        random_baseline(np.ones(3), 4)
    with pytest.raises(ValueError, match="not finite"):
        random_baseline(np.array([1.0, np.inf]), 1)


def test_the_score_and_the_budget_by_hand() -> None:
    values = np.array([1.0, 2.0, 4.0])
    best = np.array([[2.0, 1.0], [4.0, 2.0]])  # mean 3, 1.5 against 7/3, 4/3: (−2/3)/(4/3) and (−1/6)/(1/3)
    assert score(values, best) == pytest.approx(-0.5)
    assert score(values, np.array([[1.0, 1.0]])) == 1.0
    assert to_near(values, best).tolist() == [2, 3]
    # Median 2, so the target is 1.05: two draws expect 1.33, three 1.
    assert budget_of(values) == 3
    many = np.random.default_rng(1).lognormal(size=3000)
    target, baseline = np.median(many) - 0.95 * (np.median(many) - many.min()), random_baseline(many, 3000)
    assert baseline[budget_of(many) - 1] <= target < baseline[budget_of(many) - 2]


def test_rows_become_points_in_their_order() -> None:
    columns = {"a": np.array([16.0, 16, 32]), "held": np.full(3, 2.0), "b": np.array([1.0, 3, 1])}
    points = points_of(columns)
    assert points.names == ("a", "b") and np.asarray(indices(points, jnp.arange(3))).tolist() == [[0, 0], [0, 1], [1, 0]]
    with pytest.raises(ValueError, match="lexical order"):
        points_of({"a": np.array([32.0, 16.0])})


def test_runs_are_kept_and_taken_up_again(tmp_path: Path) -> None:
    calls: list[int] = []

    def one(seed: int, evaluations: int) -> Run:
        calls.append(seed)
        return Run(list(range(seed, seed + evaluations)), 0.5)

    first = runs_of(TOY, "mine", one, range(2), 3, tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_text(file.read_text("utf-8") + '{"seed": 2, "ran', "utf-8")  # killed while it wrote
    again = runs_of(TOY, "mine", one, range(3), 3, tmp_path)
    assert again[:2] == first and calls == [0, 1, 2]
    short = best_so_far(TOY, [Run([3, 1], 0.0)], 4)
    assert short[0].tolist() == [table()[3], *[min(table()[3], table()[1])] * 3]


@pytest.mark.skipif(not (find_spec("kernel_tuner") and find_spec("optuna")), reason="extra race missing")
def test_the_race_runs_on_a_toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "race_space", lambda name, truth: TOY)
    monkeypatch.setattr(run, "model_ranked", lambda space, machines: [3] * machines)
    monkeypatch.setattr(run, "rates", lambda space, evaluations: {})
    monkeypatch.setattr(run, "JITTED", ("local",))
    monkeypatch.setattr(run, "LONGER", 20)
    flags = ["--seeds", "2", "--spaces", "310p3-coupled", "--machines", "2", "--json", str(tmp_path / "result.json")]
    CliRunner().invoke(run.main, flags, catch_exceptions=False)
    found = json.loads((tmp_path / "result.json").read_text("utf-8"))
    (row,) = found["spaces"]
    assert row["name"] == "toy" and row["points"] == toy().count and row["budget"] == budget_of(table())
    for side in ("ours", "kernel_tuner", "optuna"):
        assert row[side]["seeds"] == 2 and row[side]["score"] <= 1 and row[side]["strategy"]
    assert row["ours"]["score"] == max(one["score"] for one in row["our_strategies"])
    assert found["model_ranked"]["to_1pct_median"] == 3


def test_seeds_of_optuna_are_one_number_or_one_a_space() -> None:
    done = CliRunner().invoke(run.main, ["--optuna-seeds", "3", "--optuna-seeds", "2"])
    assert done.exit_code == 2 and "given 2 times for 3 spaces" in done.output
