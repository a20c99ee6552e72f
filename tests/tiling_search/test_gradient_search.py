"""The relaxation: equal to the exact model on the lattice, its gradient that of finite differences, its ends feasible."""

from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toy_points import RELAXED_BOWL, every_place, fits, table, toy

from ascend_jax import Attention, Tiling, load_chip
from ascend_jax._compile import SELDOM, SLOPES, quick_jit
from ascend_jax.cost.evaluate import model
from ascend_jax.rounding import SMOOTH
from tiling_search.feasible import Feasible, feasible_points
from tiling_search.points import values
from tiling_search.strategies.gradient import gradient_search, polish, relaxed_seconds
from tiling_search.strategies.relaxed import GradientParameters, best_first, block_sizes, branches, descend

WORK = Attention(batch=1, q_heads=8, kv_heads=8, q_len=512, kv_len=512, head_dim=128, value_dim=128)
HOW = GradientParameters(starts=48, steps=60)


@cache
def found() -> Feasible:
    return feasible_points(replace(load_chip("910A"), ub_bytes=128 * 1024), WORK, kernel="ub_resident")


def _value_and_slope(relaxed: Any, point: Any) -> Any:
    return jax.value_and_grad(relaxed)(point)


value_and_slope = quick_jit(_value_and_slope, static_argnums=(), wanted=SELDOM)


def test_the_relaxed_model_equals_the_exact_one_at_lattice_points() -> None:
    relaxed = relaxed_seconds(found(), jnp.float64)
    for rank in range(0, found().points.count, found().points.count // 6):
        point = values(found().points, jnp.int32(rank)).astype(jnp.float64)
        value, _ = value_and_slope(relaxed, point)
        assert float(value) == pytest.approx(float(found().seconds[rank]), rel=1e-5)


def test_its_gradient_is_that_of_the_model_without_rounding_where_nothing_is_rounded() -> None:
    """Blocks that divide the lengths: there the smooth model has the same value, and finite differences of it are the slope."""
    relaxed = relaxed_seconds(found(), jnp.float64)
    at = [name for name in found().points.names].index("block_q")
    tiling = next(
        one
        for one in map(found().tiling, range(found().points.count))
        if (one.block_q, one.block_kv) == (64, 64) and one.kv_depth == 1 and one.preload == 0
    )
    point = np.array([float(getattr(tiling, name)) for name in found().points.names])
    _, slope = value_and_slope(relaxed, jnp.asarray(point))
    step = np.where(np.arange(len(point)) == at, 1e-4, 0.0)
    smooth = SmoothSeconds(relaxed)
    low, high = (float(value_and_slope(smooth, jnp.asarray(moved))[0]) for moved in (point - step, point + step))
    assert float(slope[at]) == pytest.approx((high - low) / 2e-4, rel=1e-4) and slope[at] != 0


@jax.tree_util.register_pytree_node_class
class SmoothSeconds:
    """``RelaxedSeconds`` without any rounding."""

    def __init__(self, relaxed: Any) -> None:
        self.relaxed = relaxed

    def __call__(self, point: jax.Array) -> jax.Array:
        r = self.relaxed
        tiling = Tiling(l0_depth=jnp.full_like(point[0], 2.0), **dict(zip(r.names, point, strict=True)))
        return model(r.spec, r.given, tiling, r.kernel, r.overlap, SMOOTH).seconds

    def tree_flatten(self) -> Any:
        return (self.relaxed,), None

    @classmethod
    def tree_unflatten(cls, _: Any, children: Any) -> "SmoothSeconds":
        return cls(*children)


def test_relaxed_blocks_fit_whatever_theta_is() -> None:
    """On the toy, where what fits is a product: between lattice points interpolation may cut a corner by less than a step."""
    points, how = toy(), GradientParameters()
    given = branches(points, how.axes)
    theta = jax.random.uniform(jax.random.key(0), (64, 2), jnp.float32, -20.0, 20.0)
    for branch in range(given.others.shape[0]):
        sizes = np.asarray(jax.vmap(lambda one, at=branch: block_sizes(points, given, how, jnp.int32(at), one))(theta))
        depth = float(points.axes[2][given.others[branch, 2]])
        assert all(fits(q - 16, kv - 16, depth) for q, kv in sizes.astype(float)) and sizes.min() >= 16 - 1e-3


def test_starts_end_at_feasible_points_and_the_best_is_the_optimum_of_the_toy() -> None:
    how = GradientParameters(starts=12)
    ends = descend(toy(), branches(toy(), how.axes), how, RELAXED_BOWL, jax.random.key(1))
    ranks = best_first(ends)
    assert ranks.min() >= 0 and len(set(ranks.tolist())) == len(ranks)
    assert table()[ranks[0]] == table().min() and every_place()[ranks[0]].tolist() == [4, 5, 1]
    with pytest.raises(ValueError, match="no axis 'rows'"):
        branches(toy(), ("rows", "block_kv"))


@pytest.mark.slow
def test_ends_do_not_depend_on_how_starts_are_dealt_to_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    how = replace(HOW, starts=23)
    given = branches(toy(), how.axes)
    whole = descend(toy(), given, how, RELAXED_BOWL, jax.random.key(3))
    monkeypatch.setattr("tiling_search.strategies.relaxed.CHUNK", 5)
    parts = descend(toy(), given, how, RELAXED_BOWL, jax.random.key(3))
    assert parts.ranks.shape == (23,) and np.array_equal(parts.ranks, whole.ranks)
    np.testing.assert_allclose(np.asarray(parts.values), np.asarray(whole.values), rtol=1e-6)


@pytest.mark.slow
def test_the_options_of_gradients_change_no_gradient() -> None:
    relaxed = relaxed_seconds(found())
    ranks = jnp.arange(0, found().points.count, found().points.count // 40, dtype=jnp.int32)
    points = jax.vmap(lambda rank: values(found().points, rank))(ranks)
    fast, plain = (
        quick_jit(jax.vmap(_value_and_slope, in_axes=(None, 0)), static_argnums=(), wanted=wanted)
        for wanted in (SLOPES, SELDOM)
    )
    for one, other in zip(fast(relaxed, points), plain(relaxed, points), strict=True):
        scale = np.abs(np.asarray(other)).max(axis=-1, keepdims=True)
        assert np.all(np.abs(np.asarray(one) - np.asarray(other)) <= 1e-5 * scale) and np.all(scale > 0)


@pytest.mark.slow
def test_gradient_search_of_a_chip_is_feasible_not_better_than_all_and_within_a_percent() -> None:
    results = [gradient_search(found(), jax.random.key(seed), HOW) for seed in (0, 1)]
    best = float(found().seconds.min())
    for result in results:
        assert 0 <= result.rank < found().points.count and result.seconds == found().seconds[result.rank]
        assert best <= result.seconds <= result.snapped_seconds
        assert result.gap == result.snapped_seconds / result.relaxed_seconds - 1 and abs(result.gap) < 0.5
    assert min(result.seconds for result in results) <= 1.01 * best
    assert results[0] == gradient_search(found(), jax.random.key(0), HOW)


def test_polish_ends_where_no_neighbour_is_faster() -> None:
    rank, looked = polish(found(), found().points.count // 2)
    again, _ = polish(found(), rank)
    assert again == rank and looked > 1 and found().seconds[rank] <= found().seconds[found().points.count // 2]
