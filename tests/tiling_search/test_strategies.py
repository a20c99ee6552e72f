"""One body of tests over every registered strategy, on a space without a chip."""

import hashlib
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toy_points import RELAXED_BOWL, every_place, table, toy

from tiling_search.points import ranks_of
from tiling_search.strategies import STRATEGIES, Strategy, Trace, search, search_table, strategy

BUDGET = 120
EVERY = [
    pytest.param(name, marks=pytest.mark.skipif(name == "guided" and not find_spec("sklearn"), reason="scikit-learn missing"))
    for name in STRATEGIES
]


def made(name: str) -> Strategy:
    return strategy(name, relaxed=RELAXED_BOWL if name == "gradient" else None)


def run(name: str, seed: int, evaluations: int = BUDGET) -> Trace:
    return search(made(name), toy(), lambda ranks: table()[ranks], jax.random.key(seed), evaluations)


def fingerprint(found: Trace) -> str:
    return hashlib.sha256(found.ranks.tobytes() + found.values.tobytes()).hexdigest()


@pytest.mark.parametrize("name", EVERY)
def test_a_trace_holds_feasible_points_each_once_with_their_values(name: str) -> None:
    found = run(name, 0)
    assert len(found.ranks) == BUDGET == len(set(found.ranks.tolist()))
    assert found.ranks.min() >= 0 and found.ranks.max() < toy().count
    places = jnp.asarray(every_place()[found.ranks], jnp.int32)
    assert np.array_equal(ranks_of(toy(), places), found.ranks)
    assert np.array_equal(found.values, table()[found.ranks])
    assert found.best_value == found.values.min() == table()[found.best_rank] >= table().min()
    assert np.array_equal(found.best_so_far, [found.values[: at + 1].min() for at in range(BUDGET)])


@pytest.mark.parametrize("name", EVERY)
def test_the_optimum_of_a_separable_space_is_found(name: str) -> None:
    learns = name not in ("exhaustive", "random")
    found = [run(name, seed, BUDGET if learns else toy().count) for seed in range(3)]
    assert [one.best_value for one in found] == [table().min()] * 3


@pytest.mark.parametrize("name", EVERY)
def test_every_point_is_asked_for_before_a_strategy_gives_up(name: str) -> None:
    if name == "guided":
        pytest.skip("a forest for every other point takes minutes")
    found = run(name, 1, 10 * toy().count)
    assert len(found.ranks) == toy().count


@pytest.mark.parametrize("name", EVERY)
def test_failures_are_data(name: str) -> None:
    """A third of the points fail, in two ways: the rest is searched all the same."""
    values = np.where(np.arange(toy().count) % 3 == 1, np.where(np.arange(toy().count) % 2, np.nan, np.inf), table())
    found = search(made(name), toy(), lambda ranks: values[ranks], jax.random.key(2), 60)
    assert np.isfinite(found.best_value) and not np.isnan(found.values).any() and len(found.ranks) == 60
    nothing = search(made(name), toy(), lambda ranks: np.full(len(ranks), np.inf), jax.random.key(2), 30)
    assert nothing.best_rank == -1 and nothing.best_value == np.inf and len(nothing.ranks) == 30


@pytest.mark.parametrize("name", [name for name in STRATEGIES if name not in ("guided", "gradient", "bayesian")])
def test_one_program_for_many_keys_gives_the_traces_of_the_plain_loop(name: str) -> None:
    keys = jax.random.split(jax.random.key(5), 3)
    ranks, values = search_table(made(name), toy(), jnp.asarray(table()), keys, 50)
    for at, key in enumerate(keys):
        alone = search(made(name), toy(), lambda asked: table()[asked], key, 50)
        assert np.array_equal(ranks[at], alone.ranks) and np.array_equal(values[at], alone.values)


@pytest.mark.slow
def test_same_seed_same_trace_in_another_process_and_another_seed_another() -> None:
    """The other process has 32-bit defaults and four devices; this one is strict and has 64-bit defaults."""
    names = [name for name in STRATEGIES if name != "guided" or find_spec("sklearn")]
    here = {name: fingerprint(run(name, 7, 60)) for name in names}
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from test_strategies import fingerprint, run\n"
        "for name in sys.argv[2:]: print(name, fingerprint(run(name, 7, 60)))\n"
    )
    command = [sys.executable, "-c", script, str(Path(__file__).parent), *names]
    environment = {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
        "PYTHONPATH": ":".join(sys.path),
    }
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert dict(line.split() for line in done.stdout.splitlines()) == here
    other = {name: fingerprint(run(name, 8, 60)) for name in names if name != "exhaustive"}
    assert all(other[name] != here[name] for name in other)


def test_names_and_parameters_are_checked() -> None:
    with pytest.raises(ValueError, match="must be one of exhaustive, random"):
        strategy("annealing")
    with pytest.raises(ValueError, match="needs relaxed="):
        strategy("gradient")
    with pytest.raises(ValueError, match="unexpected keyword argument 'temperature'"):
        strategy("local", temperature=3)
    with pytest.raises(ValueError, match="evaluations=0"):
        run("random", 0, 0)
