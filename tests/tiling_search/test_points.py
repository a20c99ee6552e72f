"""The feasible points of a space against plain loops, and the report on what was rejected."""

from dataclasses import replace
from functools import cache
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toy_points import DEPTH, KV, Q, every_place, fits, toy

from ascend_jax import Attention, Mask, Verdict, evaluate, load_chip
from tiling_search import tune
from tiling_search.feasible import Feasible, feasible_points
from tiling_search.points import lattice_points, neighbours, ranks_of, row_points, values
from tiling_search.space import tiling_of
from tiling_search.space_report import space_report

SMALL = Attention(batch=2, q_heads=4, kv_heads=2, q_len=40, kv_len=100, head_dim=64, value_dim=64, mask=Mask(kind="causal"))


@cache
def small() -> Feasible:
    return feasible_points(replace(load_chip("310P3"), ub_bytes=30 * 1024, l1_bytes=60 * 1024), SMALL)


def test_points_are_the_feasible_ones_in_lexical_order() -> None:
    expected = [place for place in product(*(range(len(axis)) for axis in (Q, KV, DEPTH))) if fits(*at(place))]
    assert every_place().tolist() == [list(place) for place in expected]
    assert np.asarray(values(toy(), jnp.int32(5))).tolist() == list(at(expected[5]))


def at(place: tuple[int, ...]) -> tuple[float, ...]:
    return tuple(float(axis[index]) for axis, index in zip((Q, KV, DEPTH), place, strict=True))


def test_a_rank_comes_back_from_its_indices_and_nothing_else_has_one() -> None:
    everywhere = np.array(list(product(*(range(-1, len(axis) + 1) for axis in (Q, KV, DEPTH)))), np.int32)
    ranks = np.asarray(ranks_of(toy(), jnp.asarray(everywhere)))
    known = {tuple(place): rank for rank, place in enumerate(every_place().tolist())}
    assert ranks.tolist() == [known.get(tuple(place), -1) for place in everywhere.tolist()]


def test_neighbours_are_one_step_away_and_feasible() -> None:
    places = every_place()
    near = np.asarray(jax.vmap(lambda rank: neighbours(toy(), rank))(jnp.arange(toy().count, dtype=jnp.int32)))
    for rank in range(0, toy().count, 7):
        apart = np.abs(places - places[rank]).sum(axis=1)
        assert sorted(near[rank][near[rank] >= 0].tolist()) == np.flatnonzero(apart == 1).tolist()


def test_rows_with_columns_are_the_same_points_as_a_lattice() -> None:
    feasible = np.array([[[fits(q, kv, depth) for depth in DEPTH] for kv in KV] for q in Q]).reshape(len(Q), -1)
    rows = np.flatnonzero(feasible.any(axis=1))
    split = row_points(toy().names, (Q, KV, DEPTH), 1, rows, feasible[rows])
    every = jnp.arange(toy().count, dtype=jnp.int32)
    assert np.array_equal(values(split, every), values(toy(), every))
    assert np.array_equal(ranks_of(split, jnp.asarray(every_place())), every)


def test_a_space_without_feasible_points_is_refused() -> None:
    with pytest.raises(ValueError, match="no point of the space is feasible"):
        lattice_points(("a",), ((1, 2),), np.zeros(2, bool))
    with pytest.raises(ValueError, match="sizes"):
        lattice_points(("a",), ((1, 2),), np.ones(3, bool))


def test_points_of_a_chip_are_what_the_search_counts_and_their_times_its_own() -> None:
    found, result = small(), tune(small().spec, SMALL)
    assert found.points.count == result.feasible and found.space.size == result.candidates
    assert result.best is not None
    assert float(found.seconds.min()) == pytest.approx(float(result.best.report.seconds), rel=1e-5)
    for rank in range(0, found.points.count, found.points.count // 5):
        tiling = found.tiling(rank)
        report = evaluate(found.spec, SMALL, tiling)
        assert found.rank(tiling) == rank and report.occupancy.verdict == Verdict.FITS
        assert float(found.seconds[rank]) == pytest.approx(float(report.seconds), rel=1e-5)
        assert np.asarray(values(found.points, jnp.int32(rank))).tolist() == [
            float(getattr(tiling, name)) for name in found.points.names
        ]
    assert found.rank(replace(found.tiling(0), block_q=4096)) == -1


def test_the_report_counts_every_candidate_once_and_says_how_far_off() -> None:
    found, report = small(), space_report(small())
    result = tune(found.spec, SMALL)
    assert {one.verdict: one.count for one in report.rejected} == result.rejected
    assert report.feasible == result.feasible and report.share == report.feasible / report.size
    for one in report.rejected:
        memory = Verdict[one.verdict].memory
        if memory is None or one.nearest is None:
            continue
        names = found.points.names
        held = evaluate(found.spec, SMALL, tiling_of(*np.split(np.array([one.nearest[name] for name in names], float), 2)))
        asked = float(held.occupancy.used_bytes[memory] / held.occupancy.capacity_bytes[memory])
        assert one.least_over is not None and one.median_over is not None
        assert one.least_over == pytest.approx(asked - 1, rel=1e-4)
        assert 0 < one.least_over <= one.median_over
