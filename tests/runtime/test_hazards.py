"""Races between streams and with the host: found where nothing orders two accesses, and only there."""

from collections.abc import Iterator

import numpy as np
import pytest

from ascend_jax.runtime.context import Context
from ascend_jax.runtime.engine.task import Span, Task
from ascend_jax.runtime.errors import AclError
from ascend_jax.runtime.system import Options, System


@pytest.fixture
def system() -> Iterator[System]:
    with System(["910b3"], options=Options(host_submit_s=0.0)) as made:
        yield made


@pytest.fixture
def context(system: System) -> Context:
    return system.set_device(0)


@pytest.fixture
def address(context: Context) -> int:
    return context.device.memory.malloc(4096)


def task(name: str, *, reads: Span | None = None, writes: Span | None = None) -> Task:
    spans = [() if span is None else (span,) for span in (reads, writes)]
    return Task(name=name, kind="kernel", duration_s=1.0, block_dim=1, core="cube", reads=spans[0], writes=spans[1])


def kinds(context: Context) -> list[str]:
    return [hazard.kind for hazard in context.system.hazard_reports]


@pytest.mark.parametrize(
    ("first", "second", "kind"),
    [
        ("writes", "reads", "read after write"),
        ("reads", "writes", "write after read"),
        ("writes", "writes", "write after write"),
    ],
)
def test_two_streams_without_an_event(context: Context, address: int, first: str, second: str, kind: str) -> None:
    context.create_stream().submit(task("first", **{first: (address, 100)}))
    context.create_stream().submit(task("second", **{second: (address + 96, 100)}))
    assert kinds(context) == [kind]
    report = str(context.system.hazard_reports[0])
    assert "'first'" in report and "'second'" in report and report.count("test_hazards.py:") == 2 and " 4 B" in report


def test_two_reads_or_other_bytes_are_no_race(context: Context, address: int) -> None:
    for start, how in ((0, "reads"), (0, "reads"), (100, "writes"), (200, "writes")):
        context.create_stream().submit(task(how, **{how: (address + start, 100)}))
    assert kinds(context) == []


def test_an_event_orders_and_so_does_a_chain_of_them(context: Context, address: int) -> None:
    first, middle, last = (context.create_stream() for _ in range(3))
    first.submit(task("first", writes=(address, 64)))
    for before, after in ((first, middle), (middle, last)):
        event = context.create_event()
        event.record(before)
        after.wait_event(event)
    last.submit(task("last", reads=(address, 64)))
    assert kinds(context) == []
    middle.submit(task("middle", writes=(address, 64)))
    assert kinds(context) == ["write after read"]


def test_a_wait_bound_to_an_earlier_record_orders_only_what_was_before_it(context: Context, address: int) -> None:
    first, second, event = context.create_stream(), context.create_stream(), context.create_event()
    event.record(first)
    first.submit(task("too late", writes=(address, 64)))
    second.wait_event(event)
    second.submit(task("second", reads=(address, 64)))
    assert kinds(context) == ["read after write"]


@pytest.mark.parametrize("how", ["stream", "event", "query", "context"])
def test_the_host_orders_by_waiting(context: Context, address: int, how: str) -> None:
    first, event = context.create_stream(), context.create_event()
    first.submit(task("first", writes=(address, 64)))
    event.record(first)
    if how == "stream":
        first.synchronize()
    elif how == "event":
        event.synchronize()
    elif how == "context":
        context.synchronize()
    else:
        context.system.thread().now_s = 5.0
        assert event.query()
    context.create_stream().submit(task("second", writes=(address, 64)))
    assert kinds(context) == []


def test_a_race_can_be_an_error(context: Context, address: int) -> None:
    context.system.options.hazards = "raise"
    context.create_stream().submit(task("first", writes=(address, 64)))
    with pytest.raises(AclError, match="write after write on device 0, 64 B"):
        context.create_stream().submit(task("second", writes=(address, 64)))


def test_what_is_settled_is_forgotten(context: Context, address: int) -> None:
    stream = context.create_stream()
    for _ in range(100):
        stream.submit(task("again", writes=(address, 64)))
    assert [len(accesses) for accesses in context.system.hazards.accesses.values()] == [1]


def test_a_synchronous_copy_that_reads_what_a_kernel_still_writes(context: Context, address: int) -> None:
    memory = context.system.memory
    other = memory.malloc(4096)
    context.default_stream.submit(task("kernel", writes=(address, 64)))
    memory.memcpy(other, 4096, address, 64)
    assert kinds(context) == ["read after write"]
    assert "'kernel'" in context.system.hazard_reports[0].first and "memcpy at" in context.system.hazard_reports[0].second
    context.default_stream.synchronize()
    memory.memcpy(other, 4096, address, 64)
    assert len(kinds(context)) == 1


def test_freed_while_a_task_uses_it_and_used_after(context: Context, address: int) -> None:
    memory, stream = context.system.memory, context.default_stream
    stream.submit(task("kernel", reads=(address, 64)))
    memory.free(address)
    assert kinds(context) == ["memory freed while in use"] and "free at" in context.system.hazard_reports[0].second
    with pytest.raises(AclError, match=r"use after free.*test_hazards\.py"):
        memory.memcpy(memory.malloc(64), 64, address, 64)


def test_freeing_after_synchronising_is_fine_and_the_place_starts_afresh(context: Context, address: int) -> None:
    memory, stream = context.system.memory, context.default_stream
    stream.submit(task("kernel", writes=(address, 64)))
    stream.synchronize()
    memory.free(address)
    again = memory.malloc(4096)
    context.create_stream().submit(task("other", writes=(again, 64)))
    assert kinds(context) == []


def test_copies_carry_bytes_in_the_order_of_streams(context: Context) -> None:
    """A copy on a stream sees what the stream wrote before it; a synchronous one, made too early, sees what was there."""
    memory, stream = context.system.memory, context.default_stream
    source, early, late = (memory.malloc(64) for _ in range(3))
    memory.memset(source, 64, 1, 64)

    def write() -> None:
        context.device.memory.view(source, 64)[:] = 2

    stream.submit(
        Task(name="write", kind="kernel", duration_s=1.0, core="cube", block_dim=1, run=write, writes=((source, 64),))
    )
    memory.memcpy_async(late, 64, source, 64, stream=stream)
    memory.memcpy(early, 64, source, 64)
    stream.synchronize()
    seen = [context.device.memory.view(address, 64)[0] for address in (early, late)]
    assert seen == [1, 2] and kinds(context) == ["read after write"]


def test_host_memory_that_is_not_page_locked_makes_the_host_wait(context: Context) -> None:
    memory, array = context.system.memory, np.arange(8, dtype=np.uint8)
    target = memory.malloc(8)
    context.default_stream.submit(task("kernel"))
    assert memory.memcpy_async(target, 8, memory.host.pointer(array), 8) is None
    assert context.system.host_now_s > 1.0 and context.device.memory.view(target, 8).tolist() == list(range(8))
    locked = memory.malloc_host(8)
    copied = memory.memcpy_async(locked, 8, target, 8)
    assert copied is not None and not copied.done
