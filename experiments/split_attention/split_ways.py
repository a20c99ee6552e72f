"""Attention on one device, split by heads, and split by sequence in a ring. Each gives every rank's part of the output."""

from collections.abc import Callable, Sequence

import numpy as np
from ring_machine import HCCL_TYPES, Case, Machine, heads, rows

from ascend_jax.runtime.event import Event
from ascend_jax.runtime.hccl.communicator import SendRecv
from ascend_jax.runtime.ops.tensor import Tensor, element_bytes

Values = tuple[np.ndarray, np.ndarray, np.ndarray] | None
Outputs = list[list[Tensor]]
"""By rank, by what it holds: one tensor, or one a chunk of the sequence."""


def shapes(case: Case, *, q_heads: int, kv_heads: int, seq: int) -> list[tuple[int, int, int, int]]:
    """Of Q, K and V."""
    kv = (1, kv_heads, seq, case.head_dim)
    return [(1, q_heads, seq, case.head_dim), kv, kv]


def cut(values: Values, how: Callable[[np.ndarray], np.ndarray]) -> Sequence[np.ndarray | None]:
    """The part of Q, K and V that a rank has."""
    return (None, None, None) if values is None else [how(one) for one in values]


def whole(machine: Machine, case: Case, values: Values) -> Outputs:
    """All on device 0."""
    stream = machine.on(0)
    kinds = shapes(case, q_heads=case.q_heads, kv_heads=case.kv_heads, seq=case.seq)
    tensors = [machine.new(0, shape, case.dtype, one) for shape, one in zip(kinds, cut(values, lambda x: x), strict=True)]
    part = machine.attention(0, (tensors[0], tensors[1], tensors[2]), causal=case.causal, stream=stream)
    return [[part.out]]


def by_heads(machine: Machine, case: Case, values: Values) -> Outputs:
    """Every rank computes its heads over the whole sequence; then all gather the output."""
    parts, gathered = len(machine.ranks), []
    kinds = shapes(case, q_heads=case.q_heads // parts, kv_heads=case.kv_heads // parts, seq=case.seq)
    for rank in machine.ranks:
        stream = machine.on(rank)
        mine = cut(values, lambda x, rank=rank: heads(x, rank, parts))
        tensors = [machine.new(rank, shape, case.dtype, one) for shape, one in zip(kinds, mine, strict=True)]
        part = machine.attention(rank, (tensors[0], tensors[1], tensors[2]), causal=case.causal, stream=stream)
        out = machine.new(rank, (1, case.q_heads, case.seq, case.head_dim), case.dtype)
        count = part.out.bytes // element_bytes(case.dtype)
        machine.comms[rank].all_gather(part.out.address, out.address, count, HCCL_TYPES[case.dtype], stream=stream)
        gathered.append([out])
    return gathered


def contiguous(rank: int, parts: int) -> tuple[int, ...]:
    """Chunks of a rank: one piece of the sequence each. With a causal mask the last rank has the most to do."""
    del parts
    return (rank,)


def zigzag(rank: int, parts: int) -> tuple[int, ...]:
    """Two chunks a rank, one from the front and one from the back: with a causal mask all have as much to do."""
    return rank, 2 * parts - 1 - rank


def by_sequence(machine: Machine, case: Case, values: Values, chunks_of: Callable[[int, int], tuple[int, ...]]) -> Outputs:
    """Ring attention: K and V go round, each rank computes its rows against those that are there and merges by log-sum-exp.

    While a rank computes, its next K and V arrive in the other of two buffers on a stream of their own.
    """
    parts = len(machine.ranks)
    return [_Ring(machine, case, values, rank, [chunks_of(one, parts) for one in range(parts)]).run() for rank in machine.ranks]


class _Ring:
    """The program of one rank. ``held[r]`` are the chunks of the sequence that rank r begins with."""

    def __init__(self, machine: Machine, case: Case, values: Values, rank: int, held: list[tuple[int, ...]]) -> None:
        self.machine, self.case, self.rank, self.held = machine, case, rank, held
        total = len(held) * len(held[0])
        self.kinds = shapes(case, q_heads=case.q_heads, kv_heads=case.kv_heads, seq=case.seq // total)
        chunk = [cut(values, lambda x, place=place: rows(x, place, total)) for place in held[rank]]
        self.queries = [machine.new(rank, self.kinds[0], case.dtype, one[0]) for one in chunk]
        self.outs = [machine.new(rank, self.kinds[0], case.dtype) for _ in chunk]
        self.sofar = [machine.empty(rank, self.kinds[0]) for _ in chunk]
        self.buffers = [machine.new(rank, (len(chunk), 2, *self.kinds[1][1:]), case.dtype) for _ in range(2)]
        if values is not None and not machine.timing_only:
            pairs = [[np.asarray(key)[0], np.asarray(value)[0]] for _, key, value in chunk]
            machine.array(rank, self.buffers[0])[:] = np.asarray(pairs)

    def run(self) -> list[Tensor]:
        """Submit everything; the host waits for nothing."""
        context = self.machine.contexts[self.rank]
        self.compute = self.machine.on(self.rank)
        self.exchange = context.create_stream()
        steps, parts = len(self.held), len(self.held)
        computed: Event | None = None
        for step in range(steps):
            arrived = None
            if step + 1 < steps:
                if computed is not None:
                    self.exchange.wait_event(computed)  # the buffer that the next ones go to has been read
                self._pass_on(step)
                arrived = context.create_event()
                arrived.record(self.exchange)
            self._step(step, self.held[(self.rank - step) % parts])
            computed = context.create_event()
            computed.record(self.compute)
            if arrived is not None:
                self.compute.wait_event(arrived)
        return self.outs

    def _pass_on(self, step: int) -> None:
        """K and V to the next rank, and those of the one before into the other buffer."""
        here, there = self.buffers[step % 2], self.buffers[(step + 1) % 2]
        count, kind, parts = here.bytes // element_bytes(self.case.dtype), HCCL_TYPES[self.case.dtype], len(self.held)
        items = [
            SendRecv("send", here.address, count, kind, (self.rank + 1) % parts),
            SendRecv("recv", there.address, count, kind, (self.rank - 1) % parts),
        ]
        self.machine.comms[self.rank].batch_send_recv(items, stream=self.exchange)

    def _step(self, step: int, present: tuple[int, ...]) -> None:
        """The rank's chunks of rows against the chunks of keys that are there; those behind a causal mask cost nothing."""
        for place, mine in enumerate(self.held[self.rank]):
            for where, theirs in enumerate(present):
                if self.case.causal and theirs > mine:
                    continue
                key, value = self._keys(step, where)
                causal = self.case.causal and theirs == mine
                query = self.queries[place]
                part = self.machine.attention(self.rank, (query, key, value), causal=causal, stream=self.compute)
                self.machine.merge(self.rank, part, self.sofar[place], self.outs[place], self.compute)

    def _keys(self, step: int, where: int) -> tuple[Tensor, Tensor]:
        """K and V of one chunk in the buffer of this step."""
        buffer, kind = self.buffers[step % 2], self.kinds[1]
        size = Tensor(0, kind, self.case.dtype).bytes
        first = buffer.address + 2 * where * size
        return Tensor(first, kind, self.case.dtype), Tensor(first + size, kind, self.case.dtype)
