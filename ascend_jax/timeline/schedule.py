"""``program``: the step of a kernel's graph with the slots and the preload of a tiling.

Order of issue, waits and slots are static: every wait is for a fixed number of tiles or tasks ago. Each stage is given the
number of steps that it is behind, so that nothing waits for a later step, or for something later in the same step (a
retiming: Leiserson and Saxe, *Retiming synchronous circuitry*, 1991). There is one, unless the kernel would wait for itself.
"""

from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from ascend_jax.kernels.kernel import Flow, Graph, Stage
from ascend_jax.timeline.program import Depths, Moment, Node, Program, Stuck, Wait

DISPATCH = "dispatch"
"""The scalar work to begin a task: each queue waits for it before it issues the task's first stage, since the scalar unit that
fills the queues has to work out the task's addresses first."""
LARGEST_GROUP = 7
"""Tiles of a group that a step's code has room for."""


@cache
def program(graph: Graph, depths: Depths) -> Program:
    """The step of ``graph`` with ``depths``.

    Raises:
      Stuck: the kernel would wait for itself.
      ValueError: a wait between a task's opening and its end that no kernel has had so far, or a group of more than seven.
    """
    return _Builder(graph, depths).build()


def dispatches(graph: Graph) -> tuple[Stage, ...]:
    """The scalar work before a task, once for each queue of ``graph``."""
    pipes = {graph.queue(stage): stage.pipe for stage in graph.stages}
    return tuple(Stage(f"{DISPATCH} {queue}", pipe, per_row=True, opens=True) for queue, pipe in pipes.items())


def is_dispatch(name: str) -> bool:
    """Whether a stage of a program is scalar work rather than one of the kernel's."""
    return name.startswith(f"{DISPATCH} ")


Spot = tuple[str, int]
"""A stage, and a place in its group."""


class _Asked(NamedTuple):
    """A wait before retiming: for ``source``'s moment of ``tokens`` steps ago."""

    moment: Moment
    source: Spot
    tokens: int
    tile_back: int = 0
    """In a group, tiles before the step's first one; 0 for a tile of the step itself."""
    tasks: int = 0
    latest: bool = False


