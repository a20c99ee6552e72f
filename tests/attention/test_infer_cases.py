"""Rows of the vendor's tables as calls of npu_fused_infer_attention_score."""

from typing import Any

import jax
import pytest

from ascend_jax.attention.errors import TilingError
from experiments.peer_cases.infer_cases import arguments
from experiments.peer_cases.not_expressible import NotExpressible

Case = dict[str, Any]


def case(name: str, arch: str = "arch22", **changed: Any) -> Case:
    """A row that the operator takes, with changes."""
    row: Case = {"q_shape": [2, 8, 4, 128], "k_shape": [2, 2, 64, 128], "v_shape": [2, 2, 64, 128], "N1": 8, "N2": 2}
    row |= {"dtype": "FLOAT16", "kv_dtype": "FLOAT16", "layout": "BNSD", "scale": 0.1, "pre_tokens": 9, "next_tokens": 9}
    row |= {"sparse_mode": 0, "inner_precise": 0, "block_size": 0, "softmax_lse": 0}
    return row | changed | {"source": {"path": f"op_host/{arch}/tiling.csv", "case": name}}


def called(row: Case) -> Any:
    """Shapes of the results."""
    function, found = arguments(row)
    tensors = {name: x for name, x in found.items() if isinstance(x, jax.ShapeDtypeStruct | list)}
    rest = {name: x for name, x in found.items() if name not in tensors}
    return jax.eval_shape(lambda given: function(**given, **rest), tensors)


def test_a_plain_row() -> None:
    assert called(case("plain"))[0].shape == (2, 8, 4, 128)
    _, found = arguments(case("plain", "arch35", seq_q="3 4", sink=[8]))
    assert (found["chip"], found["actual_seq_lengths"], found["learnable_sink"].shape) == ("950", (3, 4), (8,))


def test_lists_of_tensors() -> None:
    row = case("list", k_shape=[1, 2, 3, "128|1", 2, 4, 128], v_shape=[1, 2, 3, "128|1", 2, 4, 128])
    assert [x.shape for x in arguments(row)[1]["key"]] == [(1, 2, 3, 128), (1, 2, 4, 128)]
    assert called(row)[0].shape == (2, 8, 4, 128)


@pytest.mark.parametrize(
    ("shape", "layout", "more", "rope"),
    [
        ([2, 2, 64, 128], "BNSD", {}, (2, 2, 64, 64)),
        ([2, 64, 256], "BSH", {}, (2, 64, 128)),
        ([9, 2, 8, 16, 16], "BNSD", {"block_table": [2, 4]}, (9, 2, 4, 16, 16)),
        ([9, 16, 256], "BNSD", {"block_table": [2, 4]}, (9, 16, 128)),
    ],
)
def test_key_rope_fits_the_key(shape: list[int], layout: str, more: Case, rope: tuple[int, ...]) -> None:
    row = case("rows", k_shape=shape, v_shape=shape, layout=layout, q_rope=[2, 8, 4, 64], **more)
    assert arguments(row)[1]["key_rope"].shape == rope


@pytest.mark.parametrize(
    ("name", "more", "line"),
    [
        (
            "tSysPrefix_bnsd_n_vsp_mismatch",
            {},
            r"key_shared_prefix of shape \(1, 2, 128, 128\), value_shared_prefix of shape \(1, 1",
        ),
        ("tSysPrefix_dtype_kvp_mismatch", {}, "shared prefixes of float16 and bfloat16"),
        ("tSysPrefix_aspl_negative", {}, "actual_shared_prefix_len=-1: must be 0 to 128"),
        ("tSysPrefixOnlyValue", {}, "only one of key_shared_prefix and value_shared_prefix"),
        ("tLeftPad_kv", {}, "left padding with actual_seq_lengths_kv=None"),
        ("tLeftPad_qpad_dim_err", {"seq_q": [4, 4]}, r"query_padding_size of shape \(2,\)"),
        ("krope_s_mismatch", {"q_rope": [2, 8, 4, 64]}, r"key_rope of shape \(2, 2, 65, 64\)"),
        ("mla_query_rope_dtype", {"q_rope": [2, 8, 4, 64]}, "query_rope of float32"),
        ("tErr_RopeOnlyKeyRope", {}, "only one of query_rope and key_rope"),
    ],
)
def test_what_the_name_says_is_followed(name: str, more: Case, line: str) -> None:
    with pytest.raises(TilingError, match=line):
        called(case(name, **more))


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (case("kv_int8", kv_dtype="INT8"), "scales and modes of quantised inputs"),
        (case("PostQuant_shape"), "scales and modes are not in the case"),
        (case("attenOutDtype"), "outputs are made by the operator"),
        (case("negative", q_shape=[2, 8, -4, 128]), "no array has the shape"),
        (case("packed", "arch35", layout="TND"), "known on the device only"),
    ],
)
def test_not_expressible(row: Case, reason: str) -> None:
    with pytest.raises(NotExpressible, match=reason):
        arguments(row)
