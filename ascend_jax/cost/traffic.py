"""What goes over GM and L2, and what L2 serves. Both are shared: a core gets what the other active cores leave."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from ascend_jax.cost.units import burst_gap
from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.kernels.geometry import Geometry
from ascend_jax.kernels.kernel import Transfer
from ascend_jax.workload.attention import Attention
from ascend_jax.workload.sequences import Sequences


class Hits(NamedTuple):
    """Share of a stream's bytes that L2 serves (rank 0)."""

    kv: Array
    workspace: Array
    out: Array


class Contention(NamedTuple):
    """Who else is at work: the active cube cores, and the bytes of their workspaces that L2 should hold."""

    active: Array
    workspace_bytes: Array


class Traffic(NamedTuple):
    """Bytes of the whole chip for one tile of every active core, by where they come from or go to; and what the gaps between
    its bursts cost there besides, in bytes."""

    gm_bytes: Array
    l2_bytes: Array
    gm_gaps: Array
    l2_gaps: Array

    def seconds(self, spec: NpuSpec) -> Array:
        """Time that GM and L2 need for them. Misses and hits add up, as the vendor's data-copy sample shows for reuse
        of 0 and 75 % (828 and 366 µs on A2)."""
        gm, l2 = self.gm_bytes + self.gm_gaps, self.l2_bytes + self.l2_gaps
        return gm / spec.gm_bytes_per_s + l2 / spec.l2_bytes_per_s

    def plus(self, other: "Traffic") -> "Traffic":
        """Both together."""
        return Traffic(*(mine + others for mine, others in zip(self, other, strict=True)))


def hits(spec: NpuSpec, work: Attention, sequence: Sequences, shape: Geometry, others: Contention) -> Hits:
    """How much of K, V, O and of the workspace L2 serves.

    The workspace stays in L2 as far as it fits. K and V are read from GM once; later reads hit as far as L2 holds the keys of
    the heads that the active cores work on, beside the workspace: each core gets a run of neighbouring tasks, as the vendor's
    host-side balancing deals them. What is written stays in L2 too, in the share that it can hold of all that the kernel reads
    and writes; it reaches GM after the kernel's end (half-precision Add of 134 MB each on A2: 184 µs, less than its reads and
    writes would take from GM).
    """
    active, workspace_bytes = others
    per_head = sequence.kv_len * work.kv_columns * work.element_bytes
    heads = sequence.count * work.kv_heads
    read = shape.tiles * shape.keys * work.kv_columns * work.element_bytes
    reuse = 1 - jnp.minimum(heads * per_head / jnp.maximum(read, 1.0), 1.0)
    live_heads = jnp.clip(active, 1.0, jnp.maximum(heads, 1.0))
    room = jnp.maximum(spec.l2_bytes - workspace_bytes, 0.0)
    kept = jnp.minimum(room / jnp.maximum(live_heads * per_head, 1.0), 1.0)
    workspace = jnp.minimum(spec.l2_bytes / jnp.maximum(workspace_bytes, 1.0), 1.0)
    rows = sequence.count * sequence.q_len * work.q_heads
    tensors = heads * per_head + rows * (work.head_dim + work.value_dim) * work.element_bytes
    return Hits(kv=reuse * kept, workspace=workspace, out=jnp.minimum(room / jnp.maximum(tensors, 1.0), 1.0))


def no_traffic(zero: Array) -> Traffic:
    """Nothing over GM and L2, in the shape of ``zero``."""
    return Traffic(zero, zero, zero, zero)


def transfer_traffic(spec: NpuSpec, transfer: Transfer, hit: Hits, active: Array) -> Traffic:
    """Bytes that ``active`` cores move over GM and L2 when each makes this transfer once; none for on-chip paths."""
    bursts = transfer.bursts * transfer.units * active
    moved, gaps = bursts * transfer.burst_bytes, bursts * burst_gap(spec, transfer)
    if transfer.stream == "chip":
        return no_traffic(jnp.zeros_like(moved))
    hits_l2 = _share_of_l2(transfer, hit)
    return Traffic(moved * (1 - hits_l2), moved * hits_l2, gaps * (1 - hits_l2), gaps * hits_l2)


def _share_of_l2(transfer: Transfer, hit: Hits) -> Array | float:
    match transfer.stream:
        case "kv":
            return hit.kv
        case "workspace":
            return hit.workspace
        case "out":
            return hit.out
        case "mask" | "again":
            return 1.0
        case _:
            return 0.0
