"""Calls of ``npu_fused_infer_attention_score`` for the vendor's own cases: the tables of its tiling tests.

The rows reach us with shapes and types of query, key and value, shapes of pse_shift, mask, table, sink and query_rope, lengths
and attributes. key_rope, the prefix and paddings are left out: they are made as the row's name and note say. So are scales and
outputs; a row that tries one of these is not expressible.
"""

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from ascend_jax.attention.infer import npu_fused_infer_attention_score
from experiments.peer_cases.infer_notes import follow
from experiments.peer_cases.not_expressible import NotExpressible

DTYPES = {"FLOAT16": "float16", "BF16": "bfloat16", "INT32": "int32", "FLOAT": "float32", "INT64": "int64", "BOOL": "bool"}
QUANTISED = ("INT8", "INT4", "FLOAT8_E4M3FN", "FLOAT8_E5M2", "FLOAT4_E2M1", "HIFLOAT8")
ROPE_D = 64
LEFT_OUT = {
    r"post_?quant|anti_?quant|full_?quant|per_?(block|token|tensor|channel)|dequant": "scales and modes are not in the case",
    r"alibi|pse_?type": "pse_type is not an argument of torch_npu's function",
    r"qkvout|out_?dtype|out_?int8|attenOut|lse.*(shape|existence|dtype)": "outputs are made by the operator, not passed",
    r"[NS]_[NS]_mismatch": "the shape of the output is made by the operator, not passed",
    r"format|noncontig|stride": "JAX arrays have no storage format",
    r"block_?table.*(data_?type|dtype)|(mask|pse|sink).*d_?type": "types of other tensors are not in the case",
}
"""What names and notes of rows say they try, that the rows do not hold."""


def arguments(case: dict[str, Any]) -> tuple[Callable, dict[str, Any]]:
    """``npu_fused_infer_attention_score`` and its arguments for ``case``. Raises ``NotExpressible``."""
    _refuse_what_is_left_out(case)
    dtype, kv_dtype = DTYPES[case["dtype"]], DTYPES[case["kv_dtype"]]
    keys, values = (_shapes(case[name]) for name in ("k_shape", "v_shape"))
    found: dict[str, Any] = {
        "query": _tensor(case["q_shape"], dtype),
        "key": [_tensor(shape, kv_dtype) for shape in keys],
        "value": [_tensor(shape, kv_dtype) for shape in values],
        "num_heads": case["N1"],
        "num_key_value_heads": case["N2"],
        "input_layout": case["layout"],
        "softmax_lse_flag": bool(case["softmax_lse"]),
        "chip": "910b" if "arch22" in case["source"]["path"] else "950",
    }
    found |= {name: case[name] for name in ("scale", "pre_tokens", "next_tokens", "sparse_mode", "inner_precise", "block_size")}
    tensors = {"pse": ("pse_shift", dtype), "atten_mask": ("atten_mask", "int8"), "block_table": ("block_table", "int32")}
    tensors |= {"sink": ("learnable_sink", dtype), "q_rope": ("query_rope", dtype)}
    found |= {name: _tensor(case[column], kind) for column, (name, kind) in tensors.items() if column in case}
    columns = {"seq_q": "actual_seq_lengths", "seq_kv": "actual_seq_lengths_kv"}
    found |= {name: _numbers(case[column]) for column, name in columns.items() if column in case}
    if "q_rope" in case:
        found["key_rope"] = _tensor(_key_rope(case, keys), kv_dtype)
    return npu_fused_infer_attention_score, follow(case, found)


def _refuse_what_is_left_out(case: dict[str, Any]) -> None:
    kinds = (case["dtype"], case["kv_dtype"])
    if any(kind in QUANTISED for kind in kinds):
        raise NotExpressible("scales and modes of quantised inputs are not in the case")
    if any(kind not in DTYPES for kind in kinds):
        raise NotExpressible(f"JAX has no type for {kinds}")
    said = f"{case['source']['case']} {case.get('note', '')}"
    for pattern, reason in LEFT_OUT.items():
        if re.search(pattern, said, re.IGNORECASE):
            raise NotExpressible(reason)
    packed = case["layout"].split("_")[0] in ("TND", "NTD")
    missing = ("seq_kv" not in case and ("block_table" in case or packed)) or (packed and "seq_q" not in case)
    if missing and "arch35" in case["source"]["path"]:
        raise NotExpressible("the case does not say whether lengths are missing or known on the device only")


def _shapes(given: list[Any]) -> list[list[int]]:
    """One shape, or the several that a list of tensors has, which stand as ``[1, 3, "80|1", 4, 80]``."""
    parts = " ".join(map(str, given)).split("|")
    return [[int(side) for side in part.split()] for part in parts]


def _tensor(shape: Any, dtype: str) -> jax.ShapeDtypeStruct:
    if any(side < 0 for side in shape):
        raise NotExpressible(f"no array has the shape {list(shape)}")
    return jax.ShapeDtypeStruct(tuple(shape), jnp.dtype(dtype))


def _numbers(given: Any) -> tuple[int, ...]:
    return tuple(int(x) for x in given.split()) if isinstance(given, str) else tuple(given)


def _key_rope(case: dict[str, Any], keys: list[list[int]]) -> list[int]:
    """The shape of a rope that fits the keys: theirs with D=64."""
    shape = [len(keys) if len(keys) > 1 else keys[0][0], *keys[0][1:]]
    if "block_table" in case and len(shape) == 5:
        return [*shape[:2], ROPE_D // shape[4], *shape[3:]]
    flat = len(shape) == 3 and ("block_table" in case or case["layout"].startswith("BSH"))
    return [*shape[:-1], ROPE_D * (case["N2"] or case["N1"]) if flat else ROPE_D]
