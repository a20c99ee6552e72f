"""``Report``: what every fidelity of the model answers."""

from dataclasses import dataclass, field

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.tree_util import register_dataclass

from ascend_jax.cost.finish import Finished
from ascend_jax.cost.prepare import Prepared, over
from ascend_jax.hardware.peak import peak_flops
from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.occupancy import Occupancy
from ascend_jax.workload.blocks import kept_pairs
from ascend_jax.workload.problem import Problem


@register_dataclass
@dataclass(frozen=True, kw_only=True)
class Report:
    """One tiling of one workload on one chip (leaves of rank 0; batched by vmap).

    Attributes:
      seconds: from launch to completion. Meaningful only where ``occupancy.verdict`` is FITS.
      launch_s: the part of it before the first task: the launch, and the scalar head of a vendor's operator.
      flops: floating-point operations that the mask leaves to do (2 a multiply-add, no padding).
      peak_flops_per_s: of the chip's Cube for the element type.
      bounds: ``[K]``, share of ``seconds`` that each limit of ``limits`` alone would take; the largest is the bound.
      limits: names of ``bounds``.
      cycles: busy cycles of each pipe of one core, on average over the active cores.
      path_bytes: bytes over each path, and over ``gm`` and ``l2``, of the whole chip.
      blocks_computed, blocks_partial, blocks_skipped: blocks of the score matrix, all heads and sequences; heads packed into
        one block share it.
      tasks, active_cores: units of work and the cube cores that have any.
      period_s, tile_latency_s: seconds from tile to tile, and of a lone tile (of the sequence that takes longest).
      occupancy: bytes per memory, and the verdict.
    """

    seconds: Array
    launch_s: Array
    flops: Array
    peak_flops_per_s: Array
    bounds: Array
    limits: tuple[str, ...] = field(metadata={"static": True})
    cycles: dict[str, Array]
    path_bytes: dict[str, Array]
    blocks_computed: Array
    blocks_partial: Array
    blocks_skipped: Array
    tasks: Array
    active_cores: Array
    period_s: Array
    tile_latency_s: Array
    occupancy: Occupancy

    @property
    def tflops(self) -> Array:
        """Useful TFLOP/s; 0 for an empty workload."""
        busy = self.seconds > 0
        return jnp.where(busy, self.flops / jnp.where(busy, self.seconds, 1.0) / 1e12, 0.0)

    @property
    def utilisation(self) -> Array:
        """Useful share of the Cube's peak, from 0 to 1."""
        return self.tflops * 1e12 / self.peak_flops_per_s

    @property
    def bound_by(self) -> str:
        """The limit that takes the largest share of the time (of one concrete report: not of a batch, not under jit)."""
        if np.ndim(self.bounds) != 1:
            raise ValueError(f"bounds have shape {np.shape(self.bounds)}: take one report out of the batch first")
        limit = self.limits[int(np.argmax(self.bounds))]
        return "MTE1" if limit == "Cube" and self.cycles["MTE1"] > self.cycles["Cube"] else limit


def report(spec: NpuSpec, given: Problem, prepared: Prepared, done: Finished) -> Report:
    """Put together everything that a person may ask about one tiling."""
    work = given.work
    shapes, active = prepared.shapes, prepared.active
    bounds, limits = _bounds(spec, prepared, done)
    return Report(
        seconds=done.seconds,
        launch_s=done.start_s,
        flops=jnp.abs(2 * _pairs(given) * (work.head_dim + work.value_dim)),  # an empty sum may be -0
        peak_flops_per_s=jnp.asarray(peak_flops(spec, work.dtype)),
        bounds=bounds,
        limits=limits,
        cycles=_cycles(spec, prepared),
        path_bytes=_path_bytes(prepared),
        blocks_computed=jnp.sum(shapes.tiles),
        blocks_partial=jnp.sum(shapes.partial_tiles),
        blocks_skipped=jnp.sum(shapes.skipped_tiles),
        tasks=jnp.sum(shapes.tasks),
        active_cores=active,
        period_s=jnp.max(done.period_s),
        tile_latency_s=jnp.max(prepared.steady.latency_s),
        occupancy=done.occupancy,
    )


def _bounds(spec: NpuSpec, prepared: Prepared, done: Finished) -> tuple[Array, tuple[str, ...]]:
    """Share of the time that each limit alone would take, and its name."""
    # vmap over lengths sorts names; pipes first, so that a pipe and a loop that are as long are told as the pipe.
    limits = {name: done.limits_s[name] for name in sorted(done.limits_s, key=lambda name: (" of " in name, name))}
    active = prepared.active
    tile_s = jnp.stack(list(limits.values())) * jnp.expand_dims(prepared.shapes.tiles / active, 0)
    task_s = jnp.sum(prepared.shapes.tasks) / active * spec.task_s
    spent = [jnp.sum(tile_s.reshape(len(limits), -1), axis=1), jnp.stack([done.start_s, task_s])]
    seconds = jnp.maximum(done.seconds, jnp.finfo(task_s.dtype).tiny)
    return jnp.concatenate(spent) / seconds, (*limits, "launch", "task start")


def _cycles(spec: NpuSpec, prepared: Prepared) -> dict[str, Array]:
    costs, shapes, active = prepared.costs, prepared.shapes, prepared.active
    zero = jnp.zeros_like(shapes.tiles)
    busy = {
        name: jnp.sum(costs.busy.get(name, zero) * shapes.tiles + costs.row_busy.get(name, zero) * shapes.tasks) / active
        for name in dict.fromkeys([*costs.busy, *costs.row_busy])
    }
    busy["Cube"] = jnp.sum(costs.cube_s * shapes.tiles) / active
    return {n: s * (spec.vector_clock_hz if n.startswith("Vector") else spec.cube_clock_hz) for n, s in busy.items()}


def _path_bytes(prepared: Prepared) -> dict[str, Array]:
    costs, shapes = prepared.costs, prepared.shapes
    zero = jnp.zeros_like(shapes.tiles)
    moved = {
        name: jnp.sum(costs.paths.get(name, zero) * shapes.tiles + costs.row_paths.get(name, zero) * shapes.tasks)
        for name in dict.fromkeys([*costs.paths, *costs.row_paths])
    }
    for name in ("gm", "l2"):
        tile, row = (getattr(traffic, f"{name}_bytes") for traffic in (costs.traffic, costs.row_traffic))
        moved[name] = jnp.sum(tile * shapes.tiles + row * shapes.tasks) / prepared.active
    return moved


def _pairs(given: Problem) -> Array:
    """Query-key pairs that the mask keeps, of all heads and sequences."""
    work, lengths = given
    pairs = over(lengths)(lambda sequence: kept_pairs(work.mask, sequence.q_len, sequence.kv_len))(lengths)
    return jnp.sum(pairs * lengths.count) * work.q_heads
