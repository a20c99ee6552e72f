"""Co-design: slopes through the exact argmin against finite differences of the retuned minimum, grids, fronts, the command."""

import json
from dataclasses import replace
from functools import cache
from math import exp, log
from pathlib import Path

import matplotlib
import pytest
from click.testing import CliRunner

from ascend_jax import Attention, Mask, NpuSpec, load_chip
from tiling_search.codesign import command as command_module
from tiling_search.codesign.grid import Cost, chip_cost, design_grid, pareto
from tiling_search.codesign.latency import Loss, Task, loss, loss_value
from tiling_search.codesign.parameters import DISCRETE, chip_parameters, scaled_chip
from tiling_search.codesign.sensitivity import sensitivities
from tiling_search.codesign.study import study
from tiling_search.codesign.tornado import tornado_plot

TASKS = (
    Task("prefill", Attention(batch=1, q_heads=4, kv_heads=4, q_len=300, kv_len=300, head_dim=64, value_dim=64)),
    Task(
        "masked",
        Attention(batch=3, q_heads=8, kv_heads=8, q_len=200, kv_len=500, head_dim=64, value_dim=64, mask=Mask(kind="causal")),
        2.0,
    ),
)


@cache
def chip() -> NpuSpec:
    return replace(load_chip("310P3"), ub_bytes=64 * 1024, l1_bytes=128 * 1024)


@cache
def here() -> Loss:
    return loss(chip(), TASKS)


@pytest.mark.slow
def test_slopes_through_the_argmin_equal_differences_of_the_retuned_minimum() -> None:
    step = 1e-5
    names = sorted(here().slope, key=lambda name: -abs(here().slope[name]))[:6]
    for name in names:
        low, high = (loss_value(scaled_chip(chip(), {name: exp(sign * step)}), TASKS) for sign in (-1, 1))
        assert here().slope[name] == pytest.approx((high - low) / (2 * step), rel=1e-4, abs=1e-7), name
    assert not set(DISCRETE) & set(here().slope)


def test_the_loss_is_the_weighted_mean_of_the_logarithms() -> None:
    one, two = (log(best.seconds) for best in here().best)
    assert here().value == pytest.approx((one + 2 * two) / 3) == pytest.approx(loss_value(chip(), TASKS))
    assert here().slope["launch_s"] == pytest.approx((here().each[0]["launch_s"] + 2 * here().each[1]["launch_s"]) / 3)
    # Every second is a sum of terms of which each scales with one clock, rate or latency: doubling all rates and halving all
    # latencies halves it.
    faster = {name for name in here().slope if name.endswith(("_per_s", "_hz"))}
    slower = {name for name in here().slope if name.endswith("_s") and name not in faster}
    total = sum(here().slope[name] for name in slower) - sum(here().slope[name] for name in faster)
    assert total == pytest.approx(1.0, rel=1e-6)


def test_sensitivities_are_retuned_at_both_ends_and_sorted() -> None:
    names = ("ub_bytes", "cube_cores", "vector_clock_hz", "gm_bytes", "l2_bytes_per_s")
    _, rows = sensitivities(chip(), TASKS, names=names, swing=2.0)
    by_name = {row.parameter: row for row in rows}
    assert [row.swing for row in rows] == sorted((row.swing for row in rows), reverse=True) and set(by_name) == set(names)
    cores = by_name["cube_cores"]
    assert (cores.low, cores.value, cores.high) == (4, 8, 16) and cores.elasticity is not None and cores.elasticity < 0
    moved = scaled_chip(chip(), {"cube_cores": 2.0})
    assert cores.at_high == pytest.approx(exp(loss_value(moved, TASKS) - here().value))
    assert by_name["gm_bytes"].elasticity == 0 and by_name["gm_bytes"].at_low == 1
    room = by_name["ub_bytes"]
    assert room.at_low is not None and room.at_high is not None and room.at_low > 1 >= room.at_high
    clock = by_name["vector_clock_hz"]
    assert clock.elasticity == here().slope["vector_clock_hz"] and clock.at_low is not None and clock.at_low > 1
    with pytest.raises(ValueError, match="no number 'ub'"):
        sensitivities(chip(), TASKS, names=("ub",))
    with pytest.raises(ValueError, match="swing=1"):
        sensitivities(chip(), TASKS, swing=1)


def test_an_end_where_nothing_fits_is_no_number() -> None:
    tight = replace(chip(), ub_bytes=12 * 1024)
    _, (row,) = sensitivities(tight, TASKS[:1], names=("ub_bytes",), swing=8.0)
    assert row.at_low is None and row.elasticity is None and row.at_high is not None
    with pytest.raises(ValueError, match="nothing of prefill fits"):
        loss(replace(chip(), ub_bytes=1024), TASKS)
    with pytest.raises(ValueError, match="no workloads"):
        loss(chip(), ())


