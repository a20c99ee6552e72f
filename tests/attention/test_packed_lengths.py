"""Packed lengths are data: one program serves every list of them, and each sequence is as if it were alone."""

from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from ascend_jax.attention import (
    Extras,
    Packed,
    Settings,
    Window,
    npu_fusion_attention,
    npu_fusion_attention_grad_v3,
    npu_fusion_attention_v3,
    tiled_attention,
)
from tests.attention.attention_cases import close as close_trees
from tests.attention.attention_cases import exact
from tests.attention.fusion_oracle import SMALL, attention, close, compressed, hidden, normal, oracle
from tests.attention.test_one_program import compiled_by

T1, T2, HEADS = 70, 90, (4, 2)
Q, K, V = (normal(seed, (tokens, heads, 16)) for seed, tokens, heads in ((0, T1, 4), (1, T2, 2), (2, T2, 2)))
TOWARDS = normal(3, (T1, 4, 16))
LENGTHS = [
    ((30, 1, 20, 19), (30, 20, 20, 20)),
    ((0, 70, 0, 0), (3, 70, 0, 0)),  # none, all, and trailing zeros
    ((16, 16, 19, 0), (16, 16, 33, 0)),  # tokens of no sequence at the end of Q and of K/V
    ((1, 2, 3, 60), (4, 5, 6, 75)),
]
"""None has more rows than keys, as modes 3, 4 and 7 ask."""
WHOLE = normal(4, (T1, T2)) > 0.3


def ends(lens: tuple[int, ...]) -> tuple[int, ...]:
    """Cumulative; a length of 0 at the end is written as an end of 0, as the operator asks where tokens are left over."""
    last = max([0, *(place + 1 for place, length in enumerate(lens) if length)])
    return tuple(int(end) if place < last else 0 for place, end in enumerate(np.cumsum(lens)))


def options_of(mode: int, lens: tuple[tuple[int, ...], tuple[int, ...]]) -> dict[str, Any]:
    if mode == 0:
        return {"atten_mask": WHOLE, "pre_tockens": 80, "next_tockens": 90}
    if mode == 1:
        return {"atten_mask": WHOLE}
    more = {4: {"pre_tockens": 12, "next_tockens": 2}, 7: {"pre_tockens": 80, "next_tockens": 0}}
    more |= {6: {"prefix": [min(keys, keys - rows + 5) for rows, keys in zip(*lens, strict=True)]}}
    more |= {8: {"pre_tockens": 80, "next_tockens": 3}}
    return {"atten_mask": compressed(mode), **more.get(mode, {})}


def hidden_in(mode: int, lens: tuple[tuple[int, ...], tuple[int, ...]], index: int) -> np.ndarray:
    """What rows of sequence ``index`` do not see, [S1, S2]."""
    pair, starts = (lens[0][index], lens[1][index]), [sum(side[:index]) for side in lens]
    if mode in (0, 1):
        return np.asarray(WHOLE)[starts[0] : starts[0] + pair[0], starts[1] : starts[1] + pair[1]]
    options = options_of(mode, lens)
    tokens = options.get("pre_tockens", 0), options.get("next_tockens", 0)
    first = next(place for place, length in enumerate(lens[0]) if length)
    rule = {7: 3, 8: 4 if index == first else 2}.get(mode, mode)
    return hidden(rule, pair, tokens, options.get("prefix", (0,) * 4)[index])


def fit(mode: int, lens: tuple[tuple[int, ...], tuple[int, ...]]) -> bool:
    """A mask of all tokens covers as many as the sequences have."""
    return mode > 1 or (sum(lens[0]), sum(lens[1])) == WHOLE.shape


def run(lens: tuple[tuple[int, ...], tuple[int, ...]], mode: int, *tensors: Array) -> tuple[Array, Array]:
    """Output and maximum."""
    lists = {"actual_seq_qlen": ends(lens[0]), "actual_seq_kvlen": ends(lens[1])}
    call: dict[str, Any] = {"scale": 0.3, "tiling": SMALL, "softmax_layout": "TND", "sparse_mode": mode} | lists
    return attention(*tensors, 4, "TND", **call | options_of(mode, lens))[:2]


