"""Calls of the public operators for the kernels of hicann/cann-bench.

Each kernel there is a small formula (its golden.py). Most are plain attention in another dress, which npu_fusion_attention or
flash_attn can be asked for; what that takes is said at each.
"""

from collections.abc import Callable
from itertools import accumulate
from typing import Any, NamedTuple

import jax
import numpy as np

from ascend_jax.attention.fusion.grad import npu_fusion_attention_grad
from ascend_jax.attention.fusion.ops import npu_fusion_attention
from ascend_jax.attention.unified.joint import HEAD_DIMS
from ascend_jax.attention.unified.ops import flash_attn
from experiments.peer_cases.not_expressible import NotExpressible

Call = tuple[Callable, dict[str, Any]]
SINK_TOKENS = 64
"""Tokens of one ``sink_num``."""


class Case(NamedTuple):
    """The shapes of a case's tensors, their type, and its attributes."""

    shapes: list[tuple[int, ...]]
    dtype: Any
    attrs: dict[str, Any]

    def tensor(self, shape: Any) -> jax.ShapeDtypeStruct:
        """A tensor of the case's type."""
        return jax.ShapeDtypeStruct(tuple(shape), self.dtype)


def arguments(case: dict[str, Any]) -> Call:
    """A public operator and its keyword arguments for ``case``. Raises ``NotExpressible``."""
    shapes = [tuple(shape) for shape in case["input_shapes"] if shape is not None]
    given = Case(shapes, np.dtype(case["dtype"]), case["attrs"])
    if case["op"] not in KINDS:
        raise NotExpressible(f"no rule for {case['op']}")
    return KINDS[case["op"]](given)


def _mask() -> jax.ShapeDtypeStruct:
    """The compressed mask of sparse modes 2 to 4."""
    return jax.ShapeDtypeStruct((2048, 2048), np.dtype(bool))


def _fusion(case: Case, q: Any, k: Any, v: Any, *, layout: str = "BNSD", **more: Any) -> Call:
    """Plain attention, scaled by the head's width."""
    heads = {"BNSD": 1, "BSND": 2, "TND": 1}[layout]
    found = {"query": case.tensor(q), "key": case.tensor(k), "value": case.tensor(v)}
    return npu_fusion_attention, found | {"head_num": q[heads], "input_layout": layout, "scale": q[-1] ** -0.5} | more


def _plain(case: Case) -> Call:
    return _fusion(case, *case.shapes[:3])


def _causal(case: Case) -> Call:
    return _fusion(case, *case.shapes[:3], atten_mask=_mask(), sparse_mode=2)


def _masked(case: Case) -> Call:
    """Its mask says which keys are seen; the operator's says which are not: the call passes the opposite."""
    mask = jax.ShapeDtypeStruct(case.shapes[3], np.dtype(bool))
    return _fusion(case, *case.shapes[:3], atten_mask=mask, sparse_mode=1)


def _local(case: Case) -> Call:
    side = case.attrs["window_size"] // 2
    return _fusion(case, *case.shapes[:3], atten_mask=_mask(), sparse_mode=4, pre_tockens=side, next_tockens=side)


def _window(case: Case) -> Call:
    """The bias of the positions is added after the scale, and is the same for every window of the batch."""
    if not case.attrs["has_position_bias"]:
        return _plain(case)
    return _fusion(case, *case.shapes[:3], pse=case.tensor((1, *case.shapes[3])), pse_type=0)


def _latent(case: Case) -> Call:
    """Its queries and keys are a part without and a part with positions, one behind the other."""
    q, q_rope, k, k_rope, v = case.shapes
    return _fusion(case, _wider(q, q_rope), _wider(k, k_rope), v)