def test_a_grid_keeps_to_the_budget_and_its_front_is_what_none_beats() -> None:
    factors = {"cube_cores": (0.5, 1.0, 2.0), "l2_bytes_per_s": (1.0, 2.0)}
    weights = {"cube_cores": 0.5, "l2_bytes_per_s": 0.1}
    designs = design_grid(chip(), TASKS, factors, cost=Cost(weights, 1.2))
    assert len(designs) == 6 and [one.cost for one in designs] == pytest.approx([0.75, 0.85, 1.0, 1.1, 1.5, 1.6])
    assert [one.seconds is None for one in designs] == [False] * 4 + [True] * 2
    base = designs[2]
    assert base.speedup == pytest.approx(1.0) and base.seconds == pytest.approx(exp(here().value))
    front = pareto(designs)
    done = [one for one in designs if one.seconds is not None]
    for one in done:
        beaten = any(
            (o.cost, o.seconds) != (one.cost, one.seconds) and o.cost <= one.cost and (o.seconds or 0) <= (one.seconds or 0)
            for o in done
        )
        assert (one in front) == (not beaten)


def test_costs_are_shares_of_the_base() -> None:
    bigger = scaled_chip(chip(), {"ub_bytes": 2.0})
    assert chip_cost(bigger, {"ub_bytes": 0.25}, chip()) == pytest.approx(1.25)
    assert chip_cost(bigger, {}, chip()) == 1
    for wrong in ({"ub_bytes": -0.1}, {"ub_bytes": 0.8, "l1_bytes": 0.3}):
        with pytest.raises(ValueError, match="must be shares"):
            chip_cost(bigger, wrong, chip())
    with pytest.raises(ValueError, match="no number 'ub' to weigh"):
        chip_cost(bigger, {"ub": 0.1}, chip())


def test_scaled_chips_have_whole_counts_and_known_numbers() -> None:
    assert chip_parameters(scaled_chip(chip(), {"cube_cores": 0.01}))["cube_cores"] == 1
    assert scaled_chip(chip(), {"vector.exp": 2.0}).vector.exp == 2 * chip().vector.exp
    with pytest.raises(ValueError, match="no number 'speed'"):
        scaled_chip(chip(), {"speed": 2.0})


def test_the_command_writes_json_a_table_and_a_plot(tmp_path: Path) -> None:
    names = ["--parameters", "vector_clock_hz,launch_s,ub_bytes"]
    grid = ["--vary", "vector_clock_hz=1,2", "--cost", "vector_clock_hz=0.5"]
    plot = ["--plot", str(tmp_path / "t.svg"), "--json", str(tmp_path / "out.json")]
    run = CliRunner().invoke
    done = run(command_module.command, ["gpt2-prefill-1k", "gpt2-decode-1k=2", "--chip", "310p3", *names, *grid, *plot])
    assert done.exit_code == 0, done.output
    data = json.loads((tmp_path / "out.json").read_text())
    assert [row["weight"] for row in data["workloads"]] == [1, 2] and len(data["sensitivities"]) == 3
    gains = {row["parameter"]: row["gain_per_cost"] for row in data["sensitivities"]}
    clock = next(row for row in data["sensitivities"] if row["parameter"] == "vector_clock_hz")
    assert gains["launch_s"] is None and gains["vector_clock_hz"] == pytest.approx(-2 * clock["elasticity"])
    assert [data["designs"][at]["cost"] for at in data["pareto"]] == [1.0, 1.5]
    assert "vector_clock_hz" in done.output and "<svg" in (tmp_path / "t.svg").read_text()
    for wrong, says in (
        (["nonesuch"], "nonesuch"),
        (["gpt2-decode-1k=-1"], "weight above 0"),
        (["gpt2-decode-1k", "--vary", "ub_bytes=x"], "factors above 0"),
        (["gpt2-decode-1k", "--parameters", "ub"], "no number 'ub'"),
    ):
        failed = run(command_module.command, [*wrong, "--chip", "310p3"])
        assert failed.exit_code == 2 and says in failed.output


def test_the_plot_says_where_nothing_fits() -> None:
    tight = replace(chip(), ub_bytes=12 * 1024)
    data = study(tight, TASKS[:1], names=("ub_bytes", "launch_s"), swing=8.0)
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        assert b"ub_bytes (low: nothing fits)" in tornado_plot(data, "svg")
