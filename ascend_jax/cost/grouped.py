"""The pace of a schedule that issues tiles in groups: its event graph run for a few groups, since its order of issue is not
that of single tiles, and the loops of a graph unrolled over a group are too many to list."""

from collections.abc import Callable, Mapping
from graphlib import TopologicalSorter
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from ascend_jax._largest import largest
from ascend_jax._pytree import Leaf
from ascend_jax.cost.loops import Term, done
from ascend_jax.kernels.kernel import Flow, Graph

REACH = 4
"""Most slots that a grouped schedule's buffer may have: how many tiles back a stage may wait for."""
PASSES = 4
"""Within a group a slot may be freed by the tile before: each pass resolves one more such wait."""
GROUPS, MEASURED = 12, 4
"""Groups that are run, and the last of them, whose pace is taken (steady after a few groups of two slots)."""


StartOf = Callable[[str, int], Array]
"""Start of a stage of a tile of the group; tiles below 0 are of the groups before."""


class Waits(NamedTuple):
    """Seconds of every term, of a flag between cores, and the tiles that each buffer holds."""

    times: Mapping[Term, Array]
    flag_s: Array
    slots: Mapping[str, Leaf]


def group_period(graph: Graph, waits: Waits) -> Array:
    """Seconds from tile to tile of ``graph``, whose ``group`` is above 1 (rank 0)."""
    order = _stage_order(graph)
    zero = jnp.zeros_like(waits.flag_s)
    history = dict.fromkeys(order, jnp.full((REACH,), -jnp.inf))

    def step(past: dict[str, Array], _: None) -> tuple[dict[str, Array], Array]:
        starts = _starts(graph, order, waits, past, zero)
        kept = {name: jnp.concatenate([past[name], jnp.stack(starts[name])])[-REACH:] for name in order}
        return kept, starts[order[-1]][-1]

    _, ends = lax.scan(step, history, None, length=GROUPS)
    return (ends[-1] - ends[-1 - MEASURED]) / (MEASURED * graph.group)


def _starts(graph: Graph, order: list[str], waits: Waits, past: dict[str, Array], zero: Array) -> dict[str, list[Array]]:
    """When each stage of each tile of the next group starts, given the last ``REACH`` starts of the tiles before."""
    starts = {name: [zero] * graph.group for name in order}

    def start_of(name: str, tile: int) -> Array:
        return starts[name][tile] if tile >= 0 else past[name][REACH + tile]

    for _ in range(PASSES):
        for name in order:
            for tile in range(graph.group):
                before, earlier = _issued_before(graph, name, tile)
                arrivals = [zero, start_of(before, earlier) + waits.times[Term("stage", before)]]
                if name == graph.first_load:  # GM takes turns among the tiles of a group, too
                    arrivals.append(start_of(name, tile - 1) + waits.times[Term("share", name)])
                arrivals += [_input(graph, flow, waits, start_of, tile) for flow in graph.tile_flows if flow.consumer == name]
                for flow in graph.tile_flows:
                    if flow.producer == name and flow.buffer is not None:
                        arrivals.append(_slot(flow, waits, start_of, tile))
                starts[name][tile] = largest(arrivals)
    return starts


def _issued_before(graph: Graph, name: str, tile: int) -> tuple[str, int]:
    """What the queue issues before stage ``name`` of ``tile``; tiles below 0 are of the group before."""
    order = graph.issue_order(graph.group)[graph.queue(graph.stage(name))]
    place = order.index((name, tile))
    if place:
        return order[place - 1]
    last, other = order[-1]
    return last, other - graph.group


def _input(graph: Graph, flow: Flow, waits: Waits, start_of: StartOf, tile: int) -> Array:
    term = Term("lead", str(flow.buffer)) if flow.chunked else done(graph, flow.producer)
    return start_of(flow.producer, tile - flow.lag) + waits.times[term] + int(flow.handoff) * waits.flag_s


def _slot(flow: Flow, waits: Waits, start_of: StartOf, tile: int) -> Array:
    """When the consumer frees a slot: of the tile as many back as there are slots."""
    name = str(flow.buffer)
    term = Term("release", name) if flow.chunked else Term("stage", flow.consumer)
    slots = jnp.clip(waits.slots[name], 1, REACH)
    freed = [jnp.where(slots == back, start_of(flow.consumer, tile - back), -jnp.inf) for back in range(1, REACH + 1)]
    return largest(freed) + waits.times[term] + int(flow.handoff) * waits.flag_s


def _stage_order(graph: Graph) -> list[str]:
    sorter = TopologicalSorter({stage.name: () for stage in graph.tile_stages})
    for flow in graph.tile_flows:
        if not flow.lag:
            sorter.add(flow.consumer, flow.producer)
    return list(sorter.static_order())
