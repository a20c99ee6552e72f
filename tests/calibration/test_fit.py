"""The fit: it finds what made the data, says how sure it is, and is not led astray by outliers or by what no row shows."""

from collections.abc import Callable
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import least_squares
from toy_model import ALL, CHIP, GM, LAUNCH, SLOPES, TRUTH, columns, problem, seconds

from ascend_jax.calibration.constants import Constant, bounds, own_values, with_constants
from ascend_jax.calibration.fit import fit
from ascend_jax.calibration.identify import select
from ascend_jax.calibration.leave_out import errors_of, leave_one_group_out
from ascend_jax.calibration.minimise import Minimum, adam, lbfgs
from ascend_jax.calibration.problem import KNEE, Loss, Problem


def loss_of(given: Problem, scale: float) -> Loss:
    return Loss(problem=given, weights=given.weights, free=np.ones(len(given.constants), bool), scale=scale)


def theta_of(values: np.ndarray) -> np.ndarray:
    return bounds(ALL).theta(np.log(values))


def test_constants_are_recovered_within_their_uncertainty() -> None:
    """Over 20 data sets the errors, in standard errors, look like draws of a normal distribution."""
    pulls = []
    for seed in range(20):
        found = fit(problem(seed=seed))
        assert found.converged and found.method == "L-BFGS"
        assert all(constant.fitted and not constant.weak for constant in found.constants)
        pulls.append(np.log(found.values / TRUTH) / [constant.log_std for constant in found.constants])
    assert abs(np.mean(pulls)) < 0.35  # 60 draws: one standard error is 0.13
    assert 0.7 < np.std(pulls) < 1.4
    assert np.max(np.abs(pulls)) < 4


def test_the_scale_is_the_noise() -> None:
    scales = [fit(problem(rows=200, noise=0.1, seed=seed)).scale for seed in range(5)]
    np.testing.assert_allclose(np.mean(scales), 0.1, rtol=0.1)


def test_without_noise_the_truth_comes_back() -> None:
    found = fit(problem(noise=0.0))
    np.testing.assert_allclose(found.values, TRUTH, rtol=2e-3)  # the priors pull a little
    assert np.max(np.abs(found.residuals)) < 5e-3 < np.max(np.abs(found.start_residuals))


def test_the_gradient_of_the_loss_is_that_of_finite_differences() -> None:
    loss, theta = loss_of(problem(), 0.1), theta_of(TRUTH * 1.1)
    _, gradient = loss(theta)
    step = 1e-5
    for place in range(len(theta)):
        shift = step * np.eye(len(theta))[place]
        slope = (loss(theta + shift)[0] - loss(theta - shift)[0]) / (2 * step)
        np.testing.assert_allclose(gradient[place], slope, rtol=1e-6)


def test_constants_that_are_not_free_do_not_move() -> None:
    loss = replace(loss_of(problem(), 0.1), free=np.array([True, False, True]))
    _, gradient = loss(theta_of(TRUTH))
    assert gradient[1] == 0 and np.all(gradient[[0, 2]] != 0)
    np.testing.assert_allclose(loss.logs(theta_of(TRUTH)), np.log([TRUTH[0], CHIP.launch_s, TRUTH[2]]))


def test_the_loss_is_what_a_loop_adds_up() -> None:
    given = replace(problem(rows=7), weights=np.array([1, 0.5, 0, 1, 1, 0.5, 1]))
    values, scale, total = TRUTH * 1.3, 0.2, 0.0
    predicted = seconds(with_constants(CHIP, ALL, values), *columns(7))
    for time, measured, weight in zip(predicted, given.measured_s, given.weights, strict=True):
        pull = np.sqrt(weight) * np.log(time / measured) / scale
        total += KNEE**2 * (np.sqrt(1 + pull**2 / KNEE**2) - 1)
    for constant, value in zip(ALL, values, strict=True):
        total += 0.5 * (np.log(value / constant.prior) / constant.prior_log_std) ** 2
    np.testing.assert_allclose(loss_of(given, scale)(theta_of(values))[0], total)


