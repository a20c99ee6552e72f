"""Random programs, most of them wrong somewhere: whatever a program does, it gets an answer or an error of the table."""

import math
import random
from collections.abc import Callable
from typing import Any

import pytest

from ascend_jax.runtime.engine.task import Rendezvous, Task
from ascend_jax.runtime.errors import AclError
from ascend_jax.runtime.memory.policy import MemMallocPolicy
from ascend_jax.runtime.system import Options, System


class Program:
    """What a random program holds, and what it can do next."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        hazards = self.dice.choice(["warn", "off", "raise"])
        options = Options(host_submit_s=self.dice.choice([0.0, 2e-6]), deadlock_patience_s=0.0, hazards=hazards)
        self.system = System(["910b3", "310p3"], options=options)
        self.system.init()
        self.contexts, self.streams, self.events, self.addresses = [self.system.set_device(0)], [], [], [0, 17]
        self.streams.append(self.contexts[0].default_stream)
        self.refusals = 0

    def pick(self, things: list[Any]) -> Any:
        """Any of them, dead or alive."""
        return self.dice.choice(things)

    def task(self) -> Task:
        """A kernel of any kind, which may touch memory and may fail."""
        span = (self.pick(self.addresses), self.dice.choice([1, 64, 1 << 20]))
        spans = (span,) if self.dice.random() < 0.5 else ()
        return Task(
            name="kernel",
            kind="kernel",
            duration_s=self.dice.choice([0.0, 1e-6, 1e-3]),
            block_dim=self.dice.randrange(64),
            core=self.dice.choice(["cube", "vector", "mix", "none"]),
            run={}.popitem if self.dice.random() < 0.05 else None,
            reads=spans if self.dice.random() < 0.5 else (),
            writes=spans,
        )

    def steps(self) -> list[Callable[[], object]]:
        """Everything that a program can do."""
        system, dice, pick = self.system, self.dice, self.pick
        count = dice.choice([0, 1, 64, 4096, 1 << 22])
        memory = system.memory
        return [
            lambda: self.contexts.append(system.set_device(dice.randrange(-1, 3))),
            lambda: self.contexts.append(system.create_context(dice.randrange(2))),
            lambda: system.set_context(pick(self.contexts)),
            lambda: system.destroy_context(pick(self.contexts)),
            lambda: system.reset_device(dice.randrange(2), force=dice.random() < 0.2),
            lambda: self.streams.append(pick(self.contexts).create_stream(priority=dice.randrange(3))),
            lambda: self.events.append(pick(self.contexts).create_event(classic=dice.random() < 0.3)),
            *[lambda: pick(self.streams).submit(self.task())] * 6,
            lambda: pick(self.streams).submit(Task(name="sum", kind="collective", rendezvous=Rendezvous(dice.randrange(1, 3)))),
            *[lambda: pick(self.events).record(pick(self.streams))] * 2,
            *[lambda: pick(self.streams).wait_event(pick(self.events), dice.choice([0.0, 1e-4]))] * 2,
            lambda: pick(self.events).reset(pick(self.streams)),
            lambda: pick(self.events).query(),
            lambda: pick(self.events).synchronize(dice.choice([-1, 0, 10])),
            lambda: pick(self.events).elapsed_time(pick(self.events)),
            lambda: pick(self.streams).query(),
            *[lambda: pick(self.streams).synchronize(dice.choice([-1, 0, 10]))] * 2,
            lambda: pick(self.streams).abort(),
            lambda: setattr(pick(self.streams), "stop_on_failure", True),
            lambda: pick(self.streams).launch_host_func(dice.choice([list, system.get_device])),
            lambda: pick(self.contexts).destroy_stream(pick(self.streams), force=dice.random() < 0.5),
            lambda: pick(self.contexts).destroy_event(pick(self.events)),
            lambda: pick(self.contexts).synchronize(),
            *[lambda: self.addresses.append(memory.malloc(count, dice.choice([*MemMallocPolicy, 99])))] * 2,
            lambda: self.addresses.append(memory.malloc_host(count)),
            lambda: memory.free(pick(self.addresses)),
            lambda: memory.free_host(pick(self.addresses)),
            lambda: memory.memcpy(pick(self.addresses), count, pick(self.addresses), dice.choice([count, 64])),
            lambda: memory.memcpy_async(pick(self.addresses), count, pick(self.addresses), 64, stream=pick(self.streams)),
            lambda: memory.memset(pick(self.addresses), count, 7, 64),
            lambda: memory.memset_async(pick(self.addresses), 64, 7, 64, stream=pick(self.streams)),
            lambda: memory.enable_peer_access(dice.randrange(3)),
        ]

    def run(self, length: int) -> None:
        """That many random steps, then the end."""
        before = 0.0
        for _ in range(length):
            step = self.dice.choice(self.steps())
            try:
                step()
            except AclError as error:
                assert error.code and error.name and error.remedy is not None
                self.refusals += 1
            except IndexError:
                assert not self.events  # nothing to pick yet
            assert math.isfinite(self.system.host_now_s) and self.system.host_now_s >= before
            before = self.system.host_now_s
        self.system.finalize()
        for device in self.system.devices:
            assert device.cores.free["cube"] == device.cores.total["cube"] or device.cores.waiting or self._stuck()

    def _stuck(self) -> bool:
        return any(queue.tasks for queue in self.system.scheduler.queues.values())


@pytest.mark.parametrize("block", [0, *(pytest.param(block, marks=pytest.mark.slow) for block in range(1, 20))])
def test_whatever_a_program_does_it_gets_an_answer_or_an_error_of_the_table(block: int) -> None:
    refusals = 0
    for seed in range(block * 500, block * 500 + 500):
        program = Program(seed)
        program.run(40)
        refusals += program.refusals
    assert refusals > 500
