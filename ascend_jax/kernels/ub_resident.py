"""``ub_resident``: the model of the articles. Q, K, V, O and one score tile, all of the input type, live in UB.

It is kept as they describe it (five buffers, 128-byte alignment), so that their arithmetic can be checked; what it leaves
out is real: fp32 scores, softmax state, mask. Every operand passes UB → L1 → L0. A chip without the paths L0C → UB and
UB → L1 takes the way through GM.
"""

from dataclasses import dataclass

from jax import Array

from ascend_jax._pytree import Leaf
from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.kernels import parts
from ascend_jax.kernels.buffers import l0_buffers, padded
from ascend_jax.kernels.geometry import Geometry
from ascend_jax.kernels.kernel import Buffer, Flow, Graph, Matmul, Stage, Transfer, Work
from ascend_jax.kernels.l0 import L0Steps
from ascend_jax.rounding import Rounding
from ascend_jax.tiling.tiling import Tiling
from ascend_jax.workload.attention import Attention

ALLOCATOR_ALIGN_BYTES = 128
"""The articles' UB allocator aligns each of its five buffers to this."""

GRAPH = Graph(
    stages=(
        Stage("load_q", "MTE2", per_row=True, opens=True, gm=True),
        Stage("load_k", "MTE2", gm=True),
        Stage("load_v", "MTE2", late=True, gm=True),
        Stage("move_q", "MTE3", per_row=True, opens=True),
        Stage("move_k", "MTE3"),
        Stage("move_v", "MTE3", late=True),
        Stage("move_p", "MTE3", late=True),
        Stage("store_o", "MTE3", per_row=True, gm=True),
        Stage("mm_qk", "Cube"),
        Stage("mm_pv", "Cube", late=True),
        Stage("softmax", "Vector"),
        Stage("rescale", "Vector", late=True),
        Stage("finalise", "Vector", per_row=True),
    ),
    flows=(
        Flow("load_k", "move_k", "K"),
        Flow("move_k", "mm_qk", "K in L1"),
        Flow("mm_qk", "softmax", "S in L0C", chunked=True, handoff=True),
        Flow("softmax", "move_p", "S"),
        Flow("load_v", "move_v", "V"),
        Flow("move_v", "mm_pv", "V in L1"),
        Flow("move_p", "mm_pv", "P in L1", handoff=True),
        Flow("mm_pv", "rescale", "O in L0C", chunked=True, handoff=True),
        Flow("load_q", "move_q", "Q"),
        Flow("move_q", "mm_qk", "Q in L1"),
        Flow("rescale", "finalise"),
        Flow("finalise", "store_o"),
        Flow("rescale", "store_o", "O"),
    ),
)


@dataclass(frozen=True)
class UbResident:
    """The articles' dataflow; runs on every chip."""

    name: str = "ub_resident"
    graph: Graph = GRAPH
    runs_on: tuple[str, ...] = ("coupled", "separated", "direct")
    ignores: tuple[str, ...] = ("vector_rows", "ub_depth", "prob_depth", "out_depth")
    kv_rows: int = 0
    trim: bool = False
    operator: bool = False
    needs: tuple[str, ...] = ()

    def buffers(self, spec: NpuSpec, work: Attention, tiling: Tiling, rounding: Rounding) -> dict[str, Buffer]:
        e, bq, bk = work.element_bytes, tiling.block_q, tiling.block_kv
        dim, value = padded(work.head_dim, rounding), padded(work.value_dim, rounding)

        def resident(rows: Array, columns: Array, slots: Leaf = 1.0) -> Buffer:
            return Buffer(
                memory="UB", rows=rows, columns=columns, element_bytes=e, slots=slots, align_bytes=ALLOCATOR_ALIGN_BYTES
            )

        return {
            "Q": resident(bq, dim),
            "K": resident(bk, dim, tiling.kv_depth),
            "V": resident(bk, value, tiling.kv_depth),
            "O": resident(bq, value),
            "S": resident(bq, bk, tiling.score_depth),
            "Q in L1": Buffer(memory="L1", rows=bq, columns=dim, element_bytes=e),
            "K in L1": Buffer(memory="L1", rows=bk, columns=dim, element_bytes=e),
            "V in L1": Buffer(memory="L1", rows=bk, columns=value, element_bytes=e),
            "P in L1": Buffer(memory="L1", rows=bq, columns=bk, element_bytes=e),
            **l0_buffers(spec, work, tiling, rounding),
        }

    def work(self, spec: NpuSpec, work: Attention, shape: Geometry) -> dict[str, Work]:
        e, rows, keys, mine = work.element_bytes, shape.rows, shape.keys, shape.vector_rows
        dim, value = work.head_dim, work.value_dim
        softmax, rescale = parts.softmax(work, shape, parts.SOFTMAX_STARTS), parts.rescale(work, shape, parts.RESCALE_STARTS)
        return {
            "load_q": (parts.load_q(work, shape, "gm_to_ub"),),
            "load_k": (parts.load_k(work, shape, "gm_to_ub"),),
            "load_v": (parts.load_v(work, shape, "gm_to_ub"),),
            "move_q": _into_l1(spec, rows, dim * e),
            "move_k": _into_l1(spec, keys, dim * e),
            "move_v": _into_l1(spec, keys, value * e),
            "move_p": _into_l1(spec, mine, keys * e),
            "mm_qk": (Matmul(m=rows, k=dim, n=keys),),
            "mm_pv": (Matmul(m=rows, k=keys, n=value),),
            "softmax": (*_out_of_l0c(spec, shape, keys * 4), softmax),
            "rescale": (*_out_of_l0c(spec, shape, value * 4), rescale),
            "finalise": (parts.finalise(work, shape, parts.RESCALE_STARTS),),
            "store_o": (parts.store_o(work, shape),),
        }

    def chunks(self, shape: Geometry, qk: L0Steps, pv: L0Steps) -> dict[str, Array]:
        return {"S in L0C": qk.output_steps, "O in L0C": pv.output_steps}


def _into_l1(spec: NpuSpec, rows: Array, row_bytes: Array) -> Work:
    """UB → L1, or UB → GM → L1 where the chip lacks the path."""
    if spec.ub_to_l1_bytes_per_s is not None:
        return (Transfer(path="ub_to_l1", stream="chip", bursts=rows, burst_bytes=row_bytes),)
    return (
        Transfer(path="ub_to_gm", stream="workspace", bursts=rows, burst_bytes=row_bytes),
        Transfer(path="gm_to_l1", stream="workspace", bursts=rows, burst_bytes=row_bytes),
    )


def _out_of_l0c(spec: NpuSpec, shape: Geometry, row_bytes: Array) -> Work:
    """L0C → UB, or L0C → GM → UB where the chip lacks the path."""
    if spec.l0c_to_ub_bytes_per_s is not None:
        return (Transfer(path="l0c_to_ub", stream="chip", bursts=shape.vector_rows, burst_bytes=row_bytes),)
    return (
        Transfer(path="l0c_to_gm", stream="workspace", bursts=shape.rows, burst_bytes=row_bytes),
        Transfer(path="gm_to_ub", stream="workspace", bursts=shape.vector_rows, burst_bytes=row_bytes),
    )
