"""The dropout mask against a draw-by-draw oracle in plain Python, and Philox against its authors' known answers."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascend_jax.attention import dropout

# tests/kat_vectors of DEShawResearch/random123, the lines "philox4x32 7" and "philox4x32 10": rounds, counter, key, answer.
KNOWN = [
    (7, "00000000 00000000 00000000 00000000", "00000000 00000000", "5f6fb709 0d893f64 4f121f81 4f730a48"),
    (7, "ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "5207ddc2 45165e59 4d8ee751 8c52f662"),
    (7, "243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "4dfccaba 190a87f0 c47362ba b6b5242a"),
    (10, "243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def words(text: str) -> list[jax.Array]:
    return [jnp.uint32(int(word, 16)) for word in text.split()]


def drawn_bytes(seed: int, counter: int) -> bytes:
    """16 bytes of Philox4x32-7 by whole numbers without a limit."""
    word, key = [counter >> 32 * i & 0xFFFFFFFF for i in range(4)], [seed >> 32 * i & 0xFFFFFFFF for i in range(2)]
    for _ in range(7):
        first, second = 0xD2511F53 * word[0], 0xCD9E8D57 * word[2]
        word = [second >> 32 ^ word[1] ^ key[0], second & 0xFFFFFFFF, first >> 32 ^ word[3] ^ key[1], first & 0xFFFFFFFF]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return b"".join(number.to_bytes(4, "little") for number in word)


def kept(seed: int, offset: int, row: int, kv_len: int, keep_prob: float) -> list[bool]:
    """The keys that row ``row`` keeps."""
    draws = -(-kv_len // 16)
    start = -(-offset // 16) + row * draws
    drawn = b"".join(drawn_bytes(seed, start + i) for i in range(draws))
    return [byte <= keep_prob * 255 for byte in drawn[:kv_len]]


@pytest.mark.parametrize(("rounds", "counter", "key", "answer"), KNOWN)
def test_philox_gives_the_known_answers(rounds: int, counter: str, key: str, answer: str) -> None:
    drawn = dropout.philox4x32(words(counter), words(key), rounds)
    assert [int(word) for word in drawn] == [int(word) for word in words(answer)]


@given(
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**48),
    st.integers(0, 2**32 - 1),
    st.integers(1, 70),
    st.sampled_from([0.1, 0.8, 0.9]),
)
def test_a_block_is_what_the_draws_say(seed: int, offset: int, row: int, kv_len: int, keep_prob: float) -> None:
    block = dropout.keep_block(seed, offset, jnp.asarray([row], jnp.uint32), 0, 80, kv_len, keep_prob)
    assert block[0, :kv_len].tolist() == kept(seed, offset, row, kv_len, keep_prob)


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize(
    ("offset", "row", "kv_len"),
    [
        (2**36 - 32, 3, 64),  # the low word of the counter runs over within the rows
        (2**36 - 47, 0, 80),  # and within a row
        (16 * (2**40 + 5) + 1, 7, 33),
        (0, 2**32 - 1, 1_000_000),  # the product of row and draws per row needs 48 bits
    ],
)
def test_counters_above_32_bits(offset: int, row: int, kv_len: int, x64: bool) -> None:
    with jax.enable_x64(x64):
        first = (kv_len - 1) // 16 * 16
        block = dropout.keep_block(5, offset, jnp.asarray([row], jnp.uint32), first, 16, kv_len, 0.5)
        start = -(-offset // 16) + row * -(-kv_len // 16) + first // 16
        assert block[0].tolist() == [byte <= 127 for byte in drawn_bytes(5, start)]


def test_blocks_are_pieces_of_the_whole_mask() -> None:
    shape, seed, offset = (2, 3, 20, 72), 2**33 + 7, 1003
    whole = np.asarray(dropout.keep_mask(seed, offset, shape, 0.8))
    assert whole.shape == shape
    assert whole[1, 2, 19].tolist() == kept(seed, offset, (1 * 3 + 2) * 20 + 19, 72, 0.8)
    rows = jnp.arange(40, 120, dtype=jnp.uint32).reshape(4, 20)
    block = functools.partial(dropout.keep_block, columns=32, keep_prob=0.8)
    pairs = [(jnp.uint32(number & 0xFFFFFFFF), jnp.uint32(number >> 32)) for number in (seed, offset)]
    piece = jax.jit(block)(pairs[0], pairs[1], rows, jnp.int32(32), kv_len=jnp.int32(72))
    assert np.array_equal(piece, whole.reshape(6, 20, 72)[2:6, :, 32:64])


@pytest.mark.parametrize("keep_prob", [0.1, 0.5, 0.9, 1.0])
def test_a_weight_is_kept_with_the_probability_of_a_byte(keep_prob: float) -> None:
    """Of 256 bytes those up to floor(255 · keep_prob) keep: a little more than keep_prob, all at 1."""
    mask = np.asarray(dropout.keep_mask(1, 0, (1, 4, 256, 256), keep_prob))
    share = (int(keep_prob * 255) + 1) / 256
    assert abs(mask.mean() - share) < 5 * np.sqrt(share * (1 - share) / mask.size) + 1e-12


def test_sequences_follow_each_other() -> None:
    q_lens, kv_lens, heads, offset = [3, 0, 5, 2], [17, 9, 0, 33], 2, 2**32 - 40
    low, high = dropout.sequence_offsets(offset, heads, q_lens, kv_lens)
    first = offset + heads * 3 * 32
    assert [int(a) + 2**32 * int(b) for a, b in zip(low, high, strict=True)] == [offset, first, first, first]
    head, i = 1, 1
    block = dropout.keep_block(9, (low[3], high[3]), jnp.asarray([head * 2 + i], jnp.uint32), 0, 48, 33, 0.7)
    assert block[0, :33].tolist() == kept(9, offset, 4 + head * 2 + i, 33, 0.7)


def test_packed_bits_have_the_lowest_first_and_no_gap_between_rows() -> None:
    bits = np.random.default_rng(0).integers(0, 2, (2, 3, 5, 7))
    flat = bits.ravel()
    packed = [
        sum(int(flat[8 * j + k]) << k for k in range(8) if 8 * j + k < flat.size)
        for j in range(dropout.gen_mask_bytes(flat.size))
    ]
    assert np.array_equal(dropout.unpack_keep_bits(jnp.asarray(packed, jnp.uint8), (2, 3, 5, 7)), bits == 1)
