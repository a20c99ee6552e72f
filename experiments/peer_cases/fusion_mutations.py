"""How the vendor's tests break a call after they made it, in C++ statements, and what these do to our arguments."""

import ast
import operator
import re
from typing import Any

import jax
import jax.numpy as jnp

from experiments.peer_cases.not_expressible import NotExpressible

NAMES = {
    "query": "query",
    "key": "key",
    "value": "value",
    "dy": "dy",
    "pse": "pse",
    "attenMask": "atten_mask",
    "dropMask": "dropout_mask",
    "prefix": "prefix",
    "attenRes": "attention_in",
    "softmaxMax": "softmax_max",
    "softmaxSum": "softmax_sum",
    "actualSeqQLen": "actual_seq_qlen",
    "actualSeqKvLen": "actual_seq_kvlen",
}
LISTS = ("prefix", "actual_seq_qlen", "actual_seq_kvlen")
ATTRIBUTES = {"pre_tockens": "pre_tockens", "next_tockens": "next_tockens", "scale_value": "scale"}

LOST_MUTATIONS = {
    **{
        f"ts_aclnn_fag_tc_level2_error/Test_{number}": [f'query = Tensor("query1", {{{shape}}});']
        for numbers, shape in ((("001", "003", "007", "009"), "2, 2048"), (("002", "004", "008", "0010"), "2"))
        for number in numbers
    },
    **{
        f"ts_aclnn_fag_tc_level2_error/Test_{number}": ['MdfAttrs({"head_num", std::int64_t(100)});']
        for number in ("014", "015")
    },
    "ts_fag_tc_common/Tc_Common_InvalidShape_001": ['attenRes = Tensor("atten_res", {b + 1, s1, h1});'],
    "ts_fag_tc_empty_tensor/Tc_EmptyTensor_001": [
        'query = Tensor("query", {b, 0, h1});',
        'attenRes = Tensor("atten_res", {b, 0, h1});',
    ],
    "ts_fag_tc_us1s2_bbn2/Fag_Us1s2Bbn2_Case_000#2": ['attenMask = Tensor("attenMask", {s1, 1});'],
    "ts_fag_tc_us1s2_bbn2/Fag_Us1s2Bbn2_Case_001#2": ['attenMask = Tensor("attenMask", {2048, 2048});'],
    "ts_fag_tc_unpadded_attention/Fag_UnpaddedAttention_Case_000#2": ['actualSeqQLen = Tensor("actualSeqQLen", {});'],
}
"""What tests do to their case that the list of cases does not record, by case. Source: hicann/ops-transformer at c29bc106,
attention/flash_attention_score_grad/tests; of tests that break one case in several ways, the first."""

TENSOR = re.compile(r'(\w+) = Tensor\("\w+", \{(.*?)\}')
ATTRIBUTE = re.compile(r'MdfAttrs\(\{"(\w+)", std::\w+\((?:"?)([^")]*)')
OPERATIONS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv}


def mutated(statement: str, case: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The arguments that ``statement`` changes. Raises ``NotExpressible``."""
    if found := ATTRIBUTE.search(statement):
        name, value = ATTRIBUTES.get(found[1], found[1]), found[2]
        return {name: value if name == "input_layout" else float(value) if "." in value else int(value)}
    found = TENSOR.search(statement)
    if not found or found[1] not in NAMES:
        raise NotExpressible(f"no argument stands for: {statement}")
    name, shape = NAMES[found[1]], tuple(_size(part, case) for part in found[2].split(",") if part.strip())
    if name in LISTS:
        return {name: (0,) * shape[0] if shape else None}
    old = given.get(name) if name != "pse" else None
    dtype = old.dtype if old is not None else jnp.uint8 if name.endswith("mask") else given["query"].dtype
    changed = {name: jax.ShapeDtypeStruct(shape, dtype)}
    return changed | ({"dy": changed[name]} if name == "query" and "dy" in given and len(shape) > 2 else {})


def _size(expression: str, case: dict[str, Any]) -> int:
    """A size such as ``n2 * g * d``."""
    names = {name.lower(): case[name] for name in ("B", "N1", "N2", "S1", "S2", "D") if name in case}
    names |= {"g": names["n1"] // names["n2"], "h1": names["n1"] * names["d"], "h2": names["n2"] * names["d"]}
    return _value(ast.parse(expression.strip().replace("/", "//"), mode="eval").body, names)


def _value(node: ast.expr, names: dict[str, int]) -> int:
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.Name(id=name):
            return names[name]
        case ast.BinOp(left=left, op=op, right=right):
            return OPERATIONS[type(op)](_value(left, names), _value(right, names))
    raise NotExpressible(f"no size: {ast.unparse(node)}")
