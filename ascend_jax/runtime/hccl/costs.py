"""What an algorithm moves: HCCL's published formulas, one function an algorithm.

Hockney's model with reduction: a step that moves and reduces n bytes takes α + nβ + nγ. Each function gives how many α, β and γ
a primitive takes over p ranks and n bytes in all: the input of a reduce-scatter, the output of an all-gather. Source:
docs/zh/user_guide/coll_algo_intro of hicann/hccl (commit 09300b70), one page an algorithm.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, floor, log2

from ascend_jax.runtime.hccl.constants import Link

Primitive = str
"""``reduce_scatter``, ``all_gather``, ``all_reduce``, ``broadcast``, ``reduce``, ``scatter``, ``gather`` or ``all_to_all``."""


@dataclass(frozen=True)
class Cost:
    """Steps (α), bytes moved one after another (β) and bytes reduced one after another (γ)."""

    steps: float = 0
    moved: float = 0
    reduced: float = 0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.steps + other.steps, self.moved + other.moved, self.reduced + other.reduced)

    def seconds(self, link: Link) -> float:
        """Over ``link``; α is that of a step of average size."""
        if not self.steps:
            return 0.0
        alpha_s = link.alpha_s(self.moved / self.steps)
        return self.steps * alpha_s + self.moved * link.beta_s_per_byte + self.reduced * link.gamma_s_per_byte


def ring(what: Primitive, p: int, n: float) -> Cost:
    """Everyone talks to two neighbours."""
    share = (p - 1) / p * n
    match what:
        case "broadcast":
            return Cost(p - 1, (p - 1) * n)
        case "reduce":
            return Cost(p - 1, (p - 1) * n, (p - 1) * n)
        case "reduce_scatter":
            return Cost(p - 1, share, share)
        case "all_reduce":
            return Cost(2 * (p - 1), 2 * share, share)
    return Cost(p - 1, share)


def double_ring(what: Primitive, p: int, n: float) -> Cost:
    """Two rings at once, half of the data on each. (The pages name it without a formula; this follows from the ring's.)"""
    return ring(what, p, n / 2)


def mesh(what: Primitive, p: int, n: float) -> Cost:
    """Everyone talks to all others at once, over a link for each."""
    share = (p - 1) / p * n
    match what:
        case "broadcast":
            return Cost(2, 2 * n / p)
        case "reduce" | "all_reduce":
            return Cost(2, 2 * n / p, share)
        case "reduce_scatter":
            return Cost(1, n / p, share)
    return Cost(1, n / p)


def star(what: Primitive, p: int, n: float) -> Cost:
    """The root talks to all at once. The page has α + nβ with n bytes between the root and each of the others."""
    each = n / p if what in ("scatter", "gather") else n
    return Cost(1, each, (p - 1) * each if what == "reduce" else 0)


def rhd(what: Primitive, p: int, n: float) -> Cost:
    """Recursive halving and doubling; where p is no power of two, 2r ranks are first merged to r, and in the end restored."""
    k = floor(log2(p))
    block = 2**k
    share = (block - 1) / block * n
    merged = p != block
    match what:
        case "broadcast":
            return Cost(ceil(log2(p)), ceil(log2(p)) * n)
        case "reduce":
            return Cost(2 * k, 2 * share, share) + (Cost(1, n, n) if merged else Cost())
        case "all_reduce":
            return Cost(2 * k, 2 * share, share) + (Cost(2, 2 * n, n) if merged else Cost())
        case "reduce_scatter":
            return _uneven(p, k, n) if merged else Cost(k, share, share)
        case "all_gather":
            cost = _uneven(p, k, n) if merged else Cost(k, share)
            return Cost(cost.steps, cost.moved)
    raise ValueError(f"RHD has no formula for {what}")


def _uneven(p: int, k: int, n: float) -> Cost:
    """Three steps: merge, a reduce-scatter in which some ranks hold two shares, and the last share to where it belongs."""
    shares = sum(ceil(p / 2**i) for i in range(1, k + 1)) / p * n
    return Cost(1, n, n) + Cost(k, shares, shares) + Cost(1, n / p)


def nhr(what: Primitive, p: int, n: float) -> Cost:
    """Nonuniform hierarchical ring: as few steps as RHD for any p, and no byte more than the ring."""
    steps, share = ceil(log2(p)), (p - 1) / p * n
    match what:
        case "broadcast":
            return Cost(2 * steps, 2 * share)
        case "reduce_scatter":
            return Cost(steps, share, share)
        case "all_reduce":
            return Cost(2 * steps, 2 * share, share)
        case "all_gather" | "scatter":
            return Cost(steps, share)
    raise ValueError(f"NHR and NB have no formula for {what}")


def ahc(what: Primitive, groups: Sequence[int], n: float, convergence: float) -> Cost:
    """Groups of unequal size, NB within and between them; ``convergence`` is how much slower it is between than within.

    The published line lacks a parenthesis: taken as (m+d-1)/(m+d) + (G-1)·C/(G·m), with m the smallest and m+d the largest
    of G groups. It is that of an all-reduce; a reduce-scatter and an all-gather are its halves.
    """
    small, large, count = min(groups), max(groups), len(groups)
    steps = ceil(log2(large)) + ceil(log2(count))
    moved = ((large - 1) / large + (count - 1) * convergence / (count * small)) * n
    reduced = ((large - 1) / large + (count - 1) / (count * small)) * n
    match what:
        case "all_reduce":
            return Cost(2 * steps, 2 * moved, reduced)
        case "reduce_scatter":
            return Cost(steps, moved, reduced)
    return Cost(steps, moved)


def pairwise(sent: Sequence[Sequence[float]]) -> Cost:
    """All-to-all step by step: in step k everyone sends to the k-th after it. ``sent[i][j]`` bytes go from i to j."""
    p = len(sent)
    return Cost(p - 1, sum(max(sent[i][(i + k) % p] for i in range(p)) for k in range(1, p)))


def at_once(sent: Sequence[Sequence[float]]) -> Cost:
    """All-to-all over a link for each pair: the largest piece decides, as in a scatter over the mesh."""
    p = len(sent)
    if p == 1:
        return Cost()
    return Cost(1, max(sent[i][j] for i in range(p) for j in range(p) if i != j))


FORMULAS: dict[str, Callable[[Primitive, int, float], Cost]] = {
    "ring": ring,
    "double_ring": double_ring,
    "mesh": mesh,
    "star": star,
    "rhd": rhd,
    "nhr": nhr,
    "nb": nhr,
}
"""Algorithm → formula. NB's are those of NHR."""


def cost(algorithm: str, what: Primitive, p: int, n: float) -> Cost:
    """Of ``what`` over p ranks and n bytes in all; nothing for a single rank.

    >>> cost("ring", "all_reduce", 4, 1000.0)
    Cost(steps=6, moved=1500.0, reduced=750.0)
    """
    return FORMULAS[algorithm](what, p, n) if p > 1 else Cost()
