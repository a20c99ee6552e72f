"""Random attention calls and obvious loops over them, shared by the tests of this folder."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ascend_jax.attention.reference import reference_attention
from ascend_jax.attention.tiled import Window

FLOAT64 = jnp.dtype(jnp.float64)
_REFERENCE = jax.jit(reference_attention, static_argnames=("scale", "bias_scaled", "keep_prob", "zero_empty_rows"))


def normal(seed: int, *shape: int, dtype: jnp.dtype = FLOAT64) -> Array:
    """Standard normal numbers."""
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape)).astype(dtype)


def qkv(
    seed: int, *, batch: int = 2, heads: tuple[int, int] = (4, 2), lens: tuple[int, int], dims: tuple[int, int] = (8, 8),
    dtype: jnp.dtype = FLOAT64,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """Query, key and value of ``batch`` sequences."""
    query = normal(seed, batch, heads[0], lens[0], dims[0], dtype=dtype)
    key = normal(seed + 1, batch, heads[1], lens[1], dims[0], dtype=dtype)
    return query, key, normal(seed + 2, batch, heads[1], lens[1], dims[1], dtype=dtype)


def hidden(window: Window, q_len: int, kv_len: int) -> Array:
    """True where row i does not see key j, pair by pair."""
    seen = [[window.lower <= j - i <= window.upper or j < window.prefix for j in range(kv_len)] for i in range(q_len)]
    return jnp.asarray(~np.asarray(seen, bool).reshape(q_len, kv_len))[None, None]


def exact(call: tuple[Array, Array, Array], **options: object) -> tuple[Array, Array, Array]:
    """The reference in float64."""
    return _REFERENCE(*(x.astype(jnp.float64) for x in call), **options)  # pyright: ignore[reportArgumentType]


def blocks_by_hand(window: Window, lens: tuple[int, int], block: tuple[int, int]) -> int:
    """Blocks in which some row sees some key."""
    seen = ~np.asarray(hidden(window, *lens))[0, 0]
    starts = [range(0, length, size) for length, size in zip(lens, block, strict=True)]
    return sum(bool(seen[i : i + block[0], j : j + block[1]].any()) for i in starts[0] for j in starts[1])


def close(found: object, wanted: object, tolerance: float = 1e-12) -> None:
    """Every array of two trees is equal within ``tolerance``, absolute and relative."""
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True)
    for mine, other in pairs:
        np.testing.assert_allclose(np.asarray(mine, np.float64), np.asarray(other, np.float64), tolerance, tolerance)
