"""``propose``: one tiling by a rule, shrunk until it fits, with every step on the way. What a runtime does without a tuner."""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from ascend_jax._compile import SELDOM, quick_jit
from ascend_jax._pytree import as_arrays
from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.kernels import kernel_for
from ascend_jax.kernels.kernel import Kernel
from ascend_jax.occupancy import Occupancy, explain, occupancy
from ascend_jax.tiling.cann import cann_tiling
from ascend_jax.tiling.rules import articles_tiling, default_tiling, degrade
from ascend_jax.tiling.tiling import Tiling
from ascend_jax.verdict import Verdict
from ascend_jax.workload.attention import Attention
from ascend_jax.workload.problem import problem
from ascend_jax.workload.sequences import sequences

Rule = Literal["articles", "default", "cann"]


@dataclass(frozen=True)
class Proposal:
    """What a rule proposes.

    Attributes:
      tiling: the last tiling tried; it fits if ``verdict`` is FITS.
      verdict, message: its verdict, as a code and as a sentence.
      tried: every tiling on the way, the rule's own first.
    """

    tiling: Tiling
    verdict: Verdict
    message: str
    tried: tuple[Tiling, ...]


def propose(spec: NpuSpec, work: Attention, *, rule: Rule = "default", kernel: str | Kernel = "auto") -> Proposal:
    """The tiling of ``rule``, its blocks shrunk by 16 until it fits.

    Args:
      spec: the chip, with plain numbers.
      work: the attention call, with plain numbers.
      rule: ``articles`` (their closed form, for which ``kernel`` should be ``ub_resident``), ``cann`` (the vendor's operators,
        with the kernel that ``cann_kernel`` names) or ``default``.
      kernel: the dataflow whose buffers decide.

    Raises:
      ValueError: no such rule or kernel.

    >>> from ascend_jax.hardware import load_chip
    >>> wide = Attention(batch=1, q_heads=1, kv_heads=1, q_len=512, kv_len=512, head_dim=128, value_dim=128)
    >>> found = propose(load_chip("910A"), wide, rule="articles", kernel="ub_resident")
    >>> found.tried[0].block_q, found.tiling.block_q, found.message
    (192, 176, 'fits')
    """
    if rule not in get_args(Rule):
        raise ValueError(f"rule={rule!r} must be one of {', '.join(get_args(Rule))}")
    kernel = kernel_for(spec, kernel)
    return fitting(spec, work, _start(spec, work, rule, kernel), kernel)


def fitting(spec: NpuSpec, work: Attention, tiling: Tiling, kernel: str | Kernel = "auto") -> Proposal:
    """``tiling``, its blocks shrunk by 16 until it fits."""
    kernel = kernel_for(spec, kernel)
    tried = tuple(degrade(tiling, lambda one: check(spec, work, one, kernel)[0] is Verdict.FITS))
    verdict, text = check(spec, work, tried[-1], kernel)
    return Proposal(tried[-1], verdict, text, tried)


def check(spec: NpuSpec, work: Attention, tiling: Tiling, kernel: str | Kernel = "auto") -> tuple[Verdict, str]:
    """Whether ``tiling`` fits, and :func:`ascend_jax.occupancy.explain`'s sentence on it."""
    kernel = kernel_for(spec, kernel)
    held: Occupancy = _occupancy_jit(as_arrays(spec), *problem(work), as_arrays(tiling), kernel)
    return Verdict(int(held.verdict)), explain(held)


_occupancy_jit = quick_jit(occupancy, static_argnums=(4,), wanted=SELDOM)


def _start(spec: NpuSpec, work: Attention, rule: Rule, kernel: Kernel) -> Tiling:
    lengths = sequences(work)
    q_len, kv_len = int(np.max(lengths.q_len)), int(np.max(lengths.kv_len))
    if rule == "cann":
        return cann_tiling(spec, work)
    if rule == "default":
        return default_tiling(kernel.name, q_len, kv_len)
    return articles_tiling(int(spec.ub_bytes), int(work.head_dim), q_len, kv_len, work.element_bytes)
