"""How far the stages of successive tiles overlap: serial, roofline or pipelined. One signature, three answers.

Always roofline ≤ pipelined ≤ serial.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ascend_jax.cost.loops import Edge, Loop, Term, Tokens, edges, loops
from ascend_jax.cost.stages import StageCosts
from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.kernels.kernel import Graph
from ascend_jax.rounding import Rounding


class Pace(NamedTuple):
    """How tiles follow one another on a core (rank 0 each).

    Attributes:
      period_s: from one tile to the next, row stages spread over the tiles of a task.
      latency_s: of a lone tile with its task's load of Q and store of O.
      bounds: what each limit alone would allow, by name; ``period_s`` is the largest.
      runs: whether every loop has a tile under way (else the kernel waits for itself for ever).
    """

    period_s: Array
    latency_s: Array
    bounds: dict[str, Array]
    runs: Array


@dataclass(frozen=True)
class Overlap:
    """A way to combine stage times into a pace: ``pace(spec, graph, costs, slots, preload, tiles_per_task, rounding)``."""

    name: str
    pace: Callable[..., Pace]


def _shared(spec: NpuSpec, costs: StageCosts, tiles: Array) -> dict[str, Array]:
    """Seconds a tile of each pipe and of GM with L2, with the task's row stages spread over its ``tiles``."""
    names = list(dict.fromkeys([*costs.busy, *costs.row_busy]))
    zero = jnp.zeros_like(tiles)
    loads = {name: costs.busy.get(name, zero) + costs.row_busy.get(name, zero) / tiles for name in names}
    return loads | {"GM and L2": costs.traffic.seconds(spec) + costs.row_traffic.seconds(spec) / tiles}


def _serial(
    spec: NpuSpec, graph: Graph, costs: StageCosts, slots: Mapping[str, Array], preload: Array, tiles: Array, rounding: Rounding
) -> Pace:
    flags = 2 * sum(flow.handoff for flow in graph.flows) * spec.handoff_s
    tile_s = sum((costs.seconds[stage.name] for stage in graph.tile_stages), flags)
    row_s = sum((costs.seconds[stage.name] for stage in graph.row_stages), jnp.zeros_like(tile_s))
    period = tile_s + row_s / tiles
    return Pace(period, tile_s + row_s, {"serial execution": period}, jnp.ones_like(period) > 0)


def _roofline(
    spec: NpuSpec, graph: Graph, costs: StageCosts, slots: Mapping[str, Array], preload: Array, tiles: Array, rounding: Rounding
) -> Pace:
    bounds = _shared(spec, costs, tiles)
    period = reduce(jnp.maximum, bounds.values())
    return Pace(period, period, bounds, jnp.ones_like(period) > 0)


def _pipelined(
    spec: NpuSpec, graph: Graph, costs: StageCosts, slots: Mapping[str, Array], preload: Array, tiles: Array, rounding: Rounding
) -> Pace:
    times, held = _edge_times(graph, costs, slots, rounding)
    bounds = _shared(spec, costs, tiles) | _chunk_bounds(graph, costs, slots)
    around = _around_loops(graph, times, spec.handoff_s)
    fewest = jnp.full_like(preload, jnp.inf)
    for tokens, loop_s in zip(loops(graph), around, strict=True):
        under_way = tokens.steps + tokens.ahead * preload + sum(held[name] for name in tokens.slots)
        fewest = jnp.minimum(fewest, under_way)
        bounds[_loop_name(loops(graph)[tokens][0], tokens)] = loop_s / jnp.maximum(under_way, 1.0)
    period = reduce(jnp.maximum, bounds.values())
    return Pace(period, _latency(spec, graph, costs, times), bounds, fewest >= 1)


def _edge_times(
    graph: Graph, costs: StageCosts, slots: Mapping[str, Array], rounding: Rounding
) -> tuple[dict[Term, Array], dict[str, Array]]:
    """Seconds of every term, and the tiles that each flow's slots hold.

    A chunked flow of c pieces lets its consumer start one piece after the producer, though not end before the producer's
    end and one piece: ``max(p/c, p − q (1 − 1/c))`` for durations p, q. With d slots for pieces, ``⌈d/c⌉`` tiles are under
    way, and the producer waits for piece ``⌈d/c⌉ c − d`` of the consumer.
    """
    times = {Term("stage", name): seconds for name, seconds in costs.seconds.items()}
    held = {}
    for flow in graph.flows:
        if not flow.chunked:
            held[flow.buffer] = slots[flow.buffer]
            continue
        pieces, depth = costs.chunks[flow.buffer], slots[flow.buffer]
        produce, consume = costs.seconds[flow.producer], costs.seconds[flow.consumer]
        tiles = rounding.ceil_div(depth, pieces)
        held[flow.buffer] = tiles
        times[Term("lead", flow.buffer)] = jnp.maximum(produce / pieces, produce - consume * (1 - 1 / pieces))
        times[Term("release", flow.buffer)] = consume * (tiles * pieces - depth + 1) / pieces
    return times, held


