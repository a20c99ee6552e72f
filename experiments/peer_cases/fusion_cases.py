"""Calls of ``npu_fusion_attention`` and its gradient for the cases of the vendor, op-plugin and MindSpeed.

Tensors are shapes and types alone: ``jax.eval_shape`` of the function with its other arguments bound says whether the call is
accepted. Cases of the operator's host tiling, which list raw inputs, become the public call that leads to them; what the
wrapper makes itself (the dropout mask of a gradient) is left out.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ascend_jax.attention.fusion.grad import npu_fusion_attention_grad
from ascend_jax.attention.fusion.ops import npu_fusion_attention
from experiments.peer_cases.fusion_mutations import LOST_MUTATIONS, mutated
from experiments.peer_cases.fusion_shapes import named_shape
from experiments.peer_cases.fusion_templates import lone_template_refuses
from experiments.peer_cases.not_expressible import NotExpressible

TYPES = {
    "FLOAT16": "float16",
    "BF16": "bfloat16",
    "FLOAT": "float32",
    "FLOAT8_E4M3FN": "float8_e4m3fn",
    "FLOAT8_E5M2": "float8_e5m2",
    "BOOL": "bool",
    "UINT8": "uint8",
}
FORWARD_INPUTS = (
    "query",
    "key",
    "value",
    "pse",
    "dropout_mask",
    "padding_mask",
    "atten_mask",
    *("",) * 8,
    "query_rope",
    "key_rope",
)
GRAD_INPUTS = (
    "query",
    "key",
    "value",
    "dy",
    "pse",
    "",
    "padding_mask",
    "atten_mask",
    "softmax_max",
    "softmax_sum",
    "softmax_in",
)
GRAD_INPUTS = (*GRAD_INPUTS, "attention_in", *("",) * 11, "sink")
DEFAULT_LAYOUT = "SBH"
"""Of the vendor's test parameters (fa_param.h)."""
PREFIX_INPUTS = (7, 12)
FORWARD_LENGTHS, GRAD_LENGTHS = (8, 9), (13, 14)

Arguments = dict[str, Any]


def arguments(case: dict[str, Any]) -> tuple[Callable[..., Any], Arguments]:
    """The public function and its keyword arguments for ``case``.

    Raises:
      NotExpressible: the public call cannot say what the case says.
    """
    if "enhance" in case["op"]:
        raise NotExpressible("an operator of its own: a window with leading sink tokens (sink_num), and rope without a mask")
    if case.get("layout") == "TND" and not any(name in case for name in ("seq_q_lens", "actual_seq_qlen", "input_shapes")):
        raise NotExpressible("the case does not record the lengths of its sequences")
    if reason := lone_template_refuses(case):
        raise NotExpressible(reason)
    case = {"layout": DEFAULT_LAYOUT, **case}
    grad = case["op"] == "fusion_attention_grad"
    given = _attributes(case, grad)
    if "input_shapes" in case:
        given |= _listed_tensors(case, grad)
    else:
        given |= _tensors(case, grad)
    for statement in (*case.get("mutation", ()), *LOST_MUTATIONS.get(case["id"], ())):
        given |= mutated(statement, case, given)
    return (npu_fusion_attention_grad if grad else npu_fusion_attention), given


def tensor(shape: Any, dtype: str) -> jax.ShapeDtypeStruct:
    """A tensor as its shape and type."""
    return jax.ShapeDtypeStruct(tuple(int(size) for size in shape), jnp.dtype(dtype))


def type_of(case: dict[str, Any]) -> str:
    """The type of Q, K and V by its name in JAX."""
    name = str(TYPES.get(case["dtype"], case["dtype"]))
    if name.upper() == "HIFLOAT8":
        raise NotExpressible("JAX has no HiFloat8")
    return name


def _attributes(case: dict[str, Any], grad: bool) -> Arguments:
    """Everything that is no tensor. An attribute that a case leaves out has its default."""
    names = {"keep_prob": "keep_prob", "inner_precise": "inner_precise", "sparse_mode": "sparse_mode", "pse_type": "pse_type"}
    names |= {"pre_tokens": "pre_tockens", "next_tokens": "next_tockens", "scale": "scale_value" if grad else "scale"}
    names |= {"seed": "seed", "offset": "offset"}
    found = {name: case[key] for key, name in names.items() if case.get(key) is not None}
    found |= {"head_num": case["N1"], "input_layout": case["layout"], "chip": _chip(case)}
    for name in ("q_start_idx", "kv_start_idx"):
        if case.get(name) is not None:
            found[name] = tuple(np.atleast_1d(case[name]).tolist())
    found |= _prefix(case) | _ends(case)
    if case.get("softmax_layout") == "same_as_input" and case["layout"] == "TND":
        found["softmax_layout"] = "TND"
    return found


def _chip(case: dict[str, Any]) -> str:
    """Tiling cases name their chip. The vendor's python tests draw dropout inside the kernel, which the 950 alone does."""
    chip = " ".join(map(str, case.get("compile_info", ())))
    return "950" if "950" in chip or "pytest" in case["group"] else "910b"


def _prefix(case: dict[str, Any]) -> Arguments:
    """A case with ``prefix_shape`` has a tensor of B entries, whatever it lists: what is missing is 0."""
    listed = case.get("prefix") or _unlisted_prefix(case)
    if case.get("prefix_shape") and listed:
        listed = (*listed[: case["B"]], *(0,) * (case["B"] - len(listed)))
    return {"prefix": tuple(listed)} if listed else {}


