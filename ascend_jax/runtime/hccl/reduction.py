"""Sums in the order in which an algorithm forms them, every step rounded to the type of the data, as copy engines do.

``parts[i]`` is what rank i contributes to the piece that rank ``owner`` ends up with. Orders of ring, NHR and NB are those of
reduce_scatter_ring.cc, reduce_scatter_nhr.cc and reduce_scatter_nb.cc of hcomm (commit b5f3e5be), that of RHD is its page's.
Over a mesh the pieces come in any order on a chip; here in that of the ranks from the owner on.
"""

from collections.abc import Callable, Sequence

import numpy as np

from ascend_jax.runtime.hccl.kinds import ReduceOp

Combine = Callable[[np.ndarray, np.ndarray], np.ndarray]


def combine_with(op: ReduceOp) -> Combine:
    """The reduction of two arrays, in their type. Whole numbers wrap around."""
    functions = {ReduceOp.SUM: np.add, ReduceOp.PROD: np.multiply, ReduceOp.MAX: np.maximum, ReduceOp.MIN: np.minimum}
    function = functions[op]

    def combine(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore", invalid="ignore"):
            return function(left, right)

    return combine


def reduce_parts(algorithm: str, parts: Sequence[np.ndarray], owner: int, combine: Combine) -> np.ndarray:
    """The piece of ``owner``: of every rank's part, combined in the algorithm's order."""
    order = {"rhd": _halving, "nhr": _upwards, "nb": _downwards, "ahc": _downwards, "ring": _around, "double_ring": _around}
    return order.get(algorithm, _from_owner)(parts, owner, combine)


def _around(parts: Sequence[np.ndarray], owner: int, combine: Combine) -> np.ndarray:
    """Ring: from the owner's right neighbour once around."""
    p = len(parts)
    total = parts[(owner + 1) % p]
    for step in range(2, p + 1):
        total = combine(total, parts[(owner + step) % p])
    return total


def _from_owner(parts: Sequence[np.ndarray], owner: int, combine: Combine) -> np.ndarray:
    p = len(parts)
    total = parts[owner]
    for step in range(1, p):
        total = combine(total, parts[(owner + step) % p])
    return total


def _halving(parts: Sequence[np.ndarray], owner: int, combine: Combine) -> np.ndarray:
    """RHD: the first 2r ranks merge in pairs, then partners at half the distance each time. The same for every owner."""
    del owner
    p, block = len(parts), 1 << (len(parts).bit_length() - 1)
    extra = p - block
    merged = [combine(parts[2 * i], parts[2 * i + 1]) for i in range(extra)] + list(parts[2 * extra :])
    while len(merged) > 1:
        half = len(merged) // 2
        merged = [combine(merged[i], merged[i + half]) for i in range(half)]
    return merged[0]


def _upwards(parts: Sequence[np.ndarray], owner: int, combine: Combine) -> np.ndarray:
    """NHR: in step k a partial sum goes 2^k ranks down."""
    return _tree([parts[(owner + distance) % len(parts)] for distance in range(len(parts))], combine)


def _downwards(parts: Sequence[np.ndarray], owner: int, combine: Combine) -> np.ndarray:
    """NB: in step k a partial sum goes 2^k ranks up."""
    return _tree([parts[(owner - distance) % len(parts)] for distance in range(len(parts))], combine)


def _tree(by_distance: list[np.ndarray], combine: Combine) -> np.ndarray:
    """Binomial tree: what is an odd multiple of 2^k away joins what is 2^k nearer."""
    step = 1
    while step < len(by_distance):
        for distance in range(step, len(by_distance), 2 * step):
            by_distance[distance - step] = combine(by_distance[distance - step], by_distance[distance])
        step *= 2
    return by_distance[0]
