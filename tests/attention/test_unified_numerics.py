"""What flash_attn computes, against plain softmax in float64 over masks that a loop makes."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from ascend_jax.attention.reference import reference_attention
from ascend_jax.attention.unified.ops import flash_attn
from ascend_jax.tiling.tiling import Tiling

MASK = jnp.zeros((2048, 2048), jnp.int8)
METADATA = jnp.zeros(4096, jnp.int32)
SCALE = 0.125
CLOSE = {jnp.float16: 2e-3, jnp.bfloat16: 1.6e-2}


def drawn(seed: int, *shape: int, dtype: Any = jnp.float16) -> Array:
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), dtype)


def attended(q: Array, k: Array, v: Array, *, mode: int = 0, **more: Any) -> tuple[Array, Array]:
    """``flash_attn`` with everything that every call needs, in BNSD unless told otherwise."""
    call: dict[str, Any] = {"metadata": METADATA, "softmax_scale": SCALE, "return_softmax_lse": True, "mask_mode": mode}
    call |= dict.fromkeys(("layout_q", "layout_kv", "layout_out"), "BNSD") | ({"attn_mask": MASK} if mode else {}) | more
    return flash_attn(q, k, v, **call)


def seen(q_len: int, kv_len: int, left: int | None, right: int | None) -> np.ndarray:
    """Whether row i sees key j: at most ``left`` before and ``right`` behind the diagonal through the last row and key."""
    found = np.zeros((q_len, kv_len), bool)
    for i in range(q_len):
        for j in range(kv_len):
            distance = j - (i + kv_len - q_len)
            found[i, j] = (left is None or distance >= -left) and (right is None or distance <= right)
    return found


def expected(q: Array, k: Array, v: Array, *, sides: tuple[int | None, int | None]) -> tuple[Array, Array]:
    """Output and logarithm of the sum in float64, for ``[B, N, S, D]``."""
    return oracle(q, k, v, jnp.asarray(~seen(q.shape[2], k.shape[2], *sides))[None, None])


@jax.jit
def oracle(q: Array, k: Array, v: Array, masked: Array) -> tuple[Array, Array]:
    q, k, v = (x.astype(jnp.float64) for x in (q, k, v))
    out, top, total = reference_attention(q, k, v, scale=SCALE, masked=masked, zero_empty_rows=True)
    empty = masked.all(axis=3) | jnp.zeros(out.shape[:3], bool)
    return out, jnp.where(empty, jnp.inf, jnp.log(jnp.where(empty, 1.0, total)) + top)


def assert_close(found: tuple[Array, Array], wanted: tuple[Array, Array]) -> None:
    assert found[1].dtype == jnp.float32
    np.testing.assert_allclose(np.float64(found[0]), wanted[0], rtol=0, atol=CLOSE[found[0].dtype.type])
    np.testing.assert_allclose(np.float64(found[1]), wanted[1], rtol=0, atol=1e-4)


MODES = [
    (0, {}, (None, None)),
    (3, {}, (None, 0)),
    (4, {}, (None, None)),
    (4, {"win_left": 5, "win_right": 3}, (5, 3)),
    (4, {"win_left": 0}, (0, None)),
    (4, {"win_right": 0, "win_left": 2**31 - 1}, (None, 0)),
    (4, {"win_left": 0, "win_right": 0}, (0, 0)),
    (4, {"win_left": 10**6, "win_right": 10**12}, (None, None)),
]


@pytest.mark.parametrize("lengths", [(7, 7), (130, 70), (60, 260)])
@pytest.mark.parametrize(("mode", "window", "sides"), MODES)
def test_masks_on_grouped_heads(mode: int, window: dict, sides: Any, lengths: tuple[int, int]) -> None:
    """Rows before the first key (S1 > S2) see nothing: 0, and +inf."""
    q_len, kv_len = lengths
    q, k, v = drawn(0, 2, 6, q_len, 64), drawn(1, 2, 2, kv_len, 64), drawn(2, 2, 2, kv_len, 64)
    assert_close(attended(q, k, v, mode=mode, **window), expected(q, k, v, sides=sides))


@pytest.mark.parametrize("kv_len", [512, 513, 1024, 1025, 1040])
def test_one_row_over_lengths_beside_block_sizes(kv_len: int) -> None:
    q, k, v = (drawn(s, 1, n, length, 128, dtype=jnp.bfloat16) for s, n, length in ((0, 4, 1), (1, 1, 1040), (2, 1, 1040)))
    found = attended(q, k, v, mode=3, seqused_kv=np.array([kv_len], np.int32))
    assert_close(found, expected(q, k[:, :, :kv_len], v[:, :, :kv_len], sides=(None, 0)))


def test_a_window_with_heads_off_any_tile() -> None:
    """Field bugs flash-attention-npu#196 and #235: 13 heads on one, 255 rows."""
    q, k, v = drawn(0, 1, 13, 255, 64), drawn(1, 1, 1, 255, 64), drawn(2, 1, 1, 255, 64)
    assert_close(attended(q, k, v, mode=4, win_left=96, win_right=0), expected(q, k, v, sides=(96, 0)))


