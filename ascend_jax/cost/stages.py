"""Seconds of every stage of a kernel for one average tile, and what the tile costs the units and memories that it shares."""

from collections import defaultdict
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from ascend_jax._largest import largest
from ascend_jax.cost.traffic import Contention, Hits, Traffic, hits, no_traffic, transfer_traffic
from ascend_jax.cost.units import matmul_time, transfer_seconds, vector_seconds
from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.kernels.geometry import Geometry
from ascend_jax.kernels.kernel import Kernel, Matmul, Transfer, VectorOps, Work
from ascend_jax.kernels.l0 import L0Steps
from ascend_jax.rounding import Rounding
from ascend_jax.tiling.tiling import Tiling
from ascend_jax.workload.attention import Attention
from ascend_jax.workload.sequences import Sequences


class StageCosts(NamedTuple):
    """One average tile (row stages: one task) of one sequence, on one core among ``active`` (rank 0 each).

    Attributes:
      seconds: per stage, how long it keeps its pipe under the contention of all active cores doing the same.
      latency_s: per stage, from then until its result is visible.
      busy: seconds per unit (pipe) of all tile stages; MTE1 counts beside the Cube that it feeds.
      row_busy: the same of the row stages, once per task.
      cube_s: seconds of the Cube's own work in a tile (``busy["Cube"]`` counts what it waits for MTE1 too).
      paths: bytes per path of all tile stages, of the whole task's cores.
      row_paths: the same of the row stages.
      traffic, row_traffic: bytes over GM and L2 by all active cores, for one tile and for one task each.
      chunks: pieces of a tile, per chunked flow's buffer.
    """

    seconds: dict[str, Array]
    latency_s: dict[str, Array]
    busy: dict[str, Array]
    row_busy: dict[str, Array]
    cube_s: Array
    paths: dict[str, Array]
    row_paths: dict[str, Array]
    traffic: Traffic
    row_traffic: Traffic
    chunks: dict[str, Array]


class _Part(NamedTuple):
    """One piece of work: seconds on its pipe, those of Cube and MTE1 in it, traffic over GM and L2, and a matmul's L0 steps."""

    seconds: Array
    cube_s: Array
    mte1_s: Array
    traffic: Traffic
    l0: L0Steps | None = None


def stage_costs(
    spec: NpuSpec,
    work: Attention,
    tiling: Tiling,
    kernel: Kernel,
    sequence: Sequences,
    shape: Geometry,
    *,
    others: Contention,
    rounding: Rounding,
) -> StageCosts:
    """Cost every stage of ``kernel`` for the average tile ``shape`` while all active cores do the same."""
    hit, active = hits(spec, work, sequence, shape, others), others.active
    jobs = kernel.work(spec, work, shape)
    zero = jnp.zeros_like(shape.rows)
    seconds: dict[str, Array] = {}
    latency: dict[str, Array] = {}
    steps: dict[str, L0Steps] = {}
    sums = {per_row: _Sums(zero) for per_row in (False, True)}
    for stage in kernel.graph.stages:
        job = jobs[stage.name]
        parts = [_cost(spec, part, work.element_bytes, tiling, hit, active=active, rounding=rounding) for part in job]
        seconds[stage.name] = sum((part.seconds for part in parts), zero)
        latency[stage.name] = _latency(spec, job, zero) if stage.gm else zero
        sums[stage.per_row].add(stage.pipe, parts, job)
        steps.update((stage.name, part.l0) for part in parts if part.l0 is not None)
    tile, row = sums[False], sums[True]
    return StageCosts(
        seconds=seconds,
        latency_s=latency,
        busy=dict(tile.busy),
        row_busy=dict(row.busy),
        cube_s=tile.cube_s,
        paths=dict(tile.paths),
        row_paths=dict(row.paths),
        traffic=tile.traffic,
        row_traffic=row.traffic,
        chunks=kernel.chunks(shape, steps["mm_qk"], steps["mm_pv"]),
    )


def _latency(spec: NpuSpec, job: Work, zero: Array) -> Array:
    """That of GM once, as far as a tile moves anything over it: the transfers of a stage are under way together."""
    moves = [jnp.minimum(part.instructions + zero, 1.0) for part in job if isinstance(part, Transfer) and part.stream != "chip"]
    return largest(moves) * spec.gm_latency_s if moves else zero


class _Sums:
    """Sums over stages, per pipe and per path."""

    def __init__(self, zero: Array) -> None:
        self.busy: dict[str, Array] = defaultdict(lambda: zero)
        self.paths: dict[str, Array] = defaultdict(lambda: zero)
        self.traffic = no_traffic(zero)
        self.cube_s = zero

    def add(self, pipe: str, parts: list[_Part], jobs: Work) -> None:
        for part, job in zip(parts, jobs, strict=True):
            self.busy[pipe] = self.busy[pipe] + part.seconds
            self.traffic = self.traffic.plus(part.traffic)
            if isinstance(job, Matmul):
                self.busy["MTE1"] = self.busy["MTE1"] + part.mte1_s
                self.cube_s = self.cube_s + part.cube_s
            if isinstance(job, Transfer):
                self.paths[job.path] = self.paths[job.path] + job.bursts * job.burst_bytes * job.units


def _cost(
    spec: NpuSpec,
    part: Transfer | Matmul | VectorOps,
    element_bytes: int,
    tiling: Tiling,
    hit: Hits,
    *,
    active: Array,
    rounding: Rounding,
) -> _Part:
    match part:
        case Transfer():
            traffic = transfer_traffic(spec, part, hit, active)
            seconds = jnp.maximum(transfer_seconds(spec, part), traffic.seconds(spec))
            zero = jnp.zeros_like(seconds)
            return _Part(seconds, zero, zero, traffic)
        case Matmul():
            time = matmul_time(spec, part, element_bytes, tiling.l0_depth, rounding)
            zero = jnp.zeros_like(time.cube_s)
            return _Part(time.stage_s, time.cube_s, time.mte1_s, no_traffic(zero), time.steps)
        case VectorOps():
            seconds = vector_seconds(spec, part)
            zero = jnp.zeros_like(seconds)
            return _Part(seconds, zero, zero, no_traffic(zero))
