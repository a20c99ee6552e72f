"""Gradients of the blockwise attention: those of plain softmax in float64, and of small steps."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from jax.test_util import check_grads

from ascend_jax.attention.dropout import keep_mask
from ascend_jax.attention.tiled import Attended, Extras, Packed, Settings, Used, Window, tiled_attention, tiled_backward
from tests.attention.attention_cases import close, exact, hidden, normal, qkv

CUT = Settings(scale=0.3, block_q=16, block_kv=16, zero_empty_rows=True)
LENS = (37, 53)
WINDOWS = {
    "full": Window(),
    "causal": Window(upper=0),
    "rows without keys": Window(upper=-9),
    "band": Window(-7, 3),
    "prefix": Window(upper=-5, prefix=9),
}


def total(weights: Array, answer: Callable[..., tuple[Array, Array, Array]]) -> Callable[..., Array]:
    """A number that depends on every output, and on the statistics through ``max + log(sum)``."""

    def number(*inputs: Array) -> Array:
        out, top, summed = answer(*inputs)
        some = (summed > 0) & (summed < 1e300)
        lse = jnp.where(some, top + jnp.log(jnp.where(some, summed, 1.0)), 0.0)
        return jnp.sum(out * weights[..., :8]) + jnp.sum(lse * weights[..., 8])

    return number


def same_gradients(
    tiled: Callable[..., Attended], plain: Callable[..., tuple[Array, Array, Array]], inputs: tuple[Array, ...]
) -> None:
    weights, which = normal(99, *inputs[0].shape[:3], 9), tuple(range(len(inputs)))
    mine = jax.grad(total(weights, lambda *x: tiled(*x)[:3]), which)(*inputs)
    close(mine, jax.grad(total(weights, plain), which)(*inputs), 1e-11)


@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
@pytest.mark.parametrize("lens", [LENS, (53, 21)], ids=str)
def test_equal_those_of_plain_softmax(window: Window, lens: tuple[int, int]) -> None:
    masked = hidden(window, *lens)
    same_gradients(
        lambda *x: tiled_attention(*x, window=window, settings=CUT),
        lambda *x: exact(x, scale=0.3, masked=masked, zero_empty_rows=True),
        qkv(20, lens=lens),
    )


@pytest.mark.parametrize(
    ("shape", "pse_type"), [((2, 4, *LENS), 0), ((1, 4, 1, 53), 1), ((2, 1, *LENS), 1), ((1, 1, 1, 53), 0)], ids=str
)
def test_bias_gathers_what_it_was_spread_to(shape: tuple[int, ...], pse_type: int) -> None:
    settings, window = Settings(scale=0.3, block_q=16, block_kv=16, pse_type=pse_type), Window(upper=16)
    same_gradients(
        lambda q, k, v, bias: tiled_attention(q, k, v, window, settings, extras=Extras(bias=bias)),
        lambda q, k, v, bias: exact((q, k, v), scale=0.3, bias=bias, bias_scaled=pse_type == 1, masked=hidden(window, *LENS)),
        (*qkv(21, lens=LENS), normal(24, *shape)),
    )


def test_sink_and_mask_and_dropout_together() -> None:
    """With a row that is masked altogether: its scores are constants, so only V learns from it."""
    masked = (normal(25, 2, 1, *LENS) > 1).at[:, :, 3].set(True)
    keep = normal(26, 2, 4, *LENS) > -1
    settings = Settings(scale=0.3, block_q=16, block_kv=16, keep_prob=0.8)
    same_gradients(
        lambda q, k, v, sink: tiled_attention(q, k, v, settings=settings, extras=Extras(masked=masked, keep=keep, sink=sink)),
        lambda q, k, v, sink: exact((q, k, v), scale=0.3, masked=masked, keep=keep, keep_prob=0.8, sink=sink),
        (*qkv(22, lens=LENS), normal(27, 4)),
    )


def test_a_row_that_sees_no_key_moves_only_the_values() -> None:
    masked = jnp.zeros((1, 1, *LENS), bool).at[:, :, 3].set(True)
    settings = Settings(scale=0.3, block_q=16, block_kv=16)
    same_gradients(
        lambda *x: tiled_attention(*x, settings=settings, extras=Extras(masked=masked)),
        lambda *x: exact(x, scale=0.3, masked=masked),
        qkv(23, lens=LENS),
    )


def test_dropout_drawn_in_the_kernel_is_the_same_both_ways() -> None:
    settings, drawn = Settings(scale=0.3, block_q=16, block_kv=16, keep_prob=0.7), (1234, 32)
    keep = keep_mask(*drawn, (2, 4, *LENS), 0.7)
    assert 0.6 < float(jnp.mean(keep)) < 0.8
    same_gradients(
        lambda *x: tiled_attention(*x, settings=settings, extras=Extras(philox=drawn)),
        lambda *x: exact(x, scale=0.3, keep=keep, keep_prob=0.7),
        qkv(28, lens=LENS),
    )


def test_packed_sequences_learn_as_one_call_each() -> None:
    packed = Packed((0, 9, 9, 30), (9, 0, 20, 3), (0, 30, 35, 60), (28, 5, 25, 0))
    query, key, value = qkv(29, batch=1, lens=(40, 64))
    weights, window = normal(30, *query.shape), Window(upper=2)

    def apart(q: Array, k: Array, v: Array) -> Array:
        number = jnp.zeros(())
        for q0, rows, k0, keys in zip(packed.q_starts, packed.q_lens, packed.kv_starts, packed.kv_lens, strict=True):
            if rows and keys:
                part = (q[:, :, q0 : q0 + rows], k[:, :, k0 : k0 + keys], v[:, :, k0 : k0 + keys])
                out = exact(part, scale=0.3, masked=hidden(window, rows, keys))[0]
                number = number + jnp.sum(out * weights[:, :, q0 : q0 + rows])
        return number

    def together(*x: Array) -> Array:
        return jnp.sum(tiled_attention(*x, window=window, settings=CUT, lengths=packed).out * weights)

    close(jax.grad(together, (0, 1, 2))(query, key, value), jax.jit(jax.grad(apart, (0, 1, 2)))(query, key, value))


def test_rows_and_keys_past_the_used_lengths_learn_nothing() -> None:
    query, key, value = qkv(31, lens=LENS)
    used = Used(np.array([20, 37]), np.array([53, 30]))
    garbage = [x.at[0, :, 45:].set(jnp.nan) if x is query else x.at[1, :, 45:].set(jnp.nan) for x in (query, key, value)]

    def number(*x: Array) -> Array:
        return jnp.sum(tiled_attention(*x, window=Window(upper=16), settings=CUT, lengths=used).out ** 2)

    found = jax.grad(number, (0, 1, 2))(*garbage)
    close(found, jax.grad(number, (0, 1, 2))(query, key, value))
    assert not np.any(found[0][0, :, 20:]) and not np.any(found[1][1, :, 30:]) and np.any(found[2][1, :, :30])


def test_equal_small_steps() -> None:
    """Of a call with everything that has a gradient."""

    def answer(q: Array, k: Array, v: Array, bias: Array, sink: Array) -> Array:
        return tiled_attention(q, k, v, Window(-5, 9), CUT, extras=Extras(bias=bias, sink=sink)).out

    inputs = (*qkv(32, batch=1, heads=(2, 1), lens=(18, 21)), normal(33, 1, 2, 18, 21), normal(34, 2))
    check_grads(answer, inputs, order=1, modes=["rev"], atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_half_precision_stays_near(dtype: jnp.dtype) -> None:
    call, weights = qkv(35, lens=LENS, dtype=jnp.dtype(dtype)), normal(36, 2, 4, 37, 8)
    masked = hidden(Window(upper=16), *LENS)

    def number(*x: Array) -> Array:
        return jnp.sum(tiled_attention(*x, window=Window(upper=16), settings=CUT).out.astype(jnp.float64) * weights)

    wanted = jax.grad(lambda *x: jnp.sum(exact(x, scale=0.3, masked=masked)[0] * weights), (0, 1, 2))
    found = jax.grad(number, (0, 1, 2))(*call)
    assert all(x.dtype == dtype for x in found)
    close(found, wanted(*(x.astype(jnp.float64) for x in call)), 5e-3 if dtype == jnp.float16 else 5e-2)


@pytest.mark.slow
def test_saved_statistics_are_enough() -> None:
    call, weights, sink = qkv(37, lens=LENS), normal(38, 2, 4, 37, 8), normal(39, 4)
    window, extras = Window(upper=16), Extras(bias=normal(40, 1, 4, 1, 53), sink=sink)
    saved = tiled_attention(*call, window, CUT, extras=extras)[:3]
    found = tiled_backward(call, saved, weights, window, CUT, extras=extras)
    wanted = jax.grad(lambda q, k, v, e: jnp.sum(tiled_attention(q, k, v, window, CUT, extras=e).out * weights), (0, 1, 2, 3))
    *of_qkv, of_extras = wanted(*call, extras)
    close(found, (*of_qkv, of_extras.bias, of_extras.sink))


@pytest.mark.parametrize("backward", [False, True])
def test_memory_grows_with_the_sequence_and_not_with_its_square(backward: bool) -> None:
    def temporary_bytes(length: int) -> int:
        shapes = [jax.ShapeDtypeStruct((1, 2, length, 32), jnp.float32)] * 3
        number = lambda *x: jnp.sum(tiled_attention(*x, window=Window(upper=0)).out)  # noqa: E731
        program = jax.jit(jax.grad(number, (0, 1, 2)) if backward else number).lower(*shapes).compile()
        return program.memory_analysis().temp_size_in_bytes  # pyright: ignore[reportOptionalMemberAccess]

    assert temporary_bytes(8192) < 2.2 * temporary_bytes(4096)
