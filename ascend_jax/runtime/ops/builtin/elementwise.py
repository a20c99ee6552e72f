"""Add, Cast and Softmax: operators of the Vector. Signatures: aclnnAdd, aclnnCast and aclnnSoftmax."""

from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ascend_jax.attention.errors import ParamInvalidError
from ascend_jax.runtime.ops.operator import Cost, OpCall, Operator, TilingData
from ascend_jax.runtime.ops.prototype import Attr, OpDef, Param
from ascend_jax.runtime.ops.rates import vector_blocks, vector_cost
from ascend_jax.runtime.ops.tensor import element_bytes

FLOATS = ("float16", "bfloat16", "float32")
NUMBERS = (*FLOATS, "int32")
CASTABLE = (*FLOATS, "int8", "uint8", "int32", "bool")
MOST_RANK = 8
"""Dimensions of a tensor of these operators."""


def _shape_of_add(call: OpCall) -> dict[str, tuple[int, ...]]:
    one, other = call.shape("self"), call.shape("other")
    try:
        return {"out": np.broadcast_shapes(one, other)}
    except ValueError:
        wrong = f"self of shape {list(one)} and other of shape {list(other)}"
        raise ParamInvalidError(wrong, "must broadcast to one shape", "reshape or repeat one of them") from None


def _add(arrays: dict[str, Any], call: OpCall, data: TilingData) -> dict[str, Any]:
    """``self + alpha · other``; types of 2 bytes are added in float32 and rounded once."""
    one, other = arrays["self"], arrays["other"]
    shape, wide = np.broadcast_shapes(one.shape, other.shape), one.dtype if one.dtype == jnp.int32 else jnp.float32
    one, other = (jnp.broadcast_to(x, shape).astype(wide) for x in (one, other))
    return {"out": (one + other * jnp.asarray(call.attrs["alpha"], wide)).astype(arrays["self"].dtype)}


def _check_rank(call: OpCall) -> None:
    for name in call.inputs:
        if len(call.shape(name)) > MOST_RANK:
            wrong = f"{name} of shape {list(call.shape(name))}"
            raise ParamInvalidError(wrong, f"must have at most {MOST_RANK} dimensions", "reshape it")


def _check_softmax(call: OpCall) -> None:
    _check_rank(call)
    rank, dim = len(call.shape("self")), call.attrs["dim"]
    if not -max(rank, 1) <= dim < max(rank, 1):
        raise ParamInvalidError(f"dim={dim}", f"must lie in {-max(rank, 1)}…{max(rank, 1) - 1}", "name an axis of self")


def _softmax(arrays: dict[str, Any], call: OpCall, data: TilingData) -> dict[str, Any]:
    x = arrays["self"]
    return {"out": x if x.size == 0 else jax.nn.softmax(x.astype(jnp.float32), axis=call.attrs["dim"]).astype(x.dtype)}


def _check_cast(call: OpCall) -> None:
    _check_rank(call)
    if call.attrs["dtype"] not in CASTABLE:
        raise ParamInvalidError(f"dtype={call.attrs['dtype']!r}", f"must be one of {', '.join(CASTABLE)}", "pass one of these")


def _cast(arrays: dict[str, Any], call: OpCall, data: TilingData) -> dict[str, Any]:
    """Fractions are cut off where whole numbers are wanted."""
    return {"out": arrays["self"].astype(call.attrs["dtype"])}


def _tiling(call: OpCall) -> TilingData:
    return TilingData(block_dim=vector_blocks(call.chip, prod(_out_shape(call))), tiling_key=call.combination)


def _out_shape(call: OpCall) -> tuple[int, ...]:
    return _shape_of_add(call)["out"] if call.op_type == "Add" else call.shape("self")


def _duration(call: OpCall, data: TilingData) -> Cost:
    elements = prod(_out_shape(call))
    read = sum(call.tensor(name).bytes for name in call.inputs)
    written = elements * element_bytes(call.attrs.get("dtype") or call.tensor("self").dtype)
    return vector_cost(call.chip, elements, OPERATIONS[call.op_type], read, written)


OPERATIONS = {
    "Add": {"add": 1, "scale": 1, "cast": 1},
    "Cast": {"cast": 1},
    "Softmax": {"row_max": 1, "subtract": 1, "exp": 1, "row_sum": 1, "divide": 1, "cast": 2},
}
"""Vector instructions an element."""

ADD = Operator(
    OpDef(
        "Add",
        inputs=(Param("self", NUMBERS), Param("other", NUMBERS)),
        outputs=(Param("out", NUMBERS),),
        attrs=(Attr("alpha", float, 1.0),),
    ),
    infer_shape=_shape_of_add,
    tiling=_tiling,
    kernel=_add,
    duration=_duration,
    check=_check_rank,
)
CAST = Operator(
    OpDef("Cast", inputs=(Param("self", CASTABLE),), outputs=(Param("out"),), attrs=(Attr("dtype", str, required=True),)),
    infer_shape=lambda call: {"out": call.shape("self")},
    infer_dtype=lambda call: {"out": call.attrs["dtype"]},
    tiling=_tiling,
    kernel=_cast,
    duration=_duration,
    check=_check_cast,
)
SOFTMAX = Operator(
    OpDef("Softmax", inputs=(Param("self", FLOATS),), outputs=(Param("out", FLOATS),), attrs=(Attr("dim", int, -1),)),
    infer_shape=lambda call: {"out": call.shape("self")},
    tiling=_tiling,
    kernel=_softmax,
    duration=_duration,
    check=_check_softmax,
)
