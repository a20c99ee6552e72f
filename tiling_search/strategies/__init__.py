"""Search strategies by name. A strategy sees ranks of feasible points and their values; see ``protocol``."""

from collections.abc import Callable
from typing import Any

from tiling_search.strategies.bayesian import Bayesian
from tiling_search.strategies.driver import Objective, Trace, search, search_table
from tiling_search.strategies.evolution import Evolution
from tiling_search.strategies.gradient import Gradient
from tiling_search.strategies.in_order import Exhaustive, Random
from tiling_search.strategies.local import LocalSearch
from tiling_search.strategies.protocol import Strategy
from tiling_search.strategies.relaxed import Relaxed
from tiling_search.strategies.surrogate import Guided

__all__ = ["STRATEGIES", "Objective", "Strategy", "Trace", "search", "search_table", "strategy"]

STRATEGIES: dict[str, Callable[..., Strategy]] = {
    "exhaustive": Exhaustive,
    "random": Random,
    "evolution": Evolution,
    "local": LocalSearch,
    "guided": Guided,
    "bayesian": Bayesian,
    "gradient": Gradient,
}
"""By name, each with its parameters as keywords."""


def strategy(name: str, *, relaxed: Relaxed | None = None, **parameters: Any) -> Strategy:
    """The strategy of this name.

    Args:
      name: a key of ``STRATEGIES``.
      relaxed: a differentiable stand-in of the objective, which only ``gradient`` uses.
      parameters: of the strategy; its own defaults for the others.

    Raises:
      ValueError: no such strategy, no such parameter, or ``gradient`` without ``relaxed``.

    >>> strategy("local", patience=12).batch
    4
    """
    if name not in STRATEGIES:
        raise ValueError(f"strategy {name!r} must be one of {', '.join(STRATEGIES)}")
    if name == "gradient":
        if relaxed is None:
            raise ValueError("strategy 'gradient' needs relaxed=, a differentiable stand-in: relaxed_seconds(found) is one")
        parameters["relaxed"] = relaxed
    try:
        return STRATEGIES[name](**parameters)
    except TypeError as error:
        raise ValueError(f"strategy {name!r}: {error}") from error
