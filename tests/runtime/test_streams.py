"""Streams, events and contexts: order, virtual time, failures and misuse."""

import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascend_jax.runtime.context import Context
from ascend_jax.runtime.engine.task import Rendezvous, Task
from ascend_jax.runtime.errors import AclError, get_last_error, peek_at_last_error
from ascend_jax.runtime.memory.pool import MemPool, MemPoolAttr
from ascend_jax.runtime.system import Options, System
from tests.runtime.stream_oracle import Item, run


@pytest.fixture
def system() -> Iterator[System]:
    with System(["910b3", "910b3"], options=Options(host_submit_s=0.0, deadlock_patience_s=0.2)) as made:
        yield made


@pytest.fixture
def context(system: System) -> Context:
    return system.set_device(0)


def kernel(seconds: float, cores: int = 20, name: str = "kernel") -> Task:
    return Task(name=name, kind="kernel", duration_s=seconds, block_dim=cores, core="cube")


def refusal(code: int) -> "pytest.RaisesExc[AclError]":
    return pytest.raises(AclError, check=lambda error: error.code == code)


def test_a_stream_is_first_in_first_out(context: Context) -> None:
    tasks = [context.default_stream.submit(kernel(1.0)) for _ in range(3)]
    assert not context.default_stream.query()
    context.default_stream.synchronize()
    assert [(task.start_s, task.end_s) for task in tasks] == [(0, 1), (1, 2), (2, 3)]
    assert context.system.host_now_s == 3 and context.default_stream.query()


@pytest.mark.parametrize(("cores", "end_s"), [(10, 1.0), (11, 2.0), (20, 2.0), (99, 2.0)])
def test_two_kernels_run_beside_each_other_only_on_free_cores(context: Context, cores: int, end_s: float) -> None:
    tasks = [context.create_stream().submit(kernel(1.0, cores)) for _ in range(2)]
    context.synchronize()
    assert max(task.end_s or 0 for task in tasks) == end_s


def test_the_default_stream_orders_nothing(context: Context) -> None:
    slow, fast = context.default_stream.submit(kernel(5.0, 1)), context.create_stream().submit(kernel(1.0, 1))
    context.synchronize()
    assert (slow.start_s, fast.start_s) == (0, 0)


def test_a_copy_runs_beside_a_kernel_and_behind_a_copy(context: Context) -> None:
    copies = [Task(name="copy", kind="copy", duration_s=2.0, engine="h2d") for _ in range(2)]
    for copy in copies:
        context.create_stream().submit(copy)
    task = context.create_stream().submit(kernel(3.0))
    context.synchronize()
    assert (copies[0].start_s, copies[1].start_s, task.start_s) == (0, 2, 0)


def test_smaller_priority_numbers_go_first_and_interrupt_nothing(context: Context) -> None:
    running = context.create_stream(priority=7).submit(kernel(1.0))
    context.system.thread().now_s = 0.5
    low, high = (context.create_stream(priority=number).submit(kernel(1.0)) for number in (5, 1))
    context.synchronize()
    assert (running.start_s, high.start_s, low.start_s) == (0, 1, 2)


def test_a_wait_is_bound_to_the_record_of_its_moment(context: Context) -> None:
    first, second, event = context.create_stream(), context.create_stream(), context.create_event()
    first.submit(kernel(1.0, 1))
    event.record(first)
    second.wait_event(event)
    first.submit(kernel(5.0, 1))
    event.record(first)
    bound = second.submit(kernel(1.0, 1))
    context.synchronize()
    assert bound.start_s == 1.0


def test_an_event_that_was_never_recorded_lets_pass(context: Context) -> None:
    context.default_stream.wait_event(context.create_event())
    context.default_stream.synchronize()
    assert context.create_event().query()


def test_elapsed_time_needs_two_records_that_are_reached(context: Context) -> None:
    start, end, stream = context.create_event(), context.create_event(), context.default_stream
    with refusal(107006):
        start.elapsed_time(end)
    start.record(stream)
    stream.submit(kernel(0.25))
    end.record(stream)
    with refusal(107006):
        start.elapsed_time(end)
    end.synchronize()
    assert start.elapsed_time(end) == 250.0
    with refusal(107007):
        end.elapsed_time(start)
    with refusal(107006):
        context.create_event(timing=False).elapsed_time(end)


def test_a_failure_comes_at_the_next_synchronisation_with_the_place_that_submitted(context: Context) -> None:
    def fail() -> None:
        raise ValueError("bad tile")

    stream = context.create_stream()
    stream.submit(Task(name="Softmax", kind="kernel", duration_s=1.0, run=fail))
    later = stream.submit(kernel(1.0))
    with pytest.raises(AclError, match=r"Softmax.*test_streams\.py:\d+ failed: ValueError: bad tile") as caught:
        stream.synchronize()
    assert caught.value.code == 507015 and later.end_s == 2.0
    stream.synchronize()


