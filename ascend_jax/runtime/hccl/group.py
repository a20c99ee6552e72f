""":class:`Group`: what the ranks of one communicator share. Their calls meet here."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ascend_jax.runtime.errors import AclError
from ascend_jax.runtime.hccl import movement
from ascend_jax.runtime.hccl.calls import Call, Mailbox, Meeting
from ascend_jax.runtime.hccl.choice import AlgoText
from ascend_jax.runtime.hccl.constants import Constants
from ascend_jax.runtime.hccl.costs import Primitive
from ascend_jax.runtime.hccl.kinds import Collective
from ascend_jax.runtime.hccl.plan import Plan, Topology, exchange_plan, make_plan, transfer_plan

if TYPE_CHECKING:
    from ascend_jax.runtime.device import Device

PRIMITIVE: dict[Collective, Primitive] = {
    Collective.ALL_REDUCE: "all_reduce",
    Collective.ALL_GATHER: "all_gather",
    Collective.REDUCE_SCATTER: "reduce_scatter",
    Collective.BROADCAST: "broadcast",
    Collective.REDUCE: "reduce",
    Collective.SCATTER: "scatter",
    Collective.BARRIER: "all_reduce",
}
PER_RANK = (Collective.ALL_GATHER, Collective.REDUCE_SCATTER, Collective.SCATTER)
"""Operators whose count is that of one rank's piece."""
BARRIER_BYTES = 32.0
"""A barrier is an all-reduce of eight float32 (op_base_host.cc and HCCL_BARRIER_DEFAULT_COUNT of hcomm)."""


