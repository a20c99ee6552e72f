"""``Program``: one step of a core, as a list of starts in an order in which each can be computed from those before.

A kernel's graph says in which order each queue issues its stages, what each waits for, and which slots it needs. With the
slots and the preload of a tiling that is static: every wait is for something in the same step or a fixed number of tiles
(or tasks) ago.
"""

from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from math import lcm
from typing import NamedTuple

from ascend_jax.kernels.kernel import Flow, Graph, Stage

DISPATCH = Stage("dispatch", "Scalar", per_row=True, opens=True)
"""The scalar work to begin a task: it delays what opens the task, and runs beside the end of the task before."""
FIRST_MATMUL = "mm_qk"
"""When a task's last one has been issued, the scalar unit turns to the next task."""
LARGEST_GROUP = 7
"""Tiles of a group that a step's code has room for."""


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
    """A moment of the tile (or, ``by_task``, of the task) ``back`` before; 0 and less are of this step: place ``-back``."""

    moment: Moment
    back: int
    by_task: bool = False


class Node(NamedTuple):
    """One start in a step: ``stage`` on the tile in ``place`` of the step's group, once what it waits for has come."""

    stage: str
    queue: str
    when: str
    """``tile``, or for row stages ``open`` or ``close``: before the task's first tile or after its last."""
    late: bool
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
      tiles: moments of tile stages, and of how many tiles each is remembered.
      tasks: moments of row stages, and of tile stages on a task's last tile, and of how many tasks each is remembered.
      sinks: moments that nothing waits for: the last of them is the end.
      group: tiles of a step.
      preload: tiles that late stages are behind.
      reference: the tile stage that ends a tile, by which periods are measured.
      period: tiles after which a steady state repeats for sure: the least common multiple of the slots.
    """

    nodes: tuple[Node, ...]
    queues: tuple[str, ...]
    tiles: tuple[tuple[Moment, int], ...]
    tasks: tuple[tuple[Moment, int], ...]
    sinks: tuple[Moment, ...]
    group: int
    preload: int
    reference: str
    period: int


class Stuck(ValueError):
    """The kernel would wait for itself: it runs further ahead than its slots hold."""


@cache
def program(graph: Graph, depths: Depths) -> Program:
    """The step of ``graph`` with ``depths``.

    Raises:
      Stuck: the kernel would wait for itself.
      ValueError: a wait between a task's opening and its end that no kernel has had so far, or a group of more than seven.
    """
    return _Builder(graph, depths).build()


def _ready(graph: Graph, flow: Flow) -> Moment:
    if flow.chunked and flow.buffer is not None:
        return Moment(flow.producer, "lead", flow.buffer, int(flow.handoff))
    return Moment(flow.producer, "done" if graph.stage(flow.producer).gm else "stage", flags=int(flow.handoff))


def _free(flow: Flow) -> Moment:
    if flow.chunked and flow.buffer is not None:
        return Moment(flow.consumer, "release", flow.buffer, int(flow.handoff))
    return Moment(flow.consumer, "stage", flags=int(flow.handoff))


class _Builder:
    """Waits and order of the nodes of one step."""

    def __init__(self, graph: Graph, depths: Depths) -> None:
        if graph.group > LARGEST_GROUP:
            raise ValueError(f"a group of {graph.group} tiles: give at most {LARGEST_GROUP}")
        openers = [stage.name for stage in graph.row_stages if stage.opens] or [FIRST_MATMUL]
        flows = (*graph.flows, *(Flow(DISPATCH.name, name) for name in openers))
        self.graph = Graph((DISPATCH, *graph.stages), flows, graph.joined, graph.group)
        self.slots = dict(depths.slots)
        self.alternating = depths.alternating
        self.preload = depths.preload if any(stage.late for stage in graph.stages) else 0
        self.waits: dict[tuple[str, int], list[Wait]] = {
            (s.name, place): [] for s in self.graph.stages for place in self._places(s)
        }

    def build(self) -> Program:
        for flow in self.graph.flows:
            self._inputs(flow)
            if flow.buffer is not None:
                self._free_slots(flow, self.slots[flow.buffer])
            if flow.buffer in self.alternating:
                self._in_turn(flow.producer, Moment(flow.producer, "pace", flow.buffer))
        first_load = next(stage.name for stage in self.graph.tile_stages if stage.gm and not stage.late)
        self._in_turn(first_load, Moment(first_load, "share"))
        self.waits[DISPATCH.name, 0].append(Wait(Moment(FIRST_MATMUL, "start"), 1, by_task=True))
        order = self._order()
        producers = {flow.producer for flow in self.graph.flows}
        ends = [flow.producer for flow in self.graph.row_flows if not self.graph.stage(flow.producer).per_row]
        slots = [self.slots[flow.buffer] for flow in self.graph.tile_flows if flow.buffer is not None]
        return Program(
            nodes=tuple(self._node(*at) for at in order),
            queues=tuple(dict.fromkeys(self.graph.queue(stage) for stage in self.graph.stages)),
            tiles=self._remembered(by_task=False),
            tasks=self._remembered(by_task=True),
            sinks=tuple(Moment(s.name, "done") for s in self.graph.stages if s.name not in producers),
            group=self.graph.group,
            preload=self.preload,
            reference=(ends or [self.graph.tile_stages[-1].name])[-1],
            period=lcm(*slots),
        )

    def _places(self, stage: Stage) -> range:
        return range(1 if stage.per_row else self.graph.group)

    def _behind(self, stage: Stage) -> int:
        """Steps that ``stage`` is behind the first stages of a tile or task."""
        return self.preload if stage.late or (stage.per_row and not stage.opens) else 0

    def _inputs(self, flow: Flow) -> None:
        producer, consumer = self.graph.stage(flow.producer), self.graph.stage(flow.consumer)
        moment, behind = _ready(self.graph, flow), self._behind(consumer) - self._behind(producer)
        if producer.per_row:
            if behind or producer.opens != (consumer.opens or not consumer.per_row):
                raise ValueError(f"{flow}: only stages that open a task may wait for one that does, or tiles at the same step")
            self.waits[consumer.name, 0].append(Wait(moment, 0, by_task=True))
        elif consumer.per_row:
            if consumer.opens:
                raise ValueError(f"{flow}: a stage that opens a task cannot wait for its tiles")
            self.waits[consumer.name, 0] += [Wait(moment, behind - place) for place in self._places(producer)]
        else:
            self._of_tile(flow, moment, behind + flow.lag)

    def _free_slots(self, flow: Flow, slots: int) -> None:
        producer, consumer = self.graph.stage(flow.producer), self.graph.stage(flow.consumer)
        moment, behind = _free(flow), self._behind(producer) - self._behind(consumer)
        if not producer.per_row and not consumer.per_row:
            self._of_tile(Flow(consumer.name, producer.name), moment, behind + slots)
        elif behind:
            raise ValueError(f"{flow}: a slot that a task holds must be filled and freed by stages of one step")
        else:
            self.waits[producer.name, 0].append(Wait(moment, slots, by_task=True))

    def _of_tile(self, flow: Flow, moment: Moment, back: int) -> None:
        """``flow.consumer`` waits for ``moment`` of the tile that lies ``back`` steps or, in a group, places before."""
        if back < 0:
            raise Stuck(f"{flow.consumer} of a tile would wait for {flow.producer} of a later step: preload exceeds the slots")
        for place in range(self.graph.group):
            self.waits[flow.consumer, place].append(Wait(moment, back - place))

    def _in_turn(self, name: str, moment: Moment) -> None:
        self._of_tile(Flow(name, name), moment, 1)

    def _order(self) -> list[tuple[str, int]]:
        """Nodes so that each comes after those of its step that it waits for, and after those before it in its queue."""
        sorter = TopologicalSorter({at: () for at in self.waits})
        for queue in {self.graph.queue(stage): None for stage in self.graph.stages}:
            mine = [stage for stage in self.graph.stages if self.graph.queue(stage) == queue]
            mine.sort(key=lambda stage: (not stage.opens, stage.per_row))  # those that open, tiles, those that close
            issued = [(stage.name, place) for stage in mine for place in self._places(stage)]
            for before, after in pairwise(issued):
                sorter.add(after, before)
        for at, waits in self.waits.items():
            for wait in waits:
                if wait.back <= 0:
                    sorter.add(at, (wait.moment.stage, 0 if wait.by_task else -wait.back))
        try:
            return list(sorter.static_order())
        except CycleError as error:
            waiting = ", ".join(dict.fromkeys(name for name, _ in error.args[1]))
            raise Stuck(f"these stages would wait for each other: {waiting}; give their buffers more slots") from None

    def _node(self, name: str, place: int) -> Node:
        stage = self.graph.stage(name)
        when = ("open" if stage.opens else "close") if stage.per_row else "tile"
        waits = tuple(dict.fromkeys(self.waits[name, place]))
        return Node(name, self.graph.queue(stage), when, self._behind(stage) > 0, place, waits)

    def _remembered(self, by_task: bool) -> tuple[tuple[Moment, int], ...]:
        depth: dict[Moment, int] = {}
        for waits in self.waits.values():
            for wait in waits:
                if wait.by_task == by_task and wait.back > 0:
                    depth[wait.moment] = max(depth.get(wait.moment, 0), wait.back)
        return tuple(sorted(depth.items()))