def test_another_optimiser_finds_the_same_minimum() -> None:
    given = problem(seed=3)
    found = fit(given)
    prior, deviation = given.column("prior"), given.column("prior_log_std")

    def pulls(logs: np.ndarray) -> np.ndarray:
        rows = (np.asarray(given.predict_log(jnp.exp(jnp.asarray(logs)))) - np.log(given.measured_s)) / found.scale / KNEE
        soft = np.sqrt(2 * KNEE**2 * (np.sqrt(1 + rows**2) - 1))
        return np.concatenate([soft, (logs - np.log(prior)) / deviation])

    other = least_squares(pulls, np.log(given.start), xtol=1e-12, ftol=1e-12, gtol=1e-12)
    np.testing.assert_allclose(np.log(found.values), other.x, atol=1e-3)  # the scale moved by under 2 % in the last round


def test_outliers_do_not_drag_the_constants() -> None:
    clean = problem(seed=5)
    dirty = replace(clean, measured_s=clean.measured_s * np.where(np.arange(60) % 10 == 0, 4.0, 1.0))
    found, before = fit(dirty), fit(clean)
    moved = np.abs(np.log(found.values / before.values))
    assert np.all(moved < 3 * np.array([constant.log_std for constant in before.constants]))
    plain = np.abs(np.log(_plain_least_squares(dirty) / before.values))
    assert np.max(plain) > 3 * np.max(moved)


def _plain_least_squares(given: Problem) -> np.ndarray:
    def residuals(logs: np.ndarray) -> np.ndarray:
        return np.asarray(given.predict_log(jnp.exp(jnp.asarray(logs)))) - np.log(given.measured_s)

    return np.exp(least_squares(residuals, np.log(given.start)).x)


def test_a_row_without_weight_has_no_influence() -> None:
    given = problem(seed=6)
    weights = np.where(np.arange(60) < 40, 1.0, 0.0)
    ruined = replace(given, weights=weights, measured_s=np.where(weights > 0, given.measured_s, 1.0))
    np.testing.assert_allclose(fit(ruined).values, fit(replace(given, weights=weights)).values, rtol=2e-5)


def test_half_the_weight_is_twice_the_variance() -> None:
    whole, half = fit(problem(seed=7)), fit(replace(problem(seed=7), weights=np.full(60, 0.5)))
    np.testing.assert_allclose(half.scale, whole.scale * np.sqrt(0.5), rtol=1e-3)
    np.testing.assert_allclose(half.values, whole.values, rtol=1e-3)


def test_a_constant_that_no_row_shows_stays_and_is_named() -> None:
    hidden = Constant(name="hand-off", field="handoff_s", lower=1e-8, upper=1e-5, prior=CHIP.handoff_s, prior_log_std=0.5)
    found = fit(problem(constants=(*ALL, hidden)))
    last = found.constants[-1]
    assert (last.fitted, last.value, last.log_std) == (False, CHIP.handoff_s, 0.5)
    assert last.notes == ("no row depends on it",)
    assert all(constant.fitted for constant in found.constants[:-1])


def test_two_constants_that_act_alike_are_not_both_fitted() -> None:
    """exp and the factor on all slopes are one number to these rows."""
    exp = Constant(name="exp", field="vector.exp", lower=0.5, upper=10.0, prior=2.0, prior_log_std=0.5)
    given = problem(constants=(GM, LAUNCH, exp))
    scaled = replace(given, constants=(*given.constants, SLOPES), start=np.append(given.start, 1.0))
    both = replace(scaled, predict_log=lambda values: given.predict_log(values[:3].at[2].multiply(values[3])))
    found = fit(both)
    assert [constant.fitted for constant in found.constants].count(True) == 3
    [left_out] = [constant for constant in found.constants if not constant.fitted]
    other = {"exp": "slopes", "slopes": "exp"}[left_out.constant.name]
    assert left_out.notes == (f"the rows cannot tell it from {other}",)


def test_a_nearly_hidden_constant_is_reported_as_weak() -> None:
    """The launch is a tenth of these rows or less: felt, but below their noise of 30 %."""
    moved, repeats = columns(60)
    given = problem()
    big = moved > 1e8
    truth = np.asarray(seconds(with_constants(CHIP, ALL, TRUTH), moved, repeats))[big]
    noisy = truth * np.exp(np.random.default_rng(1).normal(0, 0.3, big.sum()))
    rows = replace(
        given,
        measured_s=noisy,
        weights=np.ones(big.sum()),
        groups=("all",) * int(big.sum()),
        ids=tuple(map(str, np.flatnonzero(big))),
        predict_log=lambda values: jnp.log(seconds(with_constants(CHIP, ALL, values), moved[big], repeats[big])),
    )
    launch = fit(rows).constants[1]
    assert launch.fitted and launch.weak
    assert any("prior's deviation" in note for note in launch.notes)


