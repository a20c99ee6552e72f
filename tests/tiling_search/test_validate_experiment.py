"""The experiment that publishes the validation: its rows have sources, and its table has every row."""

import json
import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
from toy_predictor import ToyPredictor

from ascend_jax.calibration.rows import Refused, Row, read_rows

FOLDER = Path(__file__).parent.parent.parent / "experiments" / "validation"


SHAPE: dict[str, Any] = {"batch": 2, "q_heads": 4, "kv_heads": 1, "q_seq": 8, "kv_seq": 16, "head_dim": 32}


@pytest.fixture(scope="module")
def experiment() -> Any:
    spec = spec_from_file_location("validation_experiment", FOLDER / "run.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_row_has_a_source_a_grade_and_a_known_chip_name() -> None:
    rows = read_rows(FOLDER / "rows.json")
    assert len(rows) == 669
    assert all(row.source and row.quality in ("A", "B", "C") and row.catalog_chip for row in rows)
    assert sum(row.core_validation for row in rows) == 99
    for row in rows:
        if row.core_validation:
            assert None not in (row.batch, row.q_heads, row.kv_heads, row.q_seq, row.kv_seq, row.head_dim, row.measured_s)


def test_what_is_written_has_every_row_and_says_what_was_fitted(experiment: Any, tmp_path: Path) -> None:
    entries = [
        Row(id="a", value=10.0, unit="us", op="FA | one", note="1.5", **SHAPE),
        Row(id="b", value=10.0, unit="us", op="FA", q_seq=1, note="0.9"),
        Row(id="g", value=2.0, unit="us", op="GEMM", category="gemm", input_shape=((2, 3), (3, 4))),
        Row(id="r", value=98.5, unit="TFLOPS", metric="throughput"),
        Refused(id=None, reason="row number 5: no id"),
    ]
    experiment.write(tmp_path, entries, ToyPredictor(), {"b"})
    assert {path.name for path in tmp_path.iterdir()} == {"result.json", "table.md", "parity.png"}
    data = json.loads((tmp_path / "result.json").read_text())
    assert [row["fitted"] for row in data["rows"]] == [False, True, False, False, False]
    assert data["overall"]["fitted"]["mean_error"] == pytest.approx(-0.1)
    assert data["overall"]["not_fitted"]["mean_error"] == pytest.approx(0.5)
    text = (tmp_path / "table.md").read_text("utf-8")
    assert "2 of 5 rows modelled" in text and "1 rows took part in fitting" in text
    lines = {line.split(" | ")[0].strip("| "): line for line in text.splitlines() if line.startswith("|")}
    for words in ("FA / one", "B2 N4/1 S8/16 D32", "10.00 us", "15.00 us", "+50.0 %", "separated 128×256", "Cube", "| no |"):
        assert words in lines["a"]
    assert lines["b"].endswith("| yes |")
    assert "2×3, 3×4" in lines["g"] and "a matrix multiplication is not attention" in lines["g"]
    assert "98.5 TFLOPS" in lines["r"]
    assert "row number 5: no id" in lines["?"]
    widths = [len(re.findall(r"\|", line)) for line in lines.values() if line.startswith(("| a ", "| g ", "| ? ", "| id "))]
    assert len(set(widths)) == 1


def test_fitted_rows_are_ids_of_rows(experiment: Any) -> None:
    assert experiment.fitted_rows() <= {row.id for row in read_rows(FOLDER / "rows.json")}
