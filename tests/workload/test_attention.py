"""Attention: what is accepted, what is refused and how the refusal reads."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ascend_jax._pytree import as_arrays
from ascend_jax.workload.attention import Attention
from ascend_jax.workload.mask import Mask

DENSE: dict[str, Any] = {
    "batch": 2,
    "q_heads": 8,
    "kv_heads": 2,
    "q_len": 512,
    "kv_len": 1024,
    "head_dim": 128,
    "value_dim": 128,
}
RAGGED: dict[str, Any] = DENSE | {"batch": 1, "q_len": (100, 7), "kv_len": (100, 50), "layout": "TND"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dtype": "int8"}, r"dtype='int8' must be one of float16, bfloat16, float32 \(or fp16, half, bf16, fp32, float\)"),
        ({"layout": "NBSD"}, "layout='NBSD' must be one of BSH, SBH, BSND, BNSD, TND"),
        ({"kv_heads": 3}, "q_heads=8 must be a multiple of kv_heads=3"),
        ({"kv_heads": 0}, "kv_heads=0 must be a whole number of at least 1"),
        ({"head_dim": 0}, "head_dim=0 must be a whole number of at least 1"),
        ({"batch": -1}, "batch=-1 must be a whole number of at least 0"),
        ({"q_len": -5}, "q_len=-5 must be a whole number of at least 0"),
        ({"kv_len": 10.5}, "kv_len=10.5 must be a whole number"),
        ({"value_dim": float("inf")}, "value_dim=inf must be a whole number"),
        ({"q_heads": True}, "q_heads=True must be a whole number"),
        ({"q_len": (512,)}, "must both be one length or both one length per sequence"),
        ({"batch": (1, 1)}, "only where q_len and kv_len are tuples"),
    ],
)
def test_dense_refusals(changes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Attention(**DENSE | changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"q_len": (100,)}, "q_len has 1 lengths and kv_len 2"),
        ({"q_len": (), "kv_len": ()}, "at least one"),
        ({"q_len": (100, -7)}, "q_len=-7 must be a whole number of at least 0"),
        ({"batch": (1, 2, 3)}, "batch has 3 counts for 2 lengths"),
        ({"layout": "BSND"}, "layout='BSND' holds one length for all sequences: use TND"),
    ],
)
def test_ragged_refusals(changes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Attention(**RAGGED | changes)


@pytest.mark.parametrize(
    ("text", "dtype", "size"), [("bf16", "bfloat16", 2), ("fp16", "float16", 2), ("half", "float16", 2), ("fp32", "float32", 4)]
)
def test_dtype_aliases(text: str, dtype: str, size: int) -> None:
    work = Attention(**DENSE, dtype=text)
    assert (work.dtype, work.element_bytes) == (dtype, size)


def test_empty_batches_and_lengths_are_accepted() -> None:
    empty: dict[str, Any] = {"batch": 0, "q_len": 0, "kv_len": 0}
    assert Attention(**DENSE | empty).q_len == 0


@pytest.mark.parametrize("fields", [DENSE, RAGGED])
def test_passes_through_jit_without_being_checked_again(fields: dict) -> None:
    work = as_arrays(Attention(**fields, mask=Mask(kind="band", pre=4, next=0)))
    again = jax.jit(lambda it: it)(work)
    assert jax.tree.structure(again) == jax.tree.structure(work)
    np.testing.assert_array_equal(jax.tree.leaves(again), jax.tree.leaves(work))


def test_lists_text_and_dtypes_are_taken_for_what_they_mean() -> None:
    shape: dict[str, Any] = {"batch": 1, "q_heads": 8, "kv_heads": 2, "head_dim": 64}
    work = Attention(q_len=[128, 7], kv_len=np.array([128, 9]), mask="causal", dtype=jnp.bfloat16, layout="TND", **shape)
    assert (work.q_len, work.kv_len, work.value_dim, work.dtype) == ((128, 7), (128, 9), 64, "bfloat16")
    assert work.mask == Mask(kind="causal")
    with pytest.raises(ValueError, match="mask=None must be a Mask, or text"):
        Attention(q_len=1, kv_len=1, mask=None, **shape)
    with pytest.raises(ValueError, match="'128' is text where a number is due"):
        Attention(q_len="128", kv_len=128, **shape)
    with pytest.raises(ValueError, match="0 lengths"):
        Attention(q_len=[], kv_len=[], layout="TND", **shape)
