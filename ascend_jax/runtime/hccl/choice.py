"""Which algorithm runs between servers: what ``HCCL_ALGO`` says, and else what HCCL finds cheapest."""

from dataclasses import dataclass, field
from math import ceil, floor, log2

from ascend_jax.runtime.errors import AclError
from ascend_jax.runtime.hccl.constants import Constants
from ascend_jax.runtime.hccl.costs import Primitive

LEVEL1 = {
    "ring": "ring",
    "h-d_r": "rhd",
    "nhr": "nhr",
    "nhr_v1": "nhr_v1",
    "nb": "nb",
    "ahc": "ahc",
    "pipeline": "pipeline",
    "pairwise": "pairwise",
}
"""Words of HCCL_ALGO (docs/zh/user_guide/hccl_env/HCCL_ALGO.md of hicann/hccl) → our names."""
OPERATORS = {
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "allreduce": "all_reduce",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "scatter": "scatter",
    "alltoall": "all_to_all",
}
TWICE = ("all_reduce", "broadcast", "reduce")
"""Primitives that are two others one after the other."""


@dataclass(frozen=True)
class AlgoText:
    """What ``HCCL_ALGO`` says: an algorithm for all operators (None: nothing), and those of single operators."""

    general: str | None = None
    by_operator: dict[Primitive, str] = field(default_factory=dict)

    def of(self, what: Primitive) -> str | None:
        """The algorithm asked for, or None. A text of single operators says nothing of the others."""
        return self.by_operator.get(what, self.general)


def read_algo(text: str) -> AlgoText:
    """``level0:NA;level1:NHR``, or such a text for each of several operators.

    Raises:
      AclError: HCCL_E_PARA (EI0001) for a word that HCCL does not know, and for a level0 that is not NA.

    >>> read_algo("allreduce=level0:NA;level1:ring/allgather=level0:NA;level1:H-D_R").by_operator
    {'all_reduce': 'ring', 'all_gather': 'rhd'}
    >>> read_algo("level0:NA;level1:NHR").of("broadcast")
    'nhr'
    """
    if not text.strip():
        return AlgoText()
    if "=" not in text:
        return AlgoText(_level1(text, text))
    single = {}
    for part in text.split("/"):
        operator, _, levels = part.partition("=")
        name = operator.strip().lower()
        if name not in OPERATORS:
            raise _wrong(text, f"operator {operator.strip()!r} is none of {', '.join(OPERATORS)}")
        algorithm = _level1(levels, text)
        if algorithm is not None:
            single[OPERATORS[name]] = algorithm
    return AlgoText(None, single)


def _level1(levels: str, text: str) -> str | None:
    found = None
    for part in filter(None, (part.strip() for part in levels.split(";"))):
        level, _, word = (piece.strip().lower() for piece in part.partition(":"))
        if level == "level0" and word != "na":
            raise _wrong(text, f"level0:{word} is chosen by the topology: only NA is taken")
        if level not in ("level0", "level1", "level2") or (level != "level0" and word not in LEVEL1):
            raise _wrong(text, f"{part!r} is not level1:<algorithm> with one of {', '.join(LEVEL1)}")
        if level == "level1":
            found = LEVEL1[word]
    return found


def _wrong(text: str, why: str) -> AclError:
    remedy = 'write "level0:NA;level1:<algorithm>", or "<operator>=level0:NA;level1:<algorithm>/…"'
    return AclError(1, f"HCCL_ALGO={text!r}: {why}", cause="the variable cannot be read", remedy=remedy, category="EI0001")


def choose(what: Primitive, servers: int, share_ranks: int, total_bytes: float, constants: Constants, asked: AlgoText) -> str:
    """The algorithm between ``servers`` servers of ``share_ranks`` ranks each, for ``total_bytes`` in all.

    Raises:
      AclError: HCCL_E_NOT_SUPPORT for NHR_V1, whose time is not published.
    """
    wanted = asked.of(what)
    if wanted == "nhr_v1":
        raise AclError(5, "HCCL_ALGO asks for NHR_V1, for whose time no formula is published", remedy="use NHR, its successor")
    if wanted is not None and what in constants.supports[wanted]:
        return wanted
    if what == "all_to_all":
        return "pairwise"
    supported = [name for name in ("ring", "nhr", "rhd") if what in constants.supports[name]]
    if constants.level1 == "nhr" and "nhr" in supported:
        return "nhr"
    if constants.level1 == "rhd_or_ring":
        preferred = "rhd" if servers & (servers - 1) == 0 else "ring"
        return preferred if preferred in supported else supported[0]
    if constants.level0 == "mesh" and _pipelined(what, servers, share_ranks, total_bytes, constants):
        return "pipeline"
    return cheapest(what, servers, share_ranks, min(total_bytes, constants.buffer_bytes), constants)


def _pipelined(what: Primitive, servers: int, share_ranks: int, total_bytes: float, constants: Constants) -> bool:
    if what not in constants.supports["pipeline"] or share_ranks == 1 or servers == 1:
        return False
    least = constants.pipeline_all_reduce_bytes if what == "all_reduce" else constants.pipeline_bytes
    return total_bytes / (servers * share_ranks) >= least


def cheapest(what: Primitive, servers: int, share_ranks: int, total_bytes: float, constants: Constants) -> str:
    """The cheapest of ring, NHR and RHD by the rule of coll_alg_operator.cc: of equals the earlier. γ does not count there."""
    supported = [name for name in ("ring", "nhr", "rhd") if what in constants.supports[name]]
    share = total_bytes / share_ranks if what in TWICE else total_bytes
    return min(supported, key=lambda name: _weight(name, what, servers, share, constants))


def _weight(name: str, what: Primitive, m: int, share: float, constants: Constants) -> float:
    twice = 2.0 if what in TWICE else 1.0
    moved = twice * (m - 1) / m
    if name == "ring":
        steps = twice * (m - 1)
    elif name == "nhr" or m & (m - 1) == 0:
        steps = twice * ceil(log2(m))
    elif what in ("broadcast", "reduce"):
        steps, moved = 1 + twice * floor(log2(m)), 1 + moved
    else:
        steps, moved = twice * ceil(log2(m)), twice * (2 * m - 1) / m
    return steps * constants.choice_alpha_s + moved * share / constants.choice_bytes_per_s
