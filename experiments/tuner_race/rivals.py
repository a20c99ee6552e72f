"""Kernel Tuner and Optuna on a space of the race, one seed at a time: what they measured, in order, and their CPU time."""

import contextlib
import io
import json
import math
import random
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.tuner_race.spaces import Space
from tiling_search.strategies import search
from tiling_search.strategies.optuna import OptunaSampler


class Run(NamedTuple):
    """One search: ranks of the distinct points in the order of their evaluation, and the tuner's CPU seconds."""

    ranks: list[int]
    cpu_s: float


@dataclass(frozen=True)
class KernelTuner:
    """Kernel Tuner in simulation mode, its strategies with their defaults.

    It is given our feasible list as its restriction, and the table as its cache file: all it does is real but the kernel. Its
    annealing is over after three quarters of ``max_fevals``, so that it is told of a third more, and stopped in time.

    Attributes:
      space: what to search.
      cache: the cache file, made by :func:`write_cache`.
      strategy: one of its names.
    """

    space: Space
    cache: Path
    strategy: str = "simulated_annealing"

    def run(self, seed: int, evaluations: int) -> Run:
        """``tune_kernel`` once, for ``evaluations`` distinct configurations."""
        random.seed(seed)
        np.random.seed(seed)  # its strategies draw from the global generators
        timed = Timed(self.strategy)
        with _quietly():
            import_module("kernel_tuner").tune_kernel(
                self.space.name,
                _no_kernel,
                1,
                [],
                tunable(self.space),
                restrictions=restriction(self.space),
                strategy=timed,
                strategy_options={"max_fevals": math.ceil(evaluations * 4 / 3)},
                cache=str(self.cache),
                simulation_mode=True,
                lang="C",
                quiet=True,
            )
        rank = {one: at for at, one in enumerate(self.space.configurations)}
        return Run([rank[one] for one in dict.fromkeys(timed.asked)][:evaluations], timed.cpu_s)


class Timed:
    """A strategy of Kernel Tuner that is watched: the CPU seconds of its ``tune``, and all that it asked for."""

    def __init__(self, name: str) -> None:
        self._tune = import_module(f"kernel_tuner.strategies.{name}").tune
        self.asked: list[tuple[int, ...]] = []
        self.cpu_s = 0.0

    def tune(self, searchspace: Any, runner: Any, options: Any) -> Any:
        """What Kernel Tuner calls, once its own list of the space is made."""
        before = time.process_time()
        results = self._tune(searchspace, runner, options)
        self.cpu_s = time.process_time() - before
        self.asked = [tuple(int(one[name]) for name in searchspace.param_names) for one in results]
        return results


def tunable(space: Space) -> dict[str, list[int]]:
    """Values of each field as Kernel Tuner wants them."""
    return {
        name: np.asarray(axis).astype(int).tolist() for name, axis in zip(space.points.names, space.points.axes, strict=True)
    }


def restriction(space: Space) -> Callable[[dict[str, int]], bool]:
    """Our feasible list as a restriction."""
    known = set(space.configurations)

    def is_known(configuration: dict[str, int]) -> bool:
        return tuple(configuration.values()) in known

    return is_known


def write_cache(space: Space, path: Path) -> None:
    """The table as a cache file of Kernel Tuner's; times in milliseconds."""
    names = list(space.points.names)
    entries = {
        ",".join(map(str, one)): dict(zip(names, one, strict=True)) | {"time": float(value) * 1e3}
        for one, value in zip(space.configurations, space.table, strict=True)
    }
    about = {"device_name": "table", "kernel_name": space.name, "problem_size": 1, "objective": "time"}
    path.write_text(json.dumps(about | {"tune_params_keys": names, "tune_params": tunable(space), "cache": entries}), "utf-8")


@dataclass(frozen=True)
class Optuna:
    """Optuna's TPE, seeded, with its defaults or ``options``.

    What it suggests is taken to the nearest feasible value, field by field, so that it loses no measurement to a point that
    does not fit. What it suggests again is answered from memory and not counted; after ``repeats`` of that a random one comes.
    """

    space: Space
    options: tuple[tuple[str, Any], ...] = ()
    repeats: int = 2

    def run(self, seed: int, evaluations: int) -> Run:
        """One study of ``evaluations`` distinct points."""
        points, table = self.space.points, self.space.table
        with _quietly():
            before = time.process_time()
            sampler = OptunaSampler(options=self.options, repeats=self.repeats)
            found = search(sampler, points, lambda ranks: table[ranks], jax.random.key(seed), evaluations)
        return Run(found.ranks.tolist(), time.process_time() - before)


def _no_kernel(*_: Any) -> str:
    return ""


@contextmanager
def _quietly() -> Iterator[None]:
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield
