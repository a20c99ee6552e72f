"""Packed sequences (TND) of npu_fusion_attention: each one as if it were alone, whatever lies around it."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ascend_jax.attention.dropout import keep_mask
from ascend_jax.attention.fusion.ops import FusionAttention, npu_fusion_attention_v2
from tests.attention.fusion_oracle import SMALL, attention, close, compressed, hidden, normal, oracle

attention_v2: Any = npu_fusion_attention_v2

Q_LENS, KV_LENS = LENS = (5, 0, 16, 21, 0, 3), (9, 4, 16, 40, 0, 0)
NONE_EMPTY = (5, 16, 21, 3), (9, 16, 40, 7)
"""What pse goes with."""


def packed(spare: tuple[int, int] = (0, 0), heads: tuple[int, int] = (4, 2), d: int = 16, lens: Any = LENS) -> tuple[Any, ...]:
    tokens = sum(lens[0]) + spare[0], sum(lens[1]) + spare[1]
    shapes = [(tokens[0], heads[0], d), *[(tokens[1], heads[1], d)] * 2]
    return tuple(normal(seed, shape) for seed, shape in enumerate(shapes))


def ends(lens: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(x) for x in np.cumsum(lens))


def run_packed(q: jax.Array, k: jax.Array, v: jax.Array, lens: Any = LENS, **options: Any) -> FusionAttention:
    lists = {"actual_seq_qlen": ends(lens[0]), "actual_seq_kvlen": ends(lens[1])}
    given = {"scale": 0.3, "tiling": SMALL, "softmax_layout": "TND"} | lists | options
    return attention(q, k, v, q.shape[1], "TND", **given)


def pieces(q: jax.Array, k: jax.Array, v: jax.Array, lens: Any = LENS) -> list[tuple[int, slice, tuple[jax.Array, ...]]]:
    """(number, rows, Q, K and V as a batch of one) of the sequences that have rows and keys."""
    starts = [(0, *ends(side)) for side in lens]
    found = []
    for index, (rows, keys) in enumerate(zip(*lens, strict=True)):
        of_q, of_kv = (slice(side[index], side[index] + length) for side, length in zip(starts, (rows, keys), strict=True))
        if rows and keys:
            found.append(
                (index, of_q, tuple(jnp.swapaxes(x[part], 0, 1)[None] for x, part in ((q, of_q), (k, of_kv), (v, of_kv))))
            )
    return found


def as_tokens(x: np.ndarray) -> np.ndarray:
    """[1, N, S, …] as [S, N, …]."""
    return np.swapaxes(x[0], 0, 1)


PACKED_MODES: list[tuple[int, dict[str, Any]]] = [
    (2, {}),
    (3, {}),
    (4, {"pre_tockens": 12, "next_tockens": 2}),
    (7, {"pre_tockens": 40, "next_tockens": 0}),
    (8, {"pre_tockens": 9, "next_tockens": 1}),
    (6, {"prefix": (7, 4, 2, 33, 0, 0)}),
]


@pytest.mark.parametrize(("mode", "options"), PACKED_MODES)
def test_packed_sequences_are_sequences(mode: int, options: dict[str, Any]) -> None:
    """Lengths of 0 on either side, and every mode for each sequence from its own corner."""
    if mode in (3, 7):  # these refuse rows without keys, which the last sequence has
        options = options | {"actual_seq_kvlen": (*ends(KV_LENS)[:-1], sum(KV_LENS) + 3)}
    q, k, v = packed((0, 3))
    found = run_packed(q, k, v, atten_mask=compressed(mode), sparse_mode=mode, **options)
    tokens = options.get("pre_tockens", 0), options.get("next_tockens", 0)
    for index, rows, parts in pieces(q, k, v):
        lens = Q_LENS[index], KV_LENS[index]
        prefix = options.get("prefix", (0,) * 6)[index]
        rule = {7: 3, 8: 4 if index == 0 else 2}.get(mode, mode)
        out, top, _ = oracle(*parts, scale=0.3, masked=jnp.asarray(hidden(rule, lens, tokens, prefix)))
        close(found.attention_out[rows], as_tokens(out))
        close(found.softmax_max[rows][..., 0], as_tokens(top))


def test_masks_of_packed_sequences_count_from_each_corner_or_cover_all_tokens() -> None:
    q, k, v = packed()
    whole = normal(8, (sum(Q_LENS), sum(KV_LENS))) > 0.5
    corner = normal(8, (max(Q_LENS), max(KV_LENS))) > 0.5
    for mask in (corner, whole):
        found = run_packed(q, k, v, atten_mask=mask, sparse_mode=1)
        for index, rows, parts in pieces(q, k, v):
            keys = sum(KV_LENS[:index])
            part = mask[rows, keys : keys + KV_LENS[index]] if mask is whole else mask[: Q_LENS[index], : KV_LENS[index]]
            close(found.attention_out[rows], as_tokens(oracle(*parts, scale=0.3, masked=part)[0]))


def test_tokens_of_no_sequence_and_sequences_without_keys_are_zeros() -> None:
    q, k, v = packed((6, 6))
    lists = {"actual_seq_qlen": (*ends(Q_LENS), 0, 0), "actual_seq_kvlen": (*ends(KV_LENS), 0, 0)}
    found, wanted = run_packed(q, k, v, **lists), run_packed(*packed())
    used = sum(Q_LENS)
    for x in found[:3]:
        assert not x[used - 3 :].any()  # the last sequence has no key, and behind it is nothing
    starts = q[:used], k[: sum(KV_LENS)], v[: sum(KV_LENS)]
    np.testing.assert_allclose(found.attention_out[:used], run_packed(*starts).attention_out, rtol=1e-6)
    assert wanted.numels == found.numels == 4 * sum(a * b for a, b in zip(Q_LENS, KV_LENS, strict=True))


def test_packed_statistics_lie_heads_first_unless_asked() -> None:
    q, k, v = packed()
    tokens_first, plain = run_packed(q, k, v), run_packed(q, k, v, softmax_layout="")
    assert plain.softmax_max.shape == tokens_first.softmax_max.shape == (sum(Q_LENS), 4, 8)
    in_memory = np.asarray(plain.softmax_max).reshape(4, sum(Q_LENS), 8)
    np.testing.assert_array_equal(np.swapaxes(in_memory, 0, 1), tokens_first.softmax_max)


@pytest.mark.slow
def test_flat_pse_and_dropout_of_packed_sequences_follow_one_another() -> None:
    q, k, v = packed(lens=NONE_EMPTY)
    area = sum(a * b for a, b in zip(*NONE_EMPTY, strict=True))
    pse, keep = normal(6, (4 * area,)), normal(7, (4 * area,)) > 0
    bits = jnp.packbits(keep, bitorder="little")
    found = run_packed(q, k, v, NONE_EMPTY, pse=pse, keep_prob=0.5, dropout_mask=bits)
    one_row = run_packed(q, k, v, NONE_EMPTY, pse=pse[: 4 * sum(NONE_EMPTY[1])], keep_prob=0.6, seed=3, offset=16)
    start, keys_before, drawn = 0, 0, 16
    for index, at, parts in pieces(q, k, v, NONE_EMPTY):
        rows, keys = (side[index] for side in NONE_EMPTY)
        size = 4 * rows * keys
        bias, kept = (x[start : start + size].reshape(4, rows, keys) for x in (pse, keep))
        close(found.attention_out[at], as_tokens(oracle(*parts, scale=0.3, bias=bias, keep=kept, keep_prob=0.5)[0]))
        row = pse[4 * keys_before : 4 * (keys_before + keys)].reshape(4, 1, keys)
        kept = keep_mask(3, drawn, (4, rows, keys), 0.6)
        close(one_row.attention_out[at], as_tokens(oracle(*parts, scale=0.3, bias=row, keep=kept, keep_prob=0.6)[0]))
        start, keys_before, drawn = start + size, keys_before + keys, drawn + 4 * rows * -(-keys // 16) * 16


def test_rope_adds_its_products() -> None:
    q, k, v = (x.astype(jnp.bfloat16) for x in packed(d=32))
    ropes = [normal(seed, (*x.shape[:2], 16)).astype(jnp.bfloat16) for seed, x in ((10, q), (11, k))]
    options = {"atten_mask": compressed(2), "sparse_mode": 2, "scale": 0.05}
    lists = {
        "actual_seq_qlen": ends(Q_LENS),
        "actual_seq_kvlen": ends(KV_LENS),
        "tiling": SMALL,
        "softmax_layout": "TND",
    }
    found = attention_v2(q, k, v, 4, "TND", query_rope=ropes[0], key_rope=ropes[1], **options, **lists)
    wide = [jnp.concatenate(pair, axis=2) for pair in ((q, ropes[0]), (k, ropes[1]))]
    for index, rows, parts in pieces(wide[0], wide[1], v):
        masked = jnp.asarray(hidden(2, (Q_LENS[index], KV_LENS[index])))
        close(found.attention_out[rows], as_tokens(oracle(*parts, scale=0.05, masked=masked)[0]), 2**-6)
    assert found.attention_out.shape == (sum(Q_LENS), 4, 32)