def test_a_constant_that_drowns_in_the_noise_is_given_up() -> None:
    """A launch of 20 µs in rows of 100 ms with 30 % noise: felt by the slopes, but not in what was measured."""
    given = problem(noise=0.3)
    moved = 1e11 * (1 + np.arange(60) / 30)
    truth = np.asarray(seconds(with_constants(CHIP, ALL, TRUTH), moved, 1e6))
    wide = (replace(GM, prior_log_std=1.0), LAUNCH)

    def predict(values: jax.Array) -> jax.Array:
        return jnp.log(seconds(with_constants(CHIP, wide, values), moved, 1e6) + 49 * values[1])

    rows = replace(
        given,
        constants=wide,
        start=own_values(CHIP, wide),
        predict_log=predict,
        measured_s=truth * np.exp(np.random.default_rng(0).normal(0, 0.3, 60)),
    )
    rate, launch = fit(rows).constants
    assert rate.fitted and not launch.fitted
    assert launch.value == CHIP.launch_s
    assert launch.notes[0].endswith("of its prior's deviation")


def test_correlated_constants_name_each_other() -> None:
    """Rows in which bytes and repeats grow together leave only the sum of both times well known."""
    given = problem()
    moved = columns(60)[0]
    repeats = moved / 1e3 * (1 + 0.02 * np.random.default_rng(2).normal(size=60))
    wide = tuple(replace(constant, prior_log_std=3.0) for constant in ALL)
    truth = np.asarray(seconds(with_constants(CHIP, ALL, TRUTH), moved, repeats))
    rows = replace(
        given,
        constants=wide,
        measured_s=truth * np.exp(np.random.default_rng(3).normal(0, 0.02, 60)),
        predict_log=lambda values: jnp.log(seconds(with_constants(CHIP, wide, values), moved, repeats)),
    )
    found = fit(rows)
    assert any("with slopes" in note for note in found.constants[0].notes)
    assert any("with GM" in note for note in found.constants[2].notes)
    np.testing.assert_allclose(found.correlation, found.correlation.T)


def test_a_constant_pushed_to_its_bound_says_so() -> None:
    tight = replace(LAUNCH, upper=16e-6, prior_log_std=3.0)
    launch = fit(problem(constants=(GM, tight, SLOPES))).constants[1]
    assert launch.value <= 16e-6
    assert "at its upper bound" in launch.notes


@pytest.mark.parametrize(("rows", "most"), [(5, 1), (8, 2), (9, 3)])
def test_three_rows_a_constant_are_the_least(rows: int, most: int) -> None:
    found = fit(problem(rows=rows))
    assert sum(constant.fitted for constant in found.constants) == most
    for constant in found.constants:
        assert constant.fitted or f"{rows} rows support {most} constants" in constant.notes[0]


def test_the_constant_with_the_largest_effect_is_chosen_first() -> None:
    jacobian = np.array([[[1.0, 0.0, 1.0], [1.0, 0.0, 1.1], [0.0, 5.0, 0.0], [0.0, 0.0, 0.0]]])
    selection = select(jacobian, np.ones(4), np.array([1.0, 0.1, 1.0]), ["a", "b", "c"])
    np.testing.assert_array_equal(selection.chosen, [False, False, True])
    assert set(selection.reasons) == {0, 1}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": np.ones(3)}, "60 ids, but"),
        ({"weights": np.zeros(60)}, "at least one must be above zero"),
        ({"weights": np.full(60, -1.0)}, "must not be negative"),
        ({"measured_s": np.append(np.ones(59), 0.0)}, "rows m059: measured_s"),
        ({"constants": ()}, "0 constants and 3 start values"),
    ],
)
def test_a_problem_that_cannot_be_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(problem(), **change)  # pyright: ignore[reportArgumentType]


def test_rows_without_a_prediction_and_too_few_rows_are_refused() -> None:
    given = problem()
    with pytest.raises(ValueError, match="no finite prediction for the rows m002"):
        fit(replace(given, predict_log=lambda values: given.predict_log(values).at[2].set(jnp.inf)))
    with pytest.raises(ValueError, match="2 rows with weight: 3 are the least"):
        fit(problem(rows=2))


