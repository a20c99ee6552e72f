"""Every sparse mode computes what a loop over rows and keys says, for any lengths, with zeros or means in rows without keys."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.attention.fusion_oracle import SMALL, attention, close, compressed, hidden, normal, oracle, qkv

LENS = [(37, 37), (21, 53), (53, 21)]  # off every multiple of the blocks of 16
MODES: list[tuple[int, dict[str, Any]]] = [
    (0, {"pre_tockens": 9, "next_tockens": 11}),
    (0, {"next_tockens": 0}),
    (0, {"pre_tockens": -2, "next_tockens": 15}),
    (1, {}),
    (2, {"pre_tockens": -8}),
    (3, {}),
    (4, {"pre_tockens": 40, "next_tockens": 5}),
    (4, {"pre_tockens": 33, "next_tockens": -1}),
    (5, {"prefix": (33, 40)}),
    (6, {"prefix": (33, 40)}),
]


def fitted(options: dict[str, Any], lens: tuple[int, int]) -> dict[str, Any]:
    """A prefix within the keys."""
    return options | ({"prefix": tuple(min(x, lens[1]) for x in options["prefix"])} if "prefix" in options else {})


def mask_of(mode: int, lens: tuple[int, int], options: dict[str, Any]) -> jax.Array:
    if mode in (2, 3, 4, 6):
        return compressed(mode)
    if mode == 1:
        return normal(9, (2, 1, *lens)) > 0.5
    tokens = options.get("pre_tockens", 2**31 - 1), options.get("next_tockens", 2**31 - 1)
    return jnp.asarray(np.stack([hidden(mode, lens, tokens, prefix) for prefix in options.get("prefix", (0, 0))])[:, None])


# Modes that do not count from the bottom right are the same computation for every order of the lengths.
CASES = [(mode, options, lens) for mode, options in MODES for lens in (LENS if mode in (3, 4, 6) else LENS[1:])]


@pytest.mark.parametrize(("mode", "options", "lens"), CASES)
def test_a_mode_is_its_loop(mode: int, options: dict[str, Any], lens: tuple[int, int]) -> None:
    q, k, v = qkv((4, 2), lens)
    options = fitted(options, lens)
    mask = mask_of(mode, lens, options)
    tokens = options.get("pre_tockens", 2**31 - 1), options.get("next_tockens", 2**31 - 1)
    loops = [hidden(mode, lens, tokens, prefix) for prefix in options.get("prefix", (0, 0))]
    masked = mask if mode == 1 else np.stack(loops)[:, None]
    found = attention(
        q, k, v, 4, "BNSD", atten_mask=mask, scale=0.3, sparse_mode=mode, inner_precise=2, tiling=SMALL, **options
    )
    out, top, total = oracle(q, k, v, scale=0.3, masked=jnp.asarray(masked), zero_empty_rows=True)
    close(found.attention_out, out)
    seen = ~np.asarray(masked).all(axis=-1, keepdims=True) & np.ones((2, 4, lens[0], 1), bool)
    close(np.where(seen, found.softmax_max, 0), np.where(seen, top[..., None], 0) * np.ones(8))
    close(np.where(seen, found.softmax_sum, 0), np.where(seen, total[..., None], 0) * np.ones(8))


def test_rows_without_keys_are_zeros_when_asked_or_noticed_and_means_otherwise() -> None:
    q, k, v = qkv((2, 2), (37, 21))
    limit = np.finfo(np.float32).max
    right: dict[str, Any] = {"atten_mask": compressed(3), "sparse_mode": 3, "tiling": SMALL}
    noticed = attention(q, k, v, 2, "BNSD", **right)
    assert not noticed.attention_out[:, :, :16].any()
    assert (np.asarray(noticed.softmax_max[:, :, :16]) == -limit).all() and (
        np.asarray(noticed.softmax_sum[:, :, :16]) == limit
    ).all()

    mask = jnp.zeros((37, 21), jnp.bool_).at[3].set(True)
    means, nothing = jnp.mean(v, axis=2), jnp.zeros_like(v[:, :, 0])
    for precise, row in ((0, means), (1, means), (3, means), (2, nothing)):
        found = attention(q, k, v, 2, "BNSD", atten_mask=mask, sparse_mode=1, inner_precise=precise)
        close(found.attention_out[:, :, 3], np.asarray(row))


def test_the_950_minds_empty_rows_with_inputs_of_2_bytes_alone() -> None:
    q, k, v = qkv((2, 2), (8, 8))
    mask = jnp.ones((8, 8), jnp.bool_)
    call = {"atten_mask": mask, "sparse_mode": 1, "inner_precise": 2, "chip": "950"}
    assert attention(q, k, v, 2, "BNSD", **call).attention_out.any()
    assert not attention(*(x.astype(jnp.bfloat16) for x in (q, k, v)), 2, "BNSD", **call).attention_out.any()


@pytest.mark.parametrize("dtype", ["bool", "uint8"])
def test_a_mask_hides_where_it_is_set(dtype: str) -> None:
    """The other way round than scaled_dot_product_attention of PyTorch (transformers#41143)."""
    q, k, v = qkv((1, 1), (4, 4), batch=1)
    mask = jnp.ones((4, 4), dtype).at[:, 2].set(jnp.zeros((), dtype))
    found = attention(q, k, v, 1, "BNSD", atten_mask=mask, sparse_mode=1)
    close(found.attention_out, np.broadcast_to(np.asarray(v[:, :, 2:3]), q.shape))


def test_mode_0_cuts_a_mask_that_disagrees_with_its_tokens_at_blocks() -> None:
    """The mask hides nothing; the tokens say causal: a row sees the whole of the blocks that some row of its block may see."""
    q, k, v = qkv((2, 2), (40, 40))
    mask = jnp.zeros((40, 40), jnp.bool_)
    rows, keys = np.arange(40)[:, None], np.arange(40)[None]
    for tokens, first, last in (
        ((40, 0), 0 * rows, (rows // 16 + 1) * 16),
        ((5, 18), (rows // 16 - 1) * 16, (rows // 16 + 1) * 16 + 32),
    ):
        found = attention(q, k, v, 2, "BNSD", atten_mask=mask, pre_tockens=tokens[0], next_tockens=tokens[1], tiling=SMALL)
        close(found.attention_out, oracle(q, k, v, masked=jnp.asarray((keys < first) | (keys >= last)))[0])
    everything = attention(q, k, v, 2, "BNSD", atten_mask=mask, tiling=SMALL)
    close(everything.attention_out, oracle(q, k, v)[0])


def test_mode_5_cuts_a_mask_at_the_block_of_its_prefix() -> None:
    q, k, v = qkv((1, 1), (40, 40), batch=1)
    found = attention(q, k, v, 1, "BNSD", atten_mask=jnp.zeros((40, 40), jnp.bool_), sparse_mode=5, prefix=(17,), tiling=SMALL)
    rows, keys = np.arange(40)[:, None], np.arange(40)[None]
    close(found.attention_out, oracle(q, k, v, masked=jnp.asarray(keys >= np.maximum((rows // 16 + 1) * 16, 32)))[0])


def test_wide_windows_over_many_blocks_stay_finite() -> None:
    """flash-attention-npu#168: blocks before the window are skipped, and no row loses its maximum to them."""
    q, k, v = qkv((2, 1), (16, 600), batch=1, d=59)
    found = attention(
        q, k, v, 2, "BNSD", atten_mask=compressed(4), sparse_mode=4, pre_tockens=256, next_tockens=0, tiling=SMALL
    )
    close(found.attention_out, oracle(q, k, v, masked=jnp.asarray(hidden(4, (16, 600), (256, 0))))[0])
