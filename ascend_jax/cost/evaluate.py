"""``evaluate``: one tiling of one workload on one chip, in closed form. Rank 0, pure; vmap makes batches."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from ascend_jax._pytree import as_arrays
from ascend_jax.cost.balance import busiest_core
from ascend_jax.cost.overlap import OVERLAPS, PIPELINED, Overlap, Pace
from ascend_jax.cost.report import Report
from ascend_jax.cost.stages import StageCosts, stage_costs
from ascend_jax.hardware.peak import peak_flops
from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.kernels import kernel_for
from ascend_jax.kernels.geometry import Geometry, geometry
from ascend_jax.kernels.kernel import Kernel
from ascend_jax.occupancy import Occupancy, occupancy_of
from ascend_jax.rounding import EXACT, Rounding
from ascend_jax.tiling.tiling import Tiling
from ascend_jax.verdict import Verdict
from ascend_jax.workload.attention import Attention
from ascend_jax.workload.blocks import total_counts
from ascend_jax.workload.sequences import Sequences, sequences


class Problem(NamedTuple):
    """A workload ready for the formulas: float leaves, and its lengths apart (rank 0, or ``[U]`` distinct ones)."""

    work: Attention
    lengths: Sequences


def problem(work: Attention) -> Problem:
    """``work`` with its lengths merged; call it outside jit, since the number of distinct lengths is a shape."""
    return Problem(as_arrays(replace(work, batch=0, q_len=0, kv_len=0)), sequences(work))


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
      ValueError: no such kernel or overlap, or a path that the chip lacks.

    >>> from ascend_jax.hardware import load_chip
    >>> from ascend_jax.workload.presets import load_preset
    >>> report = evaluate(load_chip("910B3"), load_preset("llama3-8b-prefill-8k"), Tiling(block_q=128, block_kv=256))
    >>> report.bound_by
    'Vector'
    """
    kernel, overlap = _chosen(spec, kernel, overlap)
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
    """:func:`evaluate` for a batch of tilings (leaves ``[C]``) on one chip, or on several of one architecture.

    Returns:
      A report with leaves ``[C]``, or ``[H, C]`` for a sequence of H chips (one compilation for all of them).

    Raises:
      ValueError: as :func:`evaluate`; chips of different architectures.
    """
    chips = [specs] if isinstance(specs, NpuSpec) else list(specs)
    if len({chip.architecture for chip in chips}) != 1:
        raise ValueError("a batch of chips must share one architecture; evaluate each architecture by itself")
    kernel, overlap = _chosen(chips[0], kernel, overlap)
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(as_arrays(replace(chip, name="")) for chip in chips))
    reports = _evaluate_grid_jit(stacked, problem(work), as_arrays(tilings), kernel, overlap, rounding)
    return jax.tree.map(lambda leaf: leaf[0], reports) if isinstance(specs, NpuSpec) else reports


def score(
    spec: NpuSpec, given: Problem, tiling: Tiling, kernel: Kernel, overlap: Overlap, rounding: Rounding = EXACT
) -> tuple[Array, Array]:
    """Seconds (``inf`` where the tiling does not fit) and verdict of float leaves of rank 0; what a search needs, unjitted."""
    report = model(spec, given, tiling, kernel, overlap, rounding)
    verdict = report.occupancy.verdict
    return jnp.where(verdict == float(Verdict.FITS), report.seconds, jnp.inf), verdict


