"""What npu_fused_infer_attention_score computes, against plain softmax in float64."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from ascend_jax.attention.errors import FindKernelError, ParamInvalidError
from ascend_jax.attention.infer import (
    npu_fused_infer_attention_score,
    npu_fused_infer_attention_score_v2,
    npu_incre_flash_attention,
    npu_prompt_flash_attention,
)
from ascend_jax.attention.merge import merge_partials
from ascend_jax.attention.reference import reference_attention
from ascend_jax.tiling.tiling import Tiling

SCALE = 0.125
MASK = jnp.zeros((2048, 2048), jnp.bool_)
"""What modes 2 to 4 ask for; only their rule is used."""
ATOL = {jnp.dtype(jnp.float16): 2e-3, jnp.dtype(jnp.bfloat16): 1.6e-2}


def drawn(seed: int, *shape: int, dtype: Any = jnp.float16) -> Array:
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), dtype)


def qkv(b: int, n: tuple[int, int], s: tuple[int, int], d: int = 64) -> tuple[Array, Array, Array]:
    """Query, key and value, BNSD."""
    return drawn(1, b, n[0], s[0], d), drawn(2, b, n[1], s[1], d), drawn(3, b, n[1], s[1], d)


def attended(q: Array, k: Any, v: Any, **more: Any) -> tuple[np.ndarray, np.ndarray]:
    """The operator, compiled, in BNSD unless told otherwise; heads are those of the shapes."""
    key = k[0] if isinstance(k, list) else k
    always = {"input_layout": "BNSD", "num_heads": q.shape[1], "num_key_value_heads": key.shape[1], "softmax_lse_flag": True}
    tensors: dict[str, Any] = {"query": q, "key": k, "value": v} | {name: x for name, x in more.items() if isinstance(x, Array)}
    rest: dict[str, Any] = always | {"scale": SCALE} | {name: x for name, x in more.items() if name not in tensors}
    out, lse = jax.jit(lambda given: npu_fused_infer_attention_score(**given, **rest))(tensors)
    assert lse.dtype == jnp.float32
    return np.asarray(out), np.asarray(lse)


def wanted(q: Array, k: Array, v: Array, masked: np.ndarray | None = None, **more: Any) -> tuple[np.ndarray, np.ndarray]:
    """Output and log-sum-exp in float64; rows that see no key: 0 and +inf."""
    hidden = np.zeros((1, 1, 1, k.shape[2]), bool) if masked is None else masked
    out, top, total = _reference(q, k, v, jnp.asarray(hidden), more)
    empty = np.broadcast_to(hidden.all(axis=3), top.shape) & (more.get("sink") is None)
    lse = np.where(empty, np.inf, np.asarray(top) + np.log(np.where(empty, 1, np.asarray(total))))
    return np.asarray(out), lse[..., None]


@jax.jit
def _reference(q: Array, k: Array, v: Array, masked: Array, more: dict[str, Any]) -> tuple[Array, Array, Array]:
    q, k, v = (x.astype(jnp.float64) for x in (q, k, v))
    return reference_attention(q, k, v, scale=SCALE, masked=masked, bias_scaled=False, zero_empty_rows=True, **more)


def assert_close(found: tuple[np.ndarray, np.ndarray], want: tuple[np.ndarray, np.ndarray]) -> None:
    np.testing.assert_allclose(found[0].astype(np.float64), want[0], rtol=0, atol=ATOL[jnp.dtype(found[0].dtype)])
    np.testing.assert_allclose(found[1], want[1], rtol=0, atol=2e-4)


def band(rows: int, keys: int, lower: float, upper: float) -> np.ndarray:
    """True where key j is outside ``lower ≤ j - i ≤ upper``; ``[rows, keys]``."""
    away = np.arange(keys) - np.arange(rows)[:, None]
    return (away < lower) | (away > upper)


@pytest.mark.parametrize(("keys", "dtype"), [*((keys, jnp.float16) for keys in (1, 512, 513, 1025, 1040)), (513, jnp.bfloat16)])
def test_decoding_over_any_number_of_keys(keys: int, dtype: Any) -> None:
    q, k, v = (x.astype(dtype) for x in qkv(2, (8, 2), (1, keys)))
    assert_close(attended(q, k, v), wanted(q, k, v))


@pytest.mark.parametrize("length", [512, 513])
def test_pages_give_what_whole_tensors_give(length: int) -> None:
    page, blocks, used = 128, 5, (length, 300)
    q, k, v = qkv(2, (4, 2), (1, page * blocks))
    order = np.random.default_rng(5).permutation(2 * blocks).reshape(2, blocks)

    def paged(x: Array) -> np.ndarray:
        cut = np.asarray(x).reshape(2, 2, blocks, page, 64)
        pages = np.zeros((2 * blocks, 2, page, 64), np.float16)
        for batch in range(2):
            pages[order[batch]] = np.moveaxis(cut[batch], 1, 0)
        return pages

    dense = attended(q, k, v, actual_seq_lengths_kv=used)
    table = jnp.asarray(order, jnp.int32)
    more = {"block_table": table, "block_size": page, "actual_seq_lengths_kv": used, "num_key_value_heads": 2}
    heads, flat = (paged(k), paged(v)), []
    for x in heads:
        flat.append(np.moveaxis(x, 1, 2).reshape(2 * blocks, page, 128))
    fractal = [np.moveaxis(x.reshape(2 * blocks, 2, page, 4, 16), 3, 2) for x in heads]
    for key, value in (heads, flat, fractal):
        found = attended(q, jnp.asarray(key), jnp.asarray(value), **more)
        np.testing.assert_allclose(found[0], dense[0], rtol=2e-3, atol=1e-4)
        np.testing.assert_allclose(found[1], dense[1], rtol=1e-6)


@pytest.mark.parametrize("layout", ["BSH", "BNSD_BSND", "BSND_BNSD"])
def test_layouts_and_lengths(layout: str) -> None:
    used = (0, 12)
    q, k, v = qkv(2, (4, 2), (5, 12))
    given, out_layout = layout.partition("_")[0], layout.rpartition("_")[2]
    to = {"BSND": lambda x: jnp.moveaxis(x, 1, 2), "BNSD": lambda x: x}
    to["BSH"] = lambda x: to["BSND"](x).reshape(x.shape[0], x.shape[2], -1)
    more = {"input_layout": layout, "actual_seq_lengths": [3, 5], "actual_seq_lengths_kv": used}
    found = attended(*(to[given](x) for x in (q, k, v)), num_heads=4, num_key_value_heads=2, **more)
    out, lse = np.zeros((2, 4, 5, 64)), np.full((2, 4, 5, 1), np.inf)
    for batch, (rows, keys) in enumerate(zip((3, 5), used, strict=True)):
        if keys:
            part = wanted(q[batch : batch + 1, :, :rows], k[batch : batch + 1, :, :keys], v[batch : batch + 1, :, :keys])
            out[batch, :, :rows], lse[batch, :, :rows] = part[0][0], part[1][0]
    assert_close(found, (np.asarray(to[out_layout](jnp.asarray(out))), lse))


MODES = {
    0: lambda q, k: band(q, k, -3, 9),
    1: lambda q, k: np.zeros((q, k), bool),
    2: lambda q, k: band(q, k, -np.inf, 0),
    3: lambda q, k: band(q, k, -np.inf, k - q),
    4: lambda q, k: band(q, k, k - q - 3, k - q + 9),
}


@pytest.mark.parametrize(("mode", "lengths"), [*((mode, (20, 33)) for mode in MODES), (0, (33, 20)), (4, (33, 20))])
def test_sparse_modes(mode: int, lengths: tuple[int, int]) -> None:
    q, k, v = qkv(1, (2, 1), lengths)
    hidden = MODES[mode](*lengths)
    mask = MASK if mode > 1 else jnp.asarray(hidden)[None]
    found = attended(q, k, v, sparse_mode=mode, atten_mask=mask, pre_tokens=3, next_tokens=9)
    assert_close(found, wanted(q, k, v, hidden[None, None]))


@pytest.mark.parametrize(
    ("paged", "layout", "mode"), [(False, "TND", 0), (False, "NTD", 3), (True, "NTD", 0), (True, "TND", 3)]
)
def test_packed_sequences(paged: bool, layout: str, mode: int) -> None:
    q_lens, kv_lens, page = (3, 0, 20), (17, 5, 40), 16
    q, k, v = drawn(1, 23, 4, 64), drawn(2, 62, 2, 64), drawn(3, 62, 2, 64)
    more: dict[str, Any] = {"actual_seq_lengths": np.cumsum(q_lens), "actual_seq_lengths_kv": np.cumsum(kv_lens)}
    more |= {"sparse_mode": mode, "atten_mask": MASK if mode else None, "num_heads": 4, "num_key_value_heads": 2}
    keys = k, v
    if paged:
        cache = np.zeros((2, 9, page, 128), np.float16)
        table, at = np.zeros((3, 3), np.int32), np.cumsum(kv_lens) - kv_lens
        for row, (first, length) in enumerate(zip(at, kv_lens, strict=True)):
            for block in range(-(-length // page)):
                table[row, block] = 8 - 3 * row - block
                part = slice(first + block * page, first + min((block + 1) * page, length))
                for side, x in enumerate(keys):
                    cache[side, table[row, block], : part.stop - part.start] = np.asarray(x[part]).reshape(-1, 128)
        keys = tuple(jnp.asarray(x) for x in cache)
        more |= {"block_table": jnp.asarray(table), "block_size": page, "actual_seq_lengths_kv": kv_lens}
    turn = (1, 0, 2) if layout == "NTD" else (0, 1, 2)
    k, v = (jnp.moveaxis(x, 1, 0)[None] for x in (k, v))
    given = keys if paged else tuple(jnp.transpose(x, turn) for x in keys)
    out, lse = attended(jnp.transpose(q, turn), *given, input_layout=layout, **more)
    want, want_lse, row, key = np.zeros((23, 4, 64)), np.zeros((23, 4, 1)), 0, 0
    for rows, length in zip(q_lens, kv_lens, strict=True):
        hidden = band(rows, length, -np.inf, length - rows if mode else np.inf)[None, None]
        keys = slice(key, key + length)
        found = wanted(jnp.moveaxis(q[row : row + rows], 1, 0)[None], k[:, :, keys], v[:, :, keys], hidden)
        want[row : row + rows], want_lse[row : row + rows] = (np.moveaxis(x[0], 0, 1) for x in found)
        row, key = row + rows, key + length
    assert_close((np.transpose(out, turn), lse), (want, want_lse))


@pytest.mark.parametrize("precise", [0, 1, 2, 3])
def test_rows_that_the_mask_empties(precise: int) -> None:
    q, k, v = qkv(1, (2, 2), (4, 7))
    hidden = np.zeros((1, 1, 4, 7), bool)
    hidden[..., 2, :] = True
    out, lse = attended(q, k, v, atten_mask=jnp.asarray(hidden), inner_precise=precise)
    if precise >= 2:
        assert_close((out, lse), wanted(q, k, v, hidden))
    else:
        np.testing.assert_allclose(np.float64(out[:, :, 2]), np.float64(v).mean(axis=2), atol=2e-3)
        assert (lse[:, :, 2] < -3e38).all()
        assert np.isfinite(lse).all()


def test_rows_that_the_causal_rule_empties_are_zero_without_being_asked() -> None:
    q, k, v = qkv(1, (2, 2), (9, 4))
    out, lse = attended(q, k, v, atten_mask=MASK, sparse_mode=3, inner_precise=0)
    assert (out[:, :, :5] == 0).all()
    assert np.isposinf(lse[:, :, :5]).all()
    assert np.isfinite(lse[:, :, 5:]).all()


@pytest.mark.parametrize(("chip", "layout", "d", "heads"), [("910b", "BNSD", 512, 1), ("950", "BNSD", 128, 2)])
def test_ropes_add_their_own_scores(chip: str, layout: str, d: int, heads: int) -> None:
    q, k, v = qkv(1, (4, heads), (2, 30), d)
    q_rope, k_rope = drawn(4, 1, 4, 2, 64), drawn(5, 1, heads, 30, 64)
    more = {"query_rope": q_rope, "key_rope": k_rope, "chip": chip, "input_layout": layout}
    q, rest = jnp.concatenate([q, q_rope], axis=3), attended(q, k, v, **more)
    assert_close(rest, wanted(q, jnp.concatenate([k, k_rope], axis=3), v))


def test_value_narrower_than_the_query() -> None:
    q, k = drawn(1, 1, 2, 3, 192), drawn(2, 1, 2, 20, 192)
    v = drawn(3, 1, 2, 20, 128)
    assert_close(attended(q, k, v), wanted(q, k, v))


@pytest.mark.parametrize("rows", [1, 6])
def test_bias_is_added_after_the_scale(rows: int) -> None:
    q, k, v = qkv(2, (4, 2), (6, 40))
    bias = drawn(6, 1, 4, rows, 48)
    found = attended(q, k, v, pse_shift=bias)
    assert_close(found, wanted(q, k, v, bias=bias[..., :40].astype(jnp.float64)))


def test_sink() -> None:
    q, k, v = (x.astype(jnp.bfloat16) for x in qkv(1, (4, 2), (3, 21)))
    sink = drawn(7, 4, dtype=jnp.bfloat16)
    assert_close(attended(q, k, v, learnable_sink=sink), wanted(q, k, v, sink=sink.astype(jnp.float64)))


def test_prefix_stands_before_every_sequence() -> None:
    q, k, v = qkv(2, (4, 2), (3, 20))
    shared = drawn(8, 1, 2, 8, 64), drawn(9, 1, 2, 8, 64)
    more = {"key_shared_prefix": shared[0], "value_shared_prefix": shared[1], "actual_shared_prefix_len": [5]}
    found = attended(q, k, v, atten_mask=MASK, sparse_mode=3, **more)
    k, v = (jnp.concatenate([jnp.repeat(x[:, :, :5], 2, axis=0), y], axis=2) for x, y in zip(shared, (k, v), strict=True))
    assert_close(found, wanted(q, k, v, band(3, 25, -np.inf, 22)[None, None]))


def test_left_padding() -> None:
    q, k, v = qkv(2, (2, 2), (6, 20))
    rows, keys, q_free, kv_free = (4, 3), (11, 15), 1, 2
    mask = np.random.default_rng(3).random((2, 1, 6, 20)) < 0.3
    more = {"query_padding_size": jnp.array([q_free]), "kv_padding_size": jnp.array([kv_free]), "atten_mask": jnp.asarray(mask)}
    found = attended(q, k, v, actual_seq_lengths=rows, actual_seq_lengths_kv=keys, inner_precise=2, **more)
    out, lse = np.zeros((2, 2, 6, 64)), np.full((2, 2, 6, 1), np.inf)
    for batch in range(2):
        row = slice(6 - q_free - rows[batch], 6 - q_free)
        key = slice(20 - kv_free - keys[batch], 20 - kv_free)
        one = slice(batch, batch + 1)
        part = wanted(q[one, :, row], k[one, :, key], v[one, :, key], mask[one, :, row, key])
        out[batch, :, row], lse[batch, :, row] = part[0][0], part[1][0]
    assert_close(found, (out, lse))


def test_padding_without_room_for_the_rows_gives_zeros() -> None:
    q, k, v = qkv(2, (2, 2), (4, 8))
    more = {"query_padding_size": jnp.array([2]), "actual_seq_lengths": [2, 3]}
    out, lse = attended(q, k, v, **more)
    assert (out[1] == 0).all()
    assert np.isposinf(lse[1]).all()
    assert (out[0, :, :2] != 0).any()


@pytest.mark.parametrize("packed", [False, True])
def test_tree_mask_is_at_the_end_of_the_keys(packed: bool) -> None:
    q, k, v = qkv(1, (2, 1), (3, 10), 512)
    q_rope, k_rope = drawn(4, 1, 2, 3, 64), drawn(5, 1, 1, 10, 64)
    tree = np.array([[0, 1, 1], [0, 0, 1], [0, 1, 0]], bool)
    hidden = np.concatenate([np.zeros((3, 7), bool), tree], axis=1)[None, None]
    q_whole, k_whole = (jnp.concatenate(pair, axis=3) for pair in ((q, q_rope), (k, k_rope)))
    want = wanted(q_whole, k_whole, v, hidden)
    more: dict[str, Any] = {"query_rope": q_rope, "key_rope": k_rope, "sparse_mode": 9, "atten_mask": jnp.asarray(tree)[None]}
    if not packed:
        assert_close(attended(q, k, v, **more), want)
        return
    pages = [x[0, 0].reshape(1, 10, -1) for x in (k, v, k_rope)]
    pages = [jnp.pad(x, ((0, 0), (0, 6), (0, 0))) for x in pages]
    more |= {"atten_mask": jnp.asarray(tree).reshape(-1), "actual_seq_lengths": [3], "actual_seq_lengths_kv": [10]}
    more |= {"query_rope": jnp.moveaxis(q_rope[0], 0, 1), "key_rope": pages[2], "block_size": 16, "num_key_value_heads": 1}
    out, lse = attended(
        jnp.moveaxis(q[0], 0, 1), *pages[:2], input_layout="TND", block_table=jnp.zeros((1, 1), jnp.int32), **more
    )
    assert_close((np.moveaxis(out, 0, 1)[None], np.moveaxis(lse, 0, 1)[None]), want)


def test_one_key_tensor_per_batch() -> None:
    q, k, v = qkv(2, (2, 2), (3, 20))
    lists = [[x[:1, :, :9], x[1:]] for x in (k, v)]
    found = attended(q, *lists)
    for batch, length in enumerate((9, 20)):
        one = slice(batch, batch + 1)
        want = wanted(q[one], k[one, :, :length], v[one, :, :length])
        assert_close((found[0][one], found[1][one]), want)


@pytest.mark.parametrize("cuts", [(512,), (0, 513, 700)])
def test_splitting_the_keys_and_merging_changes_nothing(cuts: tuple[int, ...]) -> None:
    q, k, v = qkv(2, (4, 2), (1, 700))
    ends = (0, *cuts, 700)
    parts = [attended(q, k[:, :, a:b], v[:, :, a:b]) for a, b in itertools.pairwise(ends)]
    outs, lses = ([jnp.asarray(x) for x in side] for side in zip(*parts, strict=True))
    out, lse = merge_partials(outs, lses)
    assert_close((np.asarray(out), np.asarray(lse)), wanted(q, k, v))


def test_merging_parts_that_have_no_key() -> None:
    nothing = (jnp.zeros((1, 4)), jnp.full((1, 1), jnp.inf))
    out, lse = merge_partials([nothing[0], nothing[0]], [nothing[1], nothing[1]])
    assert (out == 0).all()
    assert jnp.isposinf(lse).all()
    with pytest.raises(ValueError, match="one of each per part"):
        merge_partials([], [])


def test_lengths_may_be_known_on_the_device_only() -> None:
    q, k, v = qkv(2, (4, 2), (3, 40))
    call = jax.jit(
        lambda used: npu_fused_infer_attention_score(
            q,
            k,
            v,
            actual_seq_lengths_kv=used,
            input_layout="BNSD",
            num_heads=4,
            num_key_value_heads=2,
            scale=SCALE,
        )[0]
    )
    np.testing.assert_allclose(call(jnp.array([7, 40])), attended(q, k, v, actual_seq_lengths_kv=[7, 40])[0], atol=1e-3)
    packed = [jnp.moveaxis(x[0], 0, 1) for x in (q, k, v)]
    with pytest.raises(ParamInvalidError, match="packed sequences are cut on the host"):
        jax.jit(
            lambda ends: npu_fused_infer_attention_score(
                *packed,
                input_layout="TND",
                num_heads=4,
                num_key_value_heads=2,
                actual_seq_lengths=ends,
                actual_seq_lengths_kv=ends,
            )
        )(jnp.array([3]))


def test_blocks_of_a_tiling_change_rounding_only() -> None:
    q, k, v = qkv(1, (2, 1), (40, 130))
    found = attended(q, k, v, tiling=Tiling(block_q=16, block_kv=32), atten_mask=MASK, sparse_mode=3)
    assert_close(found, wanted(q, k, v, band(40, 130, -np.inf, 90)[None, None]))


def test_no_keys_at_all() -> None:
    q, k, v = qkv(2, (2, 2), (3, 0))
    out, lse = attended(q, k, v)
    assert out.shape == (2, 2, 3, 64)
    assert (out == 0).all()
    assert np.isposinf(lse).all()


def test_quantised_calls_pass_the_checks_and_stop_when_computed() -> None:
    q, k, v = qkv(1, (2, 2), (1, 16))
    int8 = [x.astype(jnp.int8) for x in (k, v)]
    scales = {"key_antiquant_scale": jnp.ones(1, jnp.float16), "value_antiquant_scale": jnp.ones(1, jnp.float16)}
    options: dict[str, Any] = {"input_layout": "BNSD", "num_heads": 2, "chip": "950", **scales}
    out, _ = jax.eval_shape(lambda x: npu_fused_infer_attention_score(x, *int8, **options), q)
    assert (out.shape, out.dtype) == ((1, 2, 1, 64), jnp.float16)
    with pytest.raises(FindKernelError, match="numerics of quantised attention are not built") as refused:
        npu_fused_infer_attention_score(q, *int8, **options)
    assert refused.value.code == 561003


@pytest.mark.parametrize("keys", [512, 513])
def test_one_mask_for_all_when_decoding(keys: int) -> None:
    """A field report: right up to 512 keys, silently wrong beyond (vllm-ascend, issue 15503)."""
    q, k, v = qkv(2, (12, 12), (1, keys), 72)
    hidden = np.random.default_rng(4).random((1, 1, 1, keys)) < 0.5
    assert_close(attended(q, k, v, atten_mask=jnp.asarray(hidden)), wanted(q, k, v, hidden))


def test_a_window_far_from_the_first_keys_with_an_odd_number_of_heads_and_channels() -> None:
    """Field reports: NaN where the first blocks are skipped, heads lost in the rest (flash-attention-npu, issues 168, 235)."""
    q, k, v = drawn(1, 16, 13, 59), drawn(2, 3000, 1, 59), drawn(3, 3000, 1, 59)
    more = {"actual_seq_lengths": [16], "actual_seq_lengths_kv": [3000], "num_heads": 13, "num_key_value_heads": 1}
    found = attended(q, k, v, input_layout="TND", sparse_mode=4, atten_mask=MASK, pre_tokens=256, next_tokens=0, **more)
    dense = [jnp.moveaxis(x, 1, 0)[None] for x in (q, k, v)]
    want = wanted(dense[0], dense[1], dense[2], band(16, 3000, 2984 - 256, 2984)[None, None])
    assert_close(found, (np.moveaxis(want[0][0], 0, 1), np.moveaxis(want[1][0], 0, 1)))


def test_bias_of_packed_sequences_counts_if_it_fits() -> None:
    q, k, v = drawn(1, 5, 2, 64), drawn(2, 9, 2, 64), drawn(3, 9, 2, 64)
    more = {"actual_seq_lengths": [2, 5], "actual_seq_lengths_kv": [4, 9], "num_heads": 2, "num_key_value_heads": 2}
    more |= {"input_layout": "TND"}
    bias = drawn(4, 2, 2, 3, 5)
    without, fitting = attended(q, k, v, **more), attended(q, k, v, pse_shift=bias, **more)
    np.testing.assert_array_equal(attended(q, k, v, pse_shift=bias[:, :, :2], **more)[0], without[0])
    dense = [jnp.moveaxis(x, 1, 0)[None] for x in (q[2:], k[4:], v[4:])]
    want = wanted(dense[0], dense[1], dense[2], bias=bias[1:].astype(jnp.float64))
    np.testing.assert_allclose(np.float64(fitting[0][2:]), np.moveaxis(want[0][0], 0, 1), atol=2e-3)


def test_the_second_version() -> None:
    q, k, v = (x.astype(jnp.bfloat16) for x in qkv(1, (4, 2), (3, 21)))
    sink = drawn(7, 4, dtype=jnp.bfloat16)
    heads: dict[str, Any] = {"num_query_heads": 4, "num_key_value_heads": 2, "input_layout": "BNSD", "softmax_scale": SCALE}
    found = npu_fused_infer_attention_score_v2(q, k, v, learnable_sink=sink, return_softmax_lse=True, **heads)
    want = wanted(q, k, v, sink=sink.astype(jnp.float64))
    assert_close((np.asarray(found[0]), np.asarray(found[1])), want)


def test_the_two_older_operators() -> None:
    q, k, v = qkv(2, (4, 2), (3, 40))
    heads: dict[str, Any] = {"num_heads": 4, "num_key_value_heads": 2, "input_layout": "BNSD", "scale_value": SCALE}
    causal = band(3, 40, -np.inf, 0)
    out = npu_prompt_flash_attention(q, k, v, atten_mask=jnp.asarray(causal)[None], **heads)
    np.testing.assert_allclose(np.float64(out), wanted(q, k, v, causal[None, None])[0], atol=2e-3)
    out = npu_incre_flash_attention(q[:, :, :1], k, v, actual_seq_lengths=[30, 40], **heads)
    want = attended(q[:, :, :1], k, v, actual_seq_lengths_kv=[30, 40])[0]
    np.testing.assert_allclose(out, want, atol=1e-3)