def test_layouts_agree() -> None:
    q, k, v = drawn(0, 2, 6, 60, 64), drawn(1, 2, 2, 260, 64), drawn(2, 2, 2, 260, 64)
    whole = attended(q, k, v, mode=3)
    to_rows = [jnp.moveaxis(x, 1, 2) for x in (q, k, v)]
    found = attended(*to_rows, mode=3, layout_q="BSND", layout_kv="BSND", layout_out="BSND")
    mixed = attended(q, k, v, mode=3, layout_out="BSND")
    for other in (found, mixed):
        np.testing.assert_array_equal(jnp.moveaxis(other[0], 1, 2), whole[0])
        np.testing.assert_array_equal(other[1], whole[1])


def test_used_lengths_may_be_traced() -> None:
    """The diagonal goes through the last used row and key; rows and keys past them do not count."""
    q, k, v = drawn(0, 3, 4, 50, 64), drawn(1, 3, 2, 150, 64), drawn(2, 3, 2, 150, 64)
    q_used, kv_used = (50, 20, 0), (150, 33, 90)
    call = jax.jit(lambda a, b: attended(q, k, v, mode=4, win_left=9, win_right=2, seqused_q=a, seqused_kv=b))
    out, log_sum = call(jnp.array(q_used, jnp.int32), jnp.array(kv_used, jnp.int32))
    for b, (rows, keys) in enumerate(zip(q_used[:2], kv_used[:2], strict=True)):
        one = expected(q[b : b + 1, :, :rows], k[b : b + 1, :, :keys], v[b : b + 1, :, :keys], sides=(9, 2))
        assert_close((out[b : b + 1, :, :rows], log_sum[b : b + 1, :, :rows]), one)
        assert not out[b, :, rows:].any()
        assert jnp.isposinf(log_sum[b, :, rows:]).all()
    assert not out[2].any()


PACKED: dict[str, Any] = {"layout_q": "TND", "layout_kv": "TND", "layout_out": "TND"}


def test_packed_sequences_some_of_them_empty() -> None:
    """Ends need not begin at 0; a sequence may lack rows or keys, and use only part of its tokens."""
    q, k, v = drawn(0, 200, 4, 64), drawn(1, 330, 2, 64), drawn(2, 330, 2, 64)
    q_ends, kv_ends, kv_used = (5, 70, 70, 130, 200), (0, 100, 200, 200, 330), (100, 100, 0, 77)
    call = {"cu_seqlens_q": q_ends, "cu_seqlens_kv": kv_ends, "seqused_kv": kv_used}
    out, log_sum = attended(q, k, v, mode=3, **PACKED, **call)
    for place, used in enumerate(kv_used):
        rows = slice(q_ends[place], q_ends[place + 1])
        if used == 0:
            assert not out[rows].any()
            assert jnp.isposinf(log_sum[:, rows]).all()
        elif rows.start < rows.stop:
            keys = slice(kv_ends[place], kv_ends[place] + used)
            one = [jnp.moveaxis(x, 0, 1)[None] for x in (q[rows], k[keys], v[keys])]
            assert_close((jnp.moveaxis(out[rows], 0, 1)[None], log_sum[None, :, rows]), expected(*one, sides=(None, 0)))
    assert not out[:5].any()


