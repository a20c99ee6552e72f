"""What the tests of the fusion operator compare with: random tensors, and the rule of every sparse mode as a loop."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ascend_jax.attention.fusion.ops import npu_fusion_attention
from ascend_jax.attention.reference import reference_attention
from ascend_jax.tiling.tiling import Tiling

attention: Any = npu_fusion_attention
"""The operator, for options gathered in dictionaries, whose values a type checker cannot tell apart."""

reference: Any = jax.jit(reference_attention, static_argnames=("scale", "bias_scaled", "keep_prob", "zero_empty_rows"))
"""Plain softmax, compiled as a whole."""

SMALL = Tiling(block_q=16, block_kv=16)
BIG = 2**31 - 1


def normal(seed: int, shape: tuple[int, ...]) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape, np.float32))


def qkv(heads: tuple[int, int], lengths: tuple[int, int], batch: int = 2, d: int = 16) -> tuple[jax.Array, ...]:
    """Q, K and V in layout BNSD."""
    shapes = [(batch, heads[0], lengths[0], d), *[(batch, heads[1], lengths[1], d)] * 2]
    return tuple(normal(seed, shape) for seed, shape in enumerate(shapes))


def oracle(q: jax.Array, k: jax.Array, v: jax.Array, **options: object) -> tuple[np.ndarray, ...]:
    """Plain softmax in float64: output, maximum and sum."""
    wide = (np.asarray(x, np.float64) for x in (q, k, v))
    return tuple(np.asarray(x) for x in reference(*wide, **options))


def sees(mode: int, i: int, j: int, lens: tuple[int, int], tokens: tuple[int, int] = (BIG, BIG), prefix: int = 0) -> bool:
    """Whether row i sees key j, as the documentation of the sparse modes says it."""
    shift = lens[1] - lens[0]
    off = j - i
    if mode == 0:
        return -tokens[0] <= off <= tokens[1]
    if mode == 2:
        return off <= 0
    if mode == 3:
        return off <= shift
    if mode == 4:
        return -tokens[0] <= off - shift <= tokens[1]
    return off <= shift or j < prefix if mode in (5, 6) else True


def hidden(mode: int, lens: tuple[int, int], tokens: tuple[int, int] = (BIG, BIG), prefix: int = 0) -> np.ndarray:
    """The mask [S1, S2] of a mode: True where a key is hidden."""
    return np.array([[not sees(mode, i, j, lens, tokens, prefix) for j in range(lens[1])] for i in range(lens[0])])


def compressed(mode: int) -> jax.Array:
    """The fixed mask of a mode that has one."""
    return jnp.zeros((3072 if mode == 6 else 2048, 2048), jnp.bool_)


def close(found: jax.Array | np.ndarray, wanted: np.ndarray, tolerance: float = 2e-5) -> None:
    np.testing.assert_allclose(np.asarray(found, np.float64), wanted, rtol=tolerance, atol=tolerance)
