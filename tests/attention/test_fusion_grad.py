"""npu_fusion_attention_grad: from the saved statistics to the gradients that differentiation and plain softmax give."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ascend_jax.attention.errors import AclnnError, NullptrError, ParamInvalidError
from ascend_jax.attention.fusion.grad import (
    FusionAttentionGrad,
    npu_fusion_attention_grad,
    npu_fusion_attention_grad_v2,
)
from ascend_jax.attention.fusion.ops import FusionAttention, npu_fusion_attention, npu_fusion_attention_v2
from tests.attention.fusion_oracle import SMALL, close, compressed, hidden, normal, qkv, reference

LENS = (21, 37)


def both(
    tensors: tuple[jax.Array, ...], layout: str, **options: Any
) -> tuple[FusionAttentionGrad, tuple[jax.Array, ...], jax.Array]:
    """The gradient operator on what the forward saved; the gradients of jax through the forward; and dy."""
    q, k, v = tensors
    heads = options.pop("head_num", 4)
    forward = partial(npu_fusion_attention, head_num=heads, input_layout=layout, scale=0.3, tiling=SMALL)
    extra = {name: options.pop(name) for name in ("pse", "sink") if name in options}
    found = forward(q, k, v, **extra, **options)
    dy = normal(20, found.attention_out.shape)

    def loss(q: jax.Array, k: jax.Array, v: jax.Array, extra: dict[str, jax.Array]) -> jax.Array:
        return jnp.sum(forward(q, k, v, **extra, **options).attention_out * dy)

    by_jax = jax.jit(jax.grad(loss, argnums=(0, 1, 2, 3)))(q, k, v, extra)
    saved: dict[str, Any] = {
        "softmax_max": found.softmax_max,
        "softmax_sum": found.softmax_sum,
        "attention_in": found.attention_out,
    }
    grad = npu_fusion_attention_grad(q, k, v, dy, heads, layout, scale_value=0.3, tiling=SMALL, **saved, **extra, **options)
    return grad, (*by_jax[:3], *(by_jax[3].get(name, jnp.zeros((0,))) for name in ("pse", "sink"))), dy


def saved_by(found: FusionAttention) -> dict[str, Any]:
    """What the gradient takes of the forward's results."""
    return {"softmax_max": found.softmax_max, "softmax_sum": found.softmax_sum, "attention_in": found.attention_out}


def options_of(name: str) -> dict[str, Any]:
    if name == "causal":
        return {"atten_mask": compressed(3), "sparse_mode": 3}
    if name == "pse, sink and dropout":
        return {"pse": normal(5, (2, 4, *LENS)), "sink": normal(6, (4,)), "keep_prob": 0.7, "seed": 5}
    band = {"atten_mask": jnp.asarray(hidden(0, LENS, (9, 30))), "pre_tockens": 9, "next_tockens": 30}
    return {"pse": normal(5, (2, 4, 1, LENS[1])), "pse_type": 0, **band}


