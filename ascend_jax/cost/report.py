"""``Report``: what every fidelity of the model answers."""

from dataclasses import dataclass, field

import numpy as np
from jax import Array
from jax.tree_util import register_dataclass

from ascend_jax.occupancy import Occupancy


@register_dataclass
@dataclass(frozen=True, kw_only=True)
class Report:
    """One tiling of one workload on one chip (leaves of rank 0; batched by vmap).

    Attributes:
      seconds: from launch to completion. Meaningful only where ``occupancy.verdict`` is FITS.
      launch_s: the part of it that no work explains.
      flops: floating-point operations that the mask leaves to do (2 a multiply-add, no padding).
      peak_flops_per_s: of the chip's Cube for the element type.
      bounds: ``[K]``, share of ``seconds`` that each limit of ``limits`` alone would take; the largest is the bound.
      limits: names of ``bounds``.
      cycles: busy cycles of each pipe of one core, on average over the active cores.
      path_bytes: bytes over each path, and over ``gm`` and ``l2``, of the whole chip.
      blocks_computed, blocks_partial, blocks_skipped: blocks of the score matrix, all heads and sequences.
      tasks, active_cores: units of work and the cube cores that have any.
      period_s, latency_s: seconds from tile to tile, and of a lone tile (of the sequence that takes longest).
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
    latency_s: Array
    occupancy: Occupancy

    @property
    def tflops(self) -> Array:
        """Useful TFLOP/s; 0 for an empty workload."""
        return self.flops / self.seconds / 1e12 if self.seconds > 0 else self.flops * 0

    @property
    def utilisation(self) -> Array:
        """Useful share of the Cube's peak, from 0 to 1."""
        return self.tflops * 1e12 / self.peak_flops_per_s

    @property
    def bound_by(self) -> str:
        """The limit that takes the largest share of the time (of a concrete report, not under jit)."""
        limit = self.limits[int(np.argmax(self.bounds))]
        return "MTE1" if limit == "Cube" and self.cycles["MTE1"] > self.cycles["Cube"] else limit
