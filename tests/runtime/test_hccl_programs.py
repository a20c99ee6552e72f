"""Random programs of kernels, collectives and messages on several ranks: their virtual times are those of a slow oracle."""

import numpy as np
import pytest
from hccl_world import World
from hypothesis import given, settings
from hypothesis import strategies as st

from ascend_jax.runtime.engine.task import Task
from ascend_jax.runtime.errors import AclError
from ascend_jax.runtime.hccl.init import CommConfig
from ascend_jax.runtime.hccl.kinds import DataType, ReduceOp
from ascend_jax.runtime.system import Options

INT32 = DataType.INT32
RANKS = 4
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("work"), st.integers(0, RANKS - 1), st.integers(1, 50)),
        st.tuples(st.sampled_from(["all_reduce", "broadcast", "all_gather"]), st.just(0), st.integers(1, 4)),
        st.tuples(st.just("message"), st.integers(0, RANKS - 1), st.integers(1, RANKS - 1)),
    ),
    max_size=25,
)


def submit(world: World, rank: int, step: tuple[str, int, int], buffer: int) -> Task | None:
    """What ``step`` asks of one rank."""
    what, who, number = step
    stream, comm = world.on(rank), world.comms[rank]
    receive = buffer + 64
    if what == "work":
        return stream.submit(Task(name="work", kind="kernel", duration_s=number * 1e-6)) if rank == who else None
    if what == "message":
        target = (who + number) % RANKS
        if rank == who:
            return comm.send(buffer, 4, INT32, target, stream=stream)
        return comm.recv(receive, 4, INT32, who, stream=stream) if rank == target else None
    calls = {
        "all_reduce": lambda: comm.all_reduce(buffer, receive, number, INT32, ReduceOp.SUM, stream=stream),
        "broadcast": lambda: comm.broadcast(receive, number, INT32, number - 1, stream=stream),
        "all_gather": lambda: comm.all_gather(buffer, receive, number, INT32, stream=stream),
    }
    return calls[what]()


def new_world() -> tuple[World, list[int]]:
    options = Options(host_submit_s=0.0, timing_only=True, hazards="off", deadlock_patience_s=0.01)
    world = World(RANKS, CommConfig(ranks_per_server=2), options=options)
    return world, [world.put(rank, np.zeros(64, np.int32)) for rank in world.ranks]


@given(STEPS, st.randoms(use_true_random=False))
@settings(max_examples=60)
def test_times_are_those_of_clocks_that_wait_for_each_other(steps: list[tuple[str, int, int]], random) -> None:
    world, buffers = new_world()
    tasks: dict[tuple[int, int], Task] = {}
    left = [list(range(len(steps))) for _ in world.ranks]
    while any(left):  # each rank in its own order, the ranks in any
        rank = random.choice([one for one in world.ranks if left[one]])
        place = left[rank].pop(0)
        task = submit(world, rank, steps[place], buffers[rank])
        if task is not None:
            tasks[rank, place] = task
    world.synchronize()
    clocks = dict.fromkeys(world.ranks, 0.0)
    for place in range(len(steps)):
        party = {rank: tasks[rank, place] for rank in world.ranks if (rank, place) in tasks}
        start = max(clocks[rank] for rank in party)
        for rank, task in party.items():
            assert task.start_s == pytest.approx(start, abs=1e-12)
            clocks[rank] = start + task.duration_s
            assert task.end_s == pytest.approx(clocks[rank], abs=1e-12)


@given(STEPS.filter(lambda steps: any(step[0] != "work" for step in steps)), st.randoms(use_true_random=False))
@settings(max_examples=40)
def test_a_rank_that_leaves_early_is_named(steps: list[tuple[str, int, int]], random) -> None:
    world, buffers = new_world()
    needed = [place for place, step in enumerate(steps) if step[0] != "work"]
    last = random.choice(needed)
    what, who, number = steps[last]
    gone = random.choice([who, (who + number) % RANKS]) if what == "message" else random.randrange(RANKS)
    for rank in world.ranks:
        for place, step in enumerate(steps):
            if rank != gone or place < last:
                submit(world, rank, step, buffers[rank])
    with pytest.raises(AclError) as raised:
        world.synchronize()
    assert raised.value.category == "EI0002"
    assert f"rank {gone} never called it" in str(raised.value)
