"""MatMul: an operator of the Cube. Signature: aclnnMatmul."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from ascend_jax.attention.errors import ParamInvalidError
from ascend_jax.runtime.ops.operator import Cost, OpCall, Operator, TilingData
from ascend_jax.runtime.ops.prototype import Attr, OpDef, Param
from ascend_jax.runtime.ops.rates import matmul_blocks, matmul_cost
from ascend_jax.runtime.ops.tensor import element_bytes

FLOATS = ("float16", "bfloat16", "float32")
MOST_RANK = 6


def _check(call: OpCall) -> None:
    one, other = call.shape("self"), call.shape("mat2")
    for name, shape in (("self", one), ("mat2", other)):
        if not 2 <= len(shape) <= MOST_RANK:
            raise ParamInvalidError(f"{name} of shape {list(shape)}", f"must have 2 to {MOST_RANK} dimensions", "reshape it")
    if one[-1] != other[-2]:
        rule = f"must equal the {other[-2]} rows of mat2"
        raise ParamInvalidError(f"k={one[-1]} columns of self", rule, "transpose one of them, or check its shape")
    try:
        np.broadcast_shapes(one[:-2], other[:-2])
    except ValueError:
        wrong = f"batches {list(one[:-2])} of self and {list(other[:-2])} of mat2"
        raise ParamInvalidError(wrong, "must broadcast to one shape", "reshape or repeat one of them") from None
    if not 0 <= call.attrs["cube_math_type"] <= 3:
        raise ParamInvalidError(f"cube_math_type={call.attrs['cube_math_type']}", "must lie in 0…3", "pass 0 to keep the type")


def _sizes(call: OpCall) -> tuple[int, int, int, int]:
    """Batch, m, k, n."""
    one, other = call.shape("self"), call.shape("mat2")
    return int(np.prod(np.broadcast_shapes(one[:-2], other[:-2]), dtype=int)), one[-2], one[-1], other[-1]


def _infer_shape(call: OpCall) -> dict[str, tuple[int, ...]]:
    one, other = call.shape("self"), call.shape("mat2")
    return {"out": (*np.broadcast_shapes(one[:-2], other[:-2]), one[-2], other[-1])}


def _tiling(call: OpCall) -> TilingData:
    batch, m, _, n = _sizes(call)
    blocks = max(1, min(int(call.chip.cube_cores), matmul_blocks(m, n, batch)))
    return TilingData(block_dim=blocks, tiling_key=call.combination, blob={"block": (128, 256)})


def _kernel(arrays: dict[str, Any], call: OpCall, data: TilingData) -> dict[str, Any]:
    """Products are added up in float32, as in L0C. ``cube_math_type`` changes no number here: float32 stays what it is."""
    one, other = arrays["self"], arrays["mat2"]
    batch = np.broadcast_shapes(one.shape[:-2], other.shape[:-2])
    one, other = (jnp.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (one, other))
    return {"out": jnp.matmul(one, other, preferred_element_type=jnp.float32).astype(one.dtype)}


def _duration(call: OpCall, data: TilingData) -> Cost:
    dtype = call.tensor("self").dtype
    return matmul_cost(call.chip, _sizes(call), dtype, element_bytes(dtype))


MAT_MUL = Operator(
    OpDef(
        "MatMul",
        inputs=(Param("self", FLOATS), Param("mat2", FLOATS)),
        outputs=(Param("out", FLOATS),),
        attrs=(Attr("cube_math_type", int, 0),),
    ),
    infer_shape=_infer_shape,
    tiling=_tiling,
    kernel=_kernel,
    duration=_duration,
    check=_check,
    core="cube",
)
