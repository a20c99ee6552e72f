"""The part of the model that slots and preload decide: occupancy, verdict, pace, and the seconds of the whole call."""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from ascend_jax._largest import largest
from ascend_jax._pytree import Leaf
from ascend_jax.cost.balance import busiest_core
from ascend_jax.cost.overlap import pace
from ascend_jax.cost.prepare import Prepared
from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.kernels.kernel import Kernel
from ascend_jax.occupancy import Occupancy, occupancy_of, split_row_bytes
from ascend_jax.rounding import Rounding
from ascend_jax.tiling.tiling import Tiling
from ascend_jax.verdict import Verdict
from ascend_jax.workload.problem import Problem


class Finished(NamedTuple):
    """The outcome for one tiling (rank 0; ``limits_s`` and ``period_s`` ``[U]`` where the lengths are).

    Attributes:
      seconds: from launch to completion, if it fits.
      start_s: the launch and the kernel's scalar head in it.
      period_s: seconds from tile to tile.
      limits_s: seconds a tile that each limit alone takes.
      occupancy: bytes per memory, and the verdict.
    """

    seconds: Array
    start_s: Array
    period_s: Array
    limits_s: dict[str, Array]
    occupancy: Occupancy


def finish(spec: NpuSpec, given: Problem, tiling: Tiling, kernel: Kernel, prepared: Prepared, rounding: Rounding) -> Finished:
    """Seconds and verdict of ``tiling`` from what its blocks decide."""
    work, lengths = given
    buffers = kernel.buffers(spec, work, tiling, rounding)
    held = occupancy_of(spec, work, lengths, tiling, buffers, prepared.slot_bytes)
    slots = {name: buffer.slots for name, buffer in buffers.items()}
    period, limits, fewest = pace(kernel.graph, prepared.steady, slots, tiling.preload)
    fill_s = jnp.maximum(prepared.steady.latency_s - period, 0.0)
    pipelined_s = _core_seconds(spec, prepared, Rate(period, fill_s, slots), rounding)
    serial = Rate(prepared.steady.serial_s, jnp.zeros_like(fill_s), {})
    serial_s = _core_seconds(spec, prepared, serial, rounding)
    work_s = jnp.minimum(pipelined_s, serial_s) + combine_seconds(spec, given, tiling)
    some = jnp.sum(prepared.shapes.tasks) > 0
    start_s = jnp.where(some, start_seconds(spec, kernel, prepared), 0.0)
    seconds = start_s + jnp.where(some, work_s, 0.0)
    stuck = (held.verdict == float(Verdict.FITS)) & jnp.any(fewest < 1)
    verdict = jnp.where(stuck, float(Verdict.PIPELINE_DEADLOCK), held.verdict)
    return Finished(seconds, start_s, period, limits, replace(held, verdict=verdict))


def start_seconds(spec: NpuSpec, kernel: Kernel, prepared: Prepared) -> Leaf:
    """From the launch to the first task: the launch itself, and the scalar head of the vendor's operators."""
    masked = jnp.minimum(jnp.sum(prepared.shapes.partial_tiles), 1.0)
    head_s = spec.operator_head_s + masked * spec.mask_setup_s
    return spec.launch_s + (head_s if kernel.operator else 0.0 * head_s)


def score(
    spec: NpuSpec, given: Problem, tiling: Tiling, kernel: Kernel, prepared: Prepared, rounding: Rounding
) -> tuple[Array, Array, Array]:
    """What a search needs of one tiling: seconds (``inf`` where it does not fit), verdict, and bytes of UB."""
    done = finish(spec, given, tiling, kernel, prepared, rounding)
    fits = done.occupancy.verdict == float(Verdict.FITS)
    return jnp.where(fits, done.seconds, jnp.inf), done.occupancy.verdict, done.occupancy.used_bytes["UB"]


class Rate(NamedTuple):
    """How fast a core works: seconds from tile to tile, to fill its pipes once, and the slots that tasks may hold."""

    period_s: Array
    fill_s: Array
    slots: Mapping[str, Leaf]


def _core_seconds(spec: NpuSpec, prepared: Prepared, rate: Rate, rounding: Rounding) -> Array:
    """Seconds of the busiest core: its tasks' tiles, the scalar work to begin them, and the time to fill its pipes once.

    A core of an average share fills its pipes as far as it gets any tile at all.
    """
    shapes, cores = prepared.shapes, spec.cube_cores
    share = shapes.tasks / cores
    fills = jnp.where(shapes.tiles > 0, rate.fill_s, 0.0)
    some = jnp.minimum(share * shapes.tiles_per_task, 1.0)
    total = jnp.sum(share * _task_seconds(spec, prepared, rate, shapes.tiles_per_task)) + jnp.max(fills * some)
    longest = _task_seconds(spec, prepared, rate, shapes.longest_tiles)
    each = busiest_core(cores, jnp.zeros_like(longest), longest, shapes.longest_tasks, rounding)
    return jnp.maximum(total, jnp.max(each + fills))


def _task_seconds(spec: NpuSpec, prepared: Prepared, rate: Rate, tiles: Array) -> Array:
    """From task to task of ``tiles`` tiles: theirs, or as long as a task holds a slot, over the slots; and the scalar work."""
    held = [
        (held_s + jnp.maximum(tiles - 1, 0.0) * rate.period_s) / rate.slots[name]
        for name, held_s in prepared.steady.tasks_s.items()
        if name in rate.slots
    ]
    return largest([tiles * rate.period_s, *(jnp.where(tiles >= 0.5, one, 0.0) for one in held)]) + spec.task_s


def combine_seconds(spec: NpuSpec, given: Problem, tiling: Tiling) -> Array:
    """Write and read the float32 partial results of split sequences through L2, with one flag each way; 0 without split."""
    work, lengths = given
    rows = jnp.sum(lengths.count * lengths.q_len) * work.q_heads
    moved = 2 * rows * tiling.kv_split * split_row_bytes(work)
    seconds = moved / spec.l2_bytes_per_s + 2 * (spec.handoff_s + spec.dma_startup_s)
    return jnp.where(tiling.kv_split > 1, seconds, 0.0)
