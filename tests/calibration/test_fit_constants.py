"""Constants of a chip: where they sit, their bounds, and that every number of a chip can be reached and differentiated."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toy_model import ALL, CHIP, GM, SLOPES, TRUTH

from ascend_jax.calibration.constants import (
    FIELDS,
    Constant,
    bounds,
    own_values,
    shared_constants,
    usual_constants,
    with_constants,
)
from ascend_jax.hardware import chip_names, load_chip


def make(field: str, **other: float | bool) -> Constant:
    given = {"lower": 0.5, "upper": 8.0, "prior": 2.0, "prior_log_std": 0.3}
    return Constant(name=field, field=field, **(given | other))  # pyright: ignore[reportArgumentType]


def test_only_the_fields_of_the_constants_change() -> None:
    changed = with_constants(CHIP, ALL, TRUTH)
    vector = {name: cost * (1 if name in ("head", "tail") else 1.7) for name, cost in vars(CHIP.vector).items()}
    expected = replace(CHIP, gm_bytes_per_s=1.2e12, launch_s=20e-6, vector=replace(CHIP.vector, **vector))
    assert changed == expected


def test_a_slope_of_its_own_is_not_scaled_with_the_others() -> None:
    changed = with_constants(CHIP, (make("vector.exp"), SLOPES), np.array([7.0, 3.0]))
    assert (changed.vector.exp, changed.vector.divide, changed.vector.head) == (
        7.0,
        3.0 * CHIP.vector.divide,
        CHIP.vector.head,
    )


def test_a_relative_constant_multiplies_each_chips_own_number() -> None:
    shared = make("gm_bytes_per_s", relative=True)
    for name in ("910b3", "950pr"):
        chip = load_chip(name)
        assert with_constants(chip, (shared,), np.array([0.5])).gm_bytes_per_s == 0.5 * chip.gm_bytes_per_s
        assert own_values(chip, (shared,)) == [1.0]


def test_the_spec_is_differentiable_by_the_constants() -> None:
    def total(values: jax.Array) -> jax.Array:
        spec = with_constants(CHIP, (GM, make("vector.exp"), SLOPES), values)
        return spec.gm_bytes_per_s / 1e12 + spec.vector.exp * 10 + spec.vector.divide * 100

    gradient = jax.grad(total)(jnp.array([1.6e12, 2.0, 1.0]))
    np.testing.assert_allclose(gradient, [1e-12, 10, 100 * CHIP.vector.divide])


def test_values_stay_between_the_bounds_and_come_back() -> None:
    between = bounds(ALL)
    for number in np.linspace(-40, 40, 9):
        values = np.exp(between.logs(np.full(len(ALL), number)))
        assert all(c.lower * (1 - 1e-9) <= value <= c.upper * (1 + 1e-9) for c, value in zip(ALL, values, strict=True))
    np.testing.assert_allclose(np.exp(between.logs(between.theta(np.log(TRUTH)))), TRUTH, rtol=1e-12)


def test_the_middle_of_the_bounds_is_their_geometric_mean() -> None:
    np.testing.assert_allclose(np.exp(bounds((GM,)).logs(np.zeros(1))), [np.sqrt(GM.lower * GM.upper)])


def test_the_slope_of_the_sigmoid_is_that_of_finite_differences() -> None:
    between, theta, step = bounds(ALL), np.array([-2.0, 0.3, 5.0]), 1e-6
    slope = (between.logs(theta + step) - between.logs(theta - step)) / (2 * step)
    np.testing.assert_allclose(between.slope(theta), slope, rtol=1e-6)


@pytest.mark.parametrize("name", chip_names())
def test_the_usual_constants_of_every_chip_begin_at_its_own_numbers(name: str) -> None:
    chip = load_chip(name)
    constants = usual_constants(chip)
    unchanged = with_constants(chip, constants, own_values(chip, constants))
    assert unchanged == chip
    assert all(getattr(chip, constant.field) for constant in constants if constant.field != "vector")


def test_shared_constants_are_factors_on_the_numbers_of_every_chip() -> None:
    chips = [load_chip(name) for name in ("910b2", "910b4", "910_9382")]
    constants = shared_constants(chips)
    assert [constant.field for constant in constants] == [constant.field for constant in usual_constants(chips[0])]
    for chip in chips:
        np.testing.assert_array_equal(own_values(chip, constants), np.ones(len(constants)))
        assert with_constants(chip, constants, np.full(len(constants), 0.5)).launch_s == 0.5 * chip.launch_s
    without = replace(chips[1], l0c_to_gm_bytes_per_s=None)
    assert len(shared_constants([chips[0], without])) == len(constants) - 1


def test_what_a_chip_lacks_is_no_usual_constant() -> None:
    chip = replace(CHIP, l0c_to_gm_bytes_per_s=None, task_s=0.0)
    names = {constant.field for constant in usual_constants(chip)}
    assert not names & {"l0c_to_gm_bytes_per_s", "task_s"}
    with pytest.raises(ValueError, match="has no l0c_to_gm_bytes_per_s: leave this constant out"):
        own_values(chip, (make("l0c_to_gm_bytes_per_s"),))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"field": "gm_speed"}, "no number 'gm_speed'"),
        ({"field": "name"}, "no number 'name'"),
        ({"lower": 0.0}, "above zero"),
        ({"upper": 0.1}, "in order"),
        ({"prior": 9e12}, "must lie between"),
        ({"prior_log_std": 0.0}, "prior_log_std=0.0"),
    ],
)
def test_a_constant_that_cannot_be_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(GM, **change)  # pyright: ignore[reportArgumentType]


def test_a_start_outside_the_bounds_and_a_field_twice_are_refused() -> None:
    with pytest.raises(ValueError, match="widen them"):
        own_values(replace(CHIP, gm_bytes_per_s=9e12), (GM,))
    with pytest.raises(ValueError, match="two constants for one field"):
        with_constants(CHIP, (GM, GM), np.ones(2))


def test_every_number_of_a_chip_is_a_field() -> None:
    assert {"gm_bytes_per_s", "vector.exp", "vector", "cube_clock_hz"} <= set(FIELDS)
    assert len(FIELDS) == len(jax.tree.leaves(load_chip("950pr"))) + 1 + FIELDS.count("l0c_to_gm_bytes_per_s") - 1
