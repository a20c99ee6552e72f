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
