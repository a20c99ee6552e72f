"""What goes wrong between ranks, and how it is told: at once, with both ranks, both values and both places."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hccl_world import World

from ascend_jax.runtime.engine.task import Task
from ascend_jax.runtime.errors import AclError, peek_at_last_error
from ascend_jax.runtime.hccl.kinds import DataType, ReduceOp
from ascend_jax.runtime.stream import Stream

INT32, SUM = DataType.INT32, ReduceOp.SUM
FIRST: dict[str, Callable[..., Any]] = {
    "all_reduce": lambda comm, a, b, stream: comm.all_reduce(a, b, 4, INT32, SUM, stream=stream),
    "broadcast": lambda comm, a, b, stream: comm.broadcast(a, 4, INT32, 0, stream=stream),
}


@pytest.fixture(name="world")
def three_ranks() -> World:
    return World(3)


def buffers(world: World) -> list[tuple[int, int]]:
    return [(world.put(r, np.zeros(16, np.int32)), world.put(r, np.zeros(16, np.int32))) for r in world.ranks]


@pytest.mark.parametrize(
    ("first", "second", "name", "mine", "theirs"),
    [
        ("all_reduce", lambda c, a, b, s: c.all_gather(a, b, 4, INT32, stream=s), "operator", "all_gather", "all_reduce"),
        ("all_reduce", lambda c, a, b, s: c.all_reduce(a, b, 5, INT32, SUM, stream=s), "count", "5", "4"),
        ("all_reduce", lambda c, a, b, s: c.all_reduce(a, b, 4, DataType.FP32, SUM, stream=s), "dtype", "FP32", "INT32"),
        ("all_reduce", lambda c, a, b, s: c.all_reduce(a, b, 4, INT32, ReduceOp.MAX, stream=s), "op", "MAX", "SUM"),
        ("broadcast", lambda c, a, b, s: c.broadcast(a, 4, INT32, 2, stream=s), "root", "2", "0"),
    ],
)
def test_disagreement_is_found_at_the_second_call(
    world: World, first: str, second: Callable[..., Any], name: str, mine: str, theirs: str
) -> None:
    places = buffers(world)
    FIRST[first](world.comms[0], *places[0], world.on(0))
    with pytest.raises(AclError) as raised:
        second(world.comms[1], *places[1], world.on(1))
    text = str(raised.value).splitlines()[0]
    assert f"{name} differs: rank 1 has {mine}" in text and f"rank 0 has {theirs}" in text
    assert text.count("test_hccl_mismatch.py:") == 2
    assert raised.value.category == "EI0005" and peek_at_last_error() == raised.value.code
    FIRST[first](world.comms[1], *places[1], world.on(1))  # the right call still joins
    FIRST[first](world.comms[2], *places[2], world.on(2))
    world.synchronize()


def test_the_order_of_calls_is_compared(world: World) -> None:
    places = buffers(world)
    for name in ("all_reduce", "broadcast"):
        FIRST[name](world.comms[0], *places[0], world.on(0))
    with pytest.raises(AclError, match=r"call 1 .*: operator differs: rank 2 has broadcast .* rank 0 has all_reduce"):
        FIRST["broadcast"](world.comms[2], *places[2], world.on(2))


def test_a_message_and_its_receiver_have_to_agree(world: World) -> None:
    places = buffers(world)
    world.comms[0].send(places[0][0], 4, INT32, 1, stream=world.on(0))
    with pytest.raises(AclError, match=r"from rank 0 to rank 1 .*: count differs: rank 1 has 5 .* rank 0 has 4"):
        world.comms[1].recv(places[1][0], 5, INT32, 0, stream=world.on(1))


def test_counts_of_pieces_have_to_agree_pair_by_pair(world: World) -> None:
    places = buffers(world)
    equal = ([1, 1, 1], [0, 1, 2])
    world.comms[0].all_to_all_v((places[0][0], *equal), (places[0][1], *equal), INT32, stream=world.on(0))
    with pytest.raises(AclError, match=r"count from rank 0 to rank 1 differs: rank 1 has 2 .* rank 0 has 1"):
        sent, expected = (places[1][0], *equal), (places[1][1], [2, 1, 1], [0, 2, 3])
        world.comms[1].all_to_all_v(sent, expected, INT32, stream=world.on(1))


def test_who_never_comes_is_named(world: World) -> None:
    places = buffers(world)
    for rank in (0, 2):
        FIRST["all_reduce"](world.comms[rank], *places[rank], world.on(rank))
    with pytest.raises(AclError, match="all_reduce, call 1 of hccl_world waits for ever: rank 1 never called it") as raised:
        world.comms[0].synchronize(world.on(0))
    assert raised.value.category == "EI0002" and "rank 2 at " in str(raised.value)
    with pytest.raises(AclError, match="rank 1 never"):
        world.comms[0].destroy()
    FIRST["all_reduce"](world.comms[1], *places[1], world.on(1))  # better late than never
    world.synchronize()


def test_collectives_in_another_order_than_messages_stand_still(world: World) -> None:
    places = buffers(world)
    FIRST["all_reduce"](world.comms[0], *places[0], world.on(0))
    world.comms[0].send(places[0][0], 4, INT32, 1, stream=world.on(0))
    world.comms[1].recv(places[1][0], 4, INT32, 0, stream=world.on(1))
    FIRST["all_reduce"](world.comms[1], *places[1], world.on(1))
    FIRST["all_reduce"](world.comms[2], *places[2], world.on(2))
    with pytest.raises(AclError, match=r"all_reduce, call 1 .* rank 1 called it, but the stream never came to it"):
        world.comms[0].synchronize(world.on(0))


def test_the_cause_is_named_rather_than_what_stands_behind_it(world: World) -> None:
    places = buffers(world)
    world.comms[0].send(places[0][0], 4, INT32, 1, stream=world.on(0))
    for rank in world.ranks:
        FIRST["all_reduce"](world.comms[rank], *places[rank], world.on(rank))
    with pytest.raises(AclError, match=r"^send, call 1 of hccl_world waits for ever: rank 1 never called it"):
        world.comms[2].synchronize(world.on(2))


def test_an_error_of_one_rank_is_everyones() -> None:
    world = World(2)
    places = buffers(world)
    FIRST["all_reduce"](world.comms[0], *places[0], world.on(0))
    world.on(0)
    world.system.device(0).memory.free(places[0][0])
    FIRST["all_reduce"](world.comms[1], *places[1], world.on(1))
    for rank in world.ranks:
        with pytest.raises(AclError, match="use after free"):
            world.comms[rank].synchronize(world.on(rank))


@pytest.mark.parametrize(
    ("call", "word", "code"),
    [
        (lambda c, a, b, s: c.all_reduce(0, b, 4, INT32, SUM, stream=s), "send buffer is null", 2),
        (lambda c, a, b, s: c.all_reduce(a + 2, b, 4, INT32, SUM, stream=s), "not aligned to the 4 B", 1),
        (lambda c, a, b, s: c.all_reduce(a, b, 4000, INT32, SUM, stream=s), "past the allocation", 1),
        (lambda c, a, b, s: c.all_gather(a, b, 9, INT32, stream=s), "past the allocation", 1),
        (lambda c, a, b, s: c.all_reduce(a, b, -1, INT32, SUM, stream=s), "count -1", 1),
        (lambda c, a, b, s: c.broadcast(a, 4, INT32, 3, stream=s), "root 3 is no rank", 1),
        (lambda c, a, b, s: c.send(a, 4, INT32, 0, stream=s), "its own peer", 1),
        (lambda c, a, b, s: c.send(a, 4, INT32, 7, stream=s), "peer 7 is no rank", 1),
        (lambda c, a, b, s: c.all_reduce(a, b, 4, DataType.BFP16, ReduceOp.PROD, stream=s), "BFP16 with PROD", 5),
        (lambda c, a, b, s: c.all_reduce(a, b, 4, DataType.UINT8, SUM, stream=s), "UINT8 with SUM is not supported", 5),
        (lambda c, a, b, s: c.broadcast(a, 4, DataType.FP8E4M3, 0, stream=s), "FP8E4M3 is not supported on 910b", 5),
        (lambda c, a, b, s: c.all_to_all_v((a, [1, 1], [0, 0]), (b, [1, 1, 1], [0, 1, 2]), INT32, stream=s), "send counts", 1),
        (lambda c, a, b, s: c.batch_send_recv([], stream=s), "no messages", 1),
    ],
)  # fmt: skip
def test_arguments_are_checked_before_anyone_else_is_asked(
    world: World, call: Callable[..., Any], word: str, code: int
) -> None:
    address = buffers(world)[0]
    with pytest.raises(AclError, match=word) as raised:
        call(world.comms[0], *address, world.on(0))
    assert raised.value.code == code
    assert not world.comms[0].group.meetings and not world.streams[0].queue.tasks


def test_streams_of_other_devices_are_refused(world: World) -> None:
    places = buffers(world)
    with pytest.raises(AclError, match="not of device 0") as raised:
        FIRST["all_reduce"](world.comms[0], *places[0], world.on(1))
    assert raised.value.code == 107003
    world.comms[0].destroy()
    with pytest.raises(AclError, match="was destroyed"):
        FIRST["all_reduce"](world.comms[0], *places[0], world.on(0))


def test_races_with_a_collective_are_found(world: World) -> None:
    [(send, receive), *_] = buffers(world)
    FIRST["all_reduce"](world.comms[0], send, receive, world.on(0))
    other = world.contexts[0].create_stream()
    with pytest.raises(AclError, match="write after read"):
        other.submit(Task(name="clear", kind="memset", writes=((send, 8),)))


def test_a_race_of_a_collective_is_told_of_and_the_collective_stands(world: World) -> None:
    """The task is in its stream when the race is found: the rank's next call is its second."""
    places = buffers(world)
    other = world.contexts[0].create_stream()
    world.on(0)
    other.submit(Task(name="fill", kind="memset", writes=((places[0][0], 8),)))
    with pytest.raises(AclError, match="read after write"):
        FIRST["all_reduce"](world.comms[0], *places[0], world.on(0))
    for rank in (1, 2):
        FIRST["all_reduce"](world.comms[rank], *places[rank], world.on(rank))
    for rank in world.ranks:
        FIRST["broadcast"](world.comms[rank], *reversed(places[rank]), world.on(rank))
    world.synchronize()


def test_a_call_that_no_stream_takes_has_not_been_made(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    places = buffers(world)
    world.comms[0].send(places[0][0], 4, INT32, 1, stream=world.on(0))

    def refuse(self: Stream, task: Task) -> Task:
        raise AclError(507002, f"no room for {task.name}")

    with monkeypatch.context() as patch:
        patch.setattr(Stream, "submit", refuse)
        for call in (
            lambda: world.comms[1].recv(places[1][0], 4, INT32, 0, stream=world.on(1)),
            lambda: world.comms[2].send(places[2][0], 4, INT32, 0, stream=world.on(2)),
            lambda: FIRST["all_reduce"](world.comms[1], *places[1], world.on(1)),
        ):
            with pytest.raises(AclError, match="no room"):
                call()
    FIRST["broadcast"](world.comms[1], *places[1], world.on(1))  # the first call, not the second
    assert not world.comms[0].group.mailboxes[2, 0].waiting
    assert [call.rank for _, call, _ in world.comms[0].group.mailboxes[0, 1].waiting] == [0]
