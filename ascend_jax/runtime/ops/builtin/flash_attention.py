"""FlashAttentionScore: checks and numerics of :mod:`ascend_jax.attention.fusion`, time of the cost model.

Names: the operator's prototype in ops-transformer (attention/flash_attention_score); attributes that the host reads (prefix,
lengths of packed sequences) are lists, as ``aclIntArray`` is.
"""

from typing import Any

import jax

from ascend_jax.attention.fusion.axes import Axes
from ascend_jax.attention.fusion.call import LAYOUTS, OPEN, Call, make_call
from ascend_jax.attention.fusion.checks import check_call
from ascend_jax.attention.fusion.ops import npu_fusion_attention
from ascend_jax.attention.fusion.plan import Sparse
from ascend_jax.cost.evaluate import evaluate
from ascend_jax.cost.report import Report
from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.runtime.ops.builtin.attention_work import work_of, workspace_bytes
from ascend_jax.runtime.ops.operator import Cost, OpCall, Operator, Shape, TilingData
from ascend_jax.runtime.ops.plan import layered_plan
from ascend_jax.runtime.ops.prototype import Attr, OpDef, Param, ParamType
from ascend_jax.timeline.simulate import Timeline, simulate

FLOATS = ("float16", "bfloat16", "float32")
LISTS = ("prefix", "actual_seq_qlen", "actual_seq_kvlen", "q_start_idx", "kv_start_idx")
SHARED_ATTRS = (
    Attr("scale_value", float, 1.0),
    Attr("keep_prob", float, 1.0),
    Attr("pre_tokens", int, OPEN),
    Attr("next_tokens", int, OPEN),
    Attr("head_num", int, required=True),
    Attr("input_layout", str, required=True),
    Attr("inner_precise", int, 0),
    Attr("sparse_mode", int, 0),
    Attr("pse_type", int, 1),
    Attr("seed", int, 0),
    Attr("offset", int, 0),
    Attr("softmax_layout", str, ""),
    *(Attr(name, list) for name in LISTS),
)
RENAMED = {"real_shift": "pse", "drop_mask": "dropout_mask", "scale_value": "scale"}
"""Names of the operator's prototype that torch_npu's operator calls otherwise."""


def chip_rules(spec: NpuSpec) -> str:
    """Whose checks hold on a chip: those of the 950, or of all before it."""
    return "950" if spec.architecture == "direct" else "910b"


def optional(*names: str) -> tuple[Param, ...]:
    """Optional inputs whose types the operator's own checks know."""
    return tuple(Param(name, kind=ParamType.OPTIONAL) for name in names)


def renamed(values: dict[str, Any]) -> dict[str, Any]:
    """By the names of the numerics."""
    return {RENAMED.get(name, name): value for name, value in values.items()}


def call_of(call: OpCall, tensors: dict[str, Any]) -> Call:
    """The call as the checks take it, with tensors or arrays."""
    attrs = renamed(call.attrs)
    lists = {name: attrs.pop(name) for name in LISTS}
    head_num, layout = attrs.pop("head_num"), attrs.pop("input_layout")
    return make_call(renamed(tensors), head_num, layout, lists=lists, **attrs, chip=chip_rules(call.chip))


def _checked(call: OpCall) -> tuple[Call, Axes, Sparse | None]:
    given = call_of(call, call.inputs)
    return given, *check_call(given)


def _check(call: OpCall) -> None:
    _checked(call)


def out_shape(given: Call, axes: Axes) -> Shape:
    """The shape of attention_out: that of query, with the head size of value."""
    if given.layout in ("BSH", "SBH"):
        return (*given.query.shape[:2], axes.n1 * axes.d_value)
    return (*given.query.shape[:-1], axes.d_value)


def _infer_shape(call: OpCall) -> dict[str, Shape]:
    given, axes, _ = _checked(call)
    statistics = (axes.t1, axes.n1, 8) if axes.packed else (axes.batch, axes.n1, axes.s1, 8)
    out = out_shape(given, axes)
    return {"softmax_max": statistics, "softmax_sum": statistics, "softmax_out": (0,), "attention_out": out}


def _infer_dtype(call: OpCall) -> dict[str, str]:
    own = call.tensor("query").dtype
    return {"softmax_max": "float32", "softmax_sum": "float32", "softmax_out": own, "attention_out": own}


def _tiling(call: OpCall) -> TilingData:
    return tiled(call, *_checked(call))


def tiled(call: OpCall, given: Call, axes: Axes, sparse: Sparse | None) -> TilingData:
    """The layered fallback's tiling; an empty call needs none."""
    if sparse is None:
        return TilingData(block_dim=1)
    work = work_of(given, axes, sparse)
    plan = layered_plan(call.chip, work, call.choose_tiling)
    return TilingData(
        block_dim=int(call.chip.cube_cores),
        tiling_key=100 * LAYOUTS.index(given.layout) + 10 * FLOATS.index(work.dtype) + given.sparse_mode,
        workspace_bytes=workspace_bytes(call.chip, work, plan.tiling, plan.kernel),
        tiling=plan.tiling,
        kernel=plan.kernel,
        steps=plan.steps,
        blob={"work": work},
    )


def _duration(call: OpCall, data: TilingData) -> Cost:
    """``evaluate``'s seconds. Dropout, pse and padding of rows without keys cost nothing in it."""
    if data.tiling is None:
        return Cost(float(call.chip.launch_s), 1)
    report: Report = jax.device_get(evaluate(call.chip, data.blob["work"], data.tiling, kernel=data.kernel))
    return Cost(float(report.seconds), max(1, round(float(report.active_cores))), report)


def _kernel(arrays: dict[str, Any], call: OpCall, data: TilingData) -> dict[str, Any]:
    given = renamed(arrays | call.attrs)
    tokens = {"pre_tockens": given.pop("pre_tokens"), "next_tockens": given.pop("next_tokens")}
    found = npu_fusion_attention(**given, **tokens, chip=chip_rules(call.chip), tiling=data.tiling)
    return {name: getattr(found, name) for name in ("softmax_max", "softmax_sum", "softmax_out", "attention_out")}


def inner_schedule(call: OpCall, data: TilingData) -> Timeline:
    """The simulated timeline of the chosen tiling."""
    assert data.tiling is not None
    return simulate(call.chip, data.blob["work"], data.tiling, kernel=data.kernel)


FLASH_ATTENTION_SCORE = Operator(
    OpDef(
        "FlashAttentionScore",
        inputs=(
            *(Param(name, FLOATS) for name in ("query", "key", "value")),
            *optional("real_shift", "drop_mask", "padding_mask", "atten_mask", "query_rope", "key_rope", "sink"),
        ),
        outputs=(
            Param("softmax_max"),
            Param("softmax_sum"),
            Param("softmax_out", kind=ParamType.OPTIONAL),
            Param("attention_out", FLOATS),
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
    inner_schedule=inner_schedule,
)