def paged(x: Array, page: int, table: np.ndarray, layout: str) -> Array:
    """``[B, N, S, D]`` dealt out to pages; pages of no sequence, and the rest of the last ones, hold a large number."""
    batch, heads, _, width = x.shape
    pages = np.full((table.max() + 2, heads, page, width), 3e4, np.float16)
    for b in range(batch):
        for column, number in enumerate(table[b]):
            piece = np.asarray(x[b, :, column * page : (column + 1) * page])
            pages[number, :, : piece.shape[1]] = piece
    if layout == "PA_BBND":
        pages = pages.swapaxes(1, 2)
    if layout == "PA_NZ":
        pages = pages.reshape(*pages.shape[:3], width // 16, 16).swapaxes(2, 3)
    return jnp.asarray(pages)


@pytest.mark.parametrize("layout", ["PA_BBND", "PA_BNBD", "PA_NZ"])
def test_pages_are_keys_in_the_order_of_the_table(layout: str) -> None:
    q, k, v = drawn(0, 2, 4, 9, 64), drawn(1, 2, 2, 150, 64), drawn(2, 2, 2, 150, 64)
    table = np.random.default_rng(3).permutation(20)[:10].reshape(2, 5)
    kv_used = np.array([150, 37], np.int32)
    pages = (paged(x, 32, table, layout) for x in (k, v))
    found = attended(q, *pages, mode=3, layout_kv=layout, block_table=jnp.asarray(table, jnp.int32), seqused_kv=kv_used)
    whole = attended(q, k, v, mode=3, seqused_kv=kv_used)
    np.testing.assert_allclose(np.float64(found[0]), np.float64(whole[0]), rtol=0, atol=1e-3)
    np.testing.assert_allclose(found[1], whole[1], rtol=0, atol=1e-5)


def test_packed_rows_over_pages() -> None:
    q, k, v = drawn(0, 25, 4, 64), drawn(1, 3, 2, 64, 64), drawn(2, 3, 2, 64, 64)
    table, used, ends = np.array([[4, 1], [0, 3], [2, 5]]), (40, 64, 5), (0, 8, 9, 25)
    pages = (paged(x, 32, table, "PA_BNBD") for x in (k, v))
    call = PACKED | {"layout_kv": "PA_BNBD", "block_table": jnp.asarray(table, jnp.int32), "seqused_kv": used}
    out, log_sum = attended(q, *pages, mode=3, cu_seqlens_q=ends, **call)
    for place, keys in enumerate(used):
        rows = slice(ends[place], ends[place + 1])
        one = (jnp.moveaxis(q[rows], 0, 1)[None], k[place : place + 1, :, :keys], v[place : place + 1, :, :keys])
        assert_close((jnp.moveaxis(out[rows], 0, 1)[None], log_sum[None, :, rows]), expected(*one, sides=(None, 0)))


def test_a_long_past_and_a_narrow_window_stay_finite() -> None:
    """Field bug flash-attention-npu#168: the first blocks are all masked, and the result was NaN."""
    q, k, v = drawn(0, 1, 2, 16, 64), drawn(1, 1, 1, 20_000, 64), drawn(2, 1, 1, 20_000, 64)
    pages = (paged(x, 128, np.arange(157)[None], "PA_BBND") for x in (k, v))
    call = PACKED | {"layout_kv": "PA_BBND", "block_table": jnp.arange(157, dtype=jnp.int32)[None], "seqused_kv": (20_000,)}
    rows = jnp.moveaxis(q[0], 0, 1)
    out, log_sum = attended(rows, *pages, mode=4, win_left=256, win_right=0, cu_seqlens_q=(0, 16), **call)
    last = slice(20_000 - 16 - 256, None)  # no row sees more
    wanted = expected(q, k[:, :, last], v[:, :, last], sides=(256, 0))
    assert_close((jnp.moveaxis(out, 0, 1)[None], log_sum[None]), wanted)


def test_more_rows_than_keys_leave_the_first_rows_empty() -> None:
    """Field bugs vllm-omni#7322 and flash-attention-npu#120: 4 rows and 2 keys, causal."""
    q, k, v = drawn(0, 1, 1, 4, 64), drawn(1, 1, 1, 2, 64), drawn(2, 1, 1, 2, 64)
    out, log_sum = attended(q, k, v, mode=3)
    assert not out[0, 0, :2].any()
    assert jnp.isposinf(log_sum[0, 0, :2]).all()
    np.testing.assert_array_equal(out[0, 0, 2], v[0, 0, 0])  # one key: its value


def test_gradients_through_output_and_logarithm() -> None:
    q, k, v = drawn(0, 1, 4, 40, 64), drawn(1, 1, 2, 30, 64), drawn(2, 1, 2, 30, 64)
    weight = jnp.asarray(np.random.default_rng(4).normal(size=(1, 4, 40, 64)))

    def loss(out: Array, log_sum: Array) -> Array:
        return jnp.sum(out.astype(jnp.float64) * weight) + jnp.sum(
            jnp.where(jnp.isinf(log_sum), 0, log_sum).astype(jnp.float64)
        )

    found = jax.jit(jax.grad(lambda *x: loss(*attended(*x, mode=3)), argnums=(0, 1, 2)))(q, k, v)
    wide = tuple(x.astype(jnp.float64) for x in (q, k, v))
    wanted = jax.jit(jax.grad(lambda *x: loss(*expected(*x, sides=(None, 0))), argnums=(0, 1, 2)))(*wide)
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == jnp.float16
        np.testing.assert_allclose(np.float64(one), other, rtol=0, atol=1e-2)


def test_other_blocks_compute_the_same() -> None:
    q, k, v = drawn(0, 1, 2, 100, 64), drawn(1, 1, 2, 300, 64), drawn(2, 1, 2, 300, 64)
    found = attended(q, k, v, mode=3, tiling=Tiling(block_q=32, block_kv=48))
    assert_close(found, expected(q, k, v, sides=(None, 0)))


def test_values_of_the_mask_are_not_read() -> None:
    q, k, v = drawn(0, 2, 6, 7, 64), drawn(1, 2, 2, 7, 64), drawn(2, 2, 2, 7, 64)
    np.testing.assert_array_equal(attended(q, k, v, mode=3)[0], attended(q, k, v, mode=3, attn_mask=MASK + jnp.int8(1))[0])


def test_lengths_of_packed_sequences_must_be_known() -> None:
    q = drawn(0, 20, 2, 64)
    call = jax.jit(lambda ends: attended(q, q, q, cu_seqlens_q=ends, cu_seqlens_kv=(0, 20), **PACKED))
    with pytest.raises(TypeError, match="cu_seqlens_q of packed sequences must be known"):
        call(jnp.array([0, 20], jnp.int32))
