"""The axes of a call, read from its tensors in the order of the operator's host code, and what stops the reading.

Source of the rules: attention/flash_attn/op_host/flash_attn_tiling_info_parser.cpp and fa_tiling_shape.cpp of ops-transformer.
"""

from typing import Any, NamedTuple

import numpy as np

from ascend_jax.attention.errors import ParamNullptrError, TilingError
from ascend_jax.attention.unified.call import Call, shown

AXES = {
    "BSND": ("B", "S", "N", "D"),
    "BNSD": ("B", "N", "S", "D"),
    "TND": ("T", "N", "D"),
    "PA_BBND": ("pages", "page", "N", "D"),
    "PA_BNBD": ("pages", "N", "page", "D"),
    "PA_NZ": ("pages", "N", "D1", "page", "D0"),
}
"""The axes of each layout; ``page`` is the page's length (block_size), D = D1·D0."""


class Sizes(NamedTuple):
    """The axes of a call.

    ``q_len`` and ``kv_len`` are S1 and S2; of packed sequences all tokens; of pages all that a sequence can have. ``page`` and
    ``pages`` are length and number of the pages, 0 without.
    """

    batch: int
    q_heads: int
    kv_heads: int
    q_len: int
    kv_len: int
    head_dim: int
    value_dim: int
    page: int
    pages: int


def read_sizes(call: Call) -> Sizes:
    """The axes of ``call``. Raises where the operator cannot read them."""
    for name in ("q", "k", "v"):
        if getattr(call, name) is None:
            raise ParamNullptrError(f"{name}=None", "is required", f"pass {name}")
    for name in ("layout_q", "layout_kv", "layout_out"):
        _check_layout(name, getattr(call, name))
    for name in ("q", "k", "v"):
        if 0 in getattr(call, name).shape:
            raise TilingError(
                shown(name, getattr(call, name)), "no axis may be 0", "leave the call out when there is nothing to do"
            )
    q, v = _axes("q", call.q, call.layout_q), _axes("v", call.v, call.layout_kv)
    batch, q_len = _batch(call, q)
    k = _axes("k", call.k, call.layout_kv)
    if q["N"] % k["N"]:
        raise TilingError(f"N1={q['N']} of q, N2={k['N']} of k", "N1 must be a multiple of N2", f"pass {k['N']}·n heads of q")
    pages = (k["page"], k["pages"]) if call.paged else (0, 0)
    return Sizes(batch, q["N"], k["N"], q_len, _kv_len(call, k), q["D"], v["D"], *pages)


def _check_layout(name: str, layout: str) -> None:
    if layout not in AXES:
        raise TilingError(f"{name}={layout!r}", f"must be one of {', '.join(AXES)}", 'pass a layout such as "BSND"')


def _axes(name: str, x: Any, layout: str) -> dict[str, int]:
    axes = AXES[layout]
    if len(x.shape) != len(axes):
        raise TilingError(shown(name, x), f"layout {layout} has {len(axes)} axes", f"pass {name} as [{', '.join(axes)}]")
    sizes = dict(zip(axes, x.shape, strict=True))
    return sizes if "D" in sizes else sizes | {"D": sizes["D1"] * sizes["D0"]}


def _batch(call: Call, q: dict[str, int]) -> tuple[int, int]:
    """B and S1."""
    if call.layout_q != "TND":
        if "B" not in q:
            raise TilingError(f"layout_q={call.layout_q!r}", "has no batch axis", 'pass "BSND", "BNSD" or "TND"')
        return q["B"], q["S"]
    if call.cu_seqlens_q is None:
        raise TilingError("cu_seqlens_q=None", "layout_q TND needs it", "pass [0, end of sequence 0, end of sequence 1, …]")
    ends = int(np.prod(call.cu_seqlens_q.shape))
    if ends <= 1:
        raise TilingError(shown("cu_seqlens_q", call.cu_seqlens_q), "must hold more than 1 number", "pass B + 1 numbers")
    return ends - 1, q["T"]


def _kv_len(call: Call, k: dict[str, int]) -> int:
    if not call.paged:
        return k["T"] if call.layout_kv == "TND" else k["S"]
    if call.block_table is None:
        raise TilingError("block_table=None", f"layout_kv {call.layout_kv} needs it", "pass int32 [B, pages per sequence]")
    return k["page"] * (call.block_table.shape[1] if len(call.block_table.shape) > 1 else 0)
