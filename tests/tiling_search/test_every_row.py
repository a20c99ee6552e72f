"""Validation of all categories: attention by its model, the others by their own, in the order of the rows."""

import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
from toy_predictor import ToyPredictor

from ascend_jax.calibration.elementary import elementary
from ascend_jax.calibration.rows import Row
from ascend_jax.hardware import load_chip
from tiling_search.predictor import EveryRow
from tiling_search.render import Page
from tiling_search.validate import validate
from tiling_search.validation_views import show_validation

EXPERIMENT = Path(__file__).parent.parent.parent / "experiments" / "validation" / "run.py"


def row(name: str, category: str, **changes: Any) -> Row:
    given: dict[str, Any] = {"unit": "us", "metric": "latency", "catalog_chip": "910B2", "quality": "A", "dtype": "fp16"}
    return Row(id=name, value=20.0, category=category, **(given | changes))


ROWS = [
    row("g", "gemm", op="GEMM", input_shape=((1024, 512), (512, 2048))),
    row("a", "attention", op="FA", note="1.5"),
    row("m", "memory", op="datacopy GM->UB [64,64]", input_shape=((2048, 2048),)),
    row("b", "attention", op="FA", note="0.5", tiling="64x64"),
    row("v", "vector", op="vector exp", input_shape=((1024, 1024),)),
    row("no", "gemm", op="GEMM of unknown size"),
]


@pytest.fixture
def attention(monkeypatch: pytest.MonkeyPatch) -> ToyPredictor:
    toy = ToyPredictor()
    monkeypatch.setattr("tiling_search.predictor.Model", lambda programs: toy)
    return toy


def test_each_row_gets_the_answer_of_its_own_model(attention: ToyPredictor) -> None:
    data = validate(ROWS, predictor=EveryRow())
    found = {one["id"]: one for one in data["rows"]}
    assert list(found) == [one.id for one in ROWS]
    assert (found["a"]["predicted_s"], found["b"]["predicted_s"]) == (pytest.approx(3e-5), pytest.approx(1e-5))
    assert found["a"]["tiling"]["block_q"] == 128 and found["b"]["tiling"]["block_q"] == 64
    assert attention.batches == [2]
    for one, kernel in ((ROWS[0], "gemm"), (ROWS[2], "copy"), (ROWS[4], "exp")):
        said, own = found[one.id], elementary(one, load_chip("910b2"))
        assert (said["kernel"], said["group"], said["tiling"], said["skipped"]) == (kernel, kernel, None, None)
        assert (said["predicted_s"], said["bound_by"]) == own
        assert said["error"] == pytest.approx(own.seconds / 20e-6 - 1)
    assert "sizes of the matrices" in found["no"]["skipped"]
    assert set(data["overall"]["category"]) == {"attention", "gemm", "memory", "vector"}


def test_a_row_without_a_tiling_shows_no_block(attention: ToyPredictor, capsys: pytest.CaptureFixture[str]) -> None:
    data = validate(ROWS, predictor=EveryRow())
    show_validation(Page(), data)
    lines = [line for line in capsys.readouterr().out.splitlines() if re.match(r"\s*(g|m|v|a)\s", line)]
    assert len(lines) == 4
    assert [bool(re.search(r"128.256|\?.\?", line)) for line in lines] == [False, True, False, False]


def test_the_published_table_names_the_operator_alone(attention: ToyPredictor) -> None:
    spec = spec_from_file_location("validation_run", EXPERIMENT)
    assert spec is not None and spec.loader is not None
    experiment = module_from_spec(spec)
    spec.loader.exec_module(experiment)
    text = experiment.table(experiment.compare(ROWS, set(), EveryRow()), ROWS)
    lines = {line.split(" | ")[0].strip("| "): line for line in text.splitlines() if line.startswith("|")}
    assert "| gemm |" in lines["g"] and "1024×512, 512×2048" in lines["g"]
    assert "| separated 128×256 " in lines["a"]
