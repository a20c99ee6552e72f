"""Ours inside Kernel Tuner, and an Optuna sampler as ours; each is skipped where the library is missing."""

import itertools
import warnings
from typing import Any, ClassVar

import jax
import numpy as np
import pytest
from toy_points import DEPTH, KV, NAMES, Q, every_place, fits, table, toy

from tiling_search.strategies import search, strategy
from tiling_search.strategies.kernel_tuner import as_optalg, kernel_tuner_points
from tiling_search.strategies.optuna import OptunaSampler


class SmallSearchspace:
    """What the adapter reads of Kernel Tuner's search space, in another order than that of ranks."""

    tune_params: ClassVar[dict[str, tuple[int, ...]]] = dict(zip(NAMES, (Q, KV, DEPTH), strict=True))

    def __init__(self) -> None:
        every = [one for one in itertools.product(Q, KV, DEPTH) if fits(*one)]
        self.list = [every[at] for at in np.random.default_rng(0).permutation(len(every))]


class Costs:
    """Kernel Tuner's cost function: values by configuration, a number too large for float32 for a failure, and a budget."""

    def __init__(self, budget: int) -> None:
        self.seen: list[tuple[int, ...]] = []
        self.budget = budget

    def eval_all(self, configurations: list[tuple[int, ...]]) -> list[float]:
        self.seen += configurations
        if len(self.seen) > self.budget:
            raise StopIteration
        by_place = {tuple(place): value for place, value in zip(every_place().tolist(), table().tolist(), strict=True)}
        places = [(Q.index(one[0]), KV.index(one[1]), DEPTH.index(one[2])) for one in configurations]
        return [1.7e308 if place[2] == 2 else by_place[place] for place in places]


def test_the_space_of_kernel_tuner_has_the_same_points() -> None:
    points = kernel_tuner_points(SmallSearchspace())
    assert points.count == toy().count and np.array_equal(points.cells, toy().cells)


def test_ours_in_kernel_tuner_asks_for_its_configurations_until_its_budget_ends() -> None:
    pytest.importorskip("kernel_tuner")
    runs = []
    for seed in (3, 3, 4):
        wrapped: Any = as_optalg(strategy("local"), seed)
        costs = Costs(100)
        with pytest.raises(StopIteration):
            wrapped.optimizer(costs, SmallSearchspace())
        runs.append(costs.seen)
    assert runs[0] == runs[1] != runs[2] and set(runs[0]) <= set(SmallSearchspace().list)
    everything: Any = as_optalg(strategy("exhaustive"))
    best, value = everything.optimizer(Costs(10**6), SmallSearchspace())
    assert best == (80, 96, 2) and value == table().min()


def test_a_sampler_of_optuna_searches_our_points() -> None:
    pytest.importorskip("optuna")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the sampler's experimental options
        runs = [search(OptunaSampler(), toy(), lambda ranks: table()[ranks], jax.random.key(seed), 60) for seed in (1, 1, 2)]
        failing = search(OptunaSampler(), toy(), lambda ranks: np.full(len(ranks), np.nan), jax.random.key(0), 5)
    assert np.array_equal(runs[0].ranks, runs[1].ranks) and not np.array_equal(runs[0].ranks, runs[2].ranks)
    for found in runs:
        assert len(set(found.ranks.tolist())) == 60 and found.best_value <= np.sort(table())[5]
    assert failing.best_rank == -1 and len(failing.ranks) == 5


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("kernel_tuner", "optuna", "surrogate"):
        monkeypatch.setattr(f"tiling_search.strategies.{module}.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"ascend-jax\[kernel-tuner\]"):
        as_optalg(strategy("local"))
    with pytest.raises(ImportError, match=r"ascend-jax\[optuna\]"):
        OptunaSampler().init(toy(), jax.random.key(0))
    with pytest.raises(ImportError, match=r"ascend-jax\[surrogate\]"):
        strategy("guided").init(toy(), jax.random.key(0))
