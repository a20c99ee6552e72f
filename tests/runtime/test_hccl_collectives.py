"""Collectives on streams of several devices: what every rank has in the end, and when."""

import threading

import numpy as np
import pytest
from hccl_world import World
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ascend_jax.runtime.engine.task import Task
from ascend_jax.runtime.errors import AclError, OutOfMemoryError
from ascend_jax.runtime.hccl.communicator import SendRecv
from ascend_jax.runtime.hccl.init import CommConfig, comm_init_all, comm_init_root_info, get_root_info
from ascend_jax.runtime.hccl.kinds import DataType, ReduceOp
from ascend_jax.runtime.system import System

INT32, SUM = DataType.INT32, ReduceOp.SUM


def values(rank: int, count: int) -> np.ndarray:
    return np.random.default_rng(rank).integers(-1000, 1000, count).astype(np.int32)


def run_one(what: str, ranks: int, per_server: int, count: int, root: int) -> None:
    """One collective against numpy, on every rank."""
    world = World(ranks, CommConfig(ranks_per_server=per_server))
    small, large = [values(r, count) for r in world.ranks], [values(r, count * ranks) for r in world.ranks]
    wide = what in ("reduce_scatter", "scatter", "all_to_all")
    sent = large if wide else small
    total, pieces = np.sum(sent, axis=0, dtype=np.int32), [np.split(one, ranks) for one in large]
    untouched = [np.full(count * (1 + (ranks - 1) * (what in ("all_gather", "all_to_all"))), 7, np.int32) for _ in world.ranks]
    expected = {
        "all_reduce": lambda r: total,
        "all_gather": lambda r: np.concatenate(small),
        "reduce_scatter": lambda r: np.split(total, ranks)[r],
        "broadcast": lambda r: small[root],
        "reduce": lambda r: total if r == root else untouched[r],
        "scatter": lambda r: pieces[root][r],
        "all_to_all": lambda r: np.concatenate([pieces[i][r] for i in world.ranks]),
    }[what]
    send = [world.put(r, sent[r]) for r in world.ranks]
    receive = [send[r] if what == "broadcast" else world.put(r, untouched[r]) for r in world.ranks]

    def call(r, comm, stream) -> Task:
        match what:
            case "all_reduce" | "reduce_scatter":
                return getattr(comm, what)(send[r], receive[r], count, INT32, SUM, stream=stream)
            case "all_gather" | "all_to_all":
                return getattr(comm, what)(send[r], receive[r], count, INT32, stream=stream)
            case "broadcast":
                return comm.broadcast(send[r], count, INT32, root, stream=stream)
            case "reduce":
                return comm.reduce(send[r], receive[r] if r == root else None, count, INT32, SUM, root, stream=stream)
        return comm.scatter(send[r] if r == root else None, receive[r], count, INT32, root, stream=stream)

    tasks = world.each(call)
    world.synchronize()
    for rank in world.ranks:
        assert np.array_equal(world.get(rank, receive[rank], expected(rank)), expected(rank)), (what, rank)
    assert len({(task.start_s, task.end_s) for task in tasks}) == 1


@given(
    st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "scatter", "all_to_all"]),
    st.sampled_from([(1, 8), (2, 8), (3, 3), (4, 2), (6, 2), (6, 3), (4, 1)]),
    st.integers(1, 17),
    st.integers(0, 5),
)
@example("all_reduce", (6, 2), 3, 0)  # fewer elements than ranks
@settings(max_examples=40)
def test_every_rank_has_what_numpy_says(what: str, shape: tuple[int, int], count: int, root: int) -> None:
    ranks, per_server = shape
    run_one(what, ranks, per_server, count, root % ranks)


def test_pieces_of_any_size_go_where_they_belong() -> None:
    world = World(3)
    counts = np.array([[0, 2, 1], [3, 1, 0], [2, 2, 2]])
    sent = [values(r, counts[r].sum()) for r in world.ranks]
    send = [world.put(r, sent[r]) for r in world.ranks]
    receive = [world.put(r, np.zeros(counts[:, r].sum(), np.int32)) for r in world.ranks]

    def offsets(row: np.ndarray) -> list[int]:
        return [0, *np.cumsum(row)[:-1].tolist()]

    world.each(
        lambda r, comm, stream: comm.all_to_all_v(
            (send[r], counts[r].tolist(), offsets(counts[r])),
            (receive[r], counts[:, r].tolist(), offsets(counts[:, r])),
            INT32,
            stream=stream,
        )
    )
    world.synchronize()
    for rank in world.ranks:
        expected = np.concatenate([np.split(sent[i], np.cumsum(counts[i])[:-1])[rank] for i in world.ranks])
        assert np.array_equal(world.get(rank, receive[rank], expected), expected)