def gradients(lens: tuple[tuple[int, ...], tuple[int, ...]], mode: int) -> tuple[Array, ...]:
    return jax.grad(lambda *x: jnp.sum(run(lens, mode, *x)[0] * TOWARDS), (0, 1, 2))(Q, K, V)


def alone(lens: tuple[tuple[int, ...], tuple[int, ...]], mode: int) -> tuple[np.ndarray, list[np.ndarray]]:
    """Output and gradients, each sequence by plain softmax in float64."""
    out, grads = np.zeros(Q.shape), [np.zeros(x.shape) for x in (Q, K, V)]
    for index, (rows, keys) in enumerate(zip(*lens, strict=True)):
        if not rows or not keys:
            continue
        at = [slice(sum(side[:index]), sum(side[: index + 1])) for side in lens]
        parts = [
            jnp.swapaxes(x[place], 0, 1)[None].astype(jnp.float64)
            for x, place in zip((Q, K, V), (at[0], at[1], at[1]), strict=True)
        ]
        masked = jnp.asarray(hidden_in(mode, lens, index))
        found, back = jax.vjp(lambda *x, masked=masked: exact(x, scale=0.3, masked=masked)[0], *parts)
        learnt = back(jnp.swapaxes(TOWARDS[at[0]], 0, 1)[None].astype(jnp.float64))
        for whole, part, place in zip(grads, learnt, (at[0], at[1], at[1]), strict=True):
            whole[place] = np.swapaxes(part[0], 0, 1)
        out[at[0]] = np.swapaxes(found[0], 0, 1)
    return out, grads


@pytest.mark.parametrize("mode", [0, 7, *(pytest.param(mode, marks=pytest.mark.slow) for mode in (1, 2, 3, 4, 6, 8))])
def test_one_program_for_all_lists(mode: int) -> None:
    lists = [lens for lens in LENGTHS if fit(mode, lens)] or [LENGTHS[0]]
    if mode < 2:
        lists = [((30, 1, 20, 19), (30, 20, 20, 20)), ((10, 10, 40, 10), (5, 50, 30, 5))]
    jax.block_until_ready((run(lists[0], mode, Q, K, V), gradients(lists[0], mode)))
    for lens in lists[1:]:
        assert compiled_by(lambda lens=lens: (run(lens, mode, Q, K, V), gradients(lens, mode))) == 0
    for lens in lists:
        out, grads = alone(lens, mode)
        close(run(lens, mode, Q, K, V)[0], out)
        for mine, wanted in zip(gradients(lens, mode), grads, strict=True):
            close(mine, wanted, 5e-5)


def test_what_lies_in_other_sequences_or_in_none_may_be_anything() -> None:
    lens = LENGTHS[2]
    wanted = run(lens, 3, Q, K, V)[0], gradients(lens, 3)
    for index in (1, 4):  # one sequence, and the tokens behind the last
        at = [slice(sum(side[:index]), sum(side[: index + 1]) if index < 4 else None) for side in lens]
        spoilt = [x.at[place].set(jnp.nan) for x, place in zip((Q, K, V), (at[0], at[1], at[1]), strict=True)]
        out, back = jax.vjp(lambda *x: run(lens, 3, *x)[0], *spoilt)
        for mine, plain, place in zip((out, *back(TOWARDS)), (wanted[0], *wanted[1]), (*at[:1] * 2, *at[1:] * 2), strict=True):
            kept = np.ones(len(mine), bool)
            kept[place] = False
            np.testing.assert_array_equal(mine[kept], plain[kept])


def test_dropout_and_pse_by_list() -> None:
    """What is drawn or given for a list, one program draws and reads for the next."""

    def call(lens: tuple[tuple[int, ...], tuple[int, ...]]) -> Array:
        lists: dict[str, Any] = {"actual_seq_qlen": ends(lens[0]), "actual_seq_kvlen": ends(lens[1])}
        pse = normal(6, (4 * T2,))
        return attention(Q, K, V, 4, "TND", pse=pse, keep_prob=0.8, seed=3, tiling=SMALL, **lists).attention_out

    call(((30, 1, 20, 19), (30, 20, 20, 20)))
    assert compiled_by(lambda: call(((19, 20, 30, 1), (20, 20, 30, 20)))) == 0  # the same longest: pse is laid out by it


