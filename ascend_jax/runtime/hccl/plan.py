""":class:`Plan`: the stages of a collective over the servers of a communicator, and their time.

Stages by docs/zh/user_guide/coll_algo_intro/algo_intro.md of hicann/hccl: what moves most goes within the servers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from ascend_jax.runtime.errors import AclError
from ascend_jax.runtime.hccl.choice import AlgoText, choose
from ascend_jax.runtime.hccl.constants import Constants, Link
from ascend_jax.runtime.hccl.costs import Cost, Primitive, ahc, at_once, cost, pairwise

INTRA, INTER = "intra", "inter"
STAGES: dict[Primitive, tuple[tuple[str, Primitive, bool], ...]] = {
    "all_reduce": ((INTRA, "reduce_scatter", False), (INTER, "all_reduce", True), (INTRA, "all_gather", False)),
    "all_gather": ((INTRA, "all_gather", True), (INTER, "all_gather", False)),
    "reduce_scatter": ((INTER, "reduce_scatter", False), (INTRA, "reduce_scatter", True)),
    "broadcast": ((INTRA, "scatter", False), (INTER, "broadcast", True), (INTRA, "all_gather", False)),
    "reduce": ((INTRA, "reduce_scatter", False), (INTER, "reduce", True), (INTRA, "gather", False)),
    "scatter": ((INTER, "scatter", False), (INTRA, "scatter", True)),
}
"""Level, primitive, and whether it has only a share of the bytes: one of as many as there are ranks on the other level."""


@dataclass(frozen=True)
class Topology:
    """Which ranks share a server: ``servers[s]`` are the ranks of server s, in order."""

    servers: tuple[tuple[int, ...], ...]

    @classmethod
    def even(cls, ranks: int, per_server: int) -> "Topology":
        """Servers of ``per_server`` ranks, the last one of what is left."""
        starts = range(0, ranks, per_server)
        return cls(tuple(tuple(range(start, min(start + per_server, ranks))) for start in starts))

    @cached_property
    def server_of(self) -> dict[int, int]:
        """Rank → server."""
        return {rank: server for server, ranks in enumerate(self.servers) for rank in ranks}

    @property
    def sizes(self) -> tuple[int, ...]:
        """Ranks of each server."""
        return tuple(len(ranks) for ranks in self.servers)

    @property
    def is_even(self) -> bool:
        """All servers have as many ranks."""
        return len(set(self.sizes)) == 1


@dataclass(frozen=True)
class Stage:
    """One stage: on which level, what, by which algorithm, over how many ranks and bytes, and what that takes."""

    level: str
    what: Primitive
    algorithm: str
    ranks: int
    bytes: float
    cost: Cost
    link: Link

    @property
    def seconds(self) -> float:
        """The stage alone."""
        return self.cost.seconds(self.link)


@dataclass(frozen=True)
class Plan:
    """Stages that follow each other. A pipeline runs its two levels at once, and so has a time of its own."""

    stages: tuple[Stage, ...]
    pipelined_s: float | None = None

    @cached_property
    def seconds(self) -> float:
        """From the moment when all ranks are there."""
        return sum(stage.seconds for stage in self.stages) if self.pipelined_s is None else self.pipelined_s

    def orders(self) -> dict[str, str]:
        """Level → algorithm whose order sums are formed in; a pipeline is a mesh within and a ring between servers."""
        if self.pipelined_s is not None:
            return {INTRA: "mesh", INTER: "ring"}
        return {stage.level: stage.algorithm for stage in self.stages}

    @cached_property
    def algorithm(self) -> str:
        """In words: ``mesh within, nhr between servers``."""
        if self.pipelined_s is not None:
            return "pipeline"
        levels = self.orders()
        words = [
            f"{levels[level]} {where}" for level, where in ((INTRA, "within"), (INTER, "between servers")) if level in levels
        ]
        return ", ".join(words) or "nothing to do"


def make_plan(what: Primitive, total_bytes: float, topology: Topology, constants: Constants, asked: AlgoText) -> Plan:
    """The plan of ``what`` over ``total_bytes`` in all (the larger of input and output of a rank).

    Raises:
      AclError: HCCL_E_NOT_SUPPORT for servers of unequal size without AHC.
    """
    servers = len(topology.servers)
    if not topology.is_even:
        return _uneven(what, total_bytes, topology, constants, asked)
    within = len(topology.servers[0])
    between = choose(what, servers, within, total_bytes, constants, asked) if servers > 1 else "ring"
    if between == "pipeline":
        return _pipeline(what, total_bytes, topology, constants)
    if between == "ahc":
        return _grouped(what, total_bytes, topology, constants)
    stages = []
    for level, part, shared in STAGES[what]:
        ranks, others = (within, servers) if level == INTRA else (servers, within)
        size = total_bytes / others if shared else total_bytes
        algorithm = constants.level0 if level == INTRA else between
        link = constants.intra if level == INTRA else constants.inter
        stages.append(Stage(level, part, algorithm, ranks, size, cost(algorithm, part, ranks, size), link))
    return Plan(tuple(stage for stage in stages if stage.ranks > 1))


def _uneven(what: Primitive, total_bytes: float, topology: Topology, constants: Constants, asked: AlgoText) -> Plan:
    if what in constants.supports["ahc"]:
        return _grouped(what, total_bytes, topology, constants)
    sizes = ", ".join(map(str, topology.sizes))
    remedy = "use servers of one size; all_reduce, all_gather and reduce_scatter work on these too"
    raise AclError(5, f"{what} over servers of {sizes} ranks has no algorithm", remedy=remedy)


def _grouped(what: Primitive, total_bytes: float, topology: Topology, constants: Constants) -> Plan:
    """AHC: groups of any size."""
    convergence = constants.inter.beta_s_per_byte / constants.intra.beta_s_per_byte
    if len(topology.servers) == 1:
        found = cost("nb", what, topology.sizes[0], total_bytes)
    else:
        found = ahc(what, topology.sizes, total_bytes, convergence)
    ranks = sum(topology.sizes)
    return Plan((Stage(INTRA, what, "ahc", ranks, total_bytes, found, constants.intra),))


def _pipeline(what: Primitive, total_bytes: float, topology: Topology, constants: Constants) -> Plan:
    """Ring between servers and mesh within them at the same time; an all-reduce is two of them (Pipeline.md)."""
    servers, within = len(topology.servers), len(topology.servers[0])
    piece = total_bytes / (servers * within)
    intra_s, inter_s = Cost(1, piece).seconds(constants.intra), Cost(1, piece).seconds(constants.inter)
    twice = 2 if what == "all_reduce" else 1
    seconds = twice * (max(inter_s, intra_s) * (servers - 1) + intra_s)
    steps = twice * (servers - 1)
    between = Stage(INTER, what, "pipeline", servers, total_bytes / within, Cost(steps, steps * piece), constants.inter)
    inside = Stage(INTRA, what, "pipeline", within, total_bytes / servers, Cost(twice, twice * piece), constants.intra)
    return Plan((between, inside), seconds)


def exchange_plan(sent: Sequence[Sequence[float]], topology: Topology, constants: Constants, asked: AlgoText) -> Plan:
    """The plan of an all-to-all in which rank i sends ``sent[i][j]`` bytes to rank j.

    First everything goes to the rank of the same server that has the receiver's place, then between the servers.
    """
    if not topology.is_even:
        whole = [rank for ranks in topology.servers for rank in ranks]
        matrix = [[sent[i][j] for j in whole] for i in whole]
        return Plan((_exchange(INTER, "pairwise", matrix, constants.inter),))
    servers = topology.servers
    within, between = len(servers[0]), choose("all_to_all", len(servers), len(servers[0]), 0.0, constants, asked)
    stages = []
    if within > 1:
        rows = [
            [[sum(sent[ranks[i]][other[j]] for other in servers) for j in range(within)] for i in range(within)]
            for ranks in servers
        ]
        slowest = max(
            (_exchange(INTRA, constants.level0, matrix, constants.intra) for matrix in rows), key=lambda one: one.seconds
        )
        stages.append(slowest)
    if len(servers) > 1:
        planes = [
            [[sum(sent[rank][other[place]] for rank in ranks) for other in servers] for ranks in servers]
            for place in range(within)
        ]
        slowest = max((_exchange(INTER, between, matrix, constants.inter) for matrix in planes), key=lambda one: one.seconds)
        stages.append(slowest)
    return Plan(tuple(stages))


def _exchange(level: str, algorithm: str, sent: Sequence[Sequence[float]], link: Link) -> Stage:
    """Over a mesh all at once, over anything else step by step."""
    found = at_once(sent) if algorithm == "mesh" else pairwise(sent)
    total = max(sum(row) for row in sent)
    return Stage(level, "all_to_all", algorithm if algorithm == "mesh" else "pairwise", len(sent), total, found, link)


def transfer_plan(ranks: tuple[int, ...], size: float, topology: Topology, constants: Constants) -> Plan:
    """The plan of one message from ``ranks[0]`` to ``ranks[1]``."""
    source, target = ranks
    same = topology.server_of[source] == topology.server_of[target]
    link = constants.intra if same else constants.inter
    return Plan((Stage(INTRA if same else INTER, "send", "direct", 2, size, Cost(1, size), link),))
