"""Stand-ins for streams in tests of memory: tasks end when the test says so."""

from ascend_jax.runtime.engine.task import Task
from ascend_jax.runtime.hazards import Actor


class StubStream:
    """A stream whose tasks end by ``finish``."""

    def __init__(self, stream_id: int) -> None:
        self.stream_id, self.actor = stream_id, Actor(stream_id)
        self.tail: Task | None = None
        self.tasks: list[Task] = []

    def submit(self, task: Task) -> Task:
        """Append ``task``."""
        self.actor.number += 1
        self.tasks.append(task)
        self.tail = task
        return task

    def work(self) -> Task:
        """Submit a kernel."""
        return self.submit(Task(name="kernel", kind="kernel"))

    def finish(self) -> None:
        """Virtual time passes the end of everything that was submitted."""
        for task in self.tasks:
            task.done = True

    def wait_for(self, other: "StubStream") -> None:
        """An event of ``other``, recorded and waited for now."""
        self.actor.follow(other.actor.stamp())
        self.work()
