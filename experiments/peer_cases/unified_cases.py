"""Calls of ``flash_attn`` for the vendor's own cases: its python tests and the table of its tiling test.

The rows of the table reach us without some columns: types of k and v, cu_seqlens_kv, seqused, metadata, outputs, formats. What
a legal call needs of these is filled in; where a row's note says what is wrong with one of them, the note is followed.
"""

import re
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from ascend_jax.attention.unified.ops import flash_attn
from experiments.peer_cases.not_expressible import NotExpressible

DTYPES = {"fp16": "float16", "bf16": "bfloat16", "FLOAT16": "float16", "BFLOAT16": "bfloat16", "FLOAT": "float32"}
INT32_MAX = 2**31 - 1
UNSAYABLE = {
    r"lse_?(out|dtype)|attn_?out|out_?dtype|\blseout": "outputs are made by the operator, not passed",
    r"format": "JAX arrays have no storage format",
    r"deterministic": "flash_attn has no such argument",
    r"seqused_\w*(exceed|negative)": "values of lengths are not checked, and the shape that was is not known",
}
"""What notes of rows speak of that no call can say."""


def arguments(case: dict[str, Any]) -> tuple[Callable, dict[str, Any]]:
    """``flash_attn`` and its keyword arguments for ``case``. Raises ``NotExpressible``."""
    return flash_attn, _from_row(case) if "q_shape" in case else _from_test(case)


def _tensor(shape: Any, dtype: Any) -> jax.ShapeDtypeStruct:
    shape = tuple(shape)
    if any(size < 0 for size in shape):
        raise NotExpressible(f"no array has the shape {list(shape)}")
    return jax.ShapeDtypeStruct(shape, np.dtype(dtype))


def _constants(masked: bool) -> dict[str, Any]:
    """What every call passes."""
    found = {"metadata": _tensor([4096], "int32")}
    return found | {"attn_mask": _tensor([2048, 2048], "int8")} if masked else found


def _from_test(case: dict[str, Any]) -> dict[str, Any]:
    """A case of the python tests, completed as they complete it (tests/pytests/core of flash_attn)."""
    if "nc_kv_dims" in case:
        raise NotExpressible("JAX arrays have no strides: every array is contiguous")
    dtype, mode = DTYPES[case["dtype"]], int(case["mask_mode"])
    found = _constants(mode != 0) | {name: case[f"{name}"] for name in ("layout_kv", "layout_out")}
    found |= {"layout_q": case["layout"], "softmax_scale": case.get("scale", case["D"] ** -0.5), "mask_mode": mode}
    found |= {name: tuple(case[name]) for name in ("seqused_q", "seqused_kv", "cu_seqlens_q", "cu_seqlens_kv") if name in case}
    if mode == 4:
        found |= {name: int(float(case.get(name, INT32_MAX))) for name in ("win_left", "win_right")}
    if case["layout"] == "TND" and case["layout_kv"] == "TND":
        found.setdefault("cu_seqlens_kv", found["cu_seqlens_q"])
    axes = {"N": case["N2"], "S": case.get("S2"), "D": case["D"], "T": (found.get("cu_seqlens_kv") or [0])[-1]}
    axes |= {"B": len(found["cu_seqlens_q"]) - 1 if case["layout"] == "TND" else case["B"]}
    if case["layout_kv"].startswith("PA_"):
        found |= _pages(case, axes, found)
    rows = axes | {"N": case["N1"], "S": case.get("S1"), "T": (found.get("cu_seqlens_q") or [0])[-1]}
    found["q"] = _tensor(_shape(case["layout"], rows), dtype)
    found["k"] = _tensor(_shape(case["layout_kv"], axes), dtype)
    found["v"] = _tensor(_shape(case["layout_kv"], axes | {"D": case["DV"]}), dtype)
    return found | {"return_softmax_lse": bool(case.get("return_softmax_lse", False))}


