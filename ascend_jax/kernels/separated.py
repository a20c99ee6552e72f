"""``separated`` (910B, 910_93): cube and vector cores exchange S, P and ΔO through a workspace in GM that L2 should hold.

A cube core and its vector cores work on one task. S leaves L0C by FixPipe, the vector cores read it, write P, and the cube
core reads P back; ΔO goes the way of S. O stays in UB until its task is done.
"""

from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array

from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.kernels import parts
from ascend_jax.kernels.buffers import l0_buffers, masked, operand_buffers, padded, state_buffers
from ascend_jax.kernels.geometry import Geometry
from ascend_jax.kernels.kernel import Buffer, Flow, Graph, Matmul, Path, Stage, Transfer, Work
from ascend_jax.kernels.l0 import L0Steps
from ascend_jax.rounding import Rounding
from ascend_jax.tiling.tiling import Tiling
from ascend_jax.workload.attention import Attention

P_SLOTS = 2.0
"""P of the next tile loads into L1 beside the Cube, as in the vendor's L1 plans."""
GRAPH = Graph(
    stages=(
        Stage("load_q", "MTE2", per_row=True, opens=True),
        Stage("load_k", "MTE2"),
        Stage("load_v", "MTE2", late=True),
        Stage("load_p", "MTE2", late=True),
        Stage("mm_qk", "Cube"),
        Stage("mm_pv", "Cube", late=True),
        Stage("fix_s", "FixPipe"),
        Stage("fix_o", "FixPipe", late=True),
        Stage("load_s", "Vector MTE2"),
        Stage("load_o", "Vector MTE2", late=True),
        Stage("softmax", "Vector"),
        Stage("rescale", "Vector", late=True),
        Stage("finalise", "Vector", per_row=True),
        Stage("store_p", "MTE3"),
        Stage("store_o", "MTE3", per_row=True),
    ),
    flows=(
        Flow("load_k", "mm_qk", "K"),
        Flow("mm_qk", "fix_s", "S in L0C", chunked=True),
        Flow("fix_s", "load_s", "S workspace", handoff=True),
        Flow("load_s", "softmax", "S in UB", chunked=True),
        Flow("softmax", "store_p", "P in UB", chunked=True),
        Flow("store_p", "load_p", "P workspace", handoff=True),
        Flow("load_p", "mm_pv", "P"),
        Flow("load_v", "mm_pv", "V"),
        Flow("mm_pv", "fix_o", "O in L0C", chunked=True),
        Flow("fix_o", "load_o", "O workspace", handoff=True),
        Flow("load_o", "rescale", "dO in UB"),
    ),
)


@dataclass(frozen=True)
class Separated:
    """The dataflow of the 910B and 910_93 generations."""

    name: str = "separated"
    graph: Graph = GRAPH
    runs_on: tuple[str, ...] = ("separated", "direct")
    ignores: tuple[str, ...] = ()
    needs: tuple[str, ...] = ("l0c_to_gm_bytes_per_s",)

    def buffers(self, spec: NpuSpec, work: Attention, tiling: Tiling, rounding: Rounding) -> dict[str, Buffer]:
        e, bq, bk = work.element_bytes, tiling.block_q, tiling.block_kv
        value = padded(work.value_dim, rounding)
        half = rounding.ceil_div(bq, spec.vector_cores_per_cube)
        step = jnp.minimum(tiling.vector_rows, half)
        ub = tiling.ub_depth
        return {
            **operand_buffers(work, tiling, rounding),
            "P": Buffer(memory="L1", rows=bq, columns=bk, element_bytes=e, slots=P_SLOTS),
            "O": Buffer(memory="UB", rows=half, columns=value, element_bytes=4),
            "S in UB": Buffer(memory="UB", rows=step, columns=bk, element_bytes=4, slots=ub),
            "P in UB": Buffer(memory="UB", rows=step, columns=bk, element_bytes=e, slots=ub),
            "dO in UB": Buffer(memory="UB", rows=step, columns=value, element_bytes=4, slots=ub),
            "mask": Buffer(memory="UB", rows=step * masked(work), columns=bk, element_bytes=1, slots=ub),
            "S workspace": Buffer(memory="GM", rows=bq, columns=bk, element_bytes=4, slots=tiling.score_depth),
            "P workspace": Buffer(memory="GM", rows=bq, columns=bk, element_bytes=e, slots=tiling.prob_depth),
            "O workspace": Buffer(memory="GM", rows=bq, columns=value, element_bytes=4, slots=tiling.out_depth),
            **state_buffers(half, tiling),
            **l0_buffers(spec, work, tiling, rounding),
        }

    def work(self, spec: NpuSpec, work: Attention, shape: Geometry) -> dict[str, Work]:
        e, rows, keys, mine, steps = work.element_bytes, shape.rows, shape.keys, shape.vector_rows, shape.vector_steps
        dim, value = work.head_dim, work.value_dim

        def exchange(path: Path, columns: Array, element: int) -> Transfer:
            vector = path in ("gm_to_ub", "ub_to_gm")
            return Transfer(
                path=path,
                stream="workspace",
                bursts=mine if vector else rows,
                burst_bytes=columns * element,
                instructions=steps if vector else 1.0,
                units=shape.vector_cores if vector else 1.0,
            )

        return {
            "load_q": (parts.load_q(work, shape, "gm_to_l1"),),
            "load_k": (parts.load_k(work, shape, "gm_to_l1"),),
            "load_v": (parts.load_v(work, shape, "gm_to_l1"),),
            "load_p": (exchange("gm_to_l1", keys, e),),
            "mm_qk": (Matmul(m=rows, k=dim, n=keys),),
            "mm_pv": (Matmul(m=rows, k=keys, n=value),),
            "fix_s": (exchange("l0c_to_gm", keys, 4),),
            "fix_o": (exchange("l0c_to_gm", value, 4),),
            "load_s": (exchange("gm_to_ub", keys, 4), parts.load_mask(shape, steps)),
            "load_o": (exchange("gm_to_ub", value, 4),),
            "softmax": (parts.softmax(work, shape, parts.SOFTMAX_STARTS * steps),),
            "rescale": (parts.rescale(work, shape, parts.RESCALE_STARTS * steps),),
            "finalise": (parts.finalise(work, shape, parts.RESCALE_STARTS),),
            "store_p": (exchange("ub_to_gm", keys, e),),
            "store_o": (parts.store_o(work, shape),),
        }

    def chunks(self, shape: Geometry, qk: L0Steps, pv: L0Steps) -> dict[str, Array]:
        steps = shape.vector_steps
        return {"S in L0C": qk.output_steps, "O in L0C": pv.output_steps, "S in UB": steps, "P in UB": steps}
