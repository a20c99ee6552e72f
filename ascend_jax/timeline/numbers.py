"""The numbers that a timeline needs of the model: what the stages take for full and for masked tiles, slots, and the report."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from ascend_jax._compile import SELDOM, quick_jit
from ascend_jax._pytree import Leaf
from ascend_jax.cost.evaluate import usable_sizes, worked_out
from ascend_jax.cost.finish import combine_seconds, start_seconds
from ascend_jax.cost.overlap import PIPELINED
from ascend_jax.cost.prepare import contention_of, over
from ascend_jax.cost.report import Report, report
from ascend_jax.cost.stages import StageCosts, stage_costs
from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.kernels.geometry import Geometry
from ascend_jax.kernels.kernel import Kernel
from ascend_jax.rounding import EXACT
from ascend_jax.tiling.tiling import Tiling
from ascend_jax.timeline.program import Depths
from ascend_jax.timeline.weights import Durations
from ascend_jax.workload.problem import Problem
from ascend_jax.workload.sequences import Sequences


class Numbers(NamedTuple):
    """Leaves of rank 0, or ``[U]`` for variable lengths.

    Attributes:
      report: of the closed form.
      start_s, combine_s: before the first task, and after the last one, where neither has any tile.
      tiles: of all tasks.
      task_s: about how long a task takes beside its tiles; for dealing.
      period_s: about how long a tile takes.
      kinds: costs of a full and of a masked tile.
      shares_s: how long GM and L2 take for one of each on every active core, and for what comes once per task.
      slots, slot_bytes: of every buffer; ``slots`` of every flow's buffer.
    """

    report: Report
    start_s: Array
    combine_s: Array
    tiles: Array
    period_s: Array
    task_s: Array
    kinds: tuple[StageCosts, StageCosts]
    shares_s: tuple[Array, Array, Array]
    slots: dict[str, Leaf]
    slot_bytes: dict[str, Array]


def numbers(spec: NpuSpec, given: Problem, tiling: Tiling, kernel: Kernel) -> Numbers:
    """Everything that depends on chip, workload and tiling; pure, of rank 0, for jit and vmap."""
    work, lengths = given
    usable = usable_sizes(tiling)
    prepared, done = worked_out(spec, given, usable, kernel, PIPELINED, EXACT, asked=tiling)
    buffers = kernel.buffers(spec, work, usable, EXACT)
    others = contention_of(buffers, prepared.slot_bytes, prepared.active)

    def of_kind(sequence: Sequences, shape: Geometry, partial: float) -> StageCosts:
        shape = shape._replace(partial=jnp.full_like(shape.partial, partial))
        return stage_costs(spec, work, usable, kernel, sequence, shape, others=others, rounding=EXACT)

    full, masked = (
        over(lengths)(lambda sequence, shape, p=partial: of_kind(sequence, shape, p))(lengths, prepared.shapes)
        for partial in (0.0, 1.0)
    )
    slots = {str(flow.buffer): usable.l0_depth for flow in kernel.graph.flows if flow.in_l0c}
    return Numbers(
        report=report(spec, given, prepared, done),
        start_s=start_seconds(spec, kernel, prepared),
        combine_s=combine_seconds(spec, given, usable),
        tiles=prepared.shapes.tiles,
        period_s=jnp.max(jnp.stack(list(prepared.steady.limits_s.values())), axis=0),
        task_s=sum(prepared.costs.row_busy.values(), spec.task_s),
        kinds=(full, masked),
        shares_s=(full.traffic.seconds(spec), masked.traffic.seconds(spec), full.row_traffic.seconds(spec)),
        slots={name: buffer.slots + jnp.zeros_like(usable.block_q) for name, buffer in buffers.items()} | slots,
        slot_bytes=prepared.slot_bytes,
    )


def depths_of(kernel: Kernel, found: Numbers, preload: Any) -> tuple[Depths, dict[str, int]]:
    """The static part of the numbers, and over how many whole tiles the slots of each chunked flow reach.

    Variable lengths share one program: that of the lengths with the most tiles.
    """
    most = int(np.argmax(np.atleast_1d(found.tiles)))
    slots, held, alternating = {}, {}, set()
    for flow in kernel.graph.flows:
        if flow.buffer is None:
            continue
        slots[flow.buffer] = depth = max(round(float(np.atleast_1d(found.slots[flow.buffer])[0])), 1)
        if flow.chunked:
            pieces = pieces_of(found, flow.buffer)[most]
            slots[flow.buffer] = held[flow.buffer] = int(-(-depth // pieces))
            if depth == 1 and pieces > 1:
                alternating.add(flow.buffer)
    depths = Depths(tuple(sorted(slots.items())), max(round(float(preload)), 0), frozenset(alternating))
    return depths, held


def pieces_of(found: Numbers, buffer: str) -> np.ndarray:
    """Pieces of a tile, ``[U]``, whole."""
    return np.maximum(np.round(np.atleast_1d(found.kinds[0].chunks[buffer])), 1)


def durations(spec: NpuSpec, kernel: Kernel, found: Numbers, held: dict[str, int]) -> Durations:
    """What the stages take, as the recurrence weighs it."""

    def both(full: Any, masked: Any) -> np.ndarray:
        return np.stack([np.atleast_1d(full), np.atleast_1d(masked)], axis=1).ravel().astype(np.float64)

    full, masked = found.kinds
    chunked = [flow.buffer for flow in kernel.graph.tile_flows if flow.chunked and flow.buffer is not None]
    return Durations(
        seconds={name: both(full.seconds[name], masked.seconds[name]) for name in full.seconds},
        latency_s={name: both(full.latency_s[name], masked.latency_s[name]) for name in full.latency_s},
        pieces={name: np.repeat(pieces_of(found, name), 2) for name in chunked},
        piece_slots={name: round(float(np.atleast_1d(found.slots[name])[0])) for name in chunked},
        held=held,
        handoff_s=float(spec.handoff_s),
        task_s=float(spec.task_s),
        share_s=both(found.shares_s[0], found.shares_s[1]),
        row_share_s=both(found.shares_s[2], found.shares_s[2]),
    )


numbers_jit = quick_jit(numbers, static_argnums=(3,), wanted=SELDOM)
