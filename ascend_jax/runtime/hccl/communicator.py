""":class:`Communicator`: one rank's handle to a group of devices, and its collective operators on streams.

The operators are HCCL's under Python names (``HcclAllReduce`` → ``all_reduce``). All are asynchronous: they take effect when
the stream comes to them and the other ranks have come as well. They start and end at the same virtual time on all ranks.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ascend_jax.runtime.engine.task import Task
from ascend_jax.runtime.errors import AclError, recorded
from ascend_jax.runtime.hccl.calls import Call, Meeting
from ascend_jax.runtime.hccl.group import Group
from ascend_jax.runtime.hccl.kinds import Collective, DataType, ReduceOp
from ascend_jax.runtime.hccl.validate import Spans, check_call

if TYPE_CHECKING:
    from ascend_jax.runtime.device import Device
    from ascend_jax.runtime.stream import Stream
    from ascend_jax.runtime.system import System

DEADLOCK = 507046


@dataclass(frozen=True)
class SendRecv:
    """One message of :meth:`Communicator.batch_send_recv`: ``kind`` is ``send`` or ``recv``."""

    kind: str
    buffer: int
    count: int
    dtype: DataType
    peer: int


class Communicator:
    """What one rank holds. Make them with ``comm_init_all`` or ``comm_init_root_info``.

    Buffers are device addresses, counts are in elements of ``dtype``, and ``stream`` is one of this rank's device. Every method
    raises ``AclError``: HCCL_E_PARA or HCCL_E_PTR (EI0003) for a wrong argument, HCCL_E_NOT_SUPPORT for a type or reduction
    that the chip's HCCL lacks, HCCL_E_INTERNAL (EI0005) as soon as two ranks disagree, with both ranks and both values, and
    107003 for a stream of another device.

    Attributes:
      rank: this one's number.
      group: what it shares with the others.
      device: where it runs.
    """

    def __init__(self, system: "System", group: Group, rank: int, device: "Device") -> None:
        self.system, self.group, self.rank, self.device = system, group, rank, device
        self.position = 0
        self.destroyed = False
        self._channels: dict[tuple[str, int], Stream] = {}
        size, site = group.constants.buffer_bytes, system.site()
        self._buffers = [device.memory.malloc(size, site=site) for _ in ("in", "out")]

    @property
    def size(self) -> int:
        """Ranks of the group."""
        return self.group.size

    def all_reduce(self, send: int, receive: int, count: int, dtype: DataType, op: ReduceOp, *, stream: "Stream") -> Task:
        """``receive = op(send of all ranks)``, element by element, everywhere."""
        return self._collective(self._call(Collective.ALL_REDUCE, send, receive, count, dtype, op=op), stream)

    def all_gather(self, send: int, receive: int, count: int, dtype: DataType, *, stream: "Stream") -> Task:
        """``receive`` is ``send`` of all ranks behind one another; ``count`` of each."""
        return self._collective(self._call(Collective.ALL_GATHER, send, receive, count, dtype), stream)

    def reduce_scatter(self, send: int, receive: int, count: int, dtype: DataType, op: ReduceOp, *, stream: "Stream") -> Task:
        """``receive`` is piece ``rank`` of the reduction of ``send``; ``count`` is that of a piece."""
        return self._collective(self._call(Collective.REDUCE_SCATTER, send, receive, count, dtype, op=op), stream)

    def broadcast(self, buffer: int, count: int, dtype: DataType, root: int, *, stream: "Stream") -> Task:
        """``buffer`` of the root, everywhere."""
        return self._collective(self._call(Collective.BROADCAST, buffer, buffer, count, dtype, root=root), stream)

    def reduce(
        self, send: int, receive: int | None, count: int, dtype: DataType, op: ReduceOp, root: int, *, stream: "Stream"
    ) -> Task:
        """The reduction of ``send``, in the root's ``receive``; the others may give None."""
        return self._collective(self._call(Collective.REDUCE, send, receive, count, dtype, op=op, root=root), stream)

    def scatter(self, send: int | None, receive: int, count: int, dtype: DataType, root: int, *, stream: "Stream") -> Task:
        """``receive`` is piece ``rank`` of the root's ``send``, which the others may leave None; ``count`` of a piece."""
        return self._collective(self._call(Collective.SCATTER, send, receive, count, dtype, root=root), stream)

    def all_to_all(self, send: int, receive: int, count: int, dtype: DataType, *, stream: "Stream") -> Task:
        """Piece j of ``send`` goes to rank j; piece i of ``receive`` comes from rank i; ``count`` is that of a piece."""
        return self._collective(self._call(Collective.ALL_TO_ALL, send, receive, count, dtype), stream)

    def all_to_all_v(
        self,
        sent: tuple[int, Sequence[int], Sequence[int]],
        received: tuple[int, Sequence[int], Sequence[int]],
        dtype: DataType,
        *,
        stream: "Stream",
    ) -> Task:
        """Pieces of any size.

        Args:
          sent, received: a buffer, how many elements go to (come from) each rank, and where in the buffer they lie.
          dtype: of both.
          stream: one of this rank's device.
        """
        counts = tuple(tuple(map(int, part)) for part in (*sent[1:], *received[1:]))
        return self._collective(self._call(Collective.ALL_TO_ALL_V, sent[0], received[0], 0, dtype, counts=counts), stream)

    def barrier(self, *, stream: "Stream") -> Task:
        """Nothing behind it starts on any rank before everyone is here."""
        return self._collective(self._call(Collective.BARRIER, None, None, 0, DataType.FP32), stream)

    def send(self, buffer: int, count: int, dtype: DataType, peer: int, *, stream: "Stream") -> Task:
        """To rank ``peer``, which has to :meth:`recv` as much. The stream goes on when it has arrived."""
        return self._message(self._call(Collective.SEND, buffer, None, count, dtype), peer, stream)

    def recv(self, buffer: int, count: int, dtype: DataType, peer: int, *, stream: "Stream") -> Task:
        """From rank ``peer``, which has to :meth:`send` as much."""
        return self._message(self._call(Collective.RECEIVE, None, buffer, count, dtype), peer, stream)

    @recorded
    def batch_send_recv(self, items: Sequence[SendRecv], *, stream: "Stream") -> Task:
        """Messages that do not wait for each other; the stream goes on when all have arrived. Its last task is returned.

        Each pair of ranks has a stream of its own for each direction, as HCCL has, so messages of one pair keep their order.
        """
        if not items:
            raise AclError(1, f"rank {self.rank} gives no messages to batch_send_recv", remedy="give at least one")
        calls = [self._item(item) for item in items]
        with self.system.lock:
            self._check(stream)
            begin = stream.submit(Task(name="hcom_batchSendRecv_begin", kind="record"))
            sent = [self._send_aside(call, item.peer, stream, begin) for call, item in zip(calls, items, strict=True)]
            ends = [stream.submit(Task(name=f"wait for {one.name}", kind="wait", after=one, run=_raiser(one))) for one in sent]
            for channel in {id(one): one for one in self._channels.values()}.values():
                stream.actor.follow(channel.actor.stamp())
        return ends[-1]

    def synchronize(self, stream: "Stream") -> None:
        """The host waits for ``stream``. Raises EI0002 naming the ranks that never came, where that is why it never ends."""
        try:
            stream.synchronize()
        except AclError as error:
            why = self.group.timeout() if error.code == DEADLOCK else None
            if why is None:
                raise
            raise why from error

    def destroy(self) -> None:
        """Give the handle and its buffers back. Raises EI0002 where a collective waits for ranks, HCCL_E_PARA a second time."""
        self._check(None)
        self.destroyed = True
        for address in self._buffers:
            if address in self.device.memory.table.live:  # a reset of the device has released it otherwise
                self.device.memory.free(address, site=self.system.site())
        if (why := self.group.timeout()) is not None:
            raise why

    def _call(
        self,
        collective: Collective,
        send: int | None,
        receive: int | None,
        count: int,
        dtype: DataType,
        *,
        op: ReduceOp | None = None,
        root: int | None = None,
        counts: tuple[tuple[int, ...], ...] = (),
    ) -> Call:
        return Call(
            collective=collective,
            rank=self.rank,
            send=send,
            receive=receive,
            count=count,
            dtype=dtype,
            op=op,
            root=root,
            counts=counts,
            site=self.system.site(),
        )

    def _item(self, item: SendRecv) -> Call:
        if item.kind == "send":
            return self._call(Collective.SEND, item.buffer, None, item.count, item.dtype)
        if item.kind == "recv":
            return self._call(Collective.RECEIVE, None, item.buffer, item.count, item.dtype)
        raise AclError(1, f"kind {item.kind!r} of a message is neither send nor recv", remedy='write "send" or "recv"')

    @recorded
    def _collective(self, call: Call, stream: "Stream") -> Task:
        with self.system.lock:
            self._check(stream)
            touched = check_call(call, self.group, self.device)
            meeting = self.group.join(call, self.position)
            try:
                return self._submit(meeting, call, stream, touched)
            finally:
                self.position += meeting.calls.get(self.rank) is call

    @recorded
    def _message(self, call: Call, peer: int, stream: "Stream", after: Task | None = None) -> Task:
        with self.system.lock:
            self._check(stream)
            touched = check_call(call, self.group, self.device, peer)
            meeting = self.group.message("send" if call.collective is Collective.SEND else "receive", call, peer)
            return self._submit(meeting, call, stream, touched, after)

    def _send_aside(self, call: Call, peer: int, stream: "Stream", begin: Task) -> Task:
        """A message on the pair's own stream, after ``begin`` of the caller's."""
        key = (call.collective.python, peer)
        if key not in self._channels or self._channels[key].context is not stream.context:
            self._channels[key] = stream.context.create_stream()
        channel = self._channels[key]
        channel.actor.follow(stream.actor.stamp())
        return self._message(call, peer, channel, begin)

    def _submit(self, meeting: Meeting, call: Call, stream: "Stream", touched: Spans, after: Task | None = None) -> Task:
        """The rank's task. The last one to come knows how long all of them take."""
        task = self._task(meeting, call, touched)
        task.after = after
        meeting.submitted[self.rank] = task
        if len(meeting.calls) == meeting.parties:
            plan, moves = self.group.plan(meeting), not self.system.options.timing_only
            for one in meeting.submitted.values():
                one.duration_s = plan.seconds
                one.info |= {"plan": plan, "algorithm": plan.algorithm}
                one.run = partial(self.group.move, meeting, plan) if moves else None
        try:
            return stream.submit(task)
        except BaseException:
            if task.queue is None:  # it is in no stream; a race is told of after the task has joined its own
                self.group.withdraw(meeting, self.rank)
            raise

    def _task(self, meeting: Meeting, call: Call, touched: Spans) -> Task:
        reads, writes = touched
        info = {
            "rank": self.rank,
            "ranks": meeting.ranks,
            "group": self.group.name,
            "bytes": max(sum(size for _, size in reads), sum(size for _, size in writes)),
            "dtype": call.dtype.name,
            "count": call.count,
            "notify_wait_s": self.group.constants.notify_wait_s,
        }
        kind = f"hcom_{call.collective.value}_"
        return Task(
            name=f"{kind}_{self.group.name}_{meeting.number}",
            kind="collective",
            op_type=kind,
            reads=reads,
            writes=writes,
            site=call.site,
            info=info,
            rendezvous=meeting,
        )

    def _check(self, stream: "Stream | None") -> None:
        """Whether the handle lives, and whether it and the stream are of one device."""
        if self.destroyed:
            raise AclError(1, f"rank {self.rank}'s communicator of {self.group.name} was destroyed", remedy="make a new one")
        if stream is not None and stream.device is not self.device:
            what = f"{stream} is not of device {self.device.device_id}, where rank {self.rank} of {self.group.name} runs"
            raise AclError(107003, what, remedy="give a stream of the rank's own device")
        if stream is not None:
            stream.check()

    def __repr__(self) -> str:
        return f"Communicator({self.group.name}, rank {self.rank} of {self.size}, device {self.device.device_id})"


def _raiser(task: Task) -> Callable[[], None]:
    """What fails where ``task`` has failed."""

    def run() -> None:
        if task.error is not None:
            raise task.error

    return run
