"""The random order: a permutation of any number of points, as even as one drawn by chance."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chisquare

from tiling_search.strategies.in_order import ROUNDS, shuffled


def order(seed: int, count: int) -> np.ndarray:
    keys = jax.random.bits(jax.random.key(seed), (ROUNDS,), jnp.uint32)
    return np.asarray(shuffled(keys, jnp.arange(count, dtype=jnp.int32), count))


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 16, 17, 257, 4096, 20_431])
def test_every_point_comes_once(count: int) -> None:
    assert np.array_equal(np.sort(order(1, count)), np.arange(count))


def test_every_point_is_as_likely_at_every_place() -> None:
    keys = jax.vmap(lambda key: jax.random.bits(key, (ROUNDS,), jnp.uint32))(jax.random.split(jax.random.key(0), 20_000))
    orders = np.asarray(jax.vmap(lambda one: shuffled(one, jnp.arange(11, dtype=jnp.int32), 11))(keys))
    for place in range(11):
        assert chisquare(np.bincount(orders[:, place], minlength=11)).pvalue > 1e-4
    pairs = np.bincount(orders[:, 0] * 11 + orders[:, 1], minlength=121).reshape(11, 11)
    assert np.all(np.diag(pairs) == 0)
    assert chisquare(pairs[~np.eye(11, dtype=bool)]).pvalue > 1e-4
