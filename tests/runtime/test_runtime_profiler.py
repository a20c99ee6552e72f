"""What a profiler records, in which order it may be used, and that nothing is lost when a program fails."""

from pathlib import Path

import pytest

from ascend_jax.runtime.engine.task import Task
from ascend_jax.runtime.errors import AclError
from ascend_jax.runtime.profiler.kinds import AicoreMetrics, DataType
from ascend_jax.runtime.profiler.overlap import length, union, without
from ascend_jax.runtime.profiler.profile import Profile
from ascend_jax.runtime.profiler.session import ProfConfig, Profiler, profile
from ascend_jax.runtime.system import Options, System


@pytest.fixture(name="system")
def two_devices() -> System:
    system = System(["910b3", "910b3"], options=Options(deadlock_patience_s=0.01))
    system.init()
    return system


def kernel(name: str = "add", seconds: float = 1e-3, **more) -> Task:
    return Task(name=name, op_type=name.capitalize(), kind="kernel", core="cube", block_dim=4, duration_s=seconds, **more)


@pytest.mark.parametrize(
    ("calls", "code"),
    [
        (["start"], 100043),
        (["stop"], 100043),
        (["finalize"], 100043),
        (["init", "stop"], 100043),
        (["init", "init"], 100042),
        (["init", "start", "start"], 100042),
        (["init", "start", "stop", "stop"], 100043),
        (["init", "start", "stop", "finalize", "start"], 100043),
    ],
)
def test_calls_out_of_order(system: System, tmp_path: Path, calls: list[str], code: int) -> None:
    profiler = Profiler(system)
    doing = {
        "init": lambda: profiler.init(tmp_path),
        "start": lambda: profiler.start(ProfConfig()),
        "stop": profiler.stop,
        "finalize": profiler.finalize,
    }
    for name in calls[:-1]:
        doing[name]()
    with pytest.raises(AclError) as raised:
        doing[calls[-1]]()
    assert raised.value.code == code


def test_two_ways_of_profiling_exclude_each_other(system: System, tmp_path: Path) -> None:
    profiler = Profiler(system)
    profiler.init(tmp_path)
    with profile(system, style="torch"), pytest.raises(AclError) as raised:
        profiler.start(ProfConfig())
    assert raised.value.code == 148047
    profiler.start(profiler.create_config())
    with pytest.raises(AclError, match="records already") as raised, profile(system):
        pass
    assert raised.value.code == 100042
    profiler.finalize()
    assert len(system.listeners) == 1  # the system's own


def test_rows_say_when_a_task_ran_and_what_it_waited_for(system: System) -> None:
    context = system.set_device(0)
    first, second = context.create_stream(), context.create_stream()
    with profile(system) as found:
        first.submit(Task(name="all", kind="kernel", core="cube", block_dim=20, duration_s=1e-3))
        second.submit(Task(name="none left", kind="kernel", core="cube", block_dim=1, duration_s=1e-3))
        first.submit(Task(name="next", kind="kernel", core="cube", block_dim=1, duration_s=2e-3))
    rows = {row.name: row for row in found.rows}
    assert [row.name for row in found.rows] == ["all", "none left", "next"]
    assert rows["none left"].wait_s == pytest.approx(1e-3, abs=1e-5)
    assert rows["none left"].start_s == rows["all"].end_s == rows["next"].start_s
    assert rows["next"].gap_s == 0.0 and rows["next"].duration_s == pytest.approx(2e-3)
    assert rows["all"].site.rpartition(":")[0].endswith(Path(__file__).name)
    assert not found.unfinished


def test_the_end_of_the_block_waits_for_the_device(system: System) -> None:
    stream = system.set_device(0).default_stream
    with profile(system) as found:
        stream.submit(kernel(seconds=5.0))
    assert found.rows[0].duration_s == 5.0 and system.host_now_s >= 5.0
    stream.submit(kernel("later"))
    stream.synchronize()
    assert [row.name for row in found.rows] == ["add"]