def _wider(shape: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return (*shape[:-1], shape[-1] + other[-1])


def _sink(case: Case) -> Call:
    """Its sinks are keys and values of their own before the others."""
    q, k, v, sink_k, sink_v = case.shapes
    longer = [(*x[:2], x[2] + sink[2], x[3]) for x, sink in ((k, sink_k), (v, sink_v))]
    return _fusion(case, q, *longer)


def _packed(case: Case) -> Call:
    ends = {f"actual_seq_{side}len": tuple(case.attrs[f"{side}_len_prefix"]) for side in ("q", "kv")}
    return _fusion(case, *case.shapes[:3], layout="TND", **ends)


def _block_diagonal(case: Case) -> Call:
    """Every block of rows sees its own keys: the blocks are as many heads of a batch of B·N."""
    block = case.attrs["block_size"]
    return _fusion(case, *((x[0] * x[1], x[2] // block, block, x[3]) for x in case.shapes[:3]))


def _grouped(case: Case) -> Call:
    causal = {"atten_mask": _mask(), "sparse_mode": 3} if case.attrs["is_causal"] else {}
    scale = case.attrs["scaleValue"]
    return _fusion(case, *case.shapes[:3], layout="BSND", **causal, **({"scale": scale} if scale > 0 else {}))


def _paged(case: Case, layouts: tuple[str, str], table: tuple[int, int], used: int, pages: int) -> Call:
    """``flash_attn`` over ``used`` keys of each sequence, in pages."""
    q, cache = case.shapes[0], case.shapes[1]
    if q[-1] not in HEAD_DIMS:
        raise NotExpressible(f"flash_attn takes pages for D {HEAD_DIMS}, not {q[-1]}")
    keys = case.tensor((pages, *cache[1:]))
    return flash_attn, {
        "q": case.tensor(q),
        "k": keys,
        "v": keys,
        "block_table": jax.ShapeDtypeStruct(table, np.dtype("int32")),
        "seqused_kv": (used,) * q[0],
        "metadata": jax.ShapeDtypeStruct((4096,), np.dtype("int32")),
        "softmax_scale": q[-1] ** -0.5,
        "layout_q": layouts[0],
        "layout_kv": layouts[1],
        "layout_out": layouts[0],
    }


def _pages(case: Case) -> Call:
    """Every key of the pages of the table is seen, also those past the sequence's length."""
    q, cache = case.shapes[:2]
    columns = -(-q[2] // cache[1])
    return _paged(case, ("BNSD", "PA_BBND"), (q[0], columns), columns * cache[1], cache[0])


def _sink_pages(case: Case) -> Call:
    """Its sinks are keys of each sequence before those of its pages: further pages, which come first in the table."""
    q, cache, sink = case.shapes[0], case.shapes[1], case.shapes[5]
    if sink[2] % cache[2]:
        raise NotExpressible(f"{sink[2]} sink keys do not fill pages of {cache[2]}")
    before, columns = sink[2] // cache[2], case.shapes[3][1]
    used = sink[2] + max(1, min(case.attrs["seq_len_kv"], columns * cache[2]))
    return _paged(case, ("BNSD", "PA_BNBD"), (q[0], before + columns), used, cache[0] + before * q[0])


def _cache(case: Case) -> Call:
    q, cache, columns = case.shapes[0], case.shapes[1], case.shapes[4][1]
    used = max(1, min(max(case.attrs["cache_seqlen"], q[1]), columns * cache[1]))
    call, found = _paged(case, ("BSND", "PA_BBND"), (q[0], columns), used, cache[0])
    if case.attrs["causal"]:
        found |= {"mask_mode": 3, "attn_mask": jax.ShapeDtypeStruct((2048, 2048), np.dtype("int8"))}
    return call, found


def _enhanced(case: Case) -> Call:
    """The training operator with positions apart (again one behind the other), and with sink tokens."""
    return _with_options(case, case.shapes[:3], case.shapes[3:])


def _enhanced_grad(case: Case) -> Call:
    _, found = _with_options(case, case.shapes[:3], case.shapes[4:])
    packed = found["input_layout"] == "TND"
    q, heads = found["query"].shape, found["head_num"]
    statistics = jax.ShapeDtypeStruct((q[0], heads, *(() if packed else (q[1],)), 8), np.dtype("float32"))
    found |= {"dy": case.tensor(case.shapes[3]), "attention_in": case.tensor(case.shapes[3])}
    found |= {"softmax_max": statistics, "softmax_sum": statistics, "scale_value": found.pop("scale")}
    return npu_fusion_attention_grad, found


def _with_options(case: Case, shapes: list[tuple[int, ...]], ropes: list[tuple[int, ...]]) -> Call:
    attrs, layout = case.attrs, case.attrs["input_layout"]
    if layout == "TND" and attrs.get("sink_num"):
        raise NotExpressible(f"{attrs['sink_num'] * SINK_TOKENS} sink tokens that every packed sequence sees")
    q, k, v = shapes
    if ropes:
        q, k = _wider(q, ropes[0]), _wider(k, ropes[1])
    found: dict[str, Any] = {
        "scale": attrs["scale_value"],
        "sparse_mode": attrs["sparse_mode"],
        "keep_prob": attrs["keep_prob"],
    }
    found |= {"pre_tockens": attrs["pre_tokens"], "next_tockens": attrs["next_tokens"]}
    if attrs["sparse_mode"]:
        found["atten_mask"] = _mask()
    if layout == "TND":
        found |= {name: tuple(accumulate(attrs[name])) for name in ("actual_seq_qlen", "actual_seq_kvlen")}
    return _fusion(case, q, k, v, layout=layout, **found)


KINDS: dict[str, Callable[[Case], Call]] = {
    "bench:flash_attention": _plain,
    "bench:flash_attention_causal": _causal,
    "bench:flash_attention_mask": _masked,
    "bench:flash_attention_mla": _latent,
    "bench:flash_attention_pa": _pages,
    "bench:flash_attention_sink": _sink,
    "bench:flash_attention_sink_pa": _sink_pages,
    "bench:flash_attention_tnd": _packed,
    "bench:block_sparse_attention": _block_diagonal,
    "bench:gqa": _grouped,
    "bench:grouped_query_attention": _plain,
    "bench:local_attention": _local,
    "bench:multi_query_attention": _plain,
    "bench:paged_attention_kv_cache": _cache,
    "bench:scaled_dot_product_attention": _plain,
    "bench:window_attention": _window,
    "fusion_attention(enhance)": _enhanced,
    "fusion_attention_grad(enhance)": _enhanced_grad,
}
"""The call of each kernel of the benchmark."""