def _chunk_bounds(graph: Graph, costs: StageCosts, slots: Mapping[str, Array]) -> dict[str, Array]:
    """Each chunked flow by itself: a piece's slot is held while it is produced and consumed."""
    return {
        f"slots of {flow.buffer}": (costs.seconds[flow.producer] + costs.seconds[flow.consumer]) / slots[flow.buffer]
        for flow in graph.flows
        if flow.chunked
    }


def _around_loops(graph: Graph, times: Mapping[Term, Array], flag_s: Array) -> tuple[Array, ...]:
    """The longest time around the loops of each group of :func:`loops`: one product of a constant 0/1 matrix."""
    terms = list(times)
    groups = list(loops(graph).values())
    most = max(len(members) for members in groups)
    matrix = np.zeros((most, len(groups), len(terms) + 1))
    for column, members in enumerate(groups):
        for row in range(most):
            loop = members[min(row, len(members) - 1)]
            matrix[row, column] = [*(loop.terms.count(term) for term in terms), loop.flags]
    vector = jnp.stack([*times.values(), flag_s])
    around = jnp.max(jnp.dot(jnp.asarray(matrix, vector.dtype), vector), axis=0)
    return tuple(lax.index_in_dim(around, column, keepdims=False) for column in range(len(groups)))


def _loop_name(loop: Loop, tokens: Tokens) -> str:
    """What a person reads as the limit when a loop sets the pace."""
    names = [term.name for term in loop.terms if term.kind == "stage"]
    held = f", slots of {', '.join(tokens.slots)}" if tokens.slots else ""
    ahead = ", preload" if tokens.ahead > 0 else ""
    return f"latency of {' + '.join(names)}{held}{ahead}"


def _latency(spec: NpuSpec, graph: Graph, costs: StageCosts, times: Mapping[Term, Array]) -> Array:
    """The longest way of a lone tile through the stages, from the load of Q to the store of O.

    Pipes keep their order and chunked flows their lead. Row stages come before (q) or after (the rest) the tile's own.
    """
    start: dict[str, Array] = {}
    before = sum((costs.seconds[s.name] for s in graph.row_stages if s.name.endswith("_q")), jnp.zeros_like(spec.handoff_s))
    after = sum((costs.seconds[s.name] for s in graph.row_stages if not s.name.endswith("_q")), jnp.zeros_like(before))
    for name in _topological(edges(graph)):
        arrivals = [
            start[edge.producer] + times[edge.term] + edge.flags * spec.handoff_s
            for edge in edges(graph)
            if edge.consumer == name and not edge.steps and not edge.slot
        ]
        start[name] = reduce(jnp.maximum, arrivals, jnp.zeros_like(before))
    ends = [start[stage.name] + costs.seconds[stage.name] for stage in graph.tile_stages]
    return before + reduce(jnp.maximum, ends) + after


def _topological(waits: list[Edge]) -> list[str]:
    """Stages in an order in which every input comes first (waits for earlier tiles and slots left out)."""
    inputs: dict[str, set[str]] = {}
    for edge in waits:
        inputs.setdefault(edge.consumer, set())
        inputs.setdefault(edge.producer, set())
        if not edge.steps and not edge.slot:
            inputs[edge.consumer].add(edge.producer)
    done: list[str] = []
    while len(done) < len(inputs):
        done += [name for name in inputs if name not in done and inputs[name] <= set(done)]
    return done


SERIAL = Overlap("serial", _serial)
"""Nothing overlaps: the sum of all stages and flags."""
ROOFLINE = Overlap("roofline", _roofline)
"""Everything overlaps: the busiest pipe, or GM with L2."""
PIPELINED = Overlap("pipelined", _pipelined)
"""What the order of issue and the slots of the buffers allow: the largest loop of the kernel's graph."""
OVERLAPS = {overlap.name: overlap for overlap in (SERIAL, ROOFLINE, PIPELINED)}
