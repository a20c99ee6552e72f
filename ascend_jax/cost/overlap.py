"""How far the stages of successive tiles overlap: serial, roofline or pipelined. One signature, three answers.

Always roofline ≤ pipelined ≤ serial.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from graphlib import TopologicalSorter
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from ascend_jax._largest import largest, largest_ratio
from ascend_jax._pytree import Leaf
from ascend_jax.cost.grouped import Waits, group_period
from ascend_jax.cost.loops import Edge, Loop, Term, Tokens, done, edges, loops
from ascend_jax.cost.stages import StageCosts
from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.kernels.kernel import Graph
from ascend_jax.rounding import Rounding


class Steady(NamedTuple):
    """What bounds the pace of the tiles, before the slots and the preload of a tiling are known (rank 0 each).

    Attributes:
      limits_s: seconds a tile that each limit alone takes, by name; whatever the slots.
      loops_s: time around the loops of each group of ``loops(graph)``; empty where the model has none.
      held: tiles that the slots of each chunked flow hold.
      latency_s: of a lone tile with its task's load of Q and store of O.
      tasks_s: how long a task of one tile holds its slot, by the buffer; empty where the model has no slots.
      serial_s: seconds a tile if nothing overlapped; no schedule takes longer.
      room: 1; less where pipes that one queue issues hand over more pieces of a tile than slots hold: it waits for itself.
      grouped: seconds of every term, for a graph that issues tiles in groups; empty for others, which have loops.
      flag_s: a hand-off between cores.
    """

    limits_s: dict[str, Array]
    loops_s: tuple[Array, ...]
    held: dict[str, Array]
    latency_s: Array
    tasks_s: dict[str, Array]
    serial_s: Array
    flag_s: Array
    room: Array
    grouped: dict[Term, Array]


class Tile(NamedTuple):
    """Everything that an overlap model is told about an average tile."""

    spec: NpuSpec
    graph: Graph
    costs: StageCosts
    chunk_slots: dict[str, Array]
    """Slots, per chunked flow's buffer."""
    per_task: Array
    """Tiles that share a task's row stages."""
    rounding: Rounding


@dataclass(frozen=True)
class Overlap:
    """A way to combine stage times: what bounds the pace of an average tile."""

    name: str
    steady: Callable[[Tile], Steady]


class Pace(NamedTuple):
    """How tiles follow one another (rank 0 each).

    Attributes:
      period_s: seconds from tile to tile; the largest of the limits.
      limits_s: seconds a tile that each limit allows, by name.
      fewest: tiles under way in the loop with the fewest. A loop with less than one never turns: the kernel would wait for
        itself.
    """

    period_s: Array
    limits_s: dict[str, Array]
    fewest: Array


def pace(graph: Graph, steady: Steady, slots: Mapping[str, Leaf], preload: Leaf) -> Pace:
    """The pace of tiles that ``slots`` and ``preload`` allow."""
    limits = dict(steady.limits_s)
    period, fewest = largest(limits.values()), steady.room
    if steady.grouped:
        waits = Waits(steady.grouped, steady.flag_s, dict(slots) | steady.held)
        limits["order of issue in groups"] = group_period(graph, waits)
        return Pace(largest(limits.values()), limits, fewest)
    if not steady.loops_s:
        return Pace(period, limits, fewest)
    under_way = [_under_way(tokens, steady, slots, preload) for tokens in loops(graph)]
    turned = reduce(jnp.minimum, under_way)
    fewest = jnp.where(steady.room < 1, steady.room, turned) if graph.joined else turned
    turning = [tiles + lax.stop_gradient(jnp.maximum(1 - tiles, 0.0)) for tiles in under_way]
    for tokens, loop_s, tiles in zip(loops(graph), steady.loops_s, turning, strict=True):
        name = _loop_name(loops(graph)[tokens][0], tokens)
        limits[name] = jnp.maximum(limits[name], loop_s / tiles) if name in limits else loop_s / tiles
    return Pace(largest([period, largest_ratio(steady.loops_s, turning)]), limits, fewest)


def _under_way(tokens: Tokens, steady: Steady, slots: Mapping[str, Leaf], preload: Leaf) -> Array:
    held = (steady.held[name] if name in steady.held else slots[name] for name in tokens.slots)
    return sum(held, tokens.steps + tokens.ahead * preload)


def _shared(tile: Tile) -> dict[str, Array]:
    """Seconds a tile of each pipe and of GM with L2, with the task's row stages spread over its tiles."""
    costs, tiles = tile.costs, tile.per_task
    names = list(dict.fromkeys([*costs.busy, *costs.row_busy]))
    zero = jnp.zeros_like(tiles)
    loads = {name: costs.busy.get(name, zero) + costs.row_busy.get(name, zero) / tiles for name in names}
    return loads | {"GM and L2": costs.traffic.seconds(tile.spec) + costs.row_traffic.seconds(tile.spec) / tiles}