def test_the_callers_settings_do_not_matter() -> None:
    with jax.enable_x64(False):
        narrow = fit(problem(seed=8))
    np.testing.assert_array_equal(narrow.values, fit(problem(seed=8)).values)


def valley(theta: np.ndarray) -> tuple[float, np.ndarray]:
    """Curved, with its bottom at (1, 1)."""
    across = theta[1] - theta[0] ** 2
    gradient = np.array([2 * (theta[0] - 1) - 20 * across * theta[0], 10 * across])
    return (1 - theta[0]) ** 2 + 5 * across**2, gradient


@pytest.mark.parametrize(("method", "near"), [(lbfgs, 1e-4), (adam, 0.3)])
def test_both_methods_find_the_bottom_of_a_curved_valley(method: Callable[..., Minimum], near: float) -> None:
    found = method(valley, np.array([-1.0, 2.0]))
    assert found.converged
    np.testing.assert_allclose(found.theta, [1, 1], atol=near)


def test_a_kink_is_the_end_of_the_search() -> None:
    found = lbfgs(lambda theta: (float(np.sum(np.abs(theta))), np.sign(theta)), np.array([2.0, -0.7]))
    assert found.loss < 1e-3 and found.steps < 100


@pytest.mark.parametrize("method", [lbfgs, adam])
def test_a_descent_into_nowhere_keeps_the_best_point(method: Callable[..., Minimum]) -> None:
    def cliff(theta: np.ndarray) -> tuple[float, np.ndarray]:
        return (float(theta[0]), np.ones(1)) if theta[0] > 0.5 else (np.nan, np.full(1, np.nan))

    found = method(cliff, np.array([2.0]))
    assert found.loss == found.theta[0] and 0.5 < found.loss < 0.7
    assert not found.converged


def test_adam_takes_over_where_the_line_search_gets_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    stuck = Minimum(theta_of(TRUTH * 1.2), 1e9, 0, False)
    monkeypatch.setattr("ascend_jax.calibration.fit.lbfgs", lambda *_: stuck)
    found = fit(problem(seed=2))
    monkeypatch.undo()
    usual = fit(problem(seed=2))
    assert (found.method, usual.method) == ("Adam", "L-BFGS")
    np.testing.assert_allclose(found.values, usual.values, rtol=2e-3)


def test_cross_validation_is_what_a_loop_by_hand_finds() -> None:
    given = replace(problem(rows=40, seed=9), groups=("a",) * 25 + ("b",) * 15)
    found = leave_one_group_out(given)
    everything = []
    for group in ("a", "b"):
        keep = [row for row in range(40) if given.groups[row] != group]
        moved, repeats = (column[keep] for column in columns(40))
        smaller = replace(
            given,
            measured_s=given.measured_s[keep],
            weights=given.weights[keep],
            groups=tuple(given.groups[row] for row in keep),
            ids=tuple(given.ids[row] for row in keep),
            predict_log=lambda values, m=moved, r=repeats: jnp.log(seconds(with_constants(CHIP, ALL, values), m, r)),
        )
        spec = with_constants(CHIP, ALL, fit(smaller).values)
        errors = []
        for row in range(40):
            if given.groups[row] == group:
                bytes_moved, count = (column[row] for column in columns(40))
                errors.append(abs(float(seconds(spec, bytes_moved, count)) / given.measured_s[row] - 1))
        held = found.groups[group]
        assert (held.rows, held.mean) == (len(errors), pytest.approx(np.mean(errors), abs=2e-5))
        assert held.median == pytest.approx(np.median(errors), abs=2e-5)
        everything += errors
    assert (found.overall.rows, found.overall.mean, found.skipped) == (40, pytest.approx(np.mean(everything), abs=2e-5), {})


def test_a_group_that_holds_nearly_all_rows_cannot_be_left_out() -> None:
    given = replace(problem(rows=10), groups=("big",) * 8 + ("small",) * 2)
    found = leave_one_group_out(given)
    assert list(found.groups) == ["small"]
    assert "2 rows are left" in found.skipped["big"]


def test_errors_are_relative_to_what_was_measured() -> None:
    found = errors_of(np.log([2.0, 0.5, 1.0]))
    assert (found.rows, found.mean, found.median) == (3, 0.5, 0.5)
    assert errors_of(np.array([np.nan])).mean is None


def test_constants_begin_at_the_chips_own_values() -> None:
    found = fit(problem())
    np.testing.assert_array_equal([constant.start for constant in found.constants], own_values(CHIP, ALL))
