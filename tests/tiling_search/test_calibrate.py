"""``calibrate``: which rows take part, what comes out as numbers, table and chip file; with a model that anyone can check."""

import csv
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from click.testing import CliRunner, Result

from ascend_jax.calibration.assume import Case, assume
from ascend_jax.calibration.call_shapes import Hints
from ascend_jax.calibration.problem import Problem, evaluate
from ascend_jax.calibration.rows import Row
from ascend_jax.hardware import NpuSpec, load_chip
from tiling_search import calibrate as module
from tiling_search.calibrate import Calibration, Model, Source, calibrate, read_source
from tiling_search.calibration_json import calibration_dict
from tiling_search.cli import main

CHIP = load_chip("910b3")
TRUTH = {"gm_bytes_per_s": 0.9 * CHIP.gm_bytes_per_s, "launch_s": 1.3 * CHIP.launch_s}
PLAIN = {"TILING_SEARCH_DISABLE_CACHE": "1", "JAX_PLATFORMS": "cpu"}


def toy_seconds(cases: Sequence[Case], specs: Mapping[str, NpuSpec]) -> Any:
    """Launch, and K and V once over GM."""
    rows = []
    for case in cases:
        spec, work = specs[case.spec.name], case.work
        moved = 4 * work.batch * work.kv_heads * work.kv_len * work.head_dim
        rows.append(spec.launch_s + moved / spec.gm_bytes_per_s)
    return jnp.stack([jnp.asarray(row, float) for row in rows])


MODEL = Model(assume=assume, tiling=lambda case: pytest.fail(f"{case.row.id} states a tiling"), seconds=toy_seconds)


def measurements(count: int = 24, noise: float = 0.03) -> list[dict[str, Any]]:
    """Rows of 910B3 as a person would write them, made by the toy model at ``TRUTH``."""
    rng = np.random.default_rng(0)
    truth = {CHIP.name: replace(CHIP, **TRUTH)}
    rows = []
    for place in range(count):
        row = {
            "id": f"r{place}",
            "op": "FusedInferAttentionScore",
            "category": "attention",
            "catalog_chip": "910B3",
            "dtype": "fp16",
            "layout": "BNSD",
            "batch": int(2 ** rng.integers(0, 6)),
            "q_heads": 8,
            "kv_heads": 8,
            "q_seq": 1 if place % 2 else 1024,
            "kv_seq": int(1024 * 2 ** rng.integers(0, 4)),
            "head_dim": 128,
            "causal": False,
            "metric": "latency",
            "unit": "us",
            "value": 1.0,
            "quality": "A",
        }
        case = assume(Row(**row))
        row["value"] = float(toy_seconds([case], truth)[0]) * 1e6 * float(np.exp(rng.normal(0, noise)))
        rows.append(row)
    return rows


