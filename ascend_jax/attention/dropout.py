"""Dropout of attention: the keep mask that the 950's kernel makes while it runs, and the packed mask that the 910B is handed.

The 950 draws the mask from Philox4x32 with 7 rounds (Salmon and others, "Parallel random numbers: as easy as 1, 2, 3", 2011):
the key is the seed, the counter is ``ceil(offset / 16)`` plus the number of the draw, and a draw gives 16 bytes, one per key of
the sequence. Every row of scores starts at a draw of its own, so a row takes ``ceil(S2 / 16)`` draws. A byte keeps its weight
when it is at most ``floor(keep_prob · 255)``, a product that the host takes in float32. Source:
attention/common/op_kernel/arch35/dropmask.h, op_host/arch35/flash_attention_score_tiling_regbase.cpp and
tests/pytest/test_utils.py of flash_attention_score in ops-transformer.

All of it is whole numbers of 32 bits, exact whether or not jax may use 64 bits.
"""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Pair = tuple[jax.Array, jax.Array]
"""A number of 64 bits as (low, high) words, uint32."""

Lengths = Sequence[int] | jax.Array

DRAW = 16  # bytes, and so keys, per draw
ROUNDS = 7
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
HALF = np.uint32(16)
LOW_HALF = np.uint32(0xFFFF)


