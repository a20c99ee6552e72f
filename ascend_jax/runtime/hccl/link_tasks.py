"""The small tasks of which a collective consists on one rank: waits, copies and reductions on the planes of its links.

A modest picture for the profile: every stage of the plan in steps of equal length, each a wait for the neighbour's notify and
then the transfer. Names are those of HCCL's timeline (``Notify Wait``, ``Memcpy``, ``Reduce_Inline``, ``RDMASend``).
"""

from collections.abc import Iterator
from typing import NamedTuple

from ascend_jax.runtime.hccl.plan import INTER, Plan, Stage

DOUBLING = ("rhd", "nhr", "nb", "ahc")
REDUCING = ("reduce_scatter", "all_reduce", "reduce")


class LinkTask(NamedTuple):
    """One of them.

    Attributes:
      name: as HCCL shows it.
      plane: which of the rank's links.
      start_s: after the start of the collective.
      duration_s: of the task.
      source, target: ranks of the stage, counted within it.
      bytes: that move; 0 for a wait.
      transport: ``SDMA``, ``RDMA`` or ``LOCAL``.
    """

    name: str
    plane: int
    start_s: float
    duration_s: float
    source: int
    target: int
    bytes: float
    transport: str


def link_tasks(plan: Plan, rank: int, notify_wait_s: float) -> Iterator[LinkTask]:
    """The tasks of ``rank``, stage after stage; of a pipeline the last stage overlaps the first."""
    start_s = 0.0
    for stage in plan.stages:
        if plan.pipelined_s is not None:
            start_s = 0.0 if stage.level == INTER else plan.pipelined_s - stage.seconds
        yield from _stage(stage, rank % stage.ranks, start_s, notify_wait_s)
        start_s += stage.seconds


def _stage(stage: Stage, me: int, start_s: float, notify_wait_s: float) -> Iterator[LinkTask]:
    steps = int(stage.cost.steps)
    if not steps:
        return
    step_s, size = stage.seconds / steps, stage.cost.moved / steps
    wait_s = min(notify_wait_s, step_s / 2)
    planes = range(1, stage.ranks) if stage.algorithm == "mesh" else range(1, 2)
    for step in range(steps):
        begin_s = start_s + step * step_s
        name = _name(stage, step, steps)
        for plane in planes:
            peer = _peer(stage, me, step, plane)
            yield LinkTask("Notify Wait", plane - 1, begin_s, wait_s, peer, me, 0.0, "LOCAL")
            yield LinkTask(name, plane - 1, begin_s + wait_s, step_s - wait_s, peer, me, size, stage.link.transport)


def _name(stage: Stage, step: int, steps: int) -> str:
    """The first half of an all-reduce or reduce is a reduce-scatter, and reduces."""
    if stage.what in REDUCING and (stage.what == "reduce_scatter" or 2 * step < steps):
        return "Reduce_Inline"
    return "RDMASend" if stage.link.transport == "RDMA" else "Memcpy"


def _peer(stage: Stage, me: int, step: int, plane: int) -> int:
    if stage.algorithm == "mesh":
        return (me + plane) % stage.ranks
    distance = 1 << (step % max((stage.ranks - 1).bit_length(), 1)) if stage.algorithm in DOUBLING else 1
    return (me - distance) % stage.ranks