def test_stop_on_failure_stops_the_context(context: Context) -> None:
    stream = context.create_stream()
    stream.stop_on_failure = True
    stream.submit(Task(name="broken", kind="kernel", duration_s=1.0, run={}.popitem))
    with refusal(507015):
        stream.synchronize()
    with refusal(107022):
        context.default_stream.submit(kernel(1.0))


def test_timeouts(context: Context) -> None:
    stream, event = context.create_stream(), context.create_event(classic=True)
    stream.submit(kernel(1.0))
    with refusal(507046):
        stream.synchronize(timeout_ms=10)
    assert context.system.host_now_s == 0.01
    event.record(stream)
    with refusal(507047):
        event.synchronize(timeout_ms=10)
    other = context.create_stream()
    other.wait_event(context.create_event(classic=True), timeout_s=0.5)
    with refusal(107019):
        other.synchronize()
    context.system.scheduler.task_timeout_s = 2.0
    other.submit(kernel(9.0))
    with refusal(507014):
        other.synchronize()


def test_a_classic_event_that_nobody_records_is_a_deadlock(context: Context) -> None:
    stream = context.create_stream()
    stream.wait_event(context.create_event(classic=True))
    with pytest.raises(AclError, match=r"deadlock: stream \d+ .*\n.*waits for an event that nobody has recorded"):
        stream.synchronize()


def test_a_cycle_of_waits_is_a_deadlock(context: Context) -> None:
    streams = [context.create_stream() for _ in range(2)]
    events = [context.create_event(classic=True) for _ in range(2)]
    for mine, other in ((0, 1), (1, 0)):
        streams[mine].wait_event(events[other])
    for mine in range(2):
        events[mine].record(streams[mine])
    with pytest.raises(AclError, match=r"waits for task \d+ 'record event .*behind task"):
        streams[0].synchronize()


def test_a_party_starts_when_the_last_is_ready_and_ends_together(system: System) -> None:
    party, tasks = Rendezvous(2), []
    for device_id, busy in ((0, 3.0), (1, 1.0)):
        context = system.set_device(device_id)
        context.default_stream.submit(kernel(busy))
        tasks.append(context.default_stream.submit(Task(name="sum", kind="collective", duration_s=1.0, rendezvous=party)))
    system.current_context().synchronize()
    assert [(task.start_s, task.end_s) for task in tasks] == [(3, 4), (3, 4)]


def test_abort_drops_what_has_not_started(context: Context) -> None:
    stream = context.create_stream()
    first, second = stream.submit(kernel(1.0)), stream.submit(kernel(1.0))
    context.system.thread().now_s = 0.5
    assert stream.abort() == 1
    with refusal(107023):
        stream.synchronize()
    assert first.end_s == 1.0 and second.start_s is None
    stream.submit(kernel(1.0))
    stream.synchronize()


def test_a_full_stream_lets_the_host_wait(context: Context) -> None:
    stream = context.create_stream()
    stream.depth = 2
    for _ in range(4):
        stream.submit(kernel(1.0))
    assert context.system.host_now_s == 2.0


def test_the_last_error_is_the_threads_own(context: Context) -> None:
    with refusal(107001):
        context.system.set_device(9)
    assert (peek_at_last_error(), get_last_error(), get_last_error()) == (107001, 107001, 0)


def test_foreign_and_dead_handles(system: System) -> None:
    first = system.set_device(0)
    stream, event = first.create_stream(), first.create_event()
    second = system.create_context(0)
    with refusal(107003):
        stream.submit(kernel(1.0))
    elsewhere = system.set_device(1)
    with refusal(107003):
        event.record(elsewhere.default_stream)
    system.set_context(first)
    first.destroy_stream(stream)
    with refusal(107017):
        stream.submit(kernel(1.0))
    with refusal(107000):
        first.destroy_stream(first.default_stream)
    first.destroy_event(event)
    with refusal(107017):
        event.query()
    system.destroy_context(second)
    with refusal(107017):
        system.set_context(second)
    with refusal(107000):
        system.destroy_context(first)


def test_devices_are_counted_and_bound_to_threads(system: System) -> None:
    with refusal(107002):
        system.get_device()
    with refusal(107001):
        system.set_device(2)
    system.set_device(1)
    system.set_device(1)
    system.reset_device(1)
    assert system.get_device() == 1
    system.reset_device(1)
    with refusal(107002):
        system.get_device()
    with refusal(107000):
        system.reset_device(1)


def test_a_thread_without_a_device_is_named() -> None:
    with System(["910b3"]) as system:
        system.set_device(0)
        caught: list[AclError] = []

        def ask() -> None:
            try:
                system.get_device()
            except AclError as error:
                caught.append(error)

        worker = threading.Thread(target=ask, name="worker 7")
        worker.start()
        worker.join()
        assert "worker 7" in caught[0].what and caught[0].code == 107002


