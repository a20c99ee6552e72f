"""Layouts, types, pse, dropout and sink of npu_fusion_attention, against plain softmax in float64."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ascend_jax.attention.dropout import keep_mask
from ascend_jax.attention.fusion.ops import FusionAttention
from ascend_jax.tiling.tiling import Tiling
from tests.attention.fusion_oracle import SMALL, attention, close, compressed, normal, oracle, qkv

LENS = (21, 37)


def as_layout(x: jax.Array, layout: str) -> jax.Array:
    """[B, N, S, D] in another layout of a batch."""
    order = {"BSND": (0, 2, 1, 3), "BNSD": (0, 1, 2, 3), "SBND": (2, 0, 1, 3)}[layout.replace("H", "ND")]
    x = jnp.transpose(x, order)
    return x.reshape(*x.shape[:2], -1) if layout.endswith("H") else x


def run(q: jax.Array, k: jax.Array, v: jax.Array, **options: Any) -> FusionAttention:
    return attention(q, k, v, q.shape[1], "BNSD", **({"scale": 0.3, "tiling": SMALL} | options))


@pytest.mark.parametrize("layout", ["BSH", "SBH", "BSND"])
def test_layouts_are_one_computation(layout: str) -> None:
    q, k, v = qkv((4, 2), LENS)
    v = v[..., :8]
    wanted = run(q, k, v)
    moved = [as_layout(x, layout) for x in (q, k, v)]
    found = attention(*moved, 4, layout.lower(), scale=0.3, tiling=SMALL)
    np.testing.assert_array_equal(found.attention_out, as_layout(wanted.attention_out, layout))
    np.testing.assert_array_equal(found.softmax_max, wanted.softmax_max)
    close(wanted.attention_out, oracle(q, k, v, scale=0.3)[0])


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_two_byte_types_within_the_tolerances_of_the_vendor(kind: str) -> None:
    """flash_attn's own: 5e-3 for float16, 2**-7 for bfloat16, with statistics in float32."""
    q, k, v = (x.astype(kind) for x in qkv((4, 2), (40, 72), d=88))
    found = run(q, k, v, scale=88**-0.5)
    close(found.attention_out, oracle(q, k, v, scale=88**-0.5)[0], 5e-3 if kind == "float16" else 2**-7)
    assert (found.attention_out.dtype, found.softmax_sum.dtype) == (jnp.dtype(kind), jnp.float32)


@pytest.mark.parametrize("d", [59, 200])
def test_head_sizes_off_every_unit(d: int) -> None:
    q, k, v = qkv((2, 1), LENS, batch=1, d=d)
    close(run(q, k, v).attention_out, oracle(q, k, v, scale=0.3)[0])


def test_the_cut_changes_nothing_but_rounding() -> None:
    q, k, v = qkv((2, 1), (130, 513), batch=1)
    wanted = oracle(q, k, v, scale=0.3)[0]
    for tiling in (None, Tiling(block_q=32, block_kv=256)):
        close(run(q, k, v, tiling=tiling).attention_out, wanted)


# pse.


@pytest.mark.parametrize("pse_type", [0, 1])
@pytest.mark.parametrize("shape", [(2, 4, *LENS), (1, 4, 1, LENS[1])])
def test_pse_is_added_before_or_after_the_scale(pse_type: int, shape: tuple[int, ...]) -> None:
    q, k, v = qkv((4, 2), LENS)
    pse = normal(5, shape)
    wanted = oracle(q, k, v, scale=0.3, bias=pse, bias_scaled=pse_type == 1)
    close(run(q, k, v, pse=pse, pse_type=pse_type).attention_out, wanted[0])


@pytest.mark.parametrize("pse_type", [2, 3])
@pytest.mark.parametrize("batched", [False, True])
def test_slopes_make_alibi(pse_type: int, batched: bool) -> None:
    q, k, v = qkv((4, 2), (37, 37))
    slopes = jnp.abs(normal(5, (2, 4) if batched else (4,)))
    i, j = np.arange(37)[:, None], np.arange(37)[None]
    far = np.abs(j - i - 3 + 1.0)
    bias = jnp.asarray(-(np.sqrt(far) if pse_type == 3 else far) * np.asarray(slopes, np.float64).reshape(-1, 4, 1, 1))
    found = run(q, k, v, pse=slopes, pse_type=pse_type, q_start_idx=[3], kv_start_idx=[1])
    close(found.attention_out, oracle(q, k, v, scale=0.3, bias=bias, bias_scaled=False)[0])


def test_an_alibi_of_its_last_1024_rows_is_the_whole_one() -> None:
    length = 1100
    q, k, v = qkv((2, 2), (length, length), batch=1)
    i, j = np.arange(length)[:, None], np.arange(length)[None]
    whole = jnp.asarray(-np.abs(j - i) * np.array([0.5, 0.25])[:, None, None], jnp.float32)[None]
    causal: dict[str, Any] = {"atten_mask": compressed(2), "sparse_mode": 2, "tiling": None}
    wanted = run(q, k, v, pse=whole, **causal)
    np.testing.assert_array_equal(run(q, k, v, pse=whole[:, :, -1024:], **causal).attention_out, wanted.attention_out)


# Dropout, sink.


def test_dropout_draws_what_the_950_draws() -> None:
    q, k, v = qkv((4, 2), LENS)
    found = run(q, k, v, keep_prob=0.7, seed=42, offset=160)
    keep = keep_mask(42, 160, (2, 4, *LENS), 0.7)
    close(found.attention_out, oracle(q, k, v, scale=0.3, keep=keep, keep_prob=0.7)[0])
    assert 0.6 < float(jnp.mean(keep)) < 0.8
    np.testing.assert_array_equal(found.softmax_sum, run(q, k, v).softmax_sum)  # dropout comes after the softmax
    assert found[4:] == (42, 160, 2 * 4 * LENS[0] * LENS[1])


def test_a_dropout_mask_goes_before_the_seed() -> None:
    q, k, v = qkv((4, 2), LENS)
    keep = normal(7, (2, 4, *LENS)) > 0
    bits = jnp.packbits(keep.reshape(-1), bitorder="little")
    found = run(q, k, v, keep_prob=0.5, dropout_mask=bits, seed=1)
    close(found.attention_out, oracle(q, k, v, scale=0.3, keep=keep, keep_prob=0.5)[0])


def test_a_sink_takes_probability_and_gives_nothing() -> None:
    q, k, v = qkv((4, 2), LENS)
    sink = jnp.linspace(-0.2, 3.0, 4, dtype=jnp.float32)
    found = run(q, k, v, sink=sink)
    out, top, total = oracle(q, k, v, scale=0.3, sink=sink)
    close(found.attention_out, out)
    close(found.softmax_max[..., 0], top)
    close(found.softmax_sum[..., 0], total)
