"""Kernels that exist, as data: the vendor's operators, and one teaching kernel of the 950 in seven schedules."""

from dataclasses import replace
from typing import Any

from ascend_jax.kernels.cube_vector import DIRECT, SEPARATED, CubeVector

CUBE_BASE = 128
CANN: dict[str, Any] = {"kv_rows": CUBE_BASE, "out_elements": 8192, "operator": True}
WIDE: dict[str, Any] = CANN | {"q_slots": 1.0, "kv_slots": 1.0}
"""Heads of more than 256 columns leave room in L1 for one Q and one piece of K and V."""

_V0 = CubeVector("falite_v0", issue="serial", v_load="after_p", fixpipe_waits=True, q_slots=1.0)
_V1 = replace(_V0, name="falite_v1", scores="UB", outs="UB")
_V2 = replace(_V1, name="falite_v2", probs="L1")
_V3 = replace(_V2, name="falite_v3", issue="grouped", group=2)
_V4 = replace(_V3, name="falite_v4", fixpipe_waits=False)
_V5 = replace(_V4, name="falite_v5", v_load="with_k", q_slots=2.0, o_slots=2.0)
_V8 = replace(_V5, name="falite_v8", issue="rolling", group=1, fused=True)

SCHEDULES: dict[str, CubeVector] = {
    kernel.name: kernel
    for kernel in (
        _V0,
        _V1,
        _V2,
        _V3,
        _V4,
        _V5,
        _V8,
        replace(SEPARATED, name="flash_attention_score", accumulate="GM", trim=True, **CANN),
        replace(SEPARATED, name="cann_separated", accumulate="GM", **CANN),
        replace(SEPARATED, name="cann_separated_wide", accumulate="GM", **WIDE),
        replace(SEPARATED, name="cann_separated_mla", accumulate="GM", reload_v=True, **WIDE),
        replace(DIRECT, name="cann_direct", operator=True),
        replace(DIRECT, name="cann_direct_wide", outs="GM", out_elements=4096, q_slots=1.0, operator=True),
    )
}
"""By name. ``falite_*``: cann-samples, flash_attn_lite_story (paths, slots and order of issue of each version). ``cann_*``: the
vendor's inference operators; ``wide`` for heads above 256 columns on separated cores, and above 128 on the 950, whose ΔO then
crosses GM. ``flash_attention_score``: the vendor's training operator."""