def model(
    spec: NpuSpec, given: Problem, tiling: Tiling, kernel: Kernel, overlap: Overlap, rounding: Rounding
) -> Report:
    """The model itself, on float leaves of rank 0; :func:`evaluate` is its front door."""
    work, lengths = given
    buffers = kernel.buffers(spec, work, tiling, rounding)
    held = occupancy_of(spec, work, lengths, tiling, buffers, rounding)
    each = _over(lengths)
    shapes = lax.optimization_barrier(each(lambda sequence: geometry(spec, work, tiling, sequence, rounding))(lengths))
    tasks, tiles = jnp.sum(shapes.tasks), jnp.sum(shapes.tiles)
    active = jnp.clip(tasks, 1.0, spec.cube_cores)
    in_gm = [held.buffer_bytes["GM"][name] for name, buffer in buffers.items() if buffer.memory == "GM"]
    workspace = sum(in_gm, jnp.zeros_like(active)) * (active / spec.cube_cores)
    slots = {flow.buffer: buffers[flow.buffer].slots if flow.buffer in buffers else tiling.l0_depth for flow in kernel.graph.flows}

    def one(sequence: Sequences, shape: Geometry) -> tuple[StageCosts, Pace]:
        costs = stage_costs(spec, work, sequence, tiling, kernel, shape, active, workspace, rounding)
        costs = lax.optimization_barrier(costs)
        pace = overlap.pace(spec, kernel.graph, costs, slots, tiling.preload, shape.tiles_per_task, rounding)
        return costs, pace

    costs, pace = each(one)(lengths, shapes)
    core_s = _core_seconds(spec, shapes, pace, rounding)
    first_s = jnp.max(jnp.maximum(pace.latency_s - pace.period_s, 0.0))
    combine_s = _combine_seconds(spec, work, lengths, tiling)
    work_s = jnp.where(tiles > 0, core_s + first_s + combine_s, 0.0)
    empty = tasks == 0
    seconds = jnp.where(empty, 0.0, spec.launch_s + work_s)
    return _report(spec, given, tiling, seconds, active, shapes, costs, pace, _with_deadlock(held, pace))


_evaluate_jit = partial(jax.jit, static_argnums=(3, 4, 5))(model)


@partial(jax.jit, static_argnums=(3, 4, 5))
def _evaluate_grid_jit(
    specs: NpuSpec, given: Problem, tilings: Tiling, kernel: Kernel, overlap: Overlap, rounding: Rounding
) -> Report:
    def one(spec: NpuSpec, tiling: Tiling) -> Report:
        return model(spec, given, tiling, kernel, overlap, rounding)

    return jax.vmap(jax.vmap(one, in_axes=(None, 0)), in_axes=(0, None))(specs, tilings)


def _chosen(spec: NpuSpec, kernel: str | Kernel, overlap: str | Overlap) -> tuple[Kernel, Overlap]:
    if isinstance(kernel, str):
        kernel = kernel_for(spec, kernel)
    if isinstance(overlap, str):
        if overlap not in OVERLAPS:
            raise ValueError(f"overlap {overlap!r} must be one of {', '.join(OVERLAPS)}")
        overlap = OVERLAPS[overlap]
    return kernel, overlap


def _over(lengths: Sequences) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """vmap over the distinct lengths, or nothing where all sequences share one."""
    return jax.vmap if jnp.ndim(lengths.q_len) else lambda function: function


def _core_seconds(spec: NpuSpec, shapes: Geometry, pace: Pace, rounding: Rounding) -> Array:
    total = jnp.sum(shapes.tiles * pace.period_s + shapes.tasks * spec.task_s)
    longest = shapes.longest_tiles * pace.period_s + spec.task_s
    each = busiest_core(spec.cube_cores, jnp.zeros_like(longest), longest, shapes.longest_tasks, rounding)
    return jnp.maximum(total / spec.cube_cores, jnp.max(each))


def _combine_seconds(spec: NpuSpec, work: Attention, lengths: Sequences, tiling: Tiling) -> Array:
    """Write and read the float32 partial results of split sequences through L2, with one flag each way; 0 without split."""
    rows = jnp.sum(lengths.count * lengths.q_len) * work.q_heads
    moved = 2 * rows * tiling.kv_split * (work.value_dim + 16) * 4
    seconds = moved / spec.l2_bytes_per_s + 2 * (spec.handoff_s + spec.dma_startup_s)
    return jnp.where(tiling.kv_split > 1, seconds, 0.0)


