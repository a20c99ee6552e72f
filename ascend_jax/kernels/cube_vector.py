"""``separated`` (910B, 910_93) and ``direct`` (950): a cube core and its vector cores work on one task together.

What differs is data: whether S, P and ΔO cross GM or stay on chip, where O adds up, and how the tiles are issued.
"""

from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

import jax.numpy as jnp
from jax import Array

from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.kernels import parts
from ascend_jax.kernels.buffers import Q_SLOTS, l0_buffers, masked, operand_buffers, padded, state_buffers
from ascend_jax.kernels.geometry import Geometry
from ascend_jax.kernels.kernel import Buffer, Flow, Graph, Matmul, Path, Stage, Transfer, Work
from ascend_jax.kernels.l0 import L0Steps
from ascend_jax.rounding import Rounding
from ascend_jax.tiling.tiling import Tiling
from ascend_jax.workload.attention import Attention

P_SLOTS = 2.0
"""P of the next tile loads into L1 beside the Cube, as in the vendor's L1 plans."""


@dataclass(frozen=True)
class CubeVector:
    """A dataflow of separate cube and vector cores, as data.

    Attributes:
      scores, outs: where S and ΔO go from L0C: through a workspace in ``GM``, or by FixPipe straight into ``UB`` (950).
      probs: where P goes from UB: through a workspace in ``GM``, or straight into ``L1`` (950).
      accumulate: where O adds up between the tiles of a task: ``UB``, or ``GM`` where it is too large for UB.
      out_elements: elements of ΔO (and of O, where it adds up in GM) that a vector core works on at a time; 0: as many rows
        as of S.
      issue: ``rolling``: P·V runs ``preload`` tiles behind Q·Kᵀ. ``grouped``: each pipe works through a stage of ``group``
        tiles, then through the next stage. ``serial``: a tile begins when the one before is done, flag included.
      v_load: V is loaded in P·V's turn (``late``), with K (``with_k``), or only when P has arrived (``after_p``).
      fixpipe_waits: whether each Cube stage waits until FixPipe has emptied the one before.
      fused: whether softmax and rescale are one vector function each.
      kv_rows: rows of K, V and of P's columns that pass through L1 at a time; 0: whole blocks.
      trim: whether pieces that the mask hides are left out.
      operator: whether it has the scalar head of the vendor's operators.
      reload_v: whether a V that is part of K is read a second time, as where K's block is too long to stay in L1.
      kv_slots: pieces of K, V and P in L1, where they pass in pieces: with 1 the Cube waits for each.
      q_slots, o_slots: tasks whose Q, and whose O, are on chip at a time; with 1 the next task waits.
    """

    name: str
    scores: Literal["GM", "UB"] = "GM"
    outs: Literal["GM", "UB"] = "GM"
    probs: Literal["GM", "L1"] = "GM"
    accumulate: Literal["GM", "UB"] = "UB"
    out_elements: int = 0
    issue: Literal["rolling", "grouped", "serial"] = "rolling"
    group: int = 1
    v_load: Literal["late", "with_k", "after_p"] = "late"
    fixpipe_waits: bool = False
    fused: bool = False
    kv_rows: int = 0
    trim: bool = False
    operator: bool = False
    kv_slots: float = 2.0
    reload_v: bool = False
    q_slots: float = Q_SLOTS
    o_slots: float = 1.0

    @property
    def graph(self) -> Graph:
        """Its stages and flows."""
        return _graph(self)

    @property
    def runs_on(self) -> tuple[str, ...]:
        """Separate cores; those of the 950 where a path of it is needed."""
        return ("direct",) if self.needs != ("l0c_to_gm_bytes_per_s",) else ("separated", "direct")

    @property
    def ignores(self) -> tuple[str, ...]:
        """``vector_rows`` where whole tiles lie in UB, ``preload`` where nothing rolls."""
        whole = () if "GM" in (self.scores, self.outs) else ("vector_rows",)
        whole += ("kv_depth",) if self.kv_rows else ()
        return whole if self.issue == "rolling" else (*whole, "preload")

    @property
    def needs(self) -> tuple[str, ...]:
        """Paths that S, ΔO and P take."""
        paths = {"l0c_to_gm": "GM" in (self.scores, self.outs), "l0c_to_ub": "UB" in (self.scores, self.outs)}
        paths["ub_to_l1"] = self.probs == "L1"
        return tuple(f"{path}_bytes_per_s" for path, needed in paths.items() if needed)

    def buffers(self, spec: NpuSpec, work: Attention, tiling: Tiling, rounding: Rounding) -> dict[str, Buffer]:
        e, bq, bk = work.element_bytes, tiling.block_q, tiling.block_kv
        value = padded(work.value_dim, rounding)
        half = rounding.ceil_div(bq, spec.vector_cores_per_cube)
        step = jnp.minimum(tiling.vector_rows, half)
        score_rows = step if self.scores == "GM" else half
        out_rows = self._out_rows(work, tiling, half) if self.outs == "GM" else half
        out_slots = 1.0 if self.accumulate == "GM" else tiling.ub_depth
        ub = tiling.ub_depth
        found = {
            **operand_buffers(work, tiling, rounding, self.q_slots),
            "P": Buffer(memory="L1", rows=bq, columns=bk, element_bytes=e, slots=P_SLOTS),
            "O": Buffer(memory="UB", rows=half, columns=value, element_bytes=4, slots=self.o_slots),
            "S in UB": Buffer(memory="UB", rows=score_rows, columns=bk, element_bytes=4, slots=ub),
            "P in UB": Buffer(memory="UB", rows=score_rows, columns=bk, element_bytes=e, slots=ub),
            "dO in UB": Buffer(memory="UB", rows=out_rows, columns=value, element_bytes=4, slots=out_slots),
            "mask": Buffer(memory="UB", rows=score_rows * masked(work), columns=bk, element_bytes=1, slots=ub),
            **state_buffers(half, tiling),
            **l0_buffers(spec, work, tiling, rounding),
        }
        return found | self._hand_over(found, work, tiling, value, out_rows)

    def _out_rows(self, work: Attention, tiling: Tiling, half: Array) -> Array:
        """Rows of ΔO at a time: no fewer than one, no more than a vector core has."""
        rows = self.out_elements / work.value_dim if self.out_elements else tiling.vector_rows
        return jnp.clip(jnp.floor(rows) if self.out_elements else rows, 1.0, half)

    def _hand_over(
        self, found: dict[str, Buffer], work: Attention, tiling: Tiling, value: Array, out_rows: Array
    ) -> dict[str, Buffer]:
        """Buffers that the paths of S, P and ΔO decide: workspaces in GM, or slots of the buffers on chip."""
        e, bq, bk = work.element_bytes, tiling.block_q, tiling.block_kv
        changed: dict[str, Buffer] = {}
        if self.scores == "GM":
            changed["S workspace"] = Buffer(memory="GM", rows=bq, columns=bk, element_bytes=4, slots=tiling.score_depth)
        else:
            changed["S in UB"] = replace(found["S in UB"], slots=tiling.score_depth)
        if self.probs == "GM":
            changed["P workspace"] = Buffer(memory="GM", rows=bq, columns=bk, element_bytes=e, slots=tiling.prob_depth)
        else:
            changed["P"] = replace(found["P"], slots=tiling.prob_depth)
        if self.outs == "GM":
            changed["O workspace"] = Buffer(memory="GM", rows=bq, columns=value, element_bytes=4, slots=tiling.out_depth)
        else:
            changed["dO in UB"] = replace(found["dO in UB"], slots=tiling.out_depth)
        if self.kv_rows:
            piece = jnp.minimum(bk, self.kv_rows)
            changed |= {name: replace(found[name], rows=piece, slots=self.kv_slots) for name in ("K", "V")}
            changed["P"] = replace(found["P"], columns=piece, slots=self.kv_slots)
        if self.accumulate == "GM":
            changed["O"] = Buffer(memory="UB", rows=out_rows, columns=value, element_bytes=4)
            changed["O in GM"] = Buffer(memory="GM", rows=bq, columns=value, element_bytes=4, slots=self.o_slots)
        return changed

    def work(self, spec: NpuSpec, work: Attention, shape: Geometry) -> dict[str, Work]:
        e, rows, keys, steps = work.element_bytes, shape.rows, shape.keys, shape.vector_steps
        dim, value = work.head_dim, work.value_dim
        score_steps = steps if self.scores == "GM" else jnp.ones_like(steps)
        out_steps = self._out_steps(work, shape) if self.outs == "GM" else jnp.ones_like(steps)
        sums = (_exchange("gm_to_ub", shape, value * 4, out_steps),) if self.accumulate == "GM" else ()
        starts = (1.0, 1.0) if self.fused else (parts.SOFTMAX_STARTS, parts.RESCALE_STARTS)
        s_loads = (_exchange("gm_to_ub", shape, keys * 4, score_steps),) if self.scores == "GM" else ()
        o_loads = (_exchange("gm_to_ub", shape, value * 4, out_steps),) if self.outs == "GM" else ()
        found = {
            "load_q": (parts.load_q(work, shape, "gm_to_l1"),),
            "load_k": (parts.load_k(work, shape, "gm_to_l1"),),
            "load_v": (parts.load_v(work, shape, "gm_to_l1", self.reload_v),),
            "load_p": (_exchange("gm_to_l1", shape, keys * e, 1.0),),
            "mm_qk": (Matmul(m=rows, k=dim, n=keys),),
            "mm_pv": (Matmul(m=rows, k=keys, n=value),),
            "fix_s": (_out_of_l0c(self.scores, shape, keys * 4),),
            "fix_o": (_out_of_l0c(self.outs, shape, value * 4),),
            "load_s": (*s_loads, parts.load_mask(shape, score_steps)),
            "load_mask": (parts.load_mask(shape),),
            "load_o": (*o_loads, *sums),
            "softmax": (parts.softmax(work, shape, starts[0] * score_steps, self.fused),),
            "rescale": (parts.rescale(work, shape, starts[1] * out_steps, self.fused),),
            "finalise": (parts.finalise(work, shape, starts[1], self.fused),),
            "store_p": (_store_p(self.probs, shape, keys * e, score_steps),),
            "store_sum": (_exchange("ub_to_gm", shape, value * 4, out_steps),),
            "store_o": (parts.store_o(work, shape),),
        }
        return {stage.name: found[stage.name] for stage in self.graph.stages}

    def _out_steps(self, work: Attention, shape: Geometry) -> Array:
        if not self.out_elements:
            return shape.vector_steps
        rows = jnp.clip(jnp.floor(self.out_elements / work.value_dim), 1.0, shape.vector_rows)
        return jnp.ceil(shape.vector_rows / rows)

    def chunks(self, shape: Geometry, qk: L0Steps, pv: L0Steps) -> dict[str, Array]:
        in_l0c = {"S in L0C": qk.output_steps, "O in L0C": pv.output_steps}
        if self.kv_rows:
            pieces = jnp.ceil(shape.keys / self.kv_rows)
            in_l0c |= {"K": pieces, "V": pieces} | ({"P": pieces} if self.probs == "GM" else {})
        return in_l0c | ({"S in UB": shape.vector_steps, "P in UB": shape.vector_steps} if self.scores == "GM" else {})


