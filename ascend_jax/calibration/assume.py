"""From a measured row to a case of the model: which chip, workload, kernel and tiling it stands for."""

import re
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from ascend_jax.calibration.rows import Row
from ascend_jax.hardware import NpuSpec, load_chip
from ascend_jax.kernels import kernel_for
from ascend_jax.kernels.kernel import Kernel
from ascend_jax.kernels.schedules import SCHEDULES
from ascend_jax.proposal import check, fitting
from ascend_jax.tiling.cann import cann_kernel, cann_tiling
from ascend_jax.tiling.tiling import Tiling
from ascend_jax.verdict import Verdict
from ascend_jax.workload.attention import ALIASES, ELEMENT_BYTES, Attention
from ascend_jax.workload.mask import Mask


class Unmodelled(ValueError):
    """A row that the model has no case for; the text says why."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """What a row is taken for.

    Attributes:
      row: the measurement.
      spec: the chip.
      work: the attention call.
      kernel: the dataflow.
      tiling: as the row states it, or by the vendor's rule; None where the tuner is to choose.
      group: family of kernels, for statistics and cross-validation.
    """

    row: Row
    spec: NpuSpec
    work: Attention
    kernel: Kernel
    tiling: Tiling | None
    group: str


FALITE = {
    # version: K and V, S, P, ΔO and L0 slots, and how far P·V runs behind (falite_schedules of cann-samples)
    "v0": (1, 1, 1, 1, 1, 0),
    "v1": (1, 1, 1, 1, 1, 0),
    "v2": (1, 1, 1, 1, 1, 0),
    "v3": (2, 2, 2, 2, 1, 0),
    "v4": (2, 2, 2, 2, 2, 0),
    "v5": (2, 2, 2, 2, 2, 0),
    "v8": (4, 2, 4, 2, 2, 3),
}
TRAINING = re.compile(r"FlashAttentionScore|fusion_attention|aclnn", re.IGNORECASE)
VENDOR = re.compile(
    rf"{TRAINING.pattern}|FIA|FusedInfer|PromptFlash|IncreFlash|torch_?npu|cann|MLA|baseline|flash_attn|npu_", re.IGNORECASE
)
FALITE_28_CORES = 32_768
"""Rows up to this length ran on 28 cube cores, longer ones on 32."""


def assume(row: Row) -> Case:
    """The case that ``row`` stands for.

    Raises:
      Unmodelled: no attention, a sparse or shared-prefix kernel, a chip that the catalogue lacks, or a shape that is missing.
    """
    if row.category != "attention":
        raise Unmodelled(f"category {row.category!r}: only attention is modelled end to end")
    if re.search(r"BSA|sparse|Typhoon", row.op, re.IGNORECASE):
        raise Unmodelled("a sparse or shared-prefix kernel does less work than its shape says")
    if row.note and "sparsity>0" in row.note and not row.core_validation:
        raise Unmodelled("run with an explicit attention mask of unknown pattern, whose tiles are all read")
    work = _work(row)
    if "falite" in row.op:
        return _falite(row, work)
    if re.search(r"\bPTO\b", row.op):
        return _pto(row, work)
    return _vendor(row, work) if VENDOR.search(row.op) else _other(row, work)


def _vendor(row: Row, work: Attention) -> Case:
    spec = _chip(row.catalog_chip)
    operator = "FlashAttentionScore" if TRAINING.search(row.op) else "FusedInferAttentionScore"
    kernel = kernel_for(spec, cann_kernel(spec.architecture, work, operator))
    found = fitting(spec, work, cann_tiling(spec, work, operator), kernel)
    if found.verdict is not Verdict.FITS:
        raise Unmodelled(f"the vendor's tiling does not fit in this model: {found.message}")
    return Case(row=row, spec=spec, work=work, kernel=kernel, tiling=found.tiling, group=f"CANN {_family(row, work)}")


def _family(row: Row, work: Attention) -> str:
    if work.latent:
        return "MLA absorb" if "Absorb" in row.op else "MLA"
    return "decode" if _rows(work) <= 128 and int(work.q_len) <= 16 else "prefill"


def _falite(row: Row, work: Attention) -> Case:
    version = re.search(r"v\d+", row.op)
    if version is None or version[0] not in FALITE:
        raise Unmodelled(f"{row.op}: the schedules known are {', '.join(FALITE)}")
    cores = "957x" if int(work.kv_len) <= FALITE_28_CORES else "958x"
    spec = _chip(f"{row.catalog_chip}_{cores}" if row.catalog_chip in ("950PR", "950DT") else row.catalog_chip)
    kv, score, prob, out, l0, preload = FALITE[version[0]]
    kernel = SCHEDULES[f"falite_{version[0]}"]
    kernel_for(spec, kernel.name)  # refuses a chip without its paths
    if re.search(r"before (the )?(vf|vector function) fusion", row.note or "", re.IGNORECASE):
        kernel = replace(kernel, fused=False)
    slots = {"kv_depth": kv, "score_depth": score, "prob_depth": prob, "out_depth": out, "ub_depth": min(score, 2)}
    tiling = Tiling(block_q=128, block_kv=128, vector_rows=64, l0_depth=l0, preload=preload, **slots)
    return Case(row=row, spec=spec, work=work, kernel=kernel, tiling=tiling, group="falite")


def _pto(row: Row, work: Attention) -> Case:
    """PTO's kernels: 128 rows a core against 256 keys, up to four tiles under way (fa_cost_model: 128 × 256, qk_preload 4)."""
    group = "PTO JIT" if "JIT" in row.op else "PTO manual"
    return _stated(row, work, (128, 256), 4, group)


