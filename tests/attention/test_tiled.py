"""Blockwise attention equals plain softmax, and computes no block that no row needs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from ascend_jax import Mask
from ascend_jax.attention.tiled import Extras, Packed, Settings, Used, Window, tiled_attention
from ascend_jax.workload.blocks import total_counts
from tests.attention.attention_cases import blocks_by_hand, close, exact, hidden, normal, qkv

WINDOWS = {
    "full": Window(),
    "causal": Window(upper=0),
    "right-down": Window(upper=16),
    "rows without keys": Window(upper=-9),
    "band": Window(-7, 3),
    "band off the diagonal": Window(10, 20),
    "prefix": Window(upper=-5, prefix=9),
    "nothing": Window(5, 4),
}
LENS = {"less": (37, 53), "equal": (48, 48), "more": (53, 21)}
CUT = Settings(scale=0.3, block_q=16, block_kv=16, zero_empty_rows=True)


@pytest.mark.parametrize("lens", LENS.values(), ids=LENS)
@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
def test_equals_plain_softmax(window: Window, lens: tuple[int, int]) -> None:
    call = qkv(0, lens=lens)
    found = tiled_attention(*call, window, CUT)
    close(found[:3], exact(call, scale=0.3, masked=hidden(window, *lens), zero_empty_rows=True))
    assert int(found.blocks.sum()) == found.blocks.shape[0] * found.blocks.shape[1] * blocks_by_hand(window, lens, (16, 16))


@pytest.mark.parametrize("mask", ["none", "causal", "left-up-causal", "band:20,-3", "band:-4,30", "prefix:21"])
@pytest.mark.parametrize("block", [(16, 32), (48, 16), (17, 16)])
def test_computes_as_many_blocks_as_the_closed_form_says(mask: str, block: tuple[int, int]) -> None:
    lens, settings = (70, 101), Settings(block_q=block[0], block_kv=block[1])
    bounds = Mask.parse(mask).bounds(*(jnp.asarray(float(x)) for x in lens))
    window = Window(*(int(side) for side in bounds))
    found = tiled_attention(*qkv(0, batch=1, heads=(1, 1), lens=lens), window, settings)
    q_len, kv_len, block_q, block_kv = (jnp.asarray(float(x)) for x in (*lens, *block))
    counts = total_counts(Mask.parse(mask), q_len, kv_len, block_q, block_kv)
    assert int(found.blocks.sum()) == int(counts.computed)


@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
def test_skipping_changes_no_number(window: Window) -> None:
    """A block that is computed although it is masked adds nothing: what is left is float64's rounding of one order of sums."""
    call = qkv(3, lens=(53, 53))
    masked = Extras(masked=hidden(window, 53, 53))
    close(tiled_attention(*call, window, CUT)[:3], tiled_attention(*call, settings=CUT, extras=masked)[:3], 1e-14)


def test_a_masked_row_is_the_mean_of_the_keys_of_its_computed_blocks() -> None:
    """Without invalid-line mode the kernel sees only lowest scores, all alike, in the blocks that it computes."""
    query, key, value = qkv(4, lens=(32, 64))
    masked = jnp.zeros((1, 1, 32, 64), bool).at[:, :, 5].set(True)
    found = tiled_attention(query, key, value, Window(upper=0), Settings(block_q=16, block_kv=16), extras=Extras(masked=masked))
    mean = jnp.repeat(value[:, :, :16].mean(axis=2), 2, axis=1)
    close(found.out[:, :, 5], mean)
    assert np.all(found.softmax_max[:, :, 5] == np.finfo(np.float64).min) and np.all(found.softmax_sum[:, :, 5] == 16)


@pytest.mark.parametrize("shape", [(2, 4, 37, 53), (1, 4, 1, 53), (2, 1, 37, 53), (1, 1, 1, 53)], ids=str)
@pytest.mark.parametrize("pse_type", [0, 1])
def test_bias_before_and_after_the_scale(shape: tuple[int, ...], pse_type: int) -> None:
    call, bias = qkv(5, lens=(37, 53)), normal(9, *shape)
    settings = Settings(scale=0.3, block_q=16, block_kv=32, pse_type=pse_type)
    found = tiled_attention(*call, settings=settings, extras=Extras(bias=bias))
    close(found[:3], exact(call, scale=0.3, bias=bias, bias_scaled=pse_type == 1))


@pytest.mark.parametrize("pse_type", [2, 3])
def test_alibi_in_the_kernel(pse_type: int) -> None:
    call, slopes = qkv(6, lens=(37, 37)), jnp.abs(normal(7, 2, 4)).astype(jnp.float32)
    bias = np.empty((2, 4, 37, 37))
    for b, n, i, j in np.ndindex(bias.shape):
        far = abs(j - i - 3 + 1)
        bias[b, n, i, j] = -float(slopes[b, n]) * (far if pse_type == 2 else far**0.5)
    settings = Settings(scale=0.3, block_q=16, block_kv=16, pse_type=pse_type, alibi_shift=3 - 1)
    found = tiled_attention(*call, Window(upper=0), settings, extras=Extras(slopes=slopes))
    wanted = exact(call, scale=0.3, bias=jnp.asarray(bias), bias_scaled=False, masked=hidden(Window(upper=0), 37, 37))
    close(found[:3], wanted)


def test_sink_takes_its_share() -> None:
    call, sink = qkv(8, lens=(37, 53)), normal(1, 4)
    found = tiled_attention(*call, Window(upper=0), CUT, extras=Extras(sink=sink))
    close(found[:3], exact(call, scale=0.3, sink=sink, masked=hidden(Window(upper=0), 37, 53)))


