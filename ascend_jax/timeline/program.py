"""``Program``: one step of a core, as a list of starts in an order in which each can be computed from those before."""

from dataclasses import dataclass
from typing import NamedTuple


class Moment(NamedTuple):
    """A point in the life of a stage that others wait for: its start and ``kind``, and ``flags`` hand-offs.

    ``kind`` is ``start``, ``stage`` (the pipe is free), ``done`` (the result is visible), ``lead`` or ``release`` (of the
    pieces in ``buffer``), ``pace`` (a piece's turn in the only slot of ``buffer``) or ``share`` (of GM and L2).
    """

    stage: str
    kind: str
    buffer: str = ""
    flags: int = 0


class Wait(NamedTuple):
    """A node waits for ``moment``.

    Attributes:
      moment: of a tile stage, or of a row stage, which has one only in the steps in which it runs.
      back: steps ago; in a group, tiles ago.
      place: if ``back`` is 0, the place in the group.
      tasks: if not 0, the node's task waits for the moment of that many tasks ago, and ``back`` says when the one of the
        last task came.
      latest: whether that was at any time since the task before, not just at the end.
    """

    moment: Moment
    back: int
    place: int = 0
    tasks: int = 0
    latest: bool = False


class Node(NamedTuple):
    """One start in a step: ``stage`` on the tile in ``place`` of the group that began ``behind`` steps ago."""

    stage: str
    queue: str
    when: str
    """``tile``, or for row stages ``open`` or ``close``: with the task's first tile or with its last; ``begin`` for the scalar
    work before what opens a task."""
    behind: int
    place: int
    waits: tuple[Wait, ...]


@dataclass(frozen=True)
class Depths:
    """The static part of a tiling's numbers.

    Attributes:
      slots: per buffer, tiles (or tasks) that it holds; of a chunked flow the whole tiles that its pieces' slots reach over.
      preload: tiles that late stages are behind.
      alternating: buffers of chunked flows with one slot for several pieces: they are produced and consumed in turn.
    """

    slots: tuple[tuple[str, int], ...]
    preload: int
    alternating: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Program:
    """A step, and what has to be remembered from step to step.

    Attributes:
      nodes: starts, in an order in which they can be computed.
      queues: what issues in order.
      moments: of which moments how many steps (in groups: tiles) are remembered.
      sinks: moments that nothing waits for: the last of them is the end.
      group: tiles of a step.
      drain: steps that the last stage is behind.
      reference: the tile stage that ends a tile, by which periods are measured.
      tile_slots, task_slots: slots of buffers for tiles, and for tasks. What repeats, repeats after a common multiple.
    """

    nodes: tuple[Node, ...]
    queues: tuple[str, ...]
    moments: tuple[tuple[Moment, int], ...]
    sinks: tuple[Moment, ...]
    group: int
    drain: int
    reference: str
    tile_slots: tuple[int, ...]
    task_slots: tuple[int, ...]

    @property
    def held(self) -> tuple[tuple[Node, Wait], ...]:
        """Waits for several tasks ago: what each task left is remembered by the node that waits."""
        return tuple((node, wait) for node in self.nodes for wait in node.waits if wait.tasks > 1 or wait.latest)

    def node(self, stage: str) -> Node:
        """The first node of ``stage``."""
        return next(node for node in self.nodes if node.stage == stage)


class Stuck(ValueError):
    """The kernel would wait for itself: it runs further ahead than its slots hold."""