def _other(row: Row, work: Attention) -> Case:
    """Any other kernel: with the blocks that it states, or the tuner's best."""
    group = next((name for name in ("TileLang", "Triton", "Catlass") if name.lower() in row.op.lower()), "other")
    blocks = re.search(r"(\d+)\s*[x×]\s*(\d+)", row.tiling or "")
    if blocks:
        return _stated(row, work, (int(blocks[1]), int(blocks[2])), 3, group)
    spec = _chip(row.catalog_chip)
    return Case(row=row, spec=spec, work=work, kernel=kernel_for(spec, "auto"), tiling=None, group=group)


def _stated(row: Row, work: Attention, blocks: tuple[int, int], slots: int, group: str) -> Case:
    """Stated blocks with ``slots`` slots for S, P and ΔO, and P·V one tile less behind; fewer where they do not fit."""
    spec = _chip(row.catalog_chip)
    kernel, found = kernel_for(spec, "auto"), None
    for depth in range(slots, 0, -1):
        deep = {"score_depth": depth, "prob_depth": depth, "out_depth": depth, "preload": depth - 1}
        tiling = Tiling(block_q=blocks[0], block_kv=blocks[1], vector_rows=32, ub_depth=min(depth, 2), **deep)
        found = check(spec, work, tiling, kernel)
        if found[0] is Verdict.FITS:
            return Case(row=row, spec=spec, work=work, kernel=kernel, tiling=tiling, group=group)
    raise Unmodelled(f"blocks of {blocks[0]} × {blocks[1]} do not run on {spec.name} in this model: {found and found[1]}")


@cache
def _chip(name: str | None) -> NpuSpec:
    if not name:
        raise Unmodelled("the row names no chip of the catalogue")
    try:
        return load_chip(name)
    except ValueError as error:
        raise Unmodelled(str(error)) from error


def _work(row: Row) -> Attention:
    shape = {name: getattr(row, name) for name in ("batch", "q_heads", "kv_heads", "q_seq", "kv_seq", "head_dim")}
    if missing := [name for name, value in shape.items() if value is None]:
        raise Unmodelled(f"the row lacks {', '.join(missing)}")
    dtype = re.sub(r"[^a-z0-9]", "", (row.dtype or "").split("->")[0].lower())
    dtype = ALIASES.get(dtype, dtype)
    if dtype not in ELEMENT_BYTES:
        raise Unmodelled(f"dtype {row.dtype!r} is not modelled: it must be one of {', '.join(ELEMENT_BYTES)}")
    latent = "MLA" in row.op or (shape["head_dim"] == 576 and shape["kv_heads"] == 1)
    value_dim = _latent_columns(row) if latent else shape["head_dim"]
    layout = next((name for name in ("BSND", "BNSD", "BSH", "SBH", "TND") if row.layout and name in row.layout), "BNSD")
    try:
        return Attention(
            batch=shape["batch"],
            q_heads=shape["q_heads"],
            kv_heads=shape["kv_heads"],
            q_len=shape["q_seq"],
            kv_len=shape["kv_seq"],
            head_dim=shape["head_dim"],
            value_dim=value_dim,
            mask=Mask(kind="causal" if row.causal else "none"),
            dtype=dtype,
            layout=layout if layout != "TND" else "BSND",
            latent=latent,
        )
    except ValueError as error:
        raise Unmodelled(str(error)) from error


def _latent_columns(row: Row) -> Any:
    """Columns of the latent part: of the fifth input where the row lists its shapes, else 512 of 576."""
    shapes = row.input_shape
    return shapes[4][-1] if shapes and len(shapes) >= 5 else row.head_dim - 64 if row.head_dim else None


def _rows(work: Attention) -> int:
    return int(work.q_len) * (int(work.q_heads) // int(work.kv_heads))