def test_nothing_is_lost_when_the_program_fails(system: System, tmp_path: Path) -> None:
    stream = system.set_device(0).default_stream

    def fail() -> None:
        raise ValueError("numerics went wrong")

    def program() -> None:
        with profile(system, tmp_path) as found:
            seen.append(found)
            stream.submit(kernel("good"))
            stream.submit(kernel("bad", run=fail))
            stream.submit(kernel("after"))
            stream.synchronize()

    seen: list[Profile] = []
    with pytest.raises(AclError, match="numerics went wrong"):
        program()
    assert [(row.name, bool(row.error)) for row in seen[0].rows] == [("good", False), ("bad", True), ("after", False)]
    [summary] = tmp_path.rglob("op_summary_*.csv")
    assert len(summary.read_text().splitlines()) == 1 + 3
    assert "failed: bad of stream" in str(seen[0]) and "numerics went wrong" in str(seen[0])


def test_a_deadlock_leaves_what_has_run(system: System, tmp_path: Path) -> None:
    context = system.set_device(0)
    never = context.create_event(classic=True)

    def program() -> None:
        with profile(system, tmp_path) as found:
            seen.append(found)
            context.default_stream.submit(kernel())
            context.default_stream.wait_event(never)
            context.default_stream.synchronize()

    seen: list[Profile] = []
    with pytest.raises(AclError, match="deadlock"):
        program()
    assert [row.name for row in seen[0].rows] == ["add"] and seen[0].unfinished == 1
    assert list(tmp_path.rglob("task_time_*.csv"))


def test_dropped_tasks_are_counted(system: System) -> None:
    context = system.set_device(0)
    with profile(system) as found:
        context.default_stream.submit(kernel(seconds=1.0))
        context.default_stream.submit(kernel())
        context.default_stream.submit(kernel())
        context.default_stream.abort()
    assert len(found.rows) == 1 and found.dropped == 2


def test_only_what_was_asked_for(system: System) -> None:
    def program(config: ProfConfig) -> Profile:
        with profile(system, config=config) as found:
            for device in (0, 1):
                stream = system.set_device(device).default_stream
                system.device(device).memory.malloc(1000)
                stream.submit(kernel())
        return found

    one = program(ProfConfig(devices=(1,), data=DataType.TASK_TIME))
    assert [row.device_id for row in one.rows] == [1] and not one.memory and not one.apis
    memory = program(ProfConfig(data=DataType.TASK_MEMORY | DataType.ACL_API, metrics=AicoreMetrics.NONE))
    assert not memory.rows and [event.device_id for event in memory.memory] == [0, 1] and memory.apis
    with pytest.raises(AclError, match="device 7"):
        Profiler(system).create_config([7])


def test_memory_is_followed_and_let_go(system: System) -> None:
    context, memory = system.set_device(0), system.device(0).memory
    before = memory.malloc(100)
    with profile(system) as found:
        address = memory.malloc(5000)
        context.default_stream.submit(kernel())
        context.default_stream.synchronize()
        memory.free(address)
        memory.free(before)
    memory.free(memory.malloc(10))
    assert [(event.bytes, event.allocated) for event in found.memory] == [(5000, 5100), (-5000, 100), (-100, 0)]
    assert found.memory[1].at_s - found.memory[0].at_s >= 1e-3
    assert "malloc" not in vars(memory) and "wait_for" not in vars(system)


def test_statistics_add_up(system: System) -> None:
    stream = system.set_device(0).default_stream
    with profile(system) as found:
        for name, seconds in (("add", 1e-3), ("mul", 5e-3), ("add", 2e-3)):
            stream.submit(kernel(name, seconds))
    [first, second] = found.statistics()
    assert (first.op_type, first.calls, first.share) == ("Mul", 1, pytest.approx(5 / 8))
    assert (second.total_s, second.min_s, second.max_s) == (pytest.approx(3e-3), pytest.approx(1e-3), pytest.approx(2e-3))
    assert "Mul" in str(found) and "62.5%" in str(found)


def test_computing_hides_communication() -> None:
    computing, talking = union([(0, 4), (6, 8)]), union([(3, 7), (9, 10)])
    exposed = without(talking, computing)
    assert exposed == [(4, 6), (9, 10)]
    assert length(talking) - length(exposed) == 2
    assert without([(0, 5), (6, 9)], [(1, 2), (4, 7), (8, 20)]) == [(0, 1), (2, 4), (7, 8)]
    assert without([(0, 1)], []) == [(0, 1)]