class _Builder:
    """Waits and order of the nodes of one step."""

    def __init__(self, graph: Graph, depths: Depths) -> None:
        if graph.group > LARGEST_GROUP:
            raise ValueError(f"a group of {graph.group} tiles: give at most {LARGEST_GROUP}")
        self.stages = graph.stages
        self.graph = Graph((*dispatches(graph), *graph.stages), graph.flows, graph.joined, graph.group)
        self.slots = dict(depths.slots)
        self.alternating = depths.alternating
        self.preload = depths.preload if any(stage.late for stage in graph.stages) else 0
        self.asked: dict[Spot, list[_Asked]] = {(s.name, place): [] for s in self.graph.stages for place in self._places(s)}

    def build(self) -> Program:
        for flow in self.graph.flows:
            self._ask_input(flow)
            if flow.buffer is not None:
                self._ask_slot(flow, self.slots[flow.buffer])
            if flow.buffer in self.alternating:
                self._ask_tile(flow.producer, Moment(flow.producer, "pace", flow.buffer), 1)
        self._ask_tile(self.graph.first_load, Moment(self.graph.first_load, "share"), 1)
        return self._program(*_retimed(self.graph.group, list(self.asked), list(self._orders())))

    def _program(self, behind: dict[Spot, int], order: list[Spot]) -> Program:
        waits = {spot: self._waits(spot, behind) for spot in order}
        remembered: dict[Moment, int] = {}
        for wait in (wait for found in waits.values() for wait in found if wait.back > 0):
            remembered[wait.moment] = max(remembered.get(wait.moment, 0), wait.back)
        followed = {flow.producer for flow in self.graph.flows}
        ends = [flow.producer for flow in self.graph.row_flows if not self.graph.stage(flow.producer).per_row]
        return Program(
            nodes=tuple(self._node(spot, behind[spot], waits[spot]) for spot in order),
            queues=tuple(dict.fromkeys(self.graph.queue(stage) for stage in self.graph.stages)),
            moments=tuple(sorted(remembered.items())),
            sinks=tuple(Moment(stage.name, "done") for stage in self.stages if stage.name not in followed),
            group=self.graph.group,
            drain=max(behind.values()),
            reference=(ends or [self.graph.tile_stages[-1].name])[-1],
            tile_slots=tuple(sorted({self.slots[flow.buffer] for flow in self.graph.tile_flows if flow.buffer is not None})),
            task_slots=tuple(sorted({self.slots[flow.buffer] for flow in self.graph.row_flows if flow.buffer is not None})),
        )

    def _node(self, spot: Spot, behind: int, waits: tuple[Wait, ...]) -> Node:
        stage = self.graph.stage(spot[0])
        when = ("open" if stage.opens else "close") if stage.per_row else "tile"
        when = "begin" if is_dispatch(stage.name) else when
        return Node(stage.name, self.graph.queue(stage), when, behind, spot[1], waits)

    def _places(self, stage: Stage) -> range:
        return range(1 if stage.per_row else self.graph.group)

    def _late(self, stage: Stage) -> int:
        """Steps that ``stage`` is behind the first stages of its queue."""
        return self.preload if stage.late or (stage.per_row and not stage.opens) else 0

    def _ask_input(self, flow: Flow) -> None:
        producer, consumer = self.graph.stage(flow.producer), self.graph.stage(flow.consumer)
        moment = _ready(self.graph, flow)
        if not producer.per_row and not consumer.per_row:
            self._ask_tile(consumer.name, moment, flow.lag)
        elif consumer.opens and not producer.opens:
            raise ValueError(f"{flow}: a stage that opens a task cannot wait for its tiles")
        elif producer.per_row and (producer.opens != consumer.opens) and (not producer.opens or consumer.per_row):
            raise ValueError(f"{flow}: what begins a task and what ends it may wait for each other through tiles only")
        else:  # of the tile that both go with; at the end of a group the last one that there is
            self.asked[consumer.name, 0] += [_Asked(moment, (producer.name, at), 0) for at in self._places(producer)]

    def _ask_slot(self, flow: Flow, slots: int) -> None:
        producer, consumer = self.graph.stage(flow.producer), self.graph.stage(flow.consumer)
        if producer.per_row or consumer.per_row:
            self._ask_task(producer, _free(flow), slots)
        else:
            self._ask_tile(producer.name, _free(flow), slots)

    def _ask_tile(self, name: str, moment: Moment, back: int) -> None:
        """Each tile of the stage ``name`` waits for ``moment`` of the tile ``back`` before."""
        for place in range(self.graph.group):
            if self.graph.group == 1:
                asked = _Asked(moment, (moment.stage, 0), back)
            elif back <= place:
                asked = _Asked(moment, (moment.stage, place - back), 0)
            else:
                asked = _Asked(moment, (moment.stage, self.graph.group - 1), 1, back - place)
            self.asked[name, place].append(asked)

    def _ask_task(self, stage: Stage, moment: Moment, tasks: int) -> None:
        """Each task of ``stage`` waits for ``moment`` of the task ``tasks`` before."""
        source = self.graph.stage(moment.stage)
        spot = (source.name, self._places(source)[-1])
        self.asked[stage.name, 0].append(_Asked(moment, spot, 1, 1, tasks, source.per_row and source.opens))

    def _orders(self) -> Iterator[tuple[Spot, Spot, int]]:
        """What must come before what, and how many steps ago at the latest: order of each queue, and all waits."""
        tiles = self.graph.issue_order(self.graph.group)
        for queue in dict.fromkeys(self.graph.queue(stage) for stage in self.graph.stages):
            rows = [stage for stage in self.graph.row_stages if self.graph.queue(stage) == queue]
            opening, closing = ([(stage.name, 0) for stage in rows if stage.opens == opens] for opens in (True, False))
            issued = [*opening, *tiles.get(queue, ()), *closing]
            for one, other in pairwise([*issued, issued[0]]):
                ahead = self._late(self.graph.stage(one[0])) - self._late(self.graph.stage(other[0]))
                yield one, other, ahead + (other == issued[0])
        for spot, found in self.asked.items():
            for asked in found:
                yield asked.source, spot, asked.tokens

    def _waits(self, spot: Spot, behind: dict[Spot, int]) -> tuple[Wait, ...]:
        found = []
        for asked in self.asked[spot]:
            back = behind[spot] + asked.tokens - behind[asked.source]
            if self.graph.group > 1 and not self.graph.stage(asked.source[0]).per_row:
                back = asked.tile_back
            found.append(Wait(asked.moment, back, asked.source[1] if back == 0 else 0, asked.tasks, asked.latest))
        return tuple(dict.fromkeys(found))


def _ready(graph: Graph, flow: Flow) -> Moment:
    if flow.chunked and flow.buffer is not None:
        return Moment(flow.producer, "lead", flow.buffer, int(flow.handoff))
    return Moment(flow.producer, "done" if graph.stage(flow.producer).gm else "stage", flags=int(flow.handoff))


def _free(flow: Flow) -> Moment:
    if flow.chunked and flow.buffer is not None:
        return Moment(flow.consumer, "release", flow.buffer, int(flow.handoff))
    return Moment(flow.consumer, "stage", flags=int(flow.handoff))


def _retimed(group: int, spots: list[Spot], orders: list[tuple[Spot, Spot, int]]) -> tuple[dict[Spot, int], list[Spot]]:
    """Steps that each spot is behind, as few as can be, and an order within a step that every wait agrees with.

    The longest path to each spot, where one on the way counts for a little and each step ago takes one whole.
    """
    whole = len(spots) + 1
    found = dict.fromkeys(spots, 0)
    for _ in range(len(spots) + 1):
        changed = False
        for before, after, tokens in orders:
            least = found[before] + 1 - tokens * whole
            if before != after and least > found[after]:
                found[after], changed = least, True
        if not changed:
            break
    else:
        raise Stuck("the kernel would wait for itself: give its buffers more slots, or less preload")
    behind = {spot: value // whole for spot, value in found.items()}
    if group > 1 and any(behind.values()):
        raise Stuck(f"groups of {group} tiles need more slots than the kernel's buffers have")
    return behind, sorted(spots, key=lambda spot: found[spot] % whole)