def test_it_starts_when_the_last_rank_has_come_and_ends_at_once() -> None:
    world = World(4)
    work = [3e-3, 1e-3, 9e-3, 0.0]
    world.each(lambda r, comm, stream: stream.submit(Task(name="work", kind="kernel", duration_s=work[r])))
    buffers = [world.put(r, np.ones(8, np.int32)) for r in world.ranks]
    tasks = world.each(lambda r, comm, stream: comm.all_reduce(buffers[r], buffers[r], 8, INT32, SUM, stream=stream))
    after = world.each(lambda r, comm, stream: stream.submit(Task(name="after", kind="kernel", duration_s=1e-6)))
    world.synchronize()
    assert [task.start_s for task in tasks] == [pytest.approx(9e-3, abs=1e-4)] * 4
    assert {task.end_s for task in tasks} == {tasks[0].start_s + tasks[0].duration_s} == {task.start_s for task in after}
    assert tasks[3].ready_s < 1e-3  # it has waited for the others
    assert world.get(0, buffers[0], np.ones(8, np.int32)).tolist() == [4] * 8  # in place


def test_a_message_waits_for_its_receiver_and_keeps_its_order() -> None:
    world = World(2)
    sent = [values(7, 4), values(8, 4)]
    out, into = [world.put(0, one) for one in sent], [world.put(1, np.zeros(4, np.int32)) for _ in sent]
    tasks = [world.comms[0].send(address, 4, INT32, 1, stream=world.on(0)) for address in out]
    assert not tasks[1].done
    for address in into:
        world.comms[1].recv(address, 4, INT32, 0, stream=world.on(1))
    world.synchronize()
    for address, one in zip(into, sent, strict=True):
        assert np.array_equal(world.get(1, address, one), one)


def test_a_ring_of_sends_stands_still_and_a_batch_does_not() -> None:
    world = World(3)
    mine = [world.put(r, values(r, 4)) for r in world.ranks]
    theirs = [world.put(r, np.zeros(4, np.int32)) for r in world.ranks]

    def batch(r, comm, stream) -> Task:
        items = [SendRecv("send", mine[r], 4, INT32, (r + 1) % 3), SendRecv("recv", theirs[r], 4, INT32, (r - 1) % 3)]
        return comm.batch_send_recv(items, stream=stream)

    world.each(batch)
    world.synchronize()
    for rank in world.ranks:
        assert np.array_equal(world.get(rank, theirs[rank], values(0, 4)), values((rank - 1) % 3, 4))

    def in_turn(r, comm, stream) -> None:
        comm.send(mine[r], 4, INT32, (r + 1) % 3, stream=stream)
        comm.recv(theirs[r], 4, INT32, (r - 1) % 3, stream=stream)

    world.each(in_turn)
    with pytest.raises(AclError, match="the stream never came to it") as raised:
        world.comms[0].synchronize(world.on(0))
    assert raised.value.category == "EI0002"


def test_a_batch_does_not_wait_for_ranks_that_it_has_nothing_to_do_with() -> None:
    """0 → 1 → 2 in batches; rank 2 comes late, and rank 0 does not care."""
    world = World(3)
    a, b, c, d = (world.put(r, values(r, 4)) for r in (0, 1, 1, 2))
    first = world.comms[0].batch_send_recv([SendRecv("send", a, 4, INT32, 1)], stream=world.on(0))
    items = [SendRecv("recv", b, 4, INT32, 0), SendRecv("send", c, 4, INT32, 2)]
    middle = world.comms[1].batch_send_recv(items, stream=world.on(1))
    late = world.on(2)
    late.submit(Task(name="late", kind="kernel", duration_s=1.0))
    last = world.comms[2].batch_send_recv([SendRecv("recv", d, 4, INT32, 1)], stream=late)
    world.synchronize()
    ends = [task.end_s or 0.0 for task in (first, middle, last)]
    assert ends[0] < 1e-3 and ends[1] == ends[2] > 1.0


