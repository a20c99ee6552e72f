"""The loops of a kernel's graph: what bounds the rate at which tiles can follow one another.

A pipe runs its stages in order, a stage waits for its inputs and for a free slot of what it writes: a timed event graph.
Its period is the largest ratio, over the simple loops, of the time around a loop to the tiles under way in it (Baccelli et
al., *Synchronization and Linearity*, 1992, section 2.5). The loops are static and found once; times and slots are numbers.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from ascend_jax.kernels.kernel import Graph


class Term(NamedTuple):
    """A time on an edge: a stage's whole duration, the lead of a chunked flow, or the release of its slot."""

    kind: str
    """``stage``, ``lead`` or ``release``."""
    name: str
    """Of the stage, or of the flow's buffer."""


@dataclass(frozen=True)
class Edge:
    """``consumer`` of tile t starts no sooner than ``term`` (and ``flags`` hand-offs) after ``producer`` of tile t − tokens began.

    Tokens are ``steps + ahead · preload``, plus the slots of ``slot``'s buffer.
    """

    producer: str
    consumer: str
    term: Term
    flags: int = 0
    steps: int = 0
    ahead: int = 0
    slot: str | None = None


class Tokens(NamedTuple):
    """Tiles under way in a loop: ``steps + ahead · preload + Σ slots``."""

    steps: int
    ahead: int
    slots: tuple[str, ...]


class Loop(NamedTuple):
    """One simple loop: the times around it and the hand-offs among them."""

    terms: tuple[Term, ...]
    flags: int


def edges(graph: Graph) -> list[Edge]:
    """Every wait between two tile stages: order on a pipe, input through a flow, free slot of a flow's buffer."""
    found = []
    pipes: dict[str, list[str]] = defaultdict(list)
    for stage in graph.tile_stages:
        pipes[stage.pipe].append(stage.name)
    for names in pipes.values():
        for position, name in enumerate(names):
            following = names[(position + 1) % len(names)]
            ahead = graph.stage(name).late - graph.stage(following).late
            wraps = int(position == len(names) - 1)
            found.append(Edge(name, following, Term("stage", name), steps=wraps, ahead=ahead))
    for flow in graph.flows:
        lead = Term("lead", flow.buffer) if flow.chunked else Term("stage", flow.producer)
        release = Term("release", flow.buffer) if flow.chunked else Term("stage", flow.consumer)
        found.append(Edge(flow.producer, flow.consumer, lead, flags=flow.handoff))
        found.append(Edge(flow.consumer, flow.producer, release, flags=flow.handoff, slot=flow.buffer))
    return found


@cache
def loops(graph: Graph) -> dict[Tokens, tuple[Loop, ...]]:
    """All distinct simple loops of ``graph``, grouped by the tiles under way in them.

    A loop through the stages of one pipe is that pipe's load; it is left to the caller, who counts row stages too.
    """
    grouped: dict[Tokens, set[Loop]] = defaultdict(set)
    for path in _simple_loops(edges(graph)):
        if len({graph.stage(edge.producer).pipe for edge in path}) == 1:
            continue
        slots = tuple(sorted(edge.slot for edge in path if edge.slot))
        tokens = Tokens(sum(edge.steps for edge in path), sum(edge.ahead for edge in path), slots)
        grouped[tokens].add(Loop(tuple(sorted(edge.term for edge in path)), sum(edge.flags for edge in path)))
    return {tokens: _undominated(found) for tokens, found in sorted(grouped.items())}


def _simple_loops(waits: list[Edge]) -> Iterator[list[Edge]]:
    """Depth first from each stage, through later stages only, so that every loop is found once."""
    leaving: dict[str, list[Edge]] = defaultdict(list)
    for edge in waits:
        leaving[edge.producer].append(edge)
    order = {name: position for position, name in enumerate(leaving)}

    def walk(start: str, path: list[Edge], seen: frozenset[str]) -> Iterator[list[Edge]]:
        for edge in leaving[path[-1].consumer if path else start]:
            if edge.consumer == start:
                yield [*path, edge]
            elif edge.consumer not in seen and order[edge.consumer] > order[start]:
                yield from walk(start, [*path, edge], seen | {edge.consumer})

    for start in order:
        yield from walk(start, [], frozenset([start]))


def _undominated(found: set[Loop]) -> tuple[Loop, ...]:
    """Without loops whose every time another loop with as many tokens has too."""

    def within(small: Loop, large: Loop) -> bool:
        return small.flags <= large.flags and not Counter(small.terms) - Counter(large.terms)

    return tuple(sorted(loop for loop in found if not any(loop != other and within(loop, other) for other in found)))
