"""From a checked call of the attention operator to the workload that the hardware model knows."""

import numpy as np

from ascend_jax.attention.fusion.axes import Axes
from ascend_jax.attention.fusion.call import Call, shape_of
from ascend_jax.attention.fusion.front_end import name_of
from ascend_jax.attention.fusion.plan import Kind, Sparse
from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.kernels import kernel_for
from ascend_jax.occupancy import slot_bytes, split_row_bytes
from ascend_jax.rounding import EXACT
from ascend_jax.tiling.tiling import Tiling
from ascend_jax.workload.attention import Attention
from ascend_jax.workload.mask import Mask


def work_of(call: Call, axes: Axes, sparse: Sparse) -> Attention:
    """The workload. A mask that the user gives hides scores of blocks that are computed all the same.

    The 950 takes rope as further columns of D; so does the model for all chips.
    """
    rope = 0
    if call.query_rope is not None:
        width = shape_of(call.query_rope)[-1]
        rope = width // axes.n1 if call.layout in ("BSH", "SBH") else width
    lengths = (axes.q_lens, axes.kv_lens) if axes.packed else (axes.s1, axes.s2)
    return Attention(
        batch=1 if axes.packed else axes.batch,
        q_heads=axes.n1,
        kv_heads=axes.n2,
        q_len=lengths[0],
        kv_len=lengths[1],
        head_dim=axes.d + rope,
        value_dim=axes.d_value,
        mask=_mask(axes, sparse),
        dtype=name_of(call.query),
        layout=call.layout,
    )


def _mask(axes: Axes, sparse: Sparse) -> Mask:
    """Of packed sequences that differ in their masks the model takes that of most; of several prefixes the longest."""
    match sparse.kind:
        case Kind.CAUSAL | Kind.BAND_FIRST:
            return Mask(kind="left_up_causal")
        case Kind.CAUSAL_RIGHT | Kind.BAND_LAST:
            return Mask(kind="causal")
        case Kind.PREFIX:
            return Mask(kind="prefix", prefix=max(0, *sparse.prefix) if sparse.prefix else 0)
        case Kind.BAND | Kind.BAND_RIGHT:
            shift = axes.s2 - axes.s1 if sparse.kind is Kind.BAND else 0
            pre, following = sparse.pre + shift, sparse.next - shift
            return Mask(kind="band", pre=max(pre, -following), next=following)
    return Mask()


def workspace_bytes(spec: NpuSpec, work: Attention, tiling: Tiling, kernel: str) -> int:
    """What the dataflow keeps in GM besides the tensors: hand-offs of all cores, and parts of split sequences."""
    buffers = kernel_for(spec, kernel).buffers(spec, work, tiling, EXACT)
    of_a_core = sum(float(slot_bytes(one)) * float(one.slots) for one in buffers.values() if one.memory == "GM")
    rows = float(np.sum(np.asarray(work.q_len) * np.asarray(work.batch))) * int(work.q_heads)
    parts = rows * float(split_row_bytes(work)) * int(tiling.kv_split) if int(tiling.kv_split) > 1 else 0.0
    return round(of_a_core * int(spec.cube_cores) + parts)