def _exchange(path: Path, shape: Geometry, row_bytes: Array, instructions: Array | float) -> Transfer:
    """A tile to or from its workspace in GM: by the cube core, or by each vector core its own rows."""
    vector = path in ("gm_to_ub", "ub_to_gm")
    return Transfer(
        path=path,
        stream="workspace",
        bursts=shape.vector_rows if vector else shape.rows,
        burst_bytes=row_bytes,
        instructions=instructions,
        units=shape.vector_cores if vector else 1.0,
    )


def _out_of_l0c(place: str, shape: Geometry, row_bytes: Array) -> Transfer:
    if place == "GM":
        return _exchange("l0c_to_gm", shape, row_bytes, 1.0)
    # Both vector cores receive their half at once, so the rate of one destination moves one half.
    return Transfer(path="l0c_to_ub", stream="chip", bursts=shape.vector_rows, burst_bytes=row_bytes)


def _store_p(place: str, shape: Geometry, row_bytes: Array, steps: Array) -> Transfer:
    if place == "GM":
        return _exchange("ub_to_gm", shape, row_bytes, steps)
    return Transfer(path="ub_to_l1", stream="chip", bursts=shape.vector_rows, burst_bytes=row_bytes)


@cache
def _graph(kernel: CubeVector) -> Graph:
    """Stages in issue order and flows, as the kernel's paths and schedule ask for."""
    late = kernel.issue == "rolling"
    s_gm, o_gm, p_gm = kernel.scores == "GM", kernel.outs == "GM", kernel.probs == "GM"
    sums, pieces = kernel.accumulate == "GM", kernel.kv_rows > 0
    stages = [
        Stage("load_q", "MTE2", per_row=True, opens=True, gm=True),
        Stage("load_k", "MTE2", gm=True),
        Stage("load_v", "MTE2", late=late and kernel.v_load != "with_k", gm=True),
        Stage("load_p", "MTE2", late=late, gm=True) if p_gm else None,
        Stage("mm_qk", "Cube"),
        Stage("fix_s", "FixPipe", gm=s_gm),
        Stage("mm_pv", "Cube", late=late),
        Stage("fix_o", "FixPipe", late=late, gm=o_gm),
        Stage("load_s" if s_gm else "load_mask", "Vector MTE2", gm=True),
        Stage("load_o", "Vector MTE2", late=late, gm=True) if o_gm or sums else None,
        Stage("softmax", "Vector"),
        Stage("rescale", "Vector", late=late),
        Stage("finalise", "Vector", per_row=True),
        Stage("store_p", "MTE3", gm=p_gm),
        Stage("store_sum", "MTE3", late=late, gm=True) if sums else None,
        Stage("store_o", "MTE3", per_row=True, gm=True),
    ]
    flows = [
        Flow("load_q", "mm_qk", "Q"),
        Flow("load_k", "mm_qk", "K", chunked=pieces),
        Flow("mm_qk", "fix_s", "S in L0C", chunked=True),
        *_s_flows(s_gm),
        Flow("softmax", "store_p", "P in UB", chunked=s_gm),
        *_p_flows(p_gm, pieces),
        Flow("load_v", "mm_pv", "V", chunked=pieces),
        Flow("mm_pv", "fix_o", "O in L0C", chunked=True),
        *_o_flows(o_gm, sums),
        Flow("rescale", "finalise"),
        Flow("finalise", "store_o"),
        Flow("rescale", "store_o", "O in GM" if sums else "O"),
        *_schedule_flows(kernel),
    ]
    joined = ("Cube", "FixPipe") if kernel.fixpipe_waits else ()
    group = kernel.group if kernel.issue == "grouped" else 1
    return Graph(tuple(stage for stage in stages if stage), tuple(flows), joined, group)