def _serial_seconds(tile: Tile) -> tuple[Array, Array]:
    """All stages and flags of a tile with its share of the task's row stages; and of a lone tile with all of them."""
    costs, graph = tile.costs, tile.graph
    flags = 2 * sum(flow.handoff for flow in graph.flows) * tile.spec.handoff_s
    whole = {name: seconds + costs.latency_s[name] for name, seconds in costs.seconds.items()}
    tile_s = sum((whole[stage.name] for stage in graph.tile_stages), flags)
    row_s = sum((whole[stage.name] for stage in graph.row_stages), jnp.zeros_like(tile_s))
    return tile_s + row_s / tile.per_task, tile_s + row_s


def _serial(tile: Tile) -> Steady:
    serial_s, lone_s = _serial_seconds(tile)
    return Steady(
        {"serial execution": serial_s}, (), {}, lone_s, {}, serial_s, tile.spec.handoff_s, jnp.ones_like(serial_s), {}
    )


def _roofline(tile: Tile) -> Steady:
    serial_s, _ = _serial_seconds(tile)
    return Steady(
        _shared(tile), (), {}, jnp.zeros_like(serial_s), {}, serial_s, tile.spec.handoff_s, jnp.ones_like(serial_s), {}
    )


def _pipelined(tile: Tile) -> Steady:
    times, held = _edge_times(tile)
    limits = _shared(tile) | _chunk_limits(tile)
    serial_s, _ = _serial_seconds(tile)
    flag_s, rolling = tile.spec.handoff_s, tile.graph.group == 1
    around = _around_loops(tile.graph, times, flag_s) if rolling else ()
    tasks_s = _task_loops(tile, times)
    share = {Term("share", tile.graph.first_load): tile.costs.traffic.seconds(tile.spec)}
    grouped = {} if rolling else times | share
    return Steady(limits, around, held, _latency(tile, times), tasks_s, serial_s, flag_s, _room(tile), grouped)


def _room(tile: Tile) -> Array:
    """How far the slots between joined pipes hold a whole tile, at most 1."""
    graph = tile.graph
    inside = [
        flow.buffer
        for flow in graph.tile_flows
        if flow.chunked
        and flow.buffer
        and {graph.stage(flow.producer).pipe, graph.stage(flow.consumer).pipe} <= {*graph.joined}
    ]
    ratios = (tile.chunk_slots[buffer] / tile.costs.chunks[buffer] for buffer in inside)
    return reduce(jnp.minimum, ratios, jnp.ones_like(tile.per_task))


def _edge_times(tile: Tile) -> tuple[dict[Term, Array], dict[str, Array]]:
    """Seconds of every term, and the tiles that each chunked flow's slots hold.

    A chunked flow of c pieces lets its consumer start one piece after the producer, though not end before the producer's
    end and one piece: ``max(p/c, p − q (1 − 1/c))`` for durations p, q. With d slots for pieces, ``⌈d/c⌉`` tiles are under
    way, and the producer waits for piece ``⌈d/c⌉ c − d`` of the consumer.
    """
    costs = tile.costs
    times = {Term("stage", name): seconds for name, seconds in costs.seconds.items()}
    times |= {Term("done", name): seconds + costs.latency_s[name] for name, seconds in costs.seconds.items()}
    held = {}
    for flow in tile.graph.tile_flows:
        if not flow.chunked or flow.buffer is None:
            continue
        pieces, depth = costs.chunks[flow.buffer], tile.chunk_slots[flow.buffer]
        produce, consume = costs.seconds[flow.producer], costs.seconds[flow.consumer]
        tiles = tile.rounding.ceil_div(depth, pieces)
        held[flow.buffer] = tiles
        lead = jnp.maximum(produce / pieces, produce - consume * (1 - 1 / pieces))
        times[Term("lead", flow.buffer)] = lead + costs.latency_s[flow.producer]
        times[Term("release", flow.buffer)] = consume * (tiles * pieces - depth + 1) / pieces
    return times, held


def _chunk_limits(tile: Tile) -> dict[str, Array]:
    """Each chunked flow by itself: a piece's slot is held while it is produced and consumed."""
    seconds = tile.costs.seconds
    return {
        f"slots of {flow.buffer}": (seconds[flow.producer] + seconds[flow.consumer]) / tile.chunk_slots[flow.buffer]
        for flow in tile.graph.tile_flows
        if flow.chunked and flow.buffer is not None
    }


