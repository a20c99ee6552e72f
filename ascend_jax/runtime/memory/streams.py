"""What pools and the caching allocator ask of a stream, and the marks that they leave in one."""

from dataclasses import dataclass
from typing import Protocol

from ascend_jax.runtime.engine.task import Task
from ascend_jax.runtime.hazards import Actor


class StreamLike(Protocol):
    """A stream, as memory sees it."""

    stream_id: int
    tail: Task | None
    actor: Actor

    def submit(self, task: Task) -> Task:
        """Append ``task``."""
        ...


@dataclass(frozen=True)
class Mark:
    """A point of a stream: all that was submitted to it before.

    Attributes:
      actor_id, number: the stream's clock at the point.
      task: its last task then, None when it had none.
    """

    actor_id: int
    number: int
    task: Task | None

    @property
    def passed(self) -> bool:
        """Whether virtual time has passed the point."""
        return self.task is None or self.task.done

    def precedes(self, stream: StreamLike) -> bool:
        """Whether what ``stream`` does next comes after the point, by the program's events."""
        actor = stream.actor
        if self.task is None or actor.actor_id == self.actor_id:
            return True
        return actor.clock.get(self.actor_id, 0) >= self.number > 0


def mark(stream: StreamLike) -> Mark:
    """The present point of ``stream``."""
    return Mark(stream.actor.actor_id, stream.actor.number, stream.tail)
