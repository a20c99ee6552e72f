"""``coupled`` (910A, 310P): one AI core holds Cube and Vector; S and ΔO come from L0C into UB, P goes from UB into L1.

The Vector pipe itself moves results out of L0C. Everything but Q, K, V and O stays on chip.
"""

from dataclasses import dataclass

from jax import Array

from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.kernels import parts
from ascend_jax.kernels.buffers import l0_buffers, masked, operand_buffers, padded, state_buffers
from ascend_jax.kernels.geometry import Geometry
from ascend_jax.kernels.kernel import Buffer, Flow, Graph, Matmul, Stage, Transfer, Work
from ascend_jax.kernels.l0 import L0Steps
from ascend_jax.rounding import Rounding
from ascend_jax.tiling.tiling import Tiling
from ascend_jax.workload.attention import Attention

GRAPH = Graph(
    stages=(
        Stage("load_q", "MTE2", per_row=True, opens=True, gm=True),
        Stage("load_mask", "MTE2", gm=True),
        Stage("load_k", "MTE2", gm=True),
        Stage("load_v", "MTE2", late=True, gm=True),
        Stage("mm_qk", "Cube"),
        Stage("mm_pv", "Cube", late=True),
        Stage("softmax", "Vector"),
        Stage("rescale", "Vector", late=True),
        Stage("finalise", "Vector", per_row=True),
        Stage("store_p", "MTE3"),
        Stage("store_o", "MTE3", per_row=True, gm=True),
    ),
    flows=(
        Flow("load_k", "mm_qk", "K"),
        Flow("mm_qk", "softmax", "S in L0C", chunked=True, handoff=True),
        Flow("load_mask", "softmax", "mask"),
        Flow("softmax", "store_p", "P in UB"),
        Flow("store_p", "mm_pv", "P", handoff=True),
        Flow("load_v", "mm_pv", "V"),
        Flow("mm_pv", "rescale", "O in L0C", chunked=True, handoff=True),
        Flow("load_q", "mm_qk", "Q"),
        Flow("rescale", "finalise"),
        Flow("finalise", "store_o"),
        Flow("rescale", "store_o", "O"),
    ),
)


@dataclass(frozen=True)
class Coupled:
    """The dataflow of the first generation and of 310P."""

    name: str = "coupled"
    graph: Graph = GRAPH
    runs_on: tuple[str, ...] = ("coupled",)
    ignores: tuple[str, ...] = ("vector_rows", "score_depth", "out_depth")
    kv_rows: int = 0
    trim: bool = False
    operator: bool = False
    needs: tuple[str, ...] = ("l0c_to_ub_bytes_per_s", "ub_to_l1_bytes_per_s")

    def buffers(self, spec: NpuSpec, work: Attention, tiling: Tiling, rounding: Rounding) -> dict[str, Buffer]:
        e, bq, bk = work.element_bytes, tiling.block_q, tiling.block_kv
        value = padded(work.value_dim, rounding)
        half = rounding.ceil_div(bq, spec.vector_cores_per_cube)
        return {
            **operand_buffers(work, tiling, rounding),
            "P": Buffer(memory="L1", rows=bq, columns=bk, element_bytes=e, slots=tiling.prob_depth),
            "O": Buffer(memory="UB", rows=half, columns=value, element_bytes=4),
            "S in UB": Buffer(memory="UB", rows=half, columns=bk, element_bytes=4),
            "P in UB": Buffer(memory="UB", rows=half, columns=bk, element_bytes=e, slots=tiling.ub_depth),
            "dO in UB": Buffer(memory="UB", rows=half, columns=value, element_bytes=4),
            "mask": Buffer(memory="UB", rows=half * masked(work), columns=bk, element_bytes=1, slots=tiling.ub_depth),
            **state_buffers(half, tiling),
            **l0_buffers(spec, work, tiling, rounding),
        }

    def work(self, spec: NpuSpec, work: Attention, shape: Geometry) -> dict[str, Work]:
        e, rows, keys, mine = work.element_bytes, shape.rows, shape.keys, shape.vector_rows
        dim, value = work.head_dim, work.value_dim
        move_s = Transfer(path="l0c_to_ub", stream="chip", bursts=mine, burst_bytes=keys * 4)
        move_o = Transfer(path="l0c_to_ub", stream="chip", bursts=mine, burst_bytes=value * 4)
        return {
            "load_q": (parts.load_q(work, shape, "gm_to_l1"),),
            "load_k": (parts.load_k(work, shape, "gm_to_l1"),),
            "load_v": (parts.load_v(work, shape, "gm_to_l1"),),
            "load_mask": (parts.load_mask(shape),),
            "mm_qk": (Matmul(m=rows, k=dim, n=keys),),
            "mm_pv": (Matmul(m=rows, k=keys, n=value),),
            "softmax": (move_s, parts.softmax(work, shape, parts.SOFTMAX_STARTS)),
            "rescale": (move_o, parts.rescale(work, shape, parts.RESCALE_STARTS)),
            "finalise": (parts.finalise(work, shape, parts.RESCALE_STARTS),),
            "store_p": (Transfer(path="ub_to_l1", stream="chip", bursts=mine, burst_bytes=keys * e),),
            "store_o": (parts.store_o(work, shape),),
        }

    def chunks(self, shape: Geometry, qk: L0Steps, pv: L0Steps) -> dict[str, Array]:
        return {"S in L0C": qk.output_steps, "O in L0C": pv.output_steps}