@pytest.mark.slow
def test_sequences_may_share_keys() -> None:
    """More blocks than apart; and what they learn adds up."""
    query, key, value = [normal(seed, (1, 2, tokens, 8)).astype(jnp.float64) for seed, tokens in ((7, 40), (8, 33), (9, 33))]
    packed = Packed((0, 17, 20), (17, 3, 20), (0, 0, 3), (33, 33, 30))
    settings = Settings(scale=0.3, block_q=16, block_kv=16)

    def together(q: Array, k: Array, v: Array) -> Array:
        return tiled_attention(q, k, v, Window(upper=20), settings, lengths=packed).out

    def apart(q: Array, k: Array, v: Array) -> Array:
        spans = zip(packed.q_starts, packed.q_lens, packed.kv_starts, packed.kv_lens, strict=True)
        parts = [(q[:, :, a : a + n], k[:, :, b : b + m], v[:, :, b : b + m]) for a, n, b, m in spans]
        masks = [np.arange(m)[None] - np.arange(n)[:, None] > 20 for n, m in zip(packed.q_lens, packed.kv_lens, strict=True)]
        outs = [exact(part, scale=0.3, masked=jnp.asarray(mask))[0] for part, mask in zip(parts, masks, strict=True)]
        return jnp.concatenate(outs, axis=2)

    (mine, back), (wanted, back_of) = (jax.vjp(f, query, key, value) for f in (together, apart))
    close_trees((mine, back(query)), (wanted, back_of(query)))


def test_no_sequence_at_all() -> None:
    x = normal(0, (1, 2, 20, 8))
    for packed in (Packed((), (), (), ()), Packed((0, 0), (0, 0), (0, 5), (7, 0))):
        found = tiled_attention(x, x, x, lengths=packed)
        assert not any(np.any(part) for part in found)


def test_a_mask_of_all_tokens_is_read_where_the_sequences_lie() -> None:
    query, key, value = (normal(seed, (1, 2, 40, 8)) for seed in (1, 2, 3))
    masked, packed = normal(4, (40, 40)) > 0, Packed((20, 0), (20, 17), (3, 13), (10, 27))
    found = tiled_attention(
        query, key, value, settings=Settings(block_q=16, block_kv=16), extras=Extras(masked=masked), lengths=packed
    )
    for a, n, b, m in zip(packed.q_starts, packed.q_lens, packed.kv_starts, packed.kv_lens, strict=True):
        part = (query[:, :, a : a + n], key[:, :, b : b + m], value[:, :, b : b + m])
        close(found.out[:, :, a : a + n], oracle(*part, masked=masked[a : a + n, b : b + m])[0])


@pytest.mark.slow
def test_a_declared_band_cuts_a_mask_of_all_tokens_as_it_cuts_those_of_each_sequence() -> None:
    """Blocks outside of the band are skipped whatever the mask says, counted from each sequence's start."""
    band: dict[str, Any] = {"pre_tockens": 12, "next_tockens": 9, "scale": 0.3, "tiling": SMALL}
    lists = [((30, 1, 20, 19), (30, 20, 20, 20)), ((10, 10, 40, 10), (5, 50, 30, 5))]
    call = lambda lens: attention(  # noqa: E731
        Q, K, V, 4, "TND", atten_mask=WHOLE, actual_seq_qlen=ends(lens[0]), actual_seq_kvlen=ends(lens[1]), **band
    )
    found = [call(lists[0])]
    assert compiled_by(lambda: found.append(call(lists[1]))) == 0
    for lens, together in zip(lists, found, strict=True):
        for index in range(4):
            a, b = (slice(sum(side[:index]), sum(side[: index + 1])) for side in lens)
            parts = (jnp.swapaxes(x[place], 0, 1)[None] for x, place in ((Q, a), (K, b), (V, b)))
            alone = attention(*parts, 4, "BNSD", atten_mask=WHOLE[a, b], **band)
            close(together.attention_out[a], np.swapaxes(alone.attention_out[0], 0, 1))


