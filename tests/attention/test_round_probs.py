"""Without the rounding of P the operators come as near to plain softmax as their outputs' type lets them."""

import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from ascend_jax.attention import (
    npu_fused_infer_attention_score,
    npu_fusion_attention,
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