def test_a_barrier_holds_everyone() -> None:
    world = World(2)
    world.streams[0].context.system.set_context(world.contexts[0])
    world.streams[0].submit(Task(name="long", kind="kernel", duration_s=0.5))
    world.each(lambda r, comm, stream: comm.barrier(stream=stream))
    [_, after] = world.each(lambda r, comm, stream: stream.submit(Task(name="after", kind="kernel", duration_s=0.0)))
    world.synchronize()
    assert after.start_s > 0.5


def test_half_precision_is_summed_in_half_precision() -> None:
    world = World(4)
    rows = [np.full(4, value, np.float16) for value in (2048, 1, 1, 1)]
    send = [world.put(r, rows[r]) for r in world.ranks]
    into = [world.put(r, np.zeros(4, np.float16)) for r in world.ranks]
    world.each(lambda r, comm, stream: comm.all_reduce(send[r], into[r], 4, DataType.FP16, SUM, stream=stream))
    world.synchronize()
    found = world.get(0, into[0], rows[0])
    # Piece k is summed from rank k on. From 2048 only every second number is there: 2049 becomes 2048, and 2051 2052.
    assert found.tolist() == [2048.0, 2052.0, 2052.0, 2048.0]


def test_ranks_in_threads_of_their_own() -> None:
    ranks, rounds = 8, 20
    system = System(["910b3"] * ranks)
    system.init()
    comms = comm_init_all(system, range(ranks))
    failures: list[BaseException] = []
    all_there = threading.Barrier(ranks)

    def program(rank: int) -> None:
        try:
            stream = system.set_device(rank).default_stream
            all_there.wait()  # who waits alone is in a deadlock
            memory = system.device(rank).memory
            address = memory.malloc(64)
            held = memory.view(address, 64).view(np.int64)
            held[:] = rank
            for _ in range(rounds):
                comms[rank].all_reduce(address, address, 8, DataType.INT64, ReduceOp.MAX, stream=stream)
            comms[rank].synchronize(stream)
            assert held.tolist() == [ranks - 1] * 8
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=program, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_ranks_join_one_by_one_by_root_info() -> None:
    world = World(2)
    info = get_root_info()
    world.on(1)
    second = comm_init_root_info(world.system, 2, info, 1)
    with pytest.raises(AclError, match="2 ranks as one of 3"):
        comm_init_root_info(world.system, 3, info, 0)
    with pytest.raises(AclError, match=r"rank 1 .* is taken"):
        comm_init_root_info(world.system, 2, info, 1)
    world.on(0)
    first = comm_init_root_info(world.system, 2, info, 0)
    a, b = world.put(0, np.ones(2, np.int32)), world.put(1, np.ones(2, np.int32))
    first.all_reduce(a, a, 2, INT32, SUM, stream=world.on(0))
    second.all_reduce(b, b, 2, INT32, SUM, stream=world.on(1))
    world.synchronize()
    assert world.get(1, b, np.ones(2, np.int32)).tolist() == [2, 2]


def test_a_communicator_keeps_two_buffers_on_its_device(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(2)
    memory = world.system.device(1).memory
    assert memory.stats.allocated == 2 * 200 * 2**20
    monkeypatch.setenv("HCCL_BUFFSIZE", "3")
    second = comm_init_all(world.system, [1])[0]
    assert memory.stats.allocated == 2 * 203 * 2**20
    second.destroy()
    world.comms[1].destroy()
    assert memory.stats.allocated == 0
    with pytest.raises(AclError, match="HCCL_BUFFSIZE='0'") as raised:
        comm_init_all(world.system, [0], CommConfig(buffer_mib=0))
    assert raised.value.category == "EI0001"
    with pytest.raises(OutOfMemoryError):
        comm_init_all(world.system, [0], CommConfig(buffer_mib=10**6))


def test_devices_are_different_ranks() -> None:
    world = World(2)
    with pytest.raises(AclError, match=r"\[1\] come twice"):
        comm_init_all(world.system, [0, 1, 1])
    with pytest.raises(AclError, match="partition"):
        comm_init_all(world.system, [0, 1], CommConfig(servers=((0,), (0,))))
