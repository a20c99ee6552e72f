"""``evaluate``: one tiling of one workload on one chip, in closed form. Rank 0, pure; vmap makes batches."""

from collections.abc import Sequence
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from ascend_jax._compile import OFTEN, SELDOM, quick_jit
from ascend_jax._pytree import as_arrays
from ascend_jax.cost.finish import Finished, finish
from ascend_jax.cost.overlap import OVERLAPS, PIPELINED, Overlap
from ascend_jax.cost.prepare import Prepared, prepare
from ascend_jax.cost.report import Report, report
from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.kernels import kernel_for
from ascend_jax.kernels.kernel import Kernel
from ascend_jax.occupancy import too_small
from ascend_jax.rounding import EXACT, Rounding
from ascend_jax.tiling.tiling import Tiling
from ascend_jax.verdict import Verdict
from ascend_jax.workload.attention import Attention
from ascend_jax.workload.problem import Problem, problem


def evaluate(
    spec: NpuSpec,
    work: Attention,
    tiling: Tiling,
    *,
    kernel: str | Kernel = "auto",
    overlap: str | Overlap = PIPELINED,
    rounding: Rounding = EXACT,
) -> Report:
    """Time, traffic, occupancy and verdict of ``tiling``: prologue + periods + epilogue of the busiest core, and the launch.

    Args:
      spec: the chip; every number may be traced, batched by vmap or differentiated.
      work: the attention call.
      tiling: how it is cut; leaves of rank 0.
      kernel: a dataflow by name, ``auto`` for the chip's own, or a ``Kernel``.
      overlap: ``serial``, ``roofline``, ``pipelined``, or an ``Overlap``.
      rounding: how sizes round; ``STRAIGHT_THROUGH`` or ``SMOOTH`` for gradients by block sizes.

    Returns:
      A report. A tiling that does not fit is a value: ``report.occupancy.verdict`` says so, the times are what it would take.

    Raises:
      TypeError: the chip is no NpuSpec.
      ValueError: no such kernel or overlap, a path that the chip lacks, or a batch of tilings.

    >>> from ascend_jax.hardware import load_chip
    >>> from ascend_jax.workload.presets import load_preset
    >>> report = evaluate(load_chip("910B3"), load_preset("llama3-8b-prefill-8k"), Tiling(block_q=128, block_kv=256, preload=2))
    >>> report.bound_by
    'Vector'
    """
    kernel, overlap = chosen(spec, kernel, overlap)
    if shapes := {name: np.shape(size) for name, size in vars(tiling).items() if np.shape(size)}:
        raise ValueError(f"tiling fields have shapes {shapes}: evaluate takes one tiling, evaluate_batch takes many")
    return _evaluate_jit(as_arrays(spec), problem(work), as_arrays(tiling), kernel, overlap, rounding)


def evaluate_batch(
    specs: NpuSpec | Sequence[NpuSpec],
    work: Attention,
    tilings: Tiling,
    *,
    kernel: str | Kernel = "auto",
    overlap: str | Overlap = PIPELINED,
    rounding: Rounding = EXACT,
) -> Report:
    """:func:`evaluate` for a batch of tilings (fields ``[C]``, or one number for all) on one chip or several.

    Chips share one architecture, and then one compilation.

    Returns:
      A report with leaves ``[C]``, or ``[H, C]`` for a sequence of H chips (one compilation for all of them).

    Raises:
      ValueError: as :func:`evaluate`; chips of different architectures.
    """
    chips = [specs] if isinstance(specs, NpuSpec) else list(specs)
    if not chips:
        raise ValueError("no chips: give one NpuSpec or several of one architecture")
    if len({chip.architecture for chip in chips}) != 1:
        raise ValueError("a batch of chips must share one architecture; evaluate each architecture by itself")
    kernel, overlap = chosen(chips[0], kernel, overlap)
    stacked = stack_chips(chips)
    reports = _evaluate_grid_jit(stacked, problem(work), _columns(tilings), kernel, overlap, rounding)
    return jax.tree.map(lambda leaf: leaf[0], reports) if isinstance(specs, NpuSpec) else reports


def stack_chips(chips: Sequence[NpuSpec]) -> NpuSpec:
    """Chips of one architecture as one spec with leaves ``[H]``."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *(as_arrays(chip) for chip in chips))


def model(spec: NpuSpec, given: Problem, tiling: Tiling, kernel: Kernel, overlap: Overlap, rounding: Rounding) -> Report:
    """The model itself, on float leaves of rank 0; :func:`evaluate` is its front door."""
    return report(spec, given, *worked_out(spec, given, usable_sizes(tiling), kernel, overlap, rounding, asked=tiling))


def usable_sizes(tiling: Tiling) -> Tiling:
    """``tiling`` with nothing of which there is none, so that nothing divides by zero."""
    return replace(tiling, **{name: jnp.maximum(size, 1.0) for name, size in vars(tiling).items() if name != "preload"})


def worked_out(
    spec: NpuSpec, given: Problem, usable: Tiling, kernel: Kernel, overlap: Overlap, rounding: Rounding, *, asked: Tiling
) -> tuple[Prepared, Finished]:
    """What the blocks and the slots of ``usable`` decide; the verdict is that of the tiling ``asked`` for."""
    prepared = prepare(spec, given, usable, kernel, overlap, rounding)
    done = finish(spec, given, usable, kernel, prepared, rounding)
    verdict = jnp.where(too_small(asked), float(Verdict.BLOCK_TOO_SMALL), done.occupancy.verdict)
    return prepared, done._replace(occupancy=replace(done.occupancy, verdict=verdict))


def model_grid(specs: NpuSpec, given: Problem, tilings: Tiling, kernel: Kernel, overlap: Overlap, rounding: Rounding) -> Report:
    """:func:`model` for chips ``[H]`` and tilings ``[C]``, leaves ``[H, C]``."""

    @jax.jit  # traced once, before vmap: each jnp call under two vmaps costs three times as much
    def one(spec: NpuSpec, tiling: Tiling) -> Report:
        return model(spec, given, tiling, kernel, overlap, rounding)

    return jax.vmap(jax.vmap(one, in_axes=(None, 0)), in_axes=(0, None))(specs, tilings)


_evaluate_jit = quick_jit(model, static_argnums=(3, 4, 5), wanted=SELDOM)
_evaluate_grid_jit = quick_jit(model_grid, static_argnums=(3, 4, 5), wanted=OFTEN)


def _columns(tilings: Tiling) -> Tiling:
    """Every field ``[C]``: single numbers serve all candidates."""
    shape = np.broadcast_shapes(*(np.shape(size) for size in vars(tilings).values()))
    if len(shape) != 1:
        raise ValueError(f"the fields of a batch of tilings have shape {shape} together: give [C], or single numbers beside it")
    return jax.tree.map(lambda size: jnp.broadcast_to(size, shape), as_arrays(tilings))


def chosen(spec: NpuSpec, kernel: str | Kernel, overlap: str | Overlap) -> tuple[Kernel, Overlap]:
    """The kernel and overlap model of these names.

    Raises:
      TypeError: the chip is no NpuSpec.
      ValueError: there is none, or the chip lacks a path that the kernel needs.
    """
    if not isinstance(spec, NpuSpec):
        raise TypeError(f"the chip is {spec!r}: give an NpuSpec, such as load_chip({str(spec)!r}) returns")
    kernel = kernel_for(spec, kernel)
    if isinstance(overlap, str):
        if overlap not in OVERLAPS:
            raise ValueError(f"overlap {overlap!r} must be one of {', '.join(OVERLAPS)}")
        overlap = OVERLAPS[overlap]
    return kernel, overlap