def _s_flows(through_gm: bool) -> list[Flow]:
    if through_gm:
        return [Flow("fix_s", "load_s", "S workspace", handoff=True), Flow("load_s", "softmax", "S in UB", chunked=True)]
    return [Flow("fix_s", "softmax", "S in UB", handoff=True), Flow("load_mask", "softmax", "mask")]


def _p_flows(through_gm: bool, pieces: bool) -> list[Flow]:
    if through_gm:
        return [Flow("store_p", "load_p", "P workspace", handoff=True), Flow("load_p", "mm_pv", "P", chunked=pieces)]
    return [Flow("store_p", "mm_pv", "P", handoff=True)]


def _o_flows(through_gm: bool, sums: bool) -> list[Flow]:
    found = [Flow("fix_o", "load_o", "O workspace", handoff=True)] if through_gm else []
    found += [] if through_gm else [Flow("fix_o", "rescale", "dO in UB", handoff=True)]
    if through_gm or sums:
        found.append(Flow("load_o", "rescale", "dO in UB" if through_gm else "O"))
    return [*found, Flow("rescale", "store_sum"), Flow("store_sum", "load_o", lag=1)] if sums else found


def _schedule_flows(kernel: CubeVector) -> list[Flow]:
    """What a schedule makes wait beyond data and slots."""
    found = [Flow("rescale", "mm_qk", handoff=True, lag=1)] if kernel.issue == "serial" else []
    return [*found, Flow("store_p", "load_v", handoff=True)] if kernel.v_load == "after_p" else found


SEPARATED = CubeVector("separated")
"""The dataflow of 910B and 910_93: everything between Cube and Vector crosses GM, where L2 should hold it."""
DIRECT = CubeVector("direct", scores="UB", outs="UB", probs="L1", fused=True)
"""The dataflow of the 950: only Q, K, V and O touch GM (the vendor's 950 FlashAttention example)."""