@dataclass(eq=False, kw_only=True)
class Group:
    """The ranks of one communicator.

    Attributes:
      devices: of the ranks that have joined.
      meetings: collectives that ranks have called, by their number; those that have ended are forgotten.
      mailboxes: messages, by sender and receiver; ``messages`` those that may not have ended, in order.
      plans: of what has been done before.
    """

    name: str
    size: int
    constants: Constants
    topology: Topology
    algo: AlgoText
    devices: "dict[int, Device]" = field(default_factory=dict)
    meetings: dict[int, Meeting] = field(default_factory=dict)
    mailboxes: dict[tuple[int, int], Mailbox] = field(default_factory=dict)
    messages: deque[Meeting] = field(default_factory=deque)
    plans: dict[tuple[Primitive, float], Plan] = field(default_factory=dict)

    def join(self, call: Call, number: int) -> Meeting:
        """The meeting of the rank's call ``number``; raises EI0005 where it disagrees with the others'."""
        meeting = self.meetings.get(number)
        if meeting is None:
            while self.meetings and (oldest := next(iter(self.meetings.values()))).finished:
                del self.meetings[oldest.number]
            meeting = self.meetings[number] = Meeting(self.name, number, tuple(range(self.size)))
        meeting.compare(call)
        meeting.calls[call.rank] = call
        return meeting

    def message(self, side: str, call: Call, peer: int) -> Meeting:
        """The meeting of a ``send`` to or a ``receive`` from ``peer``."""
        ranks = (call.rank, peer) if side == "send" else (peer, call.rank)
        meeting = self.mailboxes.setdefault(ranks, Mailbox()).match(side, call, self.name, ranks)
        if meeting.missing:
            while self.messages and self.messages[0].finished:
                self.messages.popleft()
            self.messages.append(meeting)
        return meeting

    def withdraw(self, meeting: Meeting, rank: int) -> None:
        """The rank has not called after all."""
        call = meeting.calls.pop(rank)
        del meeting.submitted[rank]
        if call.collective in (Collective.SEND, Collective.RECEIVE):
            source, target = meeting.ranks
            self.mailboxes[source, target].withdraw(meeting)

    def plan(self, meeting: Meeting) -> Plan:
        """How the collective is done, once all ranks have called."""
        first = meeting.calls[meeting.ranks[0]]
        match first.collective:
            case Collective.SEND | Collective.RECEIVE:
                size = first.count * first.dtype.bytes
                return transfer_plan(meeting.ranks, size, self.topology, self.constants)
            case Collective.ALL_TO_ALL:
                piece = first.count * first.dtype.bytes
                sent = [[float(piece)] * self.size for _ in range(self.size)]
                return exchange_plan(sent, self.topology, self.constants, self.algo)
            case Collective.ALL_TO_ALL_V:
                calls = [meeting.calls[rank] for rank in range(self.size)]
                sent = [[float(count * call.dtype.bytes) for count in call.counts[0]] for call in calls]
                return exchange_plan(sent, self.topology, self.constants, self.algo)
            case Collective.BARRIER:
                total = BARRIER_BYTES
            case _:
                total = float(first.count * first.dtype.bytes * (self.size if first.collective in PER_RANK else 1))
        key = PRIMITIVE[first.collective], total
        if key not in self.plans:
            self.plans[key] = make_plan(*key, self.topology, self.constants, self.algo)
        return self.plans[key]

    def move(self, meeting: Meeting, plan: Plan) -> None:
        """The numerics, once for all ranks, at the time when all end. What goes wrong goes wrong for all."""
        if not meeting.moved:
            meeting.moved = True
            try:
                self._move([meeting.calls[rank] for rank in meeting.ranks], plan)
            except Exception as error:
                meeting.failure = error
        if meeting.failure is not None:
            raise meeting.failure

    def _move(self, calls: Sequence[Call], plan: Plan) -> None:
        first, count, ranks = calls[0], calls[0].count, len(calls)
        root = first.root or 0
        op, topology = first.op, self.topology

        def inputs(each: int) -> list[np.ndarray]:
            return [self._array(call, call.send, each) for call in calls]

        outputs: movement.Outputs = []
        match first.collective:
            case Collective.ALL_REDUCE if op is not None:
                outputs = movement.all_reduce(inputs(count), op, plan, topology)
            case Collective.REDUCE if op is not None:
                outputs = movement.reduce(inputs(count), op, plan, topology, root)
            case Collective.REDUCE_SCATTER if op is not None:
                outputs = movement.reduce_scatter(inputs(count * ranks), op, plan, topology)
            case Collective.ALL_GATHER:
                outputs = movement.all_gather(inputs(count))
            case Collective.BROADCAST:
                outputs = movement.broadcast(inputs(count), root)
            case Collective.SCATTER:
                outputs = movement.scatter(self._array(calls[root], calls[root].send, count * ranks), ranks)
            case Collective.ALL_TO_ALL:
                outputs = movement.all_to_all(inputs(count * ranks))
            case Collective.ALL_TO_ALL_V:
                self._exchange(calls)
            case Collective.SEND | Collective.RECEIVE:
                outputs = [None, self._array(first, first.send, count)]
        copies = [None if one is None else one.copy() for one in outputs]  # outputs may lie on another's input
        for call, one in zip(calls, copies, strict=False):
            if one is not None:
                self._array(call, call.receive, len(one))[:] = one

    def _exchange(self, calls: Sequence[Call]) -> None:
        """All-to-all-v: every piece by its own counts and offsets."""
        pieces = []
        for source in calls:
            counts, offsets = source.counts[:2]
            for target, count, offset in zip(calls, counts, offsets, strict=True):
                if count:
                    pieces.append((source, target, self._array(source, source.send, count, offset).copy()))
        for source, target, piece in pieces:
            self._array(target, target.receive, len(piece), target.counts[3][source.rank])[:] = piece

    def _array(self, call: Call, address: int | None, count: int, offset: int = 0) -> np.ndarray:
        """Elements of device memory."""
        size = call.dtype.bytes
        memory = self.devices[call.rank].memory
        return memory.view((address or 0) + offset * size, count * size).view(call.dtype.numpy)

    def timeout(self) -> AclError | None:
        """EI0002 for the first collective or message that will never end; None where all have ended or can.

        One that a rank never called comes before those that only stand behind it.
        """
        waiting = sorted([*self.meetings.values(), *self.messages], key=lambda meeting: not meeting.missing)
        return next(filter(None, (meeting.timeout() for meeting in waiting)), None)
