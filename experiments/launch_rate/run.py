"""What a simulated task costs the host, without numerics.

``python experiments/launch_rate/run.py [--tasks N] [--json FILE|-]``
"""

import json
import time
from collections.abc import Callable
from typing import TextIO

import click

from ascend_jax.runtime.context import Context
from ascend_jax.runtime.engine.task import Task
from ascend_jax.runtime.ops.phases import Operators
from ascend_jax.runtime.ops.tensor import Tensor
from ascend_jax.runtime.system import Options, System

Program = Callable[[Context, int], None]


def one_stream(context: Context, tasks: int) -> None:
    """Kernels one behind the other."""
    for _ in range(tasks):
        context.default_stream.submit(Task(name="kernel", kind="kernel", duration_s=1e-6, block_dim=20, core="cube"))


def four_streams(context: Context, tasks: int) -> None:
    """Kernels of half the chip on four streams, each with a tensor that the hazard checker watches."""
    streams = [context.create_stream() for _ in range(4)]
    spans = [(context.system.memory.malloc(4096), 4096) for _ in streams]
    for number in range(tasks):
        stream, span = streams[number % 4], spans[number % 4]
        task = Task(name="kernel", kind="kernel", duration_s=1e-6, block_dim=10, core="cube", reads=(span,), writes=(span,))
        stream.submit(task)


def events(context: Context, tasks: int) -> None:
    """Two streams that hand over to each other by events: every third task is a kernel."""
    streams, event = [context.create_stream() for _ in range(2)], context.create_event()
    for number in range(tasks // 3):
        here, there = streams[number % 2], streams[(number + 1) % 2]
        here.submit(Task(name="kernel", kind="kernel", duration_s=1e-6, block_dim=20, core="cube"))
        event.record(here)
        there.wait_event(event)


def two_phases(context: Context, tasks: int) -> None:
    """The same Add called in two phases each time."""
    operators, memory = Operators(context.system), context.system.memory
    x, y = (Tensor(memory.malloc(4096), (1024,), "float32") for _ in range(2))
    for _ in range(tasks):
        size, executor = operators.get_workspace_size("Add", [x, x], {"alpha": 1.0}, [y])
        operators.execute(0, size, executor, context.default_stream)


PROGRAMS: dict[str, Program] = {
    "one stream": one_stream,
    "four streams": four_streams,
    "events": events,
    "two phases": two_phases,
}


def measure(program: Program, tasks: int) -> dict[str, float]:
    """Seconds of the host, all of it and per task, and the virtual time that passed."""
    with System(["910b3"], options=Options(timing_only=True)) as system:
        context = system.set_device(0)
        began, wall = time.process_time(), time.perf_counter()
        program(context, tasks)
        context.synchronize()
        seconds, wall_s = time.process_time() - began, time.perf_counter() - wall
        return {
            "tasks": tasks,
            "cpu_s": seconds,
            "wall_s": wall_s,
            "us_per_task": seconds / tasks * 1e6,
            "virtual_s": system.host_now_s,
        }


@click.command()
@click.option("--tasks", type=click.IntRange(min=3), default=100_000, show_default=True, help="Tasks of each program.")
@click.option("--json", "json_file", type=click.File("w", lazy=True, atomic=True), help="File for the JSON, or - for stdout.")
def main(tasks: int, json_file: TextIO | None) -> None:
    """Launch many tasks and tell what one costs."""
    found = {name: measure(program, tasks) for name, program in PROGRAMS.items()}
    if json_file is not None:
        json.dump(found, json_file, indent=1)
        return
    for name, figures in found.items():
        click.echo(f"{name:13} {figures['cpu_s']:6.2f} s for {tasks} tasks, {figures['us_per_task']:5.1f} us each")


if __name__ == "__main__":
    main()