def test_traced_lengths_are_those_of_a_list() -> None:
    query, key, value = (jnp.swapaxes(x, 0, 1)[None] for x in (Q, K, V))
    settings = Settings(scale=0.3, block_q=16, block_kv=16, zero_empty_rows=True)

    def learn(lens: tuple[Any, Any]) -> tuple[Array, ...]:
        starts = [jnp.cumsum(x) - x for x in lens]
        packed = Packed(starts[0], lens[0], starts[1], lens[1])
        masked = Extras(masked=WHOLE)
        number = lambda *x: jnp.sum(  # noqa: E731
            tiled_attention(x[0], x[1], x[2], Window(upper=lens[1] - lens[0]), settings, extras=masked, lengths=packed).out ** 2
        )
        return jax.grad(number, (0, 1, 2))(query, key, value)

    traced = jax.jit(learn)
    lists = [(jnp.asarray(rows), jnp.asarray(keys)) for rows, keys in LENGTHS]
    for lens in lists:
        for mine, wanted in zip(traced(lens), learn(lens), strict=True):
            close(mine, np.asarray(wanted))
    assert compiled_by(lambda: [traced(lens) for lens in lists]) == 0


def test_a_bias_by_sequence_needs_lengths_that_are_known() -> None:
    x = normal(0, (1, 2, 20, 8))
    with pytest.raises(ValueError, match=r"bias of shape .* with traced lengths"):
        jax.eval_shape(
            lambda n: tiled_attention(x, x, x, extras=Extras(bias=normal(1, (1, 2, 20, 20))), lengths=Packed(n, n, n, n)),
            jnp.zeros(1, jnp.int32),
        )


@pytest.mark.slow
def test_the_third_version_takes_lengths_and_gives_seed_and_offset_as_arrays() -> None:
    cuts = [jnp.asarray(ends(side)) for side in LENGTHS[0]]
    lists: dict[str, Any] = {"actual_seq_qlen": cuts[0], "actual_seq_kvlen": cuts[1]}
    given: dict[str, Any] = {"keep_prob": 0.8, "tiling": SMALL} | lists
    seed = 2**40 + 3
    third, first = (cast("Any", f) for f in (npu_fusion_attention_v3, npu_fusion_attention))
    found: Any = third(Q, K, V, 4, "TND", scale=0.3, seed=seed, offset=16, **given)
    wanted: Any = first(Q, K, V, 4, "TND", scale=0.3, seed=seed, offset=16, **given)
    assert (len(found), int(found.seed), int(found.offset), found.seed.dtype) == (6, seed, 16, np.int64)
    np.testing.assert_array_equal(found.attention_out, wanted.attention_out)
    saved = {"softmax_max": found.softmax_max, "softmax_sum": found.softmax_sum, "attention_in": found.attention_out}
    back: Any = npu_fusion_attention_grad_v3
    learnt = back(Q, K, V, TOWARDS, 4, "TND", scale_value=0.3, seed=found.seed, offset=found.offset, **saved, **given)
    plain = lambda *x: third(*x, 4, "TND", scale=0.3, seed=seed, offset=16, **given)[0]  # noqa: E731
    for mine, by_jax in zip(learnt, jax.vjp(plain, Q, K, V)[1](TOWARDS), strict=False):
        close(mine, np.asarray(by_jax))


def test_short_sequences_have_short_blocks() -> None:
    """By powers of two: lists whose longest lie between the same two share a program."""
    query, key, value = (x[:64].transpose(1, 0, 2)[None] for x in (Q, K, V))

    def blocks(lens: tuple[int, ...]) -> Array:
        starts = tuple(int(x) for x in np.cumsum((0, *lens[:-1])))
        return tiled_attention(query, key, value, lengths=Packed(starts, lens, starts, lens)).blocks

    tokens, sequences, block = 64, 4, 32
    assert blocks((20, 20, 20, 4)).shape[2] == (tokens + sequences * (block - 1)) // block
    assert compiled_by(lambda: blocks((1, 30, 31, 2))) == 0
    assert blocks((64, 0, 0, 0)).shape[2] < blocks((10, 20, 20, 10)).shape[2]
