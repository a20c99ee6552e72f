"""Seconds from a stage's start to each moment that others wait for. NumPy, outside of jit: equal classes become one."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ascend_jax.kernels.kernel import Graph
from ascend_jax.timeline.program import Moment, Program
from ascend_jax.timeline.schedule import DISPATCH

Numbers = np.ndarray
"""``[C]``, one number per class of tile; class ``2 u`` is a full tile of the u-th distinct length, ``2 u + 1`` a masked one."""

Weights = dict[Moment, Numbers]
"""Seconds from a stage's start to a moment, ``[C]``, or ``[1]`` where all classes are alike."""


class Durations(NamedTuple):
    """What the stages of a kernel take.

    Attributes:
      seconds: per stage, how long it keeps its pipe.
      latency_s: per stage, from then until its result is visible.
      pieces: per chunked flow's buffer, into how many pieces a tile is cut.
      piece_slots: per chunked flow's buffer, how many pieces it holds.
      held: per chunked flow's buffer, over how many whole tiles its slots reach.
      handoff_s: a flag between cores.
      task_s: scalar work to begin a task.
      share_s: how long GM and L2 take for a tile of every active core; ``row_share_s`` for what comes once per task.
    """

    seconds: Mapping[str, Numbers]
    latency_s: Mapping[str, Numbers]
    pieces: Mapping[str, Numbers]
    piece_slots: Mapping[str, float]
    held: Mapping[str, int]
    handoff_s: float
    task_s: float
    share_s: Numbers
    row_share_s: Numbers


def weigh(program: Program, graph: Graph, given: Durations) -> Weights:
    """The weight of every moment of ``program``, ``[C]``, or ``[1]`` where all classes are alike."""
    seconds = {DISPATCH: np.full_like(given.share_s, given.task_s), **given.seconds}
    latency = given.latency_s
    flows = {flow.buffer: flow for flow in graph.tile_flows if flow.chunked}

    def weight(moment: Moment) -> Numbers:
        match moment.kind:
            case "stage":
                return seconds[moment.stage]
            case "done":
                return seconds[moment.stage] + latency[moment.stage]
            case "share":
                return given.share_s if moment.stage else given.row_share_s
        flow, pieces, slots = flows[moment.buffer], given.pieces[moment.buffer], given.piece_slots[moment.buffer]
        produce, consume = seconds[flow.producer], seconds[flow.consumer]
        match moment.kind:
            case "lead":
                lead = np.maximum(produce / pieces, produce - consume * (1 - 1 / pieces))
                return lead + latency[moment.stage]
            case "release":
                return consume * (given.held[moment.buffer] * pieces - slots + 1) / pieces
            case "pace":
                return produce + consume
        raise ValueError(f"{moment} has no weight")

    found = {moment: weight(moment) + moment.flags * given.handoff_s for moment in _all(program)}
    return {moment: one[:1] if np.all(one == one[:1]) else one for moment, one in found.items()}


def _all(program: Program) -> set[Moment]:
    waits = {wait.moment for node in program.nodes for wait in node.waits}
    clocks = {Moment(node.stage, "stage") for node in program.nodes if node.when != "begin"}
    others = {Moment(DISPATCH, "stage"), Moment("", "share")}
    return {one for one in {*waits, *clocks, *program.sinks, *others} if one.kind != "start"}
