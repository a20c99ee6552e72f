"""Moves drawn from packed words are distributed as their docstrings say, and stay among the feasible points."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from toy_points import every_place, toy

from tiling_search.points import indices, lattice_points
from tiling_search.strategies.evolution import Evolution, Population
from tiling_search.strategies.moves import MOST_AXES, crossed, mixture_words, moved_each, pick, steps, uniform

DRAWS = 40_000
WIDE = lattice_points("abcd", (range(64), range(9), range(1), range(3)), np.ones((64, 9, 1, 3), bool))
"""Four axes, one of which has a single value."""


def words(*shape: int) -> jax.Array:
    return random.bits(random.key(0), shape, jnp.uint32)


def near(found: float | np.ndarray, expected: float, deviation: float, draws: int = DRAWS) -> bool:
    """Within four standard errors."""
    return bool(np.all(np.abs(np.asarray(found) - expected) <= 4 * deviation / np.sqrt(draws)))


def test_numbers_are_uniform_and_parts_of_a_word_independent() -> None:
    drawn = words(DRAWS)
    low, high = np.asarray(uniform(drawn, 0, 8), np.float64), np.asarray(uniform(drawn, 8, 23), np.float64)
    for one in (low, high):
        assert one.min() > 0 and one.max() < 1 and near(one.mean(), 0.5, 12**-0.5)
    assert near(np.corrcoef(low, high)[0, 1], 0.0, 1.0)
    shares = np.bincount(np.asarray(pick(drawn, 24, 8, 4)), minlength=4) / DRAWS
    assert len(shares) == 4 and near(shares, 0.25, (0.25 * 0.75) ** 0.5)
    assert int(pick(jnp.full(1, 2**32 - 1, jnp.uint32), 16, 16, 5)[0]) == 4 and float(uniform(drawn * 0, 9, 23)[0]) > 0


def plainly_drawn() -> np.ndarray:
    """Steps ``[DRAWS, 4]`` by the words of the docstring, with numpy's own distributions."""
    draw = np.random.default_rng(0)
    found = np.zeros((DRAWS, 4), int)
    for row, count in zip(found, draw.choice([1, 2, 3], DRAWS, p=[0.5, 0.4, 0.1]), strict=True):
        for axis in draw.choice([0, 1, 3], count):
            row[axis] += draw.geometric(1 / max(WIDE.shape[axis] * 0.06, 1.001)) * draw.choice([-1, 1])
    return found


def test_steps_change_one_axis_or_a_few_both_ways_by_geometric_lengths() -> None:
    found, expected = np.asarray(steps(WIDE, words(DRAWS, MOST_AXES), 0.06)), plainly_drawn()
    assert found.shape == (DRAWS, 4) and not found[:, 2].any()
    for count in range(4):
        assert near(((found != 0).sum(axis=1) == count).mean(), ((expected != 0).sum(axis=1) == count).mean(), 0.7)
    for axis in (0, 1, 3):
        for step in range(-6, 7):
            assert near((found[:, axis] == step).mean(), (expected[:, axis] == step).mean(), 0.7)
    longer = np.abs(found[:, 0]) > 12
    assert near(longer.mean(), (np.abs(expected[:, 0]) > 12).mean(), 0.3)


def test_moves_and_mixtures_land_on_feasible_points_or_nowhere() -> None:
    ranks = jnp.arange(toy().count, dtype=jnp.int32)
    near_by = np.asarray(moved_each(toy(), random.key(1), ranks, 8, 0.06))
    assert near_by.shape == (toy().count, 8) and near_by.min() == -1 and near_by.max() < toy().count
    assert len(set(near_by[near_by >= 0])) > 0.95 * toy().count
    one, other = ranks[:-1], ranks[1:][::-1]
    mixed = np.asarray(crossed(toy(), words(toy().count - 1, mixture_words(toy())), one, other))
    kept = np.flatnonzero(mixed >= 0)
    places, here, there = (every_place()[np.asarray(which)[kept]] for which in (mixed, one, other))
    assert np.all((places == here) | (places == there)) and len(places) > 100
    differ = here != there
    assert np.any((places == here) & differ) and np.any((places == there) & differ)


def test_a_mixture_of_more_axes_than_a_word_has_bits_takes_each_from_either_parent() -> None:
    shape = (2,) * 3 + (1,) * 34
    many = lattice_points([f"a{at}" for at in range(37)], [range(size) for size in shape[::-1]], np.ones(shape[::-1], bool))
    assert mixture_words(many) == 2
    mixed = crossed(many, words(DRAWS, 2), jnp.int32(0), jnp.int32(many.count - 1))
    assert near(np.asarray(indices(many, mixed))[:, -3:].mean(axis=0), 0.5, 0.5)


def test_the_best_survive_failures_before_nobody_and_of_equals_the_older() -> None:
    evolution = Evolution(batch=3, size=4)
    state = evolution.init(toy(), random.key(0))

    def tell(state: Population, ranks: list[int], values: list[float]) -> Population:
        return evolution.tell(toy(), state, jnp.array(ranks, jnp.int32), jnp.array(values, jnp.float32))

    state = tell(state, [5, -1, 7], [np.inf, 0.0, 2.0])  # the value of no point says nothing
    assert state.ranks.tolist() == [7, 5, -1, -1] and state.values.tolist() == [2.0, np.inf, np.inf, np.inf]
    state = tell(state, [1, 2, 3], [2.0, 3.0, 1.0])
    assert state.ranks.tolist() == [3, 7, 1, 2]
