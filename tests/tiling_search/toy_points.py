"""Spaces without a chip: a separable bowl over a constrained lattice, with its optimum known by construction."""

from functools import cache

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.tree_util import Partial

from tiling_search.points import Points, indices, lattice_points, values

NAMES = ("block_q", "block_kv", "depth")
Q, KV, DEPTH = (tuple(range(16, 193, 16)), tuple(range(16, 257, 16)), (1, 2, 3))
ROOM = 40_000
BEST = (80, 96, 2)


def fits(q: float, kv: float, depth: float) -> bool:
    return (q + 40) * (kv + 40) * depth <= ROOM


@cache
def toy() -> Points:
    """Blocks whose product with the depth is limited, as memory limits them."""
    feasible = np.array([[[fits(q, kv, depth) for depth in DEPTH] for kv in KV] for q in Q])
    return lattice_points(NAMES, (Q, KV, DEPTH), feasible)


def bowl(point: Array) -> Array:
    """Separable, with its least value, 1, at ``BEST``."""
    q, kv, depth = point[..., 0], point[..., 1], point[..., 2]
    away = jnp.log2(q / BEST[0]) ** 2 + jnp.log2(kv / BEST[1]) ** 2 + (depth - BEST[2]) ** 2
    return 1 + away


RELAXED_BOWL = Partial(bowl)


@cache
def table() -> np.ndarray:
    """The bowl at every point of :func:`toy`, float32 ``[P]``."""
    return np.asarray(bowl(values(toy(), jnp.arange(toy().count, dtype=jnp.int32))), np.float32)


def every_place() -> np.ndarray:
    """Indices of every point, ``[P, 3]``."""
    return np.asarray(indices(toy(), jnp.arange(toy().count, dtype=jnp.int32)))
