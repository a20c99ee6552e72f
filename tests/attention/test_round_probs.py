"""Without the rounding of P the operators come as near to plain softmax as their outputs' type lets them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from ascend_jax.attention import (
    npu_fused_infer_attention_score,
    npu_fusion_attention,
    npu_fusion_attention_grad,
    reference_attention,
)
from tests.attention.attention_cases import exact, qkv

CALL = qkv(50, batch=1, heads=(2, 2), lens=(64, 64), dims=(64, 64), dtype=jnp.dtype(jnp.bfloat16))


def fusion(round_probs: bool) -> Array:
    return npu_fusion_attention(*CALL, 2, "BNSD", scale=0.125, round_probs=round_probs).attention_out


def infer(round_probs: bool) -> Array:
    found = npu_fused_infer_attention_score(
        *CALL, num_heads=2, num_key_value_heads=2, input_layout="BNSD", scale=0.125, round_probs=round_probs
    )
    return found[0]


@pytest.mark.parametrize("operator", [fusion, infer])
def test_the_error_is_that_of_the_output_alone(operator: object) -> None:
    wanted = exact(CALL, scale=0.125)[0]
    errors = [np.abs(np.asarray(operator(flag), np.float64) - wanted) for flag in (True, False)]  # pyright: ignore[reportCallIssue]
    half_a_unit = np.asarray(jnp.abs(wanted)) * 2**-8 + 1e-6
    assert np.all(errors[1] <= half_a_unit) and np.any(errors[0] > half_a_unit)


def gradients(round_probs: bool) -> list[Array]:
    """From the saved output, which is rounded; at scale 1 a softmax is so sharp that its gradient is all cancellation."""
    saved = npu_fusion_attention(*CALL, 2, "BNSD", scale=1.0, round_probs=round_probs)
    names = ("attention_in", "softmax_max", "softmax_sum")
    given = dict(zip(names, saved[:3], strict=True))
    found = npu_fusion_attention_grad(*CALL, CALL[0], 2, "BNSD", scale_value=1.0, round_probs=round_probs, **given)
    return [found.dq, found.dk, found.dv]


def test_a_gradient_is_not_off_by_the_rounding_of_the_saved_output() -> None:
    wide = [jnp.asarray(x, jnp.float64) for x in CALL]
    plain = lambda q, k, v: reference_attention(q, k, v, scale=1.0)[0]  # noqa: E731
    wanted = jax.vjp(plain, *wide)[1](wide[0])
    for name, exactly, rounded, one in zip("qkv", wanted, gradients(True), gradients(False), strict=True):
        half_a_unit = np.asarray(jnp.abs(exactly)) * 2**-8 + 1e-5
        errors = [np.abs(np.asarray(x, np.float64) - np.asarray(exactly)) for x in (rounded, one)]
        assert np.all(errors[1] <= half_a_unit), name
        assert np.mean(errors[0] > half_a_unit) > 0.05, name


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_by_default_output_and_gradients_pass_the_tests_of_the_operator_itself(dtype: jnp.dtype) -> None:
    """ops-transformer's pytest: at most 0.5 % of the elements beyond max(0.005 · max(|a|, |b|), 2.5e-5), from normal inputs."""
    given = qkv(51, batch=1, heads=(2, 1), lens=(256, 256), dims=(64, 64), dtype=jnp.dtype(dtype))
    towards = qkv(52, batch=1, heads=(2, 1), lens=(256, 256), dims=(64, 64), dtype=jnp.dtype(dtype))[0]
    operator = lambda q, k, v: npu_fusion_attention(q, k, v, 2, "BNSD", scale=0.125).attention_out  # noqa: E731
    plain = lambda q, k, v: reference_attention(q, k, v, scale=0.125)[0]  # noqa: E731
    sides = []
    for attend, kind in ((operator, dtype), (plain, jnp.float64)):
        out, back = jax.vjp(attend, *(x.astype(kind) for x in given))
        sides.append([np.asarray(x, np.float64) for x in (out, *back(towards.astype(kind)))])
    for name, found, wanted in zip(("out", "dq", "dk", "dv"), *sides, strict=True):
        allowed = np.maximum(0.005 * np.maximum(np.abs(found), np.abs(wanted)), 2.5e-5)
        assert np.mean(np.abs(found - wanted) > allowed) <= 0.005, name