def test_beginning_and_end() -> None:
    system = System(["910b3", "950pr_957x", "310p3"], visible="2,0")
    with refusal(100001):
        system.set_device(0)
    system.init()
    with refusal(100002):
        system.init()
    assert system.device_count() == 2 and system.device(0).attribute("NPU_ARCH") == 2002
    assert (system.device(0).stream_limit, system.device(1).stream_limit) == (1024, 1984)
    with refusal(100000):
        system.device(0).attribute("COLOUR")
    system.finalize()
    with refusal(100037):
        system.finalize()
    with refusal(107001):
        System(["910b3"], visible="0,3").init()


def test_streams_run_out_with_a_table_of_owners(context: Context) -> None:
    context.device.stream_limit = 3
    made = [context.create_stream() for _ in range(2)]
    with pytest.raises(AclError, match=r"3 streams, all in use\n +2 context \d+, .*test_streams\.py:\d+"):
        context.create_stream()
    context.destroy_stream(made[0])
    context.create_stream()


def test_host_functions_run_in_order_and_must_not_call_back(context: Context) -> None:
    stream, seen = context.default_stream, []
    stream.submit(kernel(1.0))
    stream.launch_host_func(lambda: seen.append(stream.system.scheduler.now))
    stream.synchronize()
    assert seen == [1.0]
    stream.launch_host_func(stream.synchronize)
    with refusal(107000):
        stream.synchronize()


def test_eight_threads_with_streams_of_their_own(system: System) -> None:
    ends: dict[int, float] = {}

    def work(number: int) -> None:
        context = system.set_device(0)
        stream = context.create_stream()
        for _ in range(20):
            stream.submit(kernel(0.5, 1))
        stream.synchronize()
        ends[number] = system.host_now_s

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ends) == list(range(8)) and all(end >= 10 for end in ends.values())


CORES = {"cube": 20, "vector": 40}
KINDS = {"cube": lambda n: {"cube": n}, "vector": lambda n: {"vector": n}, "mix": lambda n: {"cube": n, "vector": 2 * n}}
PROGRAMS = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.sampled_from(["cube", "vector", "mix", "none", "record", "wait"]),
        st.integers(1, 20),
        st.integers(0, 9),
        st.integers(0, 2),
    ),
    max_size=25,
)


@given(program=PROGRAMS, priorities=st.lists(st.integers(0, 2), min_size=4, max_size=4))
def test_virtual_times_equal_those_of_the_obvious_loop(
    program: list[tuple[int, str, int, int, int]], priorities: list[int]
) -> None:
    """Random programs over four streams: kernels of all kinds, records and waits, at random times."""
    with System(["910b3"], options=Options(host_submit_s=0.0)) as system:
        context = system.set_device(0)
        streams = [context.create_stream(priority=priority) for priority in priorities]
        events, recorded = [context.create_event() for _ in range(3)], {}
        items: list[list[Item]] = [[] for _ in streams]
        pairs: list[tuple[Task, Item]] = []
        for number, kind, cores, length, pause in program:
            thread = system.thread()
            thread.now_s += pause
            stream, event = streams[number], events[cores % 3]
            item = Item(thread.now_s, 0.0, priorities[number])
            if kind == "record":
                task = event.record(stream)
                recorded[event] = item
            elif kind == "wait":
                task, item.after = stream.wait_event(event), recorded.get(event)
            else:
                needs = KINDS[kind](cores) if kind != "none" else {}
                item.duration_s, item.needs = float(length), needs
                task = stream.submit(Task(name=kind, kind="kernel", duration_s=float(length), block_dim=cores, core=kind))  # pyright: ignore[reportArgumentType]
            items[number].append(item)
            pairs.append((task, item))
        context.synchronize()
        for _, item in pairs:
            item.needs = {key: min(value, CORES[key]) for key, value in item.needs.items()}
        order = [item for _, item in pairs]
        assert run(items, CORES, order)
        assert [(task.start_s, task.end_s) for task, _ in pairs] == [(item.start_s, item.end_s) for item in order]


def test_a_pool_gives_back_what_it_holds_when_a_stream_is_synchronised(context: Context) -> None:
    pool, stream = MemPool(context.device.memory), context.default_stream
    pool.free_async(pool.malloc_async(8 << 20, stream), stream)
    assert pool.get_attr(MemPoolAttr.RESERVED_MEM_CURRENT) == 8 << 20
    stream.synchronize()
    assert pool.get_attr(MemPoolAttr.RESERVED_MEM_CURRENT) == 0


def test_the_caching_allocator_takes_a_block_back_when_the_other_stream_is_past_it(context: Context) -> None:
    allocator = context.system.memory.caching_allocator("max_split_size_mb:64")
    mine, other = context.create_stream(), context.create_stream()
    block = allocator.malloc(1 << 20, mine)
    other.submit(kernel(1.0))
    allocator.record_stream(block, other)
    allocator.free(block)
    assert allocator.malloc(1 << 20, mine) != block
    context.system.thread().now_s = 2.0
    assert allocator.malloc(1 << 20, mine) == block
