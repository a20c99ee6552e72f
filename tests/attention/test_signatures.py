"""Names, order and defaults of arguments as torch_npu has them (its schemas in op_plugin_functions.yaml of op-plugin)."""

import inspect
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from ascend_jax import attention
from ascend_jax.attention.errors import AclnnError, FindKernelError

MOST = 2147483647
LENGTHS = {"prefix": None, "actual_seq_qlen": None, "actual_seq_kvlen": None}
COMMON = {"scale": 1.0, "keep_prob": 1.0}
SWITCHES = {"sparse_mode": 0, "gen_mask_parallel": True, "sync": False, "softmax_layout": "", "sink": None}
FUSION = {
    **{name: inspect.Parameter.empty for name in ("query", "key", "value", "head_num", "input_layout")},
    **{"pse": None, "padding_mask": None, "atten_mask": None, **COMMON, "pre_tockens": MOST, "next_tockens": MOST},
    **{"inner_precise": 0, **LENGTHS, **SWITCHES, "dropout_mask": None, "seed": 0, "offset": 0},
}
SECOND = {"pre_tokens": MOST, "next_tokens": MOST, "query_rope": None, "key_rope": None, "pse_type": 1}
SECOND |= {"q_start_idx": None, "kv_start_idx": None, "pse": None, **COMMON, **LENGTHS, **SWITCHES}
PROMPT = {
    **{"padding_mask": None, "atten_mask": None, "pse_shift": None, "actual_seq_lengths": None, "deq_scale1": None},
    **{"quant_scale1": None, "deq_scale2": None, "quant_scale2": None, "quant_offset2": None, "num_heads": 1},
    **{"scale_value": 1.0, "pre_tokens": MOST, "next_tokens": 0, "input_layout": "BSH", "num_key_value_heads": 0},
    **{"actual_seq_lengths_kv": None, "sparse_mode": 0},
}
INCRE = {
    **{"padding_mask": None, "atten_mask": None, "pse_shift": None, "actual_seq_lengths": None, "antiquant_scale": None},
    **{"antiquant_offset": None, "block_table": None, "dequant_scale1": None, "quant_scale1": None, "dequant_scale2": None},
    **{"quant_scale2": None, "quant_offset2": None, "kv_padding_size": None, "num_heads": 1, "scale_value": 1.0},
    **{"input_layout": "BSH", "num_key_value_heads": 0, "block_size": 0, "inner_precise": 1},
}


def defaults(operator: Any) -> dict[str, Any]:
    return {name: parameter.default for name, parameter in inspect.signature(operator).parameters.items()}


def test_the_first_version_has_its_arguments_in_order() -> None:
    assert list(defaults(attention.npu_fusion_attention).items())[: len(FUSION)] == list(FUSION.items())


@pytest.mark.parametrize("operator", [attention.npu_fusion_attention_v2, attention.npu_fusion_attention_grad_v2])
def test_the_second_version_has_its_own_spelling_and_all_options_by_name(operator: Any) -> None:
    spelled = {"scale": "scale_value"} if operator is attention.npu_fusion_attention_grad_v2 else {}
    found = defaults(operator)
    assert {name: found[spelled.get(name, name)] for name in SECOND} == SECOND
    assert not {"pre_tockens", "next_tockens"} & set(found)
    parameters = list(inspect.signature(operator).parameters.values())
    after = [x for x in parameters if x.default is not x.empty]
    assert parameters[-len(after) :] == after
    assert {x.kind for x in after} == {inspect.Parameter.KEYWORD_ONLY}


@pytest.mark.parametrize(
    ("operator", "wanted"), [(attention.npu_prompt_flash_attention, PROMPT), (attention.npu_incre_flash_attention, INCRE)]
)
def test_the_operators_for_one_phase_have_their_arguments(operator: Any, wanted: dict[str, Any]) -> None:
    assert list(defaults(operator).items())[3 : 3 + len(wanted)] == list(wanted.items())


HALF = np.ones((1, 2, 1, 64), np.float16)
PHASES: list[tuple[Any, dict[str, Any]]] = [
    (attention.npu_prompt_flash_attention, {"query": np.ones((1, 2, 16, 64), np.float16)}),
    (attention.npu_incre_flash_attention, {"query": HALF}),
]


@pytest.mark.parametrize(("operator", "query"), PHASES)
def test_a_padding_mask_has_no_effect(operator: Any, query: dict[str, Any]) -> None:
    keys = np.random.default_rng(0).standard_normal((1, 2, 16, 64)).astype(np.float16)
    call = query | {"key": keys, "value": keys, "num_heads": 2, "input_layout": "BNSD"}
    np.testing.assert_array_equal(operator(**call), operator(**call, padding_mask=jnp.ones((1, 16))))


@pytest.mark.parametrize(("operator", "query"), PHASES)
def test_scales_reach_the_operator_of_both_phases(operator: Any, query: dict[str, Any]) -> None:
    """An output of int8 is accepted and has no numerics here; scales that the operator refuses are refused."""
    keys = np.ones((1, 2, 16, 64), np.float16)
    call = query | {"key": keys, "value": keys, "num_heads": 2, "input_layout": "BNSD"}
    with pytest.raises(FindKernelError, match="output of int8"):
        operator(**call, quant_scale2=jnp.ones(1, jnp.float32))
    with pytest.raises(AclnnError, match="quant_offset2"):
        operator(**call, quant_scale2=jnp.ones(1, jnp.float32), quant_offset2=jnp.ones(3, jnp.float32))