def write(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    path.write_text(json.dumps(list(rows)))
    return path


def run(tmp_path: Path, rows: Sequence[Mapping[str, Any]], **other: Any) -> Calibration:
    source = read_source(write(tmp_path / "rows.json", rows), "910b3", Hints())
    return calibrate(source, **({"chip": "910b3", "model": MODEL, "out": tmp_path / "chip.toml"} | other))


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line with the toy model."""
    monkeypatch.setattr(module, "the_model", lambda programs=None: MODEL)


def command(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["calibrate", *arguments], env=PLAIN)


def test_the_constants_that_made_the_rows_come_back(tmp_path: Path) -> None:
    found = run(tmp_path, measurements())
    fitted = {each.constant.field: each for each in found.fit.constants if each.fitted}
    assert set(fitted) == set(TRUTH)
    for field, value in TRUTH.items():
        assert abs(np.log(fitted[field].value / value)) < 3 * fitted[field].log_std
    assert found.cross_validation is not None
    assert set(found.cross_validation.groups) == {"CANN decode", "CANN prefill"}
    assert found.spec == replace(CHIP, **{field: each.value for field, each in fitted.items()})


def test_the_chip_file_is_what_was_fitted(tmp_path: Path, toy: None) -> None:
    source, out = write(tmp_path / "rows.json", measurements()), tmp_path / "chip.toml"
    done = command(str(source), "--chip", "910b3", "--out", str(out), "--json", "-")
    assert (done.exit_code, done.stderr) == (0, "")
    data = json.loads(done.stdout)
    spec = load_chip(out)
    for constant in data["constants"]:
        if constant["field"] != "vector":
            assert getattr(spec, constant["field"]) == (
                constant["value"] if constant["fitted"] else getattr(CHIP, constant["field"])
            )
    assert out.read_text().startswith("# Fitted by tiling-search calibrate to 24 rows of rows.json: mean error")
    assert data["errors"]["after"]["mean"] < data["errors"]["before"]["mean"]


def test_the_json_says_everything(tmp_path: Path) -> None:
    data = calibration_dict(run(tmp_path, measurements()))
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert set(data["cross_validation"]) == {"groups", "overall", "skipped"}
    constants = {constant["field"]: constant for constant in data["constants"]}
    assert constants["gm_bytes_per_s"]["fitted"] and not constants["handoff_s"]["fitted"]
    assert constants["handoff_s"]["notes"] == ["no row depends on it"]
    assert set(constants["gm_bytes_per_s"]["correlation"]) == {"launch"}
    for row in data["rows"]:
        assert row["predicted_s"] / row["measured_s"] - 1 == pytest.approx(row["error"])
        assert row["error_left_out"] is not None


def test_a_calibrated_chip_is_calibrated_further(tmp_path: Path) -> None:
    """The rows of the chip at the bottom of the chain are its rows, and the new file names the old one from where it lies."""
    first = run(tmp_path, measurements())
    (tmp_path / "first.toml").write_text(first.text, "utf-8")
    (tmp_path / "further").mkdir()
    out = tmp_path / "further" / "second.toml"
    second = run(tmp_path, measurements(), chip=str(tmp_path / "first.toml"), out=out)
    assert '\nbase = "../first.toml"\n' in second.text
    out.write_text(second.text, "utf-8")
    assert load_chip(out).gm_bytes_per_s == second.spec.gm_bytes_per_s
    assert second.chip == "first"


def test_rows_that_take_no_part_say_why(tmp_path: Path) -> None:
    rows = measurements()
    rows[0]["quality"] = "C"
    rows[1]["catalog_chip"] = "910B2"
    rows[2] |= {"metric": "bandwidth", "unit": "GB/s"}
    rows[3]["category"] = "gemm"
    rows[4]["batch"] = "many"
    rows[5]["catalog_chip"] = "910Z"
    found = run(tmp_path, rows)
    reasons = dict(found.skipped)
    assert set(reasons) == {"r0", "r1", "r2", "r3", "r4", "r5"}
    for name, words in {"r0": "quality C", "r1": "measured on Ascend910B2", "r2": "no time", "r4": "whole number"}.items():
        assert words in reasons[name]
    assert len(found.problem.ids) == 18


def test_marked_rows_are_the_only_ones_where_there_are_any(tmp_path: Path) -> None:
    rows = [row | {"core_validation": place >= 8} for place, row in enumerate(measurements())]
    found = run(tmp_path, rows)
    assert found.problem.ids == tuple(f"r{place}" for place in range(8, 24))
    assert all("core_validation" in reason for _, reason in found.skipped)


def test_rows_without_a_chip_are_of_the_chip_that_was_named(tmp_path: Path) -> None:
    rows = [{key: value for key, value in row.items() if key != "catalog_chip"} for row in measurements()]
    assert len(run(tmp_path, rows).problem.ids) == 24


def test_grades_are_weights(tmp_path: Path) -> None:
    rows = [row | {"quality": "B" if place < 10 else "A"} for place, row in enumerate(measurements())]
    del rows[20]["quality"]
    weights = run(tmp_path, rows).problem.weights
    np.testing.assert_array_equal(weights[[0, 9, 10, 19, 20]], [0.5, 0.5, 1, 1, 0.5])


def test_only_the_fields_that_were_asked_for_are_fitted(tmp_path: Path) -> None:
    found = run(tmp_path, measurements(), fields=("launch_s",), cross_validate=False)
    assert [each.constant.field for each in found.fit.constants] == ["launch_s"]
    assert found.cross_validation is None
    assert found.spec.gm_bytes_per_s == CHIP.gm_bytes_per_s


def test_a_profile_is_calibrated_to(tmp_path: Path, toy: None) -> None:
    """Executions of each row, as the profiler writes them."""
    out, profile = tmp_path / "mine.toml", tmp_path / "op_summary_1.csv"
    with profile.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["OP Type", "Task Duration(us)", "Input Shapes", "Input Data Types", "Input Formats"])
        for row in measurements():
            query, key = ((row["batch"], 8, row[length], 128) for length in ("q_seq", "kv_seq"))
            shapes = ";".join(",".join(map(str, shape)) for shape in (query, key, key))
            for slow in (0.99, 1.0, 1.5):
                types = ("FLOAT16;FLOAT16;FLOAT16", "ND;ND;ND")
                table.writerow(["FusedInferAttentionScore", row["value"] * slow, shapes, *types])
    done = command(str(profile), "--chip", "910b3", "--out", str(out), "--layout", "BNSD", "--json", "-")
    assert (done.exit_code, done.stderr) == (0, "")
    spec = load_chip(out)
    assert spec.gm_bytes_per_s == pytest.approx(TRUTH["gm_bytes_per_s"], rel=0.05)
    assert spec.launch_s == pytest.approx(TRUTH["launch_s"], rel=0.15)


def test_the_table_names_constants_errors_and_what_took_no_part(tmp_path: Path, toy: None) -> None:
    rows = measurements()
    rows[0]["quality"] = "C"
    done = command(str(write(tmp_path / "rows.json", rows)), "--chip", "910b3", "--out", str(tmp_path / "chip.toml"))
    assert (done.exit_code, done.stderr) == (0, "")
    expected = [
        "Ascend910B3, calibrated to 23 rows of rows.json",
        "GM bandwidth",
        "launch_s",
        "Not fitted",
        "no row depends on it",
    ]
    expected += [
        "Absolute errors",
        "CANN decode, fitted without it",
        "Farthest off",
        "quality C: not to be fitted",
        "chip.toml",
        "±",
    ]
    for text in expected:
        assert text in done.stdout


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([row | {"catalog_chip": "910B2"} for row in measurements(4)], "measured on Ascend910B2 (4)"),
        ([row | {"category": "gemm"} for row in measurements(4)], "only attention"),
        (measurements(2), "2 rows with weight: 3 are the least"),
        ([{"nothing": 1}], "holds no row of attention"),
        ([], "holds no rows"),
    ],
)
def test_rows_that_say_nothing_of_the_chip_are_wrong_usage(
    tmp_path: Path, toy: None, rows: list[dict[str, Any]], message: str
) -> None:
    out = tmp_path / "chip.toml"
    done = command(str(write(tmp_path / "rows.json", rows)), "--chip", "910b3", "--out", str(out))
    assert done.exit_code == 2
    assert message in " ".join(done.stderr.split())
    assert not out.exists()


def test_wrong_chips_tables_and_files_are_wrong_usage(tmp_path: Path, toy: None) -> None:
    rows, table = write(tmp_path / "rows.json", measurements()), tmp_path / "table.csv"
    table.write_text("a,b\n")
    out, own = str(tmp_path / "chip.toml"), tmp_path / "own.toml"
    own.write_text('base = "910b3"\n')
    for arguments, message in [
        ((str(rows), "--chip", "910z", "--out", out), "no chip is called '910z'"),
        ((str(table), "--chip", "910b3", "--out", out), "no column OP Type or Type"),
        ((str(rows), "--chip", "910b3", "--out", str(tmp_path / "no" / "chip.toml")), "is no folder"),
        ((str(rows), "--chip", str(own), "--out", str(own)), "choose another"),
        ((str(rows), "--chip", "910b3", "--out", out, "--fields", "gm_speed"), "gm_speed cannot be fitted on Ascend910B3"),
        ((str(tmp_path / "none.json"), "--chip", "910b3", "--out", out), "does not exist"),
        ((str(rows), "--chip", "910b3"), "Missing option '--out'"),
    ]:
        done = command(*arguments)
        assert done.exit_code == 2
        assert message in " ".join(done.stderr.split())
    assert own.read_text() == 'base = "910b3"\n'


def test_rows_that_determine_nothing_are_wrong_usage(tmp_path: Path) -> None:
    blind = replace(MODEL, seconds=lambda cases, specs: jnp.full(len(cases), 1e-4))
    with pytest.raises(ValueError, match="determine no constant of Ascend910B3: GM bandwidth: no row depends on it"):
        run(tmp_path, measurements(), model=blind)


def test_tilings_that_rows_leave_out_are_asked_for(tmp_path: Path) -> None:
    asked: list[str] = []

    def without(row: Any) -> Case:
        return replace(assume(row), tiling=None)

    def tiling(case: Case) -> Any:
        asked.append(case.row.id)
        return SimpleNamespace()

    run(tmp_path, measurements(), model=replace(MODEL, assume=without, tiling=tiling), cross_validate=False)
    assert asked == [f"r{place}" for place in range(24)]


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys; from tiling_search.cli import main\n"
        "main(['calibrate', '--help'], standalone_mode=False)\n"
        "sys.exit(','.join({'jax', 'numpy', 'rich', 'optax'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "--fields" in done.stdout


class _Asked(Exception):
    """Carries the problem that a fit was asked to solve."""


@pytest.mark.slow
def test_the_packages_own_model_is_differentiable_by_every_constant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A prefill and two decode rows of the real model: slopes by the constants are those of finite differences."""

    def stop(problem: Problem) -> None:
        raise _Asked(problem)

    monkeypatch.setattr(module, "fit", stop)
    source = Source(name="rows", rows=tuple(Row(**row) for row in measurements(3)), skipped=())
    with pytest.raises(_Asked) as asked:
        calibrate(source, chip="910b3", model=module.the_model(), out=tmp_path / "x.toml", cross_validate=False)
    problem: Problem = asked.value.args[0]
    logs, step = np.log(problem.start), 1e-5
    _, slopes = evaluate(problem.predict_log, logs)
    assert np.any(slopes > 0.01)
    for place in range(len(logs)):
        shift = step * np.eye(len(logs))[place]
        high, low = (evaluate(problem.predict_log, logs + sign * shift)[0] for sign in (1, -1))
        np.testing.assert_allclose(slopes[:, place], (high - low) / (2 * step), rtol=1e-4, atol=1e-6)
