"""Calls of the ranks put side by side: whether they agree, and who has not come."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from ascend_jax.runtime.engine.task import Rendezvous, Task
from ascend_jax.runtime.errors import AclError
from ascend_jax.runtime.hccl.kinds import Collective, DataType, ReduceOp


@dataclass(frozen=True, kw_only=True)
class Call:
    """What one rank has asked for.

    Attributes:
      send, receive: addresses, None where the rank has no such buffer.
      count: elements, as the operator counts them.
      root: of operators that have one.
      counts: all-to-all-v: (sent to, offset, received from, offset) each rank, in elements.
      site: where it was called.
    """

    collective: Collective
    rank: int
    send: int | None
    receive: int | None
    count: int
    dtype: DataType
    op: ReduceOp | None = None
    root: int | None = None
    counts: tuple[tuple[int, ...], ...] = ()
    site: str = ""

    def agreed(self) -> dict[str, Any]:
        """What has to be the same on all ranks, in the order in which it is compared."""
        named = {"operator": self.collective.python, "dtype": self.dtype.name, "count": self.count}
        more = {"op": None if self.op is None else self.op.name, "root": self.root}
        return named | {name: value for name, value in more.items() if value is not None}


class Meeting(Rendezvous):
    """One collective: the calls of the ranks so far, and their tasks, which start when the last one is there."""

    def __init__(self, group: str, number: int, ranks: tuple[int, ...]) -> None:
        super().__init__(len(ranks), f"call {number + 1} of {group}")
        self.group, self.number, self.ranks = group, number, ranks
        self.calls: dict[int, Call] = {}
        self.submitted: dict[int, Task] = {}
        self.failure: BaseException | None = None
        self.moved = False

    @property
    def finished(self) -> bool:
        """All ranks' tasks have ended."""
        return len(self.submitted) == self.parties and all(task.done for task in self.submitted.values())

    @property
    def title(self) -> str:
        """``all_reduce, call 3 of hccl_world``."""
        first = next(iter(self.calls.values()))
        return f"{first.collective.python}, call {self.number + 1} of {self.group}"

    @property
    def missing(self) -> tuple[int, ...]:
        """Ranks that have not called."""
        return tuple(rank for rank in self.ranks if rank not in self.calls)

    def compare(self, call: Call) -> None:
        """Whether ``call`` agrees with those that came before. Raises HCCL_E_INTERNAL (EI0005) with both values."""
        for other in self.calls.values():
            mine, theirs = call.agreed(), other.agreed()
            for name in dict.fromkeys([*mine, *theirs]):
                if mine.get(name) != theirs.get(name):
                    where = f"call {self.number + 1} of {self.group}"
                    raise disagreement(where, name, (call, mine.get(name)), (other, theirs.get(name)))
            if call.collective is not Collective.ALL_TO_ALL_V:
                return  # who agrees with one agrees with all
            self._compare_counts(call, other)

    def _compare_counts(self, call: Call, other: Call) -> None:
        """What one sends, the other has to expect."""
        for sender, receiver in ((call, other), (other, call)):
            sent, expected = sender.counts[0][receiver.rank], receiver.counts[2][sender.rank]
            if sent != expected:
                name = f"count from rank {sender.rank} to rank {receiver.rank}"
                mine, theirs = (sent, expected) if sender is call else (expected, sent)
                raise disagreement(f"call {self.number + 1} of {self.group}", name, (call, mine), (other, theirs))

    def timeout(self) -> AclError | None:
        """HCCL_E_TIMEOUT (EI0002) where ranks have not called, or have called and never come to it; None when it has ended."""
        if self.finished or not self.calls:
            return None
        there = ", ".join(f"rank {call.rank} at {call.site or 'unknown place'}" for call in self.calls.values())
        if self.missing:
            absent = ", ".join(map(str, self.missing))
            why = f"rank{'s' * (len(self.missing) > 1)} {absent} never called it"
        else:
            late = [str(rank) for rank, task in self.submitted.items() if task not in self.tasks]
            if not late:
                return None
            why = f"rank{'s' * (len(late) > 1)} {', '.join(late)} called it, but the stream never came to it"
        cause = "a rank took another branch, or left"
        return AclError(9, f"{self.title} waits for ever: {why}; it was called by {there}", cause=cause)


def disagreement(where: str, name: str, mine: tuple[Call, Any], theirs: tuple[Call, Any]) -> AclError:
    """EI0005 with the ranks and both values."""
    (call, value), (other, before) = mine, theirs
    what = (
        f"{where}: {name} differs: rank {call.rank} has {value} ({call.site or 'unknown place'}), "
        f"rank {other.rank} has {before} ({other.site or 'unknown place'})"
    )
    return AclError(
        4, what, cause="the ranks do not run the same program", remedy="make the same calls in the same order on all ranks"
    )


@dataclass
class Mailbox:
    """Messages from one rank to another that have a sender or a receiver so far, in order."""

    waiting: deque[tuple[str, Call, Meeting]] = field(default_factory=deque)
    passed: int = 0

    def match(self, side: str, call: Call, group: str, ranks: tuple[int, int]) -> Meeting:
        """The meeting of ``call``, a ``send`` or ``receive``: that of the oldest call of the other side, or a new one.

        Raises:
          AclError: EI0005 where count or type of the two differ.
        """
        if self.waiting and self.waiting[0][0] != side:
            _, other, meeting = self.waiting[0]
            for name in ("dtype", "count"):
                mine, theirs = call.agreed()[name], other.agreed()[name]
                if mine != theirs:
                    where = f"message {meeting.number + 1} from rank {ranks[0]} to rank {ranks[1]} of {group}"
                    raise disagreement(where, name, (call, mine), (other, theirs))
            self.waiting.popleft()
            meeting.calls[call.rank] = call
            return meeting
        meeting = Meeting(group, self.passed, ranks)
        self.passed += 1
        meeting.calls[call.rank] = call
        self.waiting.append((side, call, meeting))
        return meeting

    def withdraw(self, meeting: Meeting) -> None:
        """One side of ``meeting`` has not called after all; the other one waits on, before those that came later."""
        self.waiting = deque(entry for entry in self.waiting if entry[2] is not meeting)
        for call in meeting.calls.values():
            self.waiting.appendleft(("send" if call.collective is Collective.SEND else "receive", call, meeting))