def test_dropout_keeps_what_it_is_told() -> None:
    call, keep = qkv(10, lens=(37, 53)), normal(2, 2, 4, 37, 53) > 0.5
    settings = Settings(scale=0.3, block_q=16, block_kv=16, keep_prob=0.7)
    found = tiled_attention(*call, settings=settings, extras=Extras(keep=keep))
    close(found[:3], exact(call, scale=0.3, keep=keep, keep_prob=0.7))


@pytest.mark.parametrize("dim", [(16, 16), (59, 59), (72, 72), (177, 177), (192, 128), (200, 200), (768, 768)], ids=str)
def test_head_dims(dim: tuple[int, int]) -> None:
    call = qkv(11, batch=1, heads=(2, 1), lens=(40, 40), dims=dim)
    close(tiled_attention(*call, settings=Settings(scale=0.1, block_q=16, block_kv=16))[:3], exact(call, scale=0.1))


@pytest.mark.parametrize("kv_len", [1, 512, 513, 1024, 1025, 1040])
def test_one_row_over_many_keys(kv_len: int) -> None:
    call = qkv(12, batch=1, heads=(4, 1), lens=(1, kv_len))
    close(tiled_attention(*call)[:3], exact(call))


def test_lengths_that_a_batch_uses() -> None:
    """Rows and keys past them do not exist, whatever stands there: also where the lengths are known only at run time."""
    query, key, value = qkv(13, batch=3, lens=(37, 53))
    q_lens, kv_lens = np.array([37, 5, 0]), np.array([20, 53, 7])
    key, value = key.at[0, :, 20:].set(jnp.nan), value.at[0, :, 20:].set(jnp.inf)

    @jax.jit
    def run(q_lens: Array, kv_lens: Array) -> Array:
        return tiled_attention(query, key, value, Window(upper=0), CUT, lengths=Used(q_lens, kv_lens)).out

    found = run(jnp.asarray(q_lens), jnp.asarray(kv_lens))
    for b, (rows, keys) in enumerate(zip(q_lens, kv_lens, strict=True)):
        part = (query[b : b + 1, :, :rows], key[b : b + 1, :, :keys], value[b : b + 1, :, :keys])
        close(found[b : b + 1, :, :rows], exact(part, scale=0.3, masked=hidden(Window(upper=0), rows, keys))[0])
        assert not np.any(found[b, :, rows:])


def test_packed_sequences_equal_one_call_each() -> None:
    """With empty sequences, other lengths for Q and K/V, gaps between them and tokens of none."""
    packed = Packed((0, 9, 9, 30, 31), (9, 0, 20, 1, 17), (0, 30, 35, 60, 60), (28, 5, 25, 0, 40))
    query, key, value = qkv(14, batch=1, lens=(50, 104))
    shift = np.array([k - q for q, k in zip(packed.q_lens, packed.kv_lens, strict=True)])
    found = tiled_attention(query, key, value, Window(upper=shift), CUT, lengths=packed)
    wanted = [np.zeros(x.shape) for x in found[:3]]
    for number, (q0, rows, k0, keys) in enumerate(
        zip(packed.q_starts, packed.q_lens, packed.kv_starts, packed.kv_lens, strict=True)
    ):
        if rows and keys:
            part = (query[:, :, q0 : q0 + rows], key[:, :, k0 : k0 + keys], value[:, :, k0 : k0 + keys])
            masked = hidden(Window(upper=int(shift[number])), rows, keys)
            for whole, piece in zip(wanted, exact(part, scale=0.3, masked=masked, zero_empty_rows=True), strict=True):
                whole[:, :, q0 : q0 + rows] = piece
    close(found[:3], wanted)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_half_precision_rounds_p_and_nothing_else(dtype: jnp.dtype) -> None:
    """Where that is asked for. Block by block in numpy: products of rounded inputs in float32, P rounded before P·V."""
    query, key, value = qkv(15, batch=1, heads=(1, 1), lens=(16, 48), dtype=jnp.dtype(dtype))
    found = tiled_attention(query, key, value, settings=Settings(scale=0.4, block_q=16, block_kv=16, round_probs=True))
    q, k, v = (np.asarray(x[0, 0], np.float32) for x in (query, key, value))
    top, total, out = np.full(16, -np.inf, np.float32), np.zeros(16, np.float32), np.zeros((16, 8), np.float32)
    for j in range(0, 48, 16):
        scores = q @ k[j : j + 16].T * np.float32(0.4)
        new = np.maximum(top, scores.max(axis=1))
        probs, shrink = np.exp(scores - new[:, None]), np.exp(top - new)
        out = out * shrink[:, None] + probs.astype(dtype).astype(np.float32) @ v[j : j + 16]
        top, total = new, total * shrink + probs.sum(axis=1)
    close(found.out[0, 0], (out / total[:, None]).astype(dtype), 2e-3 if dtype == jnp.float16 else 1.6e-2)
    unrounded = tiled_attention(query, key, value, settings=Settings(scale=0.4, block_q=16, block_kv=16))
    close((found.softmax_max[0, 0], found.softmax_sum[0, 0]), (top, total), 1e-6)
    assert np.any(found.out != unrounded.out)


def test_huge_scores_overflow_nowhere() -> None:
    query, key, value = qkv(16, lens=(20, 40), dtype=jnp.dtype(jnp.float32))
    found = tiled_attention(query * 1e4, key * 1e4, value, Window(upper=0), CUT)
    close(found.out, exact((query * 1e4, key * 1e4, value), scale=0.3, masked=hidden(Window(upper=0), 20, 40))[0], 1e-5)