def _draws(kv_len: int) -> int:
    return -(-kv_len // DRAW)


def split_words(number: int | Pair) -> Pair:
    """(low, high) of a number of 64 bits, a negative one by its two's complement; a pair passes through."""
    low, high = number if isinstance(number, tuple) else (number & 0xFFFFFFFF, number >> 32 & 0xFFFFFFFF)
    return jnp.asarray(low, jnp.uint32), jnp.asarray(high, jnp.uint32)


def _product(a: jax.Array, b: jax.Array) -> Pair:
    """(low, high) words of ``a · b``, by halves of 16 bits."""
    a_low, a_high, b_low, b_high = a & LOW_HALF, a >> HALF, b & LOW_HALF, b >> HALF
    cross, other = a_low * b_high, a_high * b_low
    middle = (a_low * b_low >> HALF) + (cross & LOW_HALF) + (other & LOW_HALF)
    return a * b, a_high * b_high + (cross >> HALF) + (other >> HALF) + (middle >> HALF)


def _sum(a: Pair, b: Pair) -> Pair:
    """(low, high) words of ``a + b`` modulo 2**64."""
    low = a[0] + b[0]
    return low, a[1] + b[1] + (low < b[0]).astype(jnp.uint32)


def philox4x32(counter: Sequence[jax.Array], key: Sequence[jax.Array], rounds: int = ROUNDS) -> tuple[jax.Array, ...]:
    """The four uint32 words that Philox4x32 draws at ``counter`` (four words, of shapes that broadcast) under ``key`` (two).

    A loop, not seven rounds in a row: XLA would fuse those into what reads the words, and draw anew for every byte of a draw.
    """

    def draw(_: jax.Array, state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        zero, one, two, three, first, second = state
        low, high = _product(zero, jnp.uint32(MULTIPLIERS[0]))
        other_low, other_high = _product(two, jnp.uint32(MULTIPLIERS[1]))
        words = other_high ^ one ^ first, other_low, high ^ three ^ second, low
        return *words, first + jnp.uint32(KEY_STEPS[0]), second + jnp.uint32(KEY_STEPS[1])

    return lax.fori_loop(0, rounds, draw, (*jnp.broadcast_arrays(*counter), *key))[:4]


def keep_limit(keep_prob: float | jax.Array) -> jax.Array:
    """The largest byte that keeps its weight, uint32.

    >>> [int(keep_limit(share)) for share in (0.8, 0.9, 1.0)]
    [204, 229, 255]
    """
    return (jnp.asarray(keep_prob).astype(jnp.float32) * jnp.float32(255)).astype(jnp.uint32)


def _first_draw(offset: int | Pair) -> Pair:
    """``ceil(offset / 16)`` as words."""
    low, high = split_words(offset)
    rest = (low & jnp.uint32(DRAW - 1) != 0).astype(jnp.uint32)
    return _sum((low >> jnp.uint32(4) | high << jnp.uint32(28), high >> jnp.uint32(4)), (rest, jnp.uint32(0)))


def keep_block(  # noqa: PLR0917 - who draws, where the block lies, and how much to keep
    seed: int | Pair,
    offset: int | Pair,
    rows: jax.Array,
    first_column: int | jax.Array,
    columns: int,
    kv_len: int | jax.Array,
    keep_prob: float | jax.Array,
) -> jax.Array:
    """The keep mask of one block of scores, as the 950's kernel draws it.

    Args:
      seed, offset: whole numbers of 64 bits, or (low, high) pairs of uint32. Both may be traced as pairs; offset ≥ 0.
      rows: uint32, of any shape; the number of each row: ``(b · N1 + n) · S1 + i`` in a dense call, ``n · S1 + i`` in a packed
        sequence, whose offset is that of `sequence_offsets`.
      first_column: the block's first key, a multiple of 16.
      columns: how many keys, a multiple of 16.
      kv_len: S2, the number of keys of a row. Keys past it get the bytes of the rows below, as in the kernel: mask them.
      keep_prob: the share of weights to keep, in (0, 1].

    Returns:
      bool [*rows.shape, columns], True where the weight is kept.
    """
    draws_per_row = jnp.asarray(kv_len).astype(jnp.uint32) + jnp.uint32(DRAW - 1) >> jnp.uint32(4)
    start = _sum(_first_draw(offset), _product(rows, draws_per_row))
    place = (jnp.asarray(first_column).astype(jnp.uint32) >> jnp.uint32(4)) + jnp.arange(columns // DRAW, dtype=jnp.uint32)
    place = place.reshape((1,) * rows.ndim + place.shape)
    low, high = _sum((start[0][..., None], start[1][..., None]), (place, jnp.uint32(0)))
    words = jnp.stack(philox4x32((low, high, jnp.uint32(0), jnp.uint32(0)), split_words(seed)), axis=-1)
    shifts = jnp.arange(0, 32, 8, dtype=jnp.uint32).reshape((1,) * words.ndim + (4,))
    drawn = (words[..., None] >> shifts) & jnp.uint32(0xFF)
    return (drawn <= keep_limit(keep_prob)).reshape(*rows.shape, columns)


def keep_mask(seed: int | Pair, offset: int | Pair, shape: Sequence[int], keep_prob: float) -> jax.Array:
    """The whole keep mask of a dense call, bool of ``shape`` [B, N1, S1, S2] (any number of dimensions before the keys)."""
    *lead, kv_len = shape
    rows = jnp.arange(math.prod(lead), dtype=jnp.uint32).reshape(tuple(lead))
    return keep_block(seed, offset, rows, 0, _draws(kv_len) * DRAW, kv_len, keep_prob)[..., :kv_len]


def sequence_offsets(offset: int | Pair, heads: int, q_lens: Lengths, kv_lens: Lengths) -> Pair:
    """The offset of each packed sequence: the one of the call plus the bytes drawn for the sequences before it.

    A sequence draws ``heads · S1 · ceil(S2 / 16) · 16`` bytes, its heads one after the other.

    Returns:
      (low, high) words, uint32 [sequences] each; ``(low[i], high[i])`` is what `keep_block` takes for sequence i.
    """
    rows, keys = (jnp.asarray(lens).astype(jnp.uint32) for lens in (q_lens, kv_lens))
    sizes = _product(rows * jnp.uint32(heads), (keys + jnp.uint32(DRAW - 1)) // jnp.uint32(DRAW) * jnp.uint32(DRAW))
    _, before = lax.scan(lambda sum_of, size: (_sum(sum_of, size), sum_of), split_words(offset), sizes)
    return before


def gen_mask_bytes(numels: int) -> int:
    """Bytes of the packed mask that the wrapper has made on the 910B for ``numels`` weights: a bit each, in units of 128 bits.

    Source: aclnnDropoutGenMaskV2 as op-plugin calls it.

    >>> gen_mask_bytes(1), gen_mask_bytes(128), gen_mask_bytes(129)
    (16, 16, 32)
    """
    return -(-numels // 128) * 16


def unpack_keep_bits(mask: jax.Array, shape: Sequence[int]) -> jax.Array:
    """A packed mask (uint8, at least ``ceil(numels / 8)`` bytes, lowest bit first) as bool of ``shape``: True keeps the weight.

    Weights follow each other without a gap between rows: bit k of byte j belongs to weight ``8 · j + k``.
    """
    numels = math.prod(shape)
    packed = jnp.ravel(mask)[: -(-numels // 8)]
    return jnp.unpackbits(packed, count=numels, bitorder="little").reshape(tuple(shape)).astype(jnp.bool_)
