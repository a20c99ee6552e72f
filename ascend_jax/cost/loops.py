"""The loops of a kernel's graph: what bounds the rate at which tiles can follow one another.

A pipe runs its stages in order, a stage waits for its inputs and for a free slot of what it writes: a timed event graph.
Its period is the largest ratio, over the simple loops, of the time around a loop to the tiles under way in it (Baccelli et
al., *Synchronization and Linearity*, 1992, section 2.5). The loops are static and found once; times and slots are numbers.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import NamedTuple

from ascend_jax.kernels.kernel import Graph


class Term(NamedTuple):
    """A time on an edge: how long a stage keeps its pipe, until its result is visible, the lead of a chunked flow, the release
    of its slot, or until the next tile may have its share of GM and L2."""

    kind: str
    """``stage``, ``done``, ``lead``, ``release`` or ``share``."""
    name: str
    """Of the stage, or of the flow's buffer."""


@dataclass(frozen=True)
class Edge:
    """``consumer`` of tile t starts ``term`` (and ``flags`` hand-offs) or more after ``producer`` of tile t − tokens began.

    Tokens are ``steps + ahead · preload``, plus the slots of ``slot``'s buffer.
    """

    producer: str
    consumer: str
    term: Term
    flags: int = 0
    steps: int = 0
    ahead: int = 0
    slot: str | None = None
    at_most: Term | None = None
    """A whole duration of the producer that ``term`` never exceeds, where it is not one itself."""


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
        pipes[graph.queue(stage)].append(stage.name)
    for names in pipes.values():
        for position, name in enumerate(names):
            following = names[(position + 1) % len(names)]
            ahead = graph.stage(name).late - graph.stage(following).late
            wraps = int(position == len(names) - 1)
            found.append(Edge(name, following, Term("stage", name), steps=wraps, ahead=ahead))
    for flow in graph.tile_flows:
        whole = done(graph, flow.producer)
        flags, name = int(flow.handoff), str(flow.buffer)
        lead = Term("lead", name) if flow.chunked else whole
        found.append(Edge(flow.producer, flow.consumer, lead, flags=flags, steps=flow.lag, at_most=whole))
        if flow.buffer is not None:
            whole = Term("stage", flow.consumer)
            release = Term("release", name) if flow.chunked else whole
            found.append(Edge(flow.consumer, flow.producer, release, flags=flags, slot=name, at_most=whole))
    return found


def done(graph: Graph, name: str) -> Term:
    """Until the result of the stage ``name`` is visible: later than its pipe is free, where it goes over GM."""
    return Term("done" if graph.stage(name).gm else "stage", name)


@cache
def loops(graph: Graph) -> dict[Tokens, tuple[Loop, ...]]:
    """The simple loops of ``graph`` that can set the pace, grouped by the tiles under way in them.

    A loop through the stages of one pipe is that pipe's load; it is left to the caller, who counts row stages too. Loops
    that one or two others dominate are dropped (see :func:`_dominated`).
    """
    found = [_Candidate.of(path) for path in _simple_loops(edges(graph))]
    alive = list({(one.tokens, one.loop): one for one in found}.values())
    for one in sorted(alive, key=lambda one: -len(one.loop.terms)):
        others = [other for other in alive if other is not one]
        if _dominated(one, others):
            alive = others
    grouped: dict[Tokens, list[Loop]] = defaultdict(list)
    for one in sorted(alive, key=lambda one: (one.tokens, one.loop)):
        if len({graph.stage(name).pipe for name in one.stages}) > 1:
            grouped[one.tokens].append(one.loop)
    return {tokens: tuple(members) for tokens, members in grouped.items()}


class _Candidate(NamedTuple):
    """A loop with what it takes to compare it: the times it needs, as sets of (stage, term, whole duration that covers it)."""

    loop: Loop
    tokens: Tokens
    stages: frozenset[str]
    needs: frozenset[tuple[str, Term, Term]]

    @classmethod
    def of(cls, path: list[Edge]) -> "_Candidate":
        slots = tuple(sorted(edge.slot for edge in path if edge.slot))
        tokens = Tokens(sum(edge.steps for edge in path), sum(edge.ahead for edge in path), slots)
        loop = Loop(tuple(sorted(edge.term for edge in path)), sum(edge.flags for edge in path))
        needs = frozenset((edge.producer, edge.term, edge.at_most or edge.term) for edge in path)
        return cls(loop, tokens, frozenset(edge.producer for edge in path), needs)

    def covers(self, need: tuple[str, Term, Term]) -> bool:
        """Whether a time of this loop is at least ``need``, whatever the numbers are."""
        stage, term, whole = need
        return bool({term, whole, Term("done", stage)} & {offered for name, offered, _ in self.needs if name == stage})


def _dominated(one: _Candidate, others: list[_Candidate]) -> bool:
    """Whether one or two other loops take at least its time with at most its tokens, whatever the numbers are.

    If loops B and C together cover the times of A, and their tokens together are no more than A's, then A's ratio is at
    most the larger of theirs (the mediant of two fractions lies between them).
    """
    nearby = [
        other for other in others if other.stages & one.stages and not Counter(other.tokens.slots) - Counter(one.tokens.slots)
    ]
    for pair in (*((other,) for other in nearby), *combinations(nearby, 2)):
        enough = sum(other.loop.flags for other in pair) >= one.loop.flags and _fewer_tokens(pair, one)
        if enough and all(any(other.covers(need) for other in pair) for need in one.needs):
            return True
    return False


def _fewer_tokens(pair: tuple[_Candidate, ...], one: _Candidate) -> bool:
    """Whether the tokens of ``pair`` sum to no more than those of ``one`` for any preload ≥ 0 and any slots ≥ 1."""
    slots = Counter(one.tokens.slots)
    slots.subtract(Counter(name for other in pair for name in other.tokens.slots))
    if any(count < 0 for count in slots.values()) or sum(other.tokens.ahead for other in pair) > one.tokens.ahead:
        return False
    return sum(other.tokens.steps for other in pair) <= one.tokens.steps + slots.total()


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