def _with_deadlock(held: Occupancy, pace: Pace) -> Occupancy:
    stuck = (held.verdict == float(Verdict.FITS)) & ~jnp.all(pace.runs)
    return replace(held, verdict=jnp.where(stuck, float(Verdict.PIPELINE_DEADLOCK), held.verdict))


def _report(
    spec: NpuSpec,
    given: Problem,
    tiling: Tiling,
    seconds: Array,
    active: Array,
    shapes: Geometry,
    costs: StageCosts,
    pace: Pace,
    held: Occupancy,
) -> Report:
    work, lengths = given
    share = shapes.tiles / active
    some_s = jnp.maximum(seconds, jnp.finfo(seconds.dtype).tiny)
    limits = (*pace.bounds, "launch", "task start")
    tile_s = jnp.stack(list(pace.bounds.values())) * share
    task_s = jnp.sum(shapes.tasks) / active * spec.task_s
    spent = jnp.concatenate([jnp.sum(tile_s.reshape(len(pace.bounds), -1), axis=1), jnp.stack([spec.launch_s, task_s])])
    row_share = shapes.tasks / active
    names = dict.fromkeys([*costs.busy, *costs.row_busy])
    zero = jnp.zeros_like(share)
    busy = {n: jnp.sum(costs.busy.get(n, zero) * share + costs.row_busy.get(n, zero) * row_share) for n in names}
    busy["Cube"] = jnp.sum(costs.cube_s * share)
    blocks = _block_totals(given, tiling)
    return Report(
        seconds=seconds,
        launch_s=jnp.where(seconds > 0, spec.launch_s, 0.0),
        flops=2 * _pairs(given) * (work.head_dim + work.value_dim),
        peak_flops_per_s=peak_flops(spec, work.dtype),
        bounds=spent / some_s,
        limits=limits,
        cycles={n: busy[n] * (spec.vector_clock_hz if n.startswith("Vector") else spec.cube_clock_hz) for n in names},
        path_bytes=_path_bytes(shapes, costs, active),
        blocks_computed=blocks[0],
        blocks_partial=blocks[1],
        blocks_skipped=blocks[2],
        tasks=jnp.sum(shapes.tasks),
        active_cores=active,
        period_s=jnp.max(pace.period_s),
        latency_s=jnp.max(pace.latency_s),
        occupancy=held,
    )


def _path_bytes(shapes: Geometry, costs: StageCosts, active: Array) -> dict[str, Array]:
    zero = jnp.zeros_like(shapes.tiles)
    names = dict.fromkeys([*costs.paths, *costs.row_paths])
    moved = {
        name: jnp.sum(costs.paths.get(name, zero) * shapes.tiles + costs.row_paths.get(name, zero) * shapes.tasks)
        for name in names
    }
    for name in ("gm", "l2"):
        tile, row = (getattr(traffic, f"{name}_bytes") for traffic in (costs.traffic, costs.row_traffic))
        moved[name] = jnp.sum(tile * shapes.tiles + row * shapes.tasks) / active
    return moved


def _pairs(given: Problem) -> Array:
    """Query-key pairs that the mask keeps, of all heads and sequences: blocks of one element."""
    work, lengths = given
    one = jnp.ones_like(work.q_heads)
    counts = _over(lengths)(lambda s: total_counts(work.mask, s.q_len, s.kv_len, one, one).computed)(lengths)
    return jnp.sum(counts * lengths.count) * work.q_heads


def _block_totals(given: Problem, tiling: Tiling) -> tuple[Array, Array, Array]:
    """Computed, partial and skipped blocks of all heads and sequences."""
    work, lengths = given
    counts = _over(lengths)(lambda s: total_counts(work.mask, s.q_len, s.kv_len, tiling.block_q, tiling.block_kv))(lengths)
    heads = work.q_heads
    return tuple(jnp.sum(x * lengths.count) * heads for x in (counts.computed, counts.partial, counts.skipped))