def _pages(case: dict[str, Any], axes: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """Table and lengths; the size of the pages goes into ``axes``. Pages are dealt out in order where no table is given."""
    page = case.get("block_size", 128)
    used = found.get("seqused_kv", (case.get("S2"),) * axes["B"])
    counts = [-(-length // page) for length in used]
    table = case.get("block_table")
    width = len(table[0]) if table else max(counts)
    rows = len(table) if table else axes["B"]
    axes |= {"pages": max(map(max, table)) + 1 if table else sum(counts), "page": page}
    return {"block_table": _tensor([rows, width], "int32"), "seqused_kv": used}


def _shape(layout: str, axes: dict[str, Any]) -> list[int]:
    """The shape of a tensor in ``layout``."""
    names = {"BSND": "B S N D", "BNSD": "B N S D", "TND": "T N D", "PA_BBND": "pages page N D", "PA_BNBD": "pages N page D"}
    if layout == "PA_NZ":
        return [axes["pages"], axes["N"], axes["D"] // 16, axes["page"], 16]
    return [axes[name] for name in names[layout].split()]


def _from_row(case: dict[str, Any]) -> dict[str, Any]:
    """A row of the table of the tiling test."""
    note = case["note"].lower()
    for pattern, reason in UNSAYABLE.items():
        if re.search(pattern, note) and "return_softmax_lse" not in note:
            raise NotExpressible(reason)
    found: dict[str, Any] = {"metadata": _tensor([1024], "int32"), "layout_q": case["layout"]}
    found |= {name: case[name] for name in ("layout_kv", "layout_out", "mask_mode", "win_left", "win_right")}
    found |= {name: _tensor(case[f"{name}_shape"], DTYPES[case["dtype"]]) for name in "qkv"}
    columns = {"block_table": ("block_table", "int32"), "attn_mask": ("atten_mask", "int8"), "sinks": ("sink", "float32")}
    for name, (column, dtype) in columns.items():
        if column in case:
            found[name] = _tensor(case[column], dtype)
    batch = case["q_shape"][0]
    if "cu_seqlens_q" in case:
        count = int(np.prod(case["cu_seqlens_q"]))
        batch, found["cu_seqlens_q"] = count - 1, _ends(count, case["q_shape"][0])
    if case["layout_kv"] == "TND":
        found["cu_seqlens_kv"] = _ends(batch + 1, case["k_shape"][0])
    if case["layout_kv"].startswith("PA_"):
        found["seqused_kv"] = _tensor([batch], "int32") if case["layout"] != "TND" else (1,) * batch
    return _followed(note, found, batch)


def _ends(count: int, tokens: int) -> tuple[int, ...]:
    """Ends of ``count - 1`` sequences of about one length."""
    return tuple(int(x) for x in np.linspace(0, tokens, count))


def _followed(note: str, found: dict[str, Any], batch: int) -> dict[str, Any]:
    """The call with what the note says of columns that did not reach us."""
    other = _tensor(found["k"].shape, "bfloat16")
    if re.search(r"no_seqused_kv", note):
        found.pop("seqused_kv", None)
    if re.search(r"dtype_?(mismatch_qk|_key)", note):
        found["k"] = other
    if re.search(r"dtype_?(mismatch_kv|_value)", note):
        found["v"] = _tensor(found["v"].shape, "bfloat16")
    if match := re.match(r"(block_table|cu_seqlens|seqused)_dtype_not", note):
        name = match[1] if match[1] == "block_table" else f"{match[1]}_q"
        shape = found[name].shape if match[1] == "block_table" else (batch + (match[1] == "cu_seqlens"),)
        found[name] = _tensor(shape, "float16")
    if re.match(r"seqused_shape_not_b", note):
        found["seqused_q"] = _tensor([batch + 1], "int32")
    if re.match(r"return_softmax_lse_invalid", note):
        found["return_softmax_lse"] = 2
    return found
