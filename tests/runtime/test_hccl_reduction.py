"""Sums in the order of the algorithms: against messages passed one by one, and against sums in float64."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import pytest

from ascend_jax.runtime.hccl import movement
from ascend_jax.runtime.hccl.choice import read_algo
from ascend_jax.runtime.hccl.constants import load_constants
from ascend_jax.runtime.hccl.kinds import ReduceOp
from ascend_jax.runtime.hccl.plan import Topology, make_plan
from ascend_jax.runtime.hccl.reduction import combine_with, reduce_parts

ALGORITHMS = ("ring", "double_ring", "mesh", "rhd", "nhr", "nb")
CONSTANTS = load_constants("Ascend910B3")
ADD = combine_with(ReduceOp.SUM)


def random_parts(p: int, dtype: type = np.float16, size: int = 16) -> list[np.ndarray]:
    rng = np.random.default_rng(p)
    return list((rng.standard_normal((p, size)) * 100).astype(dtype))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("p", range(1, 10))
def test_every_rank_counts_once(algorithm: str, p: int) -> None:
    parts = [np.array([10**rank], np.int64) for rank in range(p)]
    for owner in range(p):
        assert reduce_parts(algorithm, parts, owner, ADD).tolist() == [sum(10**rank for rank in range(p))]


@pytest.mark.parametrize("p", range(2, 9))
def test_the_ring_adds_what_it_hands_on(p: int) -> None:
    """Messages passed one by one: rank r sends piece r - 1 to its right in the first step, then what it has just received."""
    parts = random_parts(p * p, size=4)
    data = [[parts[rank * p + piece].copy() for piece in range(p)] for rank in range(p)]
    for step in range(p - 1):
        sent = {rank: ((rank - 1 - step) % p, data[rank][(rank - 1 - step) % p].copy()) for rank in range(p)}
        for rank, (piece, values) in sent.items():
            right = (rank + 1) % p
            data[right][piece] = data[right][piece] + values
    for owner in range(p):
        mine = [parts[rank * p + owner] for rank in range(p)]
        assert reduce_parts("ring", mine, owner, ADD).tobytes() == data[owner][owner].tobytes()


@pytest.mark.parametrize(("algorithm", "direction"), [("nhr", -1), ("nb", 1)])
@pytest.mark.parametrize("p", range(2, 12))
def test_bruck_adds_what_it_hands_on(algorithm: str, direction: int, p: int) -> None:
    """In step k what is an odd multiple of 2^k away from its owner goes 2^k towards it and is added there."""
    parts = random_parts(p, size=4)
    for owner in range(p):
        held = {rank: parts[rank] for rank in range(p)}
        step = 1
        while step < p:
            for rank in [r for r in held if direction * (owner - r) % p % (2 * step) == step]:
                target = (rank + direction * step) % p
                held[target] = held[target] + held.pop(rank)
            step *= 2
        assert list(held) == [owner]
        assert reduce_parts(algorithm, parts, owner, ADD).tobytes() == held[owner].tobytes()


@pytest.mark.parametrize("p", range(2, 13))
def test_halving_adds_what_partners_exchange(p: int) -> None:
    """The first 2r ranks merge in pairs; then partners at half the distance each time exchange and add."""
    parts = random_parts(p, size=4)
    block = 2 ** (p.bit_length() - 1)
    held = [parts[2 * i] + parts[2 * i + 1] for i in range(p - block)] + parts[2 * (p - block) :]
    distance = block // 2
    while distance:
        held = [held[rank] + held[rank ^ distance] for rank in range(block)]
        distance //= 2
    assert len({one.tobytes() for one in held}) == 1  # all have the same sum, to the last bit
    for owner in range(p):
        assert reduce_parts("rhd", parts, owner, ADD).tobytes() == held[0].tobytes()


@pytest.mark.parametrize("dtype", [np.float16, jnp.bfloat16, np.float32])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_sums_are_rounded_to_the_type_at_each_step(algorithm: str, dtype: type) -> None:
    parts = random_parts(7, dtype)
    found = reduce_parts(algorithm, parts, 2, ADD)
    exact = np.sum([part.astype(np.float64) for part in parts], axis=0)
    scale = np.sum([np.abs(part.astype(np.float64)) for part in parts], axis=0)
    assert found.dtype == np.dtype(dtype)
    assert np.all(np.abs(found.astype(np.float64) - exact) <= 6 * float(jnp.finfo(dtype).eps) * scale)


def test_orders_differ_where_rounding_shows() -> None:
    parts = random_parts(8)
    assert len({reduce_parts(algorithm, parts, 1, ADD).tobytes() for algorithm in ("ring", "rhd", "nhr", "nb")}) == 4


@pytest.mark.parametrize(("op", "function"), [("PROD", np.prod), ("MAX", np.max), ("MIN", np.min), ("SUM", np.sum)])
def test_operations(op: str, function: Callable[..., np.ndarray]) -> None:
    parts = [np.array(row, np.int32) for row in ((1, -2, 30000), (3, 4, 40000), (-5, 6, 50000))]
    expected = function(np.array(parts, np.int64), axis=0).astype(np.int32)  # whole numbers wrap around
    for algorithm in ALGORITHMS:
        assert reduce_parts(algorithm, parts, 0, combine_with(ReduceOp[op])).tolist() == expected.tolist()


@pytest.mark.parametrize(("ranks", "per_server"), [(1, 8), (4, 8), (6, 3), (8, 2), (8, 1), (5, 3)])
@pytest.mark.parametrize("level1", ["ring", "H-D_R", "NHR", "NB", "pipeline"])
def test_all_reduce_and_reduce_scatter_over_servers(ranks: int, per_server: int, level1: str) -> None:
    topology, count = Topology.even(ranks, per_server), 7 * ranks
    rng = np.random.default_rng(ranks)
    inputs = list(rng.integers(-1000, 1000, (ranks, count), dtype=np.int64))
    asked = read_algo(f"level1:{level1}")
    expected = np.sum(inputs, axis=0)
    plan = make_plan("all_reduce", count * 8, topology, CONSTANTS, asked)
    for output in movement.all_reduce(inputs, ReduceOp.SUM, plan, topology):
        assert output is not None and np.array_equal(output, expected)
    outputs = movement.reduce(inputs, ReduceOp.SUM, plan, topology, ranks - 1)
    assert [one is not None for one in outputs] == [rank == ranks - 1 for rank in range(ranks)]
    plan = make_plan("reduce_scatter", count * 8, topology, CONSTANTS, asked)
    scattered = movement.reduce_scatter(inputs, ReduceOp.SUM, plan, topology)
    assert np.array_equal(np.concatenate([one for one in scattered if one is not None]), expected)


def test_fewer_elements_than_ranks() -> None:
    topology = Topology.even(6, 2)
    plan = make_plan("all_reduce", 24, topology, CONSTANTS, read_algo(""))
    inputs = [np.array([rank, 1, 2], np.int32) for rank in range(6)]
    assert movement.reduced(inputs, ReduceOp.SUM, plan, topology).tolist() == [15, 6, 12]
