"""The layered fallback: a tiling for attention, made smaller, or the problem padded and tiled anew, until it fits on the chip.

The first article's order: validate (the operator's checks, before this), tiling, smaller blocks, pad and tile anew, give up.
Smaller blocks: both shrink by 16 and stop at 16. Padding: lengths and head sizes are rounded up to whole fractals, and the
largest square block that the closed form allows, with a single slot of everything, is the start. What fits is what
:mod:`ascend_jax.occupancy` says.
"""

import logging
from dataclasses import replace
from typing import NamedTuple

from ascend_jax.attention.errors import TilingError
from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.kernels import kernel_for
from ascend_jax.proposal import Proposal, check, fitting
from ascend_jax.runtime.log import get_logger
from ascend_jax.runtime.ops.failures import UbOutOfMemoryError
from ascend_jax.runtime.ops.operator import Choice, ChooseTiling
from ascend_jax.tiling.cann import cann_kernel, cann_tiling
from ascend_jax.tiling.rules import STEP, articles_tiling, whole_steps
from ascend_jax.tiling.tiling import Tiling
from ascend_jax.verdict import REMEDIES, Verdict
from ascend_jax.workload.attention import Attention

LOG = get_logger("OP")
ON_CHIP = (Verdict.UB_OVERFLOW, Verdict.L1_OVERFLOW, Verdict.L0A_OVERFLOW, Verdict.L0B_OVERFLOW, Verdict.L0C_OVERFLOW)


class Plan(NamedTuple):
    """A tiling that fits, the dataflow that it is for, and the steps on the way, in words."""

    tiling: Tiling
    kernel: str
    steps: tuple[str, ...]


def cann_choice(spec: NpuSpec, work: Attention) -> Choice:
    """The tiling and the dataflow of the vendor's FlashAttentionScore: rule ``cann`` of :mod:`ascend_jax.proposal`."""
    name = "FlashAttentionScore"
    return cann_tiling(spec, work, name), cann_kernel(spec.architecture, work, name)


def layered_plan(spec: NpuSpec, work: Attention, choose_tiling: ChooseTiling = cann_choice) -> Plan:
    """The tiling that ``choose_tiling`` proposes, or the first of its fallbacks that fits. Each step is logged.

    Raises:
      UbOutOfMemoryError: not even blocks of 16 fit into the memories of a core.
      TilingError: anything else that is wrong with every one of them, such as tensors that are larger than GM.

    >>> from ascend_jax.hardware import load_chip
    >>> wide = Attention(batch=1, q_heads=8, kv_heads=8, q_len=512, kv_len=512, head_dim=256)
    >>> plan = layered_plan(load_chip("910A"), wide)
    >>> plan.tiling.block_q, len(plan.steps)
    (80, 2)
    """
    tiling, kernel = _chosen(choose_tiling(spec, work), spec)
    steps: list[str] = []
    verdict, message = check(spec, work, tiling, kernel)
    _note(steps, "tiling", tiling, message)
    if verdict is not Verdict.FITS:
        found = fitting(spec, work, tiling, kernel)
        _note(steps, f"smaller blocks, {len(found.tried) - 1} steps of {STEP}", found.tiling, found.message)
        verdict, message, tiling = found.verdict, found.message, found.tiling
    if verdict is not Verdict.FITS:
        padded, found = _padded(spec, work, kernel)
        name = f"pad to D={padded.head_dim} and {padded.q_len} × {padded.kv_len} rows, tile anew"
        _note(steps, name, found.tiling, found.message)
        verdict, message, tiling = found.verdict, found.message, found.tiling
    if verdict is Verdict.FITS:
        return Plan(tiling, kernel, tuple(steps))
    raise _refusal(spec, work, verdict, message, steps)


def _chosen(choice: Choice, spec: NpuSpec) -> tuple[Tiling, str]:
    """A tiling alone is for the chip's own kernel."""
    return choice if isinstance(choice, tuple) else (choice, kernel_for(spec, "auto").name)


def _note(steps: list[str], name: str, tiling: Tiling, message: str) -> None:
    steps.append(f"{name}: block_q={int(tiling.block_q)}, block_kv={int(tiling.block_kv)}: {message}")
    LOG.log(logging.INFO if message == "fits" else logging.WARNING, "Plan: %s", steps[-1])


def _padded(spec: NpuSpec, work: Attention, kernel: str) -> tuple[Attention, Proposal]:
    """``work`` in whole fractals, and the closed form's tiling of it, made smaller until it fits."""

    def whole(lengths: int | tuple[int, ...]) -> int | tuple[int, ...]:
        return tuple(map(whole_steps, lengths)) if isinstance(lengths, tuple) else whole_steps(lengths)

    sizes = {name: whole(getattr(work, name)) for name in ("q_len", "kv_len", "head_dim", "value_dim")}
    padded = replace(work, **sizes)
    q_len, kv_len = (max(x) if isinstance(x, tuple) else x for x in (padded.q_len, padded.kv_len))
    start = articles_tiling(int(spec.ub_bytes), int(padded.head_dim), q_len, kv_len, work.element_bytes)
    blocks = {name: max(int(getattr(start, name)), STEP) for name in ("block_q", "block_kv")}
    return padded, fitting(spec, padded, replace(start, **blocks), kernel)


def _refusal(spec: NpuSpec, work: Attention, verdict: Verdict, message: str, steps: list[str]) -> TilingError:
    wrong = f"attention with D={work.head_dim}, Dv={work.value_dim} in {work.dtype} on {spec.name or spec.architecture}"
    kind = UbOutOfMemoryError if verdict in ON_CHIP else TilingError
    LOG.error("Plan: %s: %s", "UB_OOM" if kind is UbOutOfMemoryError else "TILING_FAILED", message)
    tried = "; ".join(step.split(":")[0] for step in steps)
    return kind(wrong, f"fits in no way ({tried}): {message}", REMEDIES[verdict] or "use a smaller head_dim")
