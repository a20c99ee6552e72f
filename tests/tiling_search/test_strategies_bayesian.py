"""The Gaussian process and the first points of ``bayesian``, against slow loops, finite differences and a Monte Carlo."""

import itertools

import jax
import numpy as np
import pytest
from toy_points import every_place, table, toy

from tiling_search.strategies import search, strategy
from tiling_search.strategies.bayesian import features_of, log_improvement
from tiling_search.strategies.design import at_quantiles, spread_quantiles
from tiling_search.strategies.process import Told, expected_scales, fitted, loss, predicted

DRAW = np.random.default_rng(0)
TOLD = Told(DRAW.random((9, 3)), DRAW.standard_normal(9))
SCALES = np.array([-0.4, 0.3, 1.2, -0.5, -4.0])


def covariance(one: np.ndarray, other: np.ndarray, noise: bool) -> float:
    """Of two points, written out."""
    squares = sum(((a - b) / np.exp(length)) ** 2 for a, b, length in zip(one, other, SCALES[:3], strict=True))
    far = np.sqrt(5 * squares)
    line = sum(2 * (a - 0.5) * (b - 0.5) for a, b in zip(one, other, strict=True))
    same = noise and np.array_equal(one, other)
    return (1 + far + far**2 / 3) * np.exp(-far) + np.exp(SCALES[3]) * line + np.exp(SCALES[4]) * same


def test_predictions_are_those_of_the_conditional_normal() -> None:
    asked = np.random.default_rng(1).random((4, 3))
    every = np.array([[covariance(one, other, True) for other in TOLD.features] for one in TOLD.features])
    across = np.array([[covariance(one, other, False) for other in asked] for one in TOLD.features])
    own = np.array([covariance(one, one, False) for one in asked])
    variance = (TOLD.targets @ np.linalg.solve(every, TOLD.targets) + 1) / (len(TOLD.targets) + 1)
    mean, deviation = predicted(TOLD, SCALES, asked)
    np.testing.assert_allclose(mean, across.T @ np.linalg.solve(every, TOLD.targets), rtol=1e-9)
    spread = variance * (own - np.sum(across * np.linalg.solve(every, across), axis=0))
    np.testing.assert_allclose(deviation, np.sqrt(spread), rtol=1e-9)


def test_the_gradient_of_the_loss_is_that_of_finite_differences() -> None:
    apart = ((TOLD.features[:, None] - TOLD.features[None]) ** 2).reshape(-1, 3)
    _, gradient = loss(SCALES, TOLD, apart)
    for at, step in enumerate(1e-6 * np.eye(len(SCALES))):
        above, below = loss(SCALES + step, TOLD, apart)[0], loss(SCALES - step, TOLD, apart)[0]
        assert gradient[at] == pytest.approx((above - below) / 2e-6, rel=1e-4, abs=1e-7)


def test_an_axis_that_does_not_matter_gets_a_long_length() -> None:
    features = np.random.default_rng(2).random((40, 2))
    values = np.sin(6 * features[:, 0])
    told = Told(features, (values - values.mean()) / values.std())
    scales = fitted(told, [expected_scales(2)], 50)
    assert scales[1] > scales[0] + 1.5


def test_the_logarithm_of_the_expected_improvement() -> None:
    draws = np.random.default_rng(3).standard_normal(2_000_000)
    for ratio in (-2.0, -0.5, 0.0, 1.5):
        expected = np.log(np.mean(np.maximum(ratio + draws, 0)))
        assert log_improvement(np.array([ratio]))[0] == pytest.approx(expected, abs=0.02)
    far = log_improvement(np.linspace(-60, -3, 500))
    assert np.isfinite(far).all() and np.all(np.diff(far) > 0)


def test_the_first_points_are_spread_over_what_is_feasible() -> None:
    places = every_place()
    by_hand = []
    for quantile in ((0.5, 0.5, 0.5), (0.0, 0.99, 0.3), (0.9, 0.1, 0.6)):
        left = [tuple(place) for place in places.tolist()]
        for axis, share in enumerate(quantile):
            choices = sorted({one[axis] for one in left})
            left = [one for one in left if one[axis] == choices[int(share * len(choices))]]
        by_hand.append(left)
    found = [at_quantiles(places, np.array(one)) for one in ((0.5, 0.5, 0.5), (0.0, 0.99, 0.3), (0.9, 0.1, 0.6))]
    assert [[tuple(places[rank].tolist())] for rank in found] == by_hand
    design = spread_quantiles(5, 3, np.random.default_rng(4))
    assert design.shape == (5, 3) and np.all(design[0] == 0.5)
    assert all(sorted((4 * column).astype(int)) == [0, 1, 2, 3] for column in design[1:].T)
    assert spread_quantiles(1, 3, np.random.default_rng(4)).shape == (1, 3)


def test_features_are_logarithms_and_roundness() -> None:
    sizes, flags = (16, 32, 48, 64, 128, 256), (0, 1)
    rows = np.array(list(itertools.product(sizes, flags)), float)
    found = features_of(rows)
    assert found.shape == (12, 3) and found.min() == 0 and found.max() == 1
    np.testing.assert_allclose(found[:, 0], np.log2((1 + rows[:, 0]) / 17) / np.log2(257 / 17))
    assert found[::2, 2].tolist() == [0, 1 / 3, 0, 2 / 3, 1, 1]  # 16, 2·16, 3·16, 4·16, and no rounder than 8·16
    assert features_of(np.ones((3, 2))).shape == (3, 1)


def test_a_batch_holds_different_points_as_good_as_one_by_one() -> None:
    found = search(strategy("bayesian", batch=4), toy(), lambda ranks: table()[ranks], jax.random.key(3), 60)
    assert len(set(found.ranks.tolist())) == 60 and found.best_value <= np.sort(table())[2]
    with pytest.raises(ValueError, match="scouts=0"):
        strategy("bayesian", scouts=0).init(toy(), jax.random.key(0))


def test_a_memory_that_is_full_still_finds_the_optimum() -> None:
    found = search(strategy("bayesian", memory=20), toy(), lambda ranks: table()[ranks], jax.random.key(1), 70)
    assert found.best_value == table().min()


def test_a_space_too_large_to_look_at_is_searched_near_the_best_points() -> None:
    found = search(
        strategy("bayesian", everything=10, random_candidates=16), toy(), lambda ranks: table()[ranks], jax.random.key(1), 70
    )
    assert found.best_value == table().min()


def test_a_covariance_that_is_none_is_refused() -> None:
    """A trend of no weight and no noise, at the same place twice."""
    twice = Told(np.full((2, 3), 0.25), np.array([-1.0, 1.0]))
    with pytest.raises(np.linalg.LinAlgError, match="2 points"):
        predicted(twice, np.array([0.0, 0.0, 0.0, -np.inf, -np.inf]), np.full((1, 3), 0.5))
