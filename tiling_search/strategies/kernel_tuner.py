"""Our strategies inside Kernel Tuner, seeded as its own are not: ``tune_kernel(…, strategy=as_optalg(strategy("local")))``."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import jax
import numpy as np

from tiling_search.points import Points, lattice_points
from tiling_search.strategies.driver import search
from tiling_search.strategies.protocol import Strategy

FAILED = float(np.finfo(np.float32).max)
"""Kernel Tuner says failure with a number beyond this."""


def as_optalg(chosen: Strategy, seed: int = 0) -> Any:
    """``chosen`` as a strategy for Kernel Tuner's ``tune_kernel``. Its budget (``max_fevals``, ``time_limit``) ends the search.

    Raises:
      ImportError: Kernel Tuner is missing.
    """
    if find_spec("kernel_tuner") is None:
        raise ImportError('Kernel Tuner is not installed: pip install "ascend-jax[kernel-tuner]"')
    wrapper: Any = import_module("kernel_tuner.strategies.wrapper")

    class Ours(wrapper.OptAlg):
        """One search of ``chosen``."""

        def __call__(self, func: Any, searchspace: Any) -> tuple[tuple[Any, ...], float]:
            found = search(chosen, *_points_and_objective(func, searchspace), jax.random.key(seed), len(searchspace.list))
            return tuple(_in_order(searchspace)[found.best_rank]), found.best_value

    return wrapper.OptAlgWrapper(Ours())


def _points_and_objective(func: Any, searchspace: Any) -> tuple[Points, Any]:
    configurations = _in_order(searchspace)

    def objective(ranks: np.ndarray) -> np.ndarray:
        values = np.asarray(func.eval_all([tuple(configurations[rank]) for rank in ranks]), np.float64)
        return np.where(values < FAILED, values, np.inf)

    return kernel_tuner_points(searchspace), objective


def kernel_tuner_points(searchspace: Any) -> Points:
    """The configurations of a Kernel Tuner ``Searchspace`` as points; the values of an axis are places in its list."""
    sizes = [len(choices) for choices in searchspace.tune_params.values()]
    feasible = np.zeros(sizes, bool)
    feasible[tuple(_places(searchspace).T)] = True
    return lattice_points(tuple(searchspace.tune_params), [np.arange(size) for size in sizes], feasible)


def _in_order(searchspace: Any) -> list[Any]:
    """The configurations in the order of ranks."""
    places = _places(searchspace)
    return [searchspace.list[at] for at in np.lexsort(places.T[::-1])]


def _places(searchspace: Any) -> np.ndarray:
    """Index of each configuration on each axis, ``[P, A]``."""
    columns = [{choice: at for at, choice in enumerate(choices)} for choices in searchspace.tune_params.values()]
    return np.array([[column[value] for column, value in zip(columns, one, strict=True)] for one in searchspace.list])
