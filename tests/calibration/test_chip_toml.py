"""The chip file of a fit: it reads back as exactly the fitted numbers, and says what each rests on."""

import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ascend_jax.calibration.chip_toml import chip_text, fitted_spec, uncertainty_text
from ascend_jax.calibration.constants import own_values, usual_constants, with_constants
from ascend_jax.calibration.fit import Fit, FittedConstant
from ascend_jax.hardware import NpuSpec, chip_names, load_chip


def made_up(spec: NpuSpec, seed: int = 0, left_out: int = 1, notes: tuple[str, ...] = ()) -> Fit:
    """A fit that moved every usual constant but ``left_out`` by a random factor."""
    constants, rng = usual_constants(spec), np.random.default_rng(seed)
    values = own_values(spec, constants) * np.exp(rng.normal(0, 0.3, len(constants)))
    fitted = tuple(
        FittedConstant(
            constant=constant,
            start=float(value),
            value=float(value),
            log_std=0.05,
            fitted=place != left_out,
            notes=notes if place != left_out else ("no row depends on it",),
        )
        for place, (constant, value) in enumerate(zip(constants, values, strict=True))
    )
    nothing = np.zeros(0)
    return Fit(
        constants=fitted,
        scale=0.1,
        rows=34,
        residuals=nothing,
        start_residuals=nothing,
        correlation=np.zeros((len(fitted),) * 2),
        loss=0.0,
        steps=1,
        method="L-BFGS",
        converged=True,
    )


@pytest.mark.parametrize("name", chip_names())
@pytest.mark.parametrize("seed", range(3))
def test_every_chip_comes_back_with_exactly_the_fitted_numbers(tmp_path: Path, name: str, seed: int) -> None:
    spec = load_chip(name)
    fit = made_up(spec, seed)
    (tmp_path / "mine.toml").write_text(chip_text(spec, fit, base=name, about=["made up"]), "utf-8")
    back, expected = load_chip(tmp_path / "mine.toml"), fitted_spec(spec, fit)
    assert replace(back, name="") == replace(expected, name="")
    assert back.name == "mine"
    assert back != spec


def test_the_numbers_are_those_of_the_fit_to_five_digits() -> None:
    spec = load_chip("910b3")
    fit = made_up(spec)
    chosen = [found for found in fit.constants if found.fitted]
    exact = with_constants(spec, [found.constant for found in chosen], np.array([found.value for found in chosen]))
    ours = fitted_spec(spec, fit)
    for name in ("gm_bytes_per_s", "launch_s", "handoff_s", "dma_burst_gap_bytes"):
        assert getattr(ours, name) == pytest.approx(getattr(exact, name), rel=5e-5)
    assert vars(ours.vector) == pytest.approx(vars(exact.vector), rel=5e-5)


def test_what_was_not_fitted_is_left_to_the_base() -> None:
    spec = load_chip("910b3")
    fit = made_up(spec, left_out=1)
    table = tomllib.loads(chip_text(spec, fit, base="910b3"))
    assert table["base"] == "910b3"
    assert fit.constants[1].constant.field == "l2_bytes_per_s"
    assert not [key for key in table if key.startswith("l2_")]
    assert fitted_spec(spec, fit).l2_bytes_per_s == spec.l2_bytes_per_s


def test_units_are_those_that_people_write() -> None:
    spec = load_chip("910b3")
    table = tomllib.loads(chip_text(spec, made_up(spec), base="910b3"))
    for key, value in table.items():
        assert key in ("base", "vector") or 0.1 <= value < 1000
    assert {"gm_tb_per_s", "gm_to_l1_gb_per_s", "handoff_ns", "launch_us"} <= set(table)
    assert {"head", "tail"}.isdisjoint(table["vector"])


def test_each_number_says_rows_uncertainty_and_what_it_was() -> None:
    spec = load_chip("910b3")
    text = chip_text(spec, made_up(spec, notes=("at its upper bound",)), base="910b3", about=["one\nline", "and\ttwo"])
    lines = text.splitlines()
    assert lines[:2] == ["# one line", "# and\ttwo"]
    numbers = [line for line in lines if "=" in line and not line.startswith(("#", "base"))]
    assert len(numbers) == len(usual_constants(spec)) - 2 + len(vars(spec.vector)) - 2
    for line in numbers:
        assert "fitted from 34 rows, ± 5.1 %; was " in line
        assert line.endswith("; weakly identified: at its upper bound")
    [gm] = [line for line in numbers if line.startswith("gm_tb_per_s")]
    assert f"was {spec.gm_bytes_per_s / 1e12};" in gm


def test_a_path_with_quotes_is_a_base(tmp_path: Path) -> None:
    spec = load_chip("910b3")
    (tmp_path / 'my "chip".toml').write_text('base = "910b3"\n')
    (tmp_path / "mine.toml").write_text(chip_text(spec, made_up(spec), base='my "chip".toml'), "utf-8")
    assert load_chip(tmp_path / "mine.toml").gm_bytes_per_s == fitted_spec(spec, made_up(spec)).gm_bytes_per_s


def test_large_uncertainties_are_factors() -> None:
    assert uncertainty_text(np.log(1.2)) == "± 20 %"
    assert uncertainty_text(np.log(2.0)) == "×/÷ 2"