def _around_loops(graph: Graph, times: Mapping[Term, Array], flag_s: Array) -> tuple[Array, ...]:
    """The longest time around the loops of each group of :func:`loops`; loops that begin alike share their sums.

    ``lax.add`` traces eight times as fast as ``+``, which tells here, where sums are by the hundred.
    """
    sums: dict[tuple[Term, ...], Array] = {}
    flags_s = {count: count * flag_s for count in {loop.flags for members in loops(graph).values() for loop in members}}

    def total(terms: tuple[Term, ...]) -> Array:
        if terms not in sums:
            *others, last = terms
            sums[terms] = lax.add(total(tuple(others)), times[last]) if others else times[last]
        return sums[terms]

    def around(loop: Loop) -> Array:
        return lax.add(total(loop.terms), flags_s[loop.flags]) if loop.flags else total(loop.terms)

    return tuple(largest(map(around, members)) for members in loops(graph).values())


def _loop_name(loop: Loop, tokens: Tokens) -> str:
    """What a person reads as the limit when a loop sets the pace."""
    if tokens.ahead > 0 and not tokens.slots:
        return "latency from Cube to Vector and back, preload"
    names = [term.name for term in loop.terms if term.kind == "stage"] or [
        f"pieces of {name}" for name in dict.fromkeys(term.name for term in loop.terms)
    ]
    held = f", slots of {', '.join(tokens.slots)}" if tokens.slots else ""
    ahead = ", preload" if tokens.ahead > 0 else ""
    return f"latency of {' + '.join(names)}{held}{ahead}"


def _latency(tile: Tile, times: Mapping[Term, Array]) -> Array:
    """The longest way of a lone tile through the stages, from the load of Q until O is visible in GM.

    Pipes keep their order and chunked flows their lead.
    """
    arrival = _arrivals(tile, times)
    return largest(arrival[stage.name] + times[done(tile.graph, stage.name)] for stage in tile.graph.stages)


def _task_loops(tile: Tile, times: Mapping[Term, Array]) -> dict[str, Array]:
    """Seconds for which a lone tile's task holds its slot, by the buffer of each flow that has slots for tasks."""
    found = {}
    for flow in tile.graph.row_flows:
        if flow.buffer is not None:
            arrival = _arrivals(tile, times, (flow.producer, flow.consumer))
            found[flow.buffer] = arrival[flow.consumer] + times[Term("stage", flow.consumer)]
    return found


def _arrivals(tile: Tile, times: Mapping[Term, Array], between: tuple[str, str] | None = None) -> dict[str, Array]:
    """When the inputs of each stage of a lone tile are there: from the start of the task, or of the stages on the way between
    two, from the start of the first."""
    waits = _lone_waits(tile.graph)
    origin, wanted = (between[0], _before(tile.graph, between[1])) if between else (None, None)
    zero = jnp.zeros_like(tile.per_task)
    start: dict[str, Array] = {}
    for name in _topological(waits):
        if wanted is not None and name not in wanted:
            continue
        found = [
            start[edge.producer] + times[edge.term] + edge.flags * tile.spec.handoff_s
            for edge in waits
            if edge.consumer == name and edge.producer in start
        ]
        if found or origin in (None, name):
            start[name] = largest(found) if found else zero
    return start


@cache
def _lone_waits(graph: Graph) -> tuple[Edge, ...]:
    """Waits within one tile that is alone in its task: inputs, and the order of each queue with the row stages in it."""
    waits = [edge for edge in edges(graph) if not edge.steps and not edge.slot]
    for flow in graph.row_flows:
        waits.append(Edge(flow.producer, flow.consumer, done(graph, flow.producer), flags=int(flow.handoff)))
    for row in graph.row_stages:
        for other in graph.tile_stages:
            if graph.queue(other) == graph.queue(row):
                first, second = (row, other) if row.opens else (other, row)
                waits.append(Edge(first.name, second.name, Term("stage", first.name)))
    return tuple(waits)


@cache
def _before(graph: Graph, name: str) -> frozenset[str]:
    """The stage ``name`` and all that it waits for within a lone tile."""
    found, fresh = set(), {name}
    while fresh:
        found |= fresh
        fresh = {edge.producer for edge in _lone_waits(graph) if edge.consumer in fresh} - found
    return frozenset(found)


def _topological(waits: Sequence[Edge]) -> list[str]:
    """Stages in an order in which every producer comes first."""
    order = TopologicalSorter({name: () for edge in waits for name in (edge.producer, edge.consumer)})
    for edge in waits:
        order.add(edge.consumer, edge.producer)
    return list(order.static_order())


SERIAL = Overlap("serial", _serial)
"""Nothing overlaps: the sum of all stages and flags."""
ROOFLINE = Overlap("roofline", _roofline)
"""Everything overlaps: the busiest pipe, or GM with L2."""
PIPELINED = Overlap("pipelined", _pipelined)
"""What the order of issue and the slots of the buffers allow: the largest loop of the kernel's graph."""
OVERLAPS = {overlap.name: overlap for overlap in (SERIAL, ROOFLINE, PIPELINED)}
