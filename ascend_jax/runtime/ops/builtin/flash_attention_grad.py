"""FlashAttentionScoreGrad: checks and numerics of :mod:`ascend_jax.attention.fusion`; time of the forward pass, scaled."""

from typing import Any

from ascend_jax.attention.fusion.axes import Axes
from ascend_jax.attention.fusion.call import GradCall
from ascend_jax.attention.fusion.grad import npu_fusion_attention_grad_v2
from ascend_jax.attention.fusion.grad_checks import check_grad_call
from ascend_jax.attention.fusion.plan import Sparse
from ascend_jax.runtime.ops.builtin.flash_attention import (
    FLASH_ATTENTION_SCORE,
    FLOATS,
    SHARED_ATTRS,
    call_of,
    chip_rules,
    optional,
    renamed,
    tiled,
)
from ascend_jax.runtime.ops.operator import Cost, OpCall, Operator, Shape, TilingData
from ascend_jax.runtime.ops.prototype import OpDef, Param, ParamType

PRODUCTS = 5 / 2
"""Matrix products of the gradient (S, dP, dV, dQ, dK) to those of the forward pass (S, O)."""
OPTIONAL = ("real_shift", "padding_mask", "atten_mask", "softmax_max", "softmax_sum", "softmax_in", "attention_in")
ROPE = ("query_rope", "key_rope")


def _checked(call: OpCall) -> tuple[GradCall, Axes, Sparse | None]:
    given = call_of(call, call.inputs)
    assert isinstance(given, GradCall)
    return given, *check_grad_call(given)


def _check(call: OpCall) -> None:
    _checked(call)


def _infer_shape(call: OpCall) -> dict[str, Shape]:
    """Each gradient is like what it belongs to; that of what is absent is empty."""
    of = {"dq": "query", "dk": "key", "dv": "value", "dpse": "real_shift", "dsink": "sink"}
    of |= {"dq_rope": "query_rope", "dk_rope": "key_rope"}
    shapes = {out: (0,) if call.inputs[name] is None else call.shape(name) for out, name in of.items()}
    return shapes | ({"dpse": (0,)} if call.attrs["pse_type"] in (2, 3) else {})


def _infer_dtype(call: OpCall) -> dict[str, str]:
    own = call.tensor("query").dtype
    return {name: own for name in ("dq", "dk", "dv", "dpse", "dq_rope", "dk_rope")} | {"dsink": "float32"}


def _tiling(call: OpCall) -> TilingData:
    return tiled(call, *_checked(call))


def _duration(call: OpCall, data: TilingData) -> Cost:
    """The launch, and 5/2 of what the forward pass takes after it: an assumption, the cost model knows no gradient."""
    forward = FLASH_ATTENTION_SCORE.duration(call, data)
    launch = float(call.chip.launch_s) if forward.report is None else float(forward.report.launch_s)
    return forward._replace(seconds=launch + PRODUCTS * (forward.seconds - launch))


def _kernel(arrays: dict[str, Any], call: OpCall, data: TilingData) -> dict[str, Any]:
    given = renamed(arrays | call.attrs)
    given["scale_value"] = given.pop("scale")
    found = npu_fusion_attention_grad_v2(**given, chip=chip_rules(call.chip), tiling=data.tiling)
    return found._asdict()


FLASH_ATTENTION_SCORE_GRAD = Operator(
    OpDef(
        "FlashAttentionScoreGrad",
        inputs=(*(Param(name, FLOATS) for name in ("query", "key", "value", "dy")), *optional(*OPTIONAL, "sink", *ROPE)),
        outputs=(
            *(Param(name, FLOATS) for name in ("dq", "dk", "dv")),
            *(Param(name, kind=ParamType.OPTIONAL) for name in ("dpse", "dsink", "dq_rope", "dk_rope")),
        ),
        attrs=SHARED_ATTRS,
    ),
    infer_shape=_infer_shape,
    infer_dtype=_infer_dtype,
    tiling=_tiling,
    kernel=_kernel,
    duration=_duration,
    check=_check,
    core="mix",
)