def _unlisted_prefix(case: dict[str, Any]) -> tuple[int, ...] | None:
    """Raw inputs give the number of entries alone; 0 is legal wherever there are no more keys than rows."""
    index = PREFIX_INPUTS[case["op"] == "fusion_attention_grad"]
    shape = case.get("input_shapes", ((),) * 24)[index]
    return (0,) * shape[0] if shape else None


def _ends(case: dict[str, Any]) -> Arguments:
    """Where sequences end: as given, or summed up from lengths, or even parts where a case has their number alone."""
    names = {"actual_seq_qlen": "seq_q_lens", "actual_seq_kvlen": "seq_kv_lens"}
    found = {}
    for place, (name, lens) in enumerate(names.items()):
        if case.get(name):
            found[name] = tuple(case[name])
        elif case.get(lens):
            found[name] = tuple(int(end) for end in np.cumsum(case[lens]))
        elif case["layout"] == "TND" and "input_shapes" in case:
            index = (GRAD_LENGTHS if case["op"].endswith("grad") else FORWARD_LENGTHS)[place]
            count, tokens = case["input_shapes"][index], case["input_shapes"][place][0]
            found[name] = tuple(tokens * (part + 1) // count[0] for part in range(count[0])) if count else ()
    return found


def _listed_tensors(case: dict[str, Any], grad: bool) -> Arguments:
    """Tensors of a case that lists the operator's raw inputs; an empty shape stands for none."""
    dtype = type_of(case)
    slopes = case.get("pse_type") in (2, 3)
    types = {"dropout_mask": "uint8", "atten_mask": "uint8", "softmax_max": "float32", "softmax_sum": "float32"}
    types |= {"pse": "float32" if slopes else dtype, "sink": "float32"}
    named = zip(GRAD_INPUTS if grad else FORWARD_INPUTS, case["input_shapes"], strict=False)
    found = {name: tensor(shape, types.get(name, dtype)) for name, shape in named if name and shape}
    if "atten_mask" in case:
        found["atten_mask"] = tensor(case["atten_mask"], "uint8")
    return found


def _tensors(case: dict[str, Any], grad: bool) -> Arguments:
    """Tensors of a case that names the axes."""
    dtype, sizes = type_of(case), sizes_of(case)
    found = {
        "query": tensor(_shape(case["layout"], sizes, "1", "D"), dtype),
        "key": tensor(_shape(case["layout"], sizes, "2", "D"), dtype),
        "value": tensor(_shape(case["layout"], sizes, "2", "DV"), dtype),
    }
    if case.get("D_rope"):
        sizes |= {"R": case["D_rope"]}
        found |= {"query_rope": tensor(_shape(case["layout"], sizes, "1", "R"), dtype)}
        found |= {"key_rope": tensor(_shape(case["layout"], sizes, "2", "R"), dtype)}
    found |= _optional_tensors(case, sizes, dtype)
    if grad:
        out = tensor(_shape(case["layout"], sizes, "1", "DV"), dtype)
        rows = (sizes.get("T1", 0), sizes["N1"]) if case["layout"] == "TND" else (sizes["B"], sizes["N1"], sizes["S1"])
        statistics = tensor((*rows, 8), "float32")
        found |= {"dy": out, "attention_in": out, "softmax_max": statistics, "softmax_sum": statistics}
        found.pop("dropout_mask", None)
    return found


def sizes_of(case: dict[str, Any]) -> dict[str, int]:
    """The axes of a case by name."""
    sizes = {name: case[name] for name in ("B", "N1", "N2", "S1", "S2", "D") if name in case}
    sizes["DV"] = case.get("DV", case["D"])
    ends = _ends(case) if case["layout"] == "TND" else {}
    for side, name in (("1", "actual_seq_qlen"), ("2", "actual_seq_kvlen")):
        if ends.get(name):
            lens = np.diff([0, *ends[name]])
            sizes.setdefault(f"S{side}", int(lens.max()))
            sizes |= {f"T{side}": int(ends[name][-1])}
            sizes.setdefault("B", len(lens))
    return sizes


def _shape(layout: str, sizes: dict[str, int], side: str, width: str) -> list[int]:
    """Shape of Q (side "1") or of K and V (side "2")."""
    axes = {"B": sizes["B"], "S": sizes.get(f"S{side}", 0), "N": sizes[f"N{side}"], "D": sizes[width]}
    axes |= {"H": axes["N"] * axes["D"], "T": sizes.get(f"T{side}", 0)}
    return [axes[name] for name in layout]


def _optional_tensors(case: dict[str, Any], sizes: dict[str, int], dtype: str) -> Arguments:
    found = {}
    slopes = case.get("pse_type") in (2, 3)
    if shape := named_shape(case.get("pse"), case, sizes):
        found["pse"] = tensor(shape, "float32" if slopes else dtype)
    if shape := named_shape(_mask_of(case), case, sizes):
        found["atten_mask"] = tensor(shape, TYPES.get(case.get("mask_dtype", "BOOL"), "bool"))
    if shape := named_shape(case.get("drop_mask"), case, sizes):
        found["dropout_mask"] = tensor(shape, "uint8")
    if case.get("sink"):
        found["sink"] = tensor((sizes["N1"],), "float32")
    return found


def _mask_of(case: dict[str, Any]) -> Any:
    """The mask of a case; the vendor's python tests make the one that the sparse mode needs and do not list it."""
    if "pytest" not in case["group"] or "atten_mask" in case:
        return case.get("atten_mask")
    mode = case.get("sparse_mode", 0)
    return {0: "S1_S2", 1: "S1_S2", 5: "B_1_S1_S2", 6: "PREFIXCOMPRESS"}.get(mode, "SPARSE")