@pytest.mark.parametrize("name", ["causal", "pse, sink and dropout", "one row of pse and a band"])
def test_the_gradient_is_that_of_the_forward_and_of_plain_softmax(name: str) -> None:
    q, k, v = qkv((4, 2), LENS)
    options = options_of(name)
    grad, by_jax, dy = both((q, k, v), "BNSD", **options)
    for found, wanted in zip(grad, by_jax, strict=True):
        close(found, np.asarray(wanted), 1e-5)
    if "seed" in options:
        return
    mode = options.get("sparse_mode", 0)
    masked = jnp.asarray(hidden(mode, LENS, (9, 30))) if "atten_mask" in options else None

    def loss(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        bias = options.get("pse")
        out = reference(q, k, v, scale=0.3, masked=masked, bias=bias, bias_scaled=options.get("pse_type") != 0)[0]
        return jnp.sum(out * dy.astype(out.dtype))

    wide = jax.jit(jax.grad(loss, argnums=(0, 1, 2)))(*(np.asarray(x, np.float64) for x in (q, k, v)))
    for found, wanted in zip(grad[:3], wide, strict=True):
        close(found, np.asarray(wanted), 5e-5)


@pytest.mark.slow
def test_the_gradient_of_packed_sequences() -> None:
    q, k, v = normal(0, (24, 4, 16)), normal(1, (36, 2, 16)), normal(2, (36, 2, 16))
    lists: dict[str, Any] = {"actual_seq_qlen": (5, 5, 21, 21, 0), "actual_seq_kvlen": (9, 13, 33, 33, 0)}
    for layout in ("", "TND"):
        grad, by_jax, _ = both((q, k, v), "TND", atten_mask=compressed(3), sparse_mode=3, softmax_layout=layout, **lists)
        for found, wanted in zip(grad, by_jax, strict=True):
            close(found, np.asarray(wanted), 1e-5)
    assert not grad.dq[21:].any() and not grad.dk[9:13].any() and not grad.dk[33:].any()


def test_rows_without_keys_have_no_gradient() -> None:
    q, k, v = qkv((4, 2), (37, 21))
    grad, by_jax, _ = both((q, k, v), "BNSD", atten_mask=compressed(3), sparse_mode=3)
    assert not grad.dq[:, :, :16].any() and grad.dq[:, :, 16:].any()
    for found, wanted in zip(grad[:3], by_jax[:3], strict=True):
        close(found, np.asarray(wanted), 1e-5)


@pytest.mark.slow
def test_the_gradient_of_rope() -> None:
    shapes = {
        "query": (8, 2, 32),
        "key": (12, 2, 32),
        "value": (12, 2, 32),
        "query_rope": (8, 2, 16),
        "key_rope": (12, 2, 16),
    }
    x = {name: normal(seed, shape).astype(jnp.bfloat16) for seed, (name, shape) in enumerate(shapes.items())}
    options: dict[str, Any] = {
        "atten_mask": compressed(3),
        "sparse_mode": 3,
        "actual_seq_qlen": (3, 8),
        "actual_seq_kvlen": (7, 12),
    }
    call = partial(npu_fusion_attention_v2, head_num=2, input_layout="TND", scale=0.05, **options)
    found = call(**x)
    dy = normal(9, (8, 2, 32)).astype(jnp.bfloat16)
    saved: dict[str, Any] = {
        "softmax_max": found.softmax_max,
        "softmax_sum": found.softmax_sum,
        "attention_in": found.attention_out,
    }
    grad = npu_fusion_attention_grad_v2(**x, dy=dy, head_num=2, input_layout="TND", scale_value=0.05, **saved, **options)
    by_jax = jax.jit(jax.grad(lambda x: jnp.sum((call(**x).attention_out * dy).astype(jnp.float32))))(x)
    names = {"query": grad.dq, "key": grad.dk, "value": grad.dv, "query_rope": grad.dq_rope, "key_rope": grad.dk_rope}
    for name, mine in names.items():
        close(mine, np.asarray(by_jax[name], np.float64), 2**-6)


# What it refuses.


def given(**changes: Any) -> dict[str, Any]:
    """The arguments of a gradient of BNSD [2, 4, 24, 16] by shape."""
    x, statistics = jax.ShapeDtypeStruct((2, 4, 24, 16), jnp.float16), jax.ShapeDtypeStruct((2, 4, 24, 8), jnp.float32)
    tensors: dict[str, Any] = {
        "query": x,
        "key": x,
        "value": x,
        "dy": x,
        "attention_in": x,
        "softmax_max": statistics,
        "softmax_sum": statistics,
    }
    return {**tensors, "head_num": 4, "input_layout": "BNSD", **changes}


def judged(arguments: dict[str, Any]) -> Any:
    static = {name: value for name, value in arguments.items() if not isinstance(value, jax.ShapeDtypeStruct)}
    tensors = {name: value for name, value in arguments.items() if name not in static}
    return jax.eval_shape(partial(npu_fusion_attention_grad, **static), **tensors)


def tensor(*shape: int, dtype: Any = jnp.float16) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


MASK = tensor(24, 24, dtype=jnp.bool_)


@pytest.mark.parametrize(
    ("code", "text", "changes"),
    [
        (ParamInvalidError, "dy of shape [2, 2048]", {"dy": tensor(2, 2048)}),
        (ParamInvalidError, "query and dy of shapes", {"dy": tensor(2, 4, 25, 16)}),
        (ParamInvalidError, "attention_in of shape", {"attention_in": tensor(3, 4, 24, 16)}),
        (ParamInvalidError, "query, key, value and dy of types", {"dy": tensor(2, 4, 24, 16, dtype=jnp.float32)}),
        (ParamInvalidError, "sparse_mode=7", {"sparse_mode": 7}),
        (NullptrError, "softmax_max=None", {"softmax_max": None}),
        (NullptrError, "softmax_sum of shape", {"softmax_sum": tensor(2, 4, 24, 1, dtype=jnp.float32)}),
        (NullptrError, "softmax_max of shape", {"softmax_max": tensor(2, 4, 24, 8)}),
        (NullptrError, "head_num=2", {"head_num": 2}),
        (NullptrError, "atten_mask of shape", {"atten_mask": tensor(24, 1, dtype=jnp.bool_)}),
        (
            NullptrError,
            "atten_mask of shape",
            {"atten_mask": tensor(2048, 2048, dtype=jnp.bool_), "sparse_mode": 6, "prefix": (0, 0)},
        ),
        (NullptrError, "prefix of 1", {"atten_mask": tensor(3072, 2048, dtype=jnp.bool_), "sparse_mode": 6, "prefix": (0,)}),
        (NullptrError, "pse of shape", {"pse": tensor(1, 4, 1, 24)}),
        (NullptrError, "pse of type", {"pse": tensor(2, 4, 24, 24, dtype=jnp.float32)}),
        (NullptrError, "pse=None", {"pse_type": 3}),
        (NullptrError, "pre_tockens=-25", {"pre_tockens": -25, "atten_mask": MASK}),
        (NullptrError, "pre_tockens=4 and next_tockens=-5", {"pre_tockens": 4, "next_tockens": -5}),
    ],
)
def test_what_the_gradient_refuses(code: type[AclnnError], text: str, changes: dict[str, Any]) -> None:
    with pytest.raises(code) as raised:
        judged(given(**changes))
    assert text in str(raised.value).splitlines()[0]


def test_the_950_looks_at_tokens_only_under_a_mask() -> None:
    assert judged(given(pre_tockens=4, next_tockens=-5, chip="950")).dq.shape == (2, 4, 24, 16)


def test_empty_gradients_are_zeros() -> None:
    q, k = jnp.ones((2, 4, 0, 16), jnp.float16), jnp.ones((2, 4, 5, 16), jnp.float16)
    statistics = jnp.ones((2, 4, 0, 8), jnp.float32)
    saved: dict[str, Any] = {"softmax_max": statistics, "softmax_sum": statistics, "attention_in": q}
    grad = npu_fusion_attention_grad(q, k, k, q, 4, "BNSD", **saved)
    assert grad.dq.shape == q.shape and not grad.dk.any() and not grad.dv.any()
