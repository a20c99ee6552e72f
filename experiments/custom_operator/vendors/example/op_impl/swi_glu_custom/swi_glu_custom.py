"""SwiGluCustom: ``y = silu(a) · b`` of the two halves of the last axis of x, an operator of the Vector."""

from math import prod
from typing import Any

import jax
import jax.numpy as jnp

from ascend_jax.attention.errors import ParamInvalidError
from ascend_jax.runtime.ops.operator import Cost, OpCall, Operator, TilingData
from ascend_jax.runtime.ops.prototype import Attr, OpDef, Param
from ascend_jax.runtime.ops.rates import vector_blocks, vector_cost

TYPES = ("float16", "bfloat16", "float32")
OPERATIONS = {"scale": 1, "exp": 1, "add": 1, "divide": 1, "multiply": 1, "cast": 3}
"""Vector instructions an element of y: silu is a / (1 + exp(-beta · a))."""


def check(call: OpCall) -> None:
    shape = call.shape("x")
    if not shape or shape[-1] % 2:
        raise ParamInvalidError(f"x of shape {list(shape)}", "must have an even last axis", "pass both halves side by side")


def infer_shape(call: OpCall) -> dict[str, tuple[int, ...]]:
    *lead, width = call.shape("x")
    return {"y": (*lead, width // 2)}


def tiling(call: OpCall) -> TilingData:
    elements = prod(infer_shape(call)["y"])
    cores = vector_blocks(call.chip, elements)
    return TilingData(block_dim=cores, tiling_key=call.combination, blob={"elements_per_core": -(-elements // cores)})


def kernel(arrays: dict[str, Any], call: OpCall, data: TilingData) -> dict[str, Any]:
    a, b = jnp.split(arrays["x"].astype(jnp.float32), 2, axis=-1)
    y = a * jax.nn.sigmoid(a * jnp.float32(call.attrs["beta"])) * b
    return {"y": y.astype(arrays["x"].dtype)}


def duration(call: OpCall, data: TilingData) -> Cost:
    read = call.tensor("x").bytes
    return vector_cost(call.chip, prod(infer_shape(call)["y"]), OPERATIONS, read, read // 2)


OPERATORS = (
    Operator(
        OpDef("SwiGluCustom", inputs=(Param("x", TYPES),), outputs=(Param("y", TYPES),), attrs=(Attr("beta", float, 1.0),)),
        infer_shape=infer_shape,
        tiling=tiling,
        kernel=kernel,
        duration=duration,
        check=check,
    ),
)
