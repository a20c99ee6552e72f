"""``tiling-search validate``: what is shown, written and drawn, and what it says of wrong usage."""

import json
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result
from toy_predictor import ToyPredictor

from tiling_search import options
from tiling_search.cli import main
from tiling_search.parity_plot import parity_plot

BEGINNINGS = {"png": b"\x89PNG\r\n\x1a\n", "svg": b"<?xml", "pdf": b"%PDF-"}
PNG_END = b"IEND\xaeB`\x82"
PLAIN = {"TILING_SEARCH_DISABLE_CACHE": "1", "FORCE_COLOR": None, "TTY_COMPATIBLE": None}
CORE = {"op": "cann FA", "core_validation": True}
ROWS = [
    CORE | {"id": "a1", "value": 150, "note": "1.1", "catalog_chip": "910B2", "quality": "A"},
    CORE | {"id": "a2", "value": 0.3, "note": "0.5", "catalog_chip": "950PR", "quality": "B"},
    {"id": "a3", "value": 9.5, "note": "1.4", "op": "PTO FA", "catalog_chip": "910B2", "quality": "C", "tiling": "64x64"},
    {"id": "g1", "value": 12.5, "category": "gemm", "op": "GEMM"},
    {"id": "z0", "value": 0},
]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["validate", *arguments], env=PLAIN)


def loads(text: str) -> Any:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A file of five rows, and the toy predictor in the model's place."""
    monkeypatch.setitem(sys.modules, "tiling_search.predictor", SimpleNamespace(EveryRow=lambda programs: ToyPredictor()))
    file = tmp_path / "rows.json"
    file.write_text(json.dumps([{"unit": "us", "metric": "latency", "category": "attention"} | one for one in ROWS]))
    return str(file)


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys; from tiling_search.cli import main\n"
        "main(['validate', '--help'], standalone_mode=False)\n"
        "sys.exit(','.join({'jax', 'numpy', 'rich', 'matplotlib'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "ROWS.json" in done.stdout and "--plot" in done.stdout


def test_the_table_lists_rows_reasons_and_totals(rows: str) -> None:
    done = run(rows)
    assert (done.exit_code, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    [a3] = [line for line in lines if line.startswith("a3")]
    for words in ("910B2", "PTO FA", "C (not counted)", "separated", "64x64", "9.500 us", "13.30 us", "+40.0 %", "Cube"):
        assert words in a3
    for words in ("150.0 us", "165.0 us", "128x256", "+10.0 %", "0.300 us", "0.150 us", "-50.0 %"):
        assert words in done.stdout
    assert done.stdout.isascii()
    [gemm] = [line for line in lines if line.endswith("g1")]
    assert "not attention" in gemm
    [zero] = [line for line in lines if line.endswith("z0")]
    assert "value=0" in zero and "above 0" in zero
    for heading in ("By chip", "By kernel", "By grade", "By chip and kernel", "By chip, core_validation rows", "Overall"):
        assert heading in lines
    assert lines[-1] == "3 of 5 rows modelled, 2 skipped; not counted but under their grade: rows of grade C"


def test_json_on_stdout_is_only_json_and_that_of_the_file(rows: str, tmp_path: Path) -> None:
    only, both = run(rows, "--json", "-"), run(rows, "--json", str(tmp_path / "out.json"))
    assert (only.exit_code, only.stderr, both.exit_code) == (0, "", 0)
    data = loads(only.stdout)
    assert (tmp_path / "out.json").read_text() == only.stdout
    assert "Overall" in both.stdout
    assert [one["id"] for one in data["rows"]] == ["a1", "a2", "a3", "g1", "z0"]
    assert data["overall"]["n"] == 2
    assert data["overall"]["mean_abs_error"] == pytest.approx(0.3)


@pytest.mark.parametrize("ending", ["png", "svg", "pdf", "PNG"])
def test_the_plot_is_a_file_of_its_kind(rows: str, tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"parity.{ending}"
    done = run(rows, "--plot", str(file), "--json", "-")
    assert done.exit_code == 0
    assert loads(done.stdout)["overall"]["rows"] == 5
    content = file.read_bytes()
    assert content.startswith(BEGINNINGS[ending.lower()])
    assert not content.startswith(BEGINNINGS["png"]) or content.endswith(PNG_END)
    assert {path.name for path in tmp_path.iterdir()} == {"rows.json", file.name}


def test_the_plot_names_every_kernel_and_chip() -> None:
    rows = [
        {"error": 0.1, "group": f"kernel {number}", "chip": f"chip {number % 15}", "measured_s": 1e-5, "predicted_s": 1.1e-5}
        for number in range(25)  # more than there are colours or markers
    ]
    drawn = parity_plot({"rows": [one | {"counted": True} for one in rows]}, "svg").decode()
    for name in ("kernel 0", "kernel 24", "chip 0", "chip 14"):
        assert f"<!-- {name} -->" in drawn


def test_nothing_modelled_can_be_drawn() -> None:
    assert parity_plot({"rows": [{"error": None}]}, "png").endswith(PNG_END)


def test_drawing_leaves_the_process_alone() -> None:
    parity_plot({"rows": []}, "png")
    assert "matplotlib.pyplot" not in sys.modules


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", ["rows.json", "not JSON"]),
        ("[]", ["rows.json", "no rows"]),
        ('{"a": 1}', ["'a'", "list of rows"]),
        ("[1, 2]", ["holds no row that can be read", "row number 1"]),
        ('[{"id": "x"}]', ["row 'x'", "value is missing"]),
    ],
)
def test_a_file_without_rows_ends_with_2(rows: str, text: str, words: list[str]) -> None:
    Path(rows).write_text(text)
    refuses(run(rows), words)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["ROWS.json"]),
        (["no/such.json"], ["no/such.json", "does not exist"]),
        (["."], ["is a directory"]),
        (["ROWS", "--json", "no/such/folder.json"], ["no/such"]),
        (["ROWS", "--plot", "no/such/plot.png"], ["no/such"]),
        (["ROWS", "--plot", "plot.gif"], ["plot.gif", ".png, .svg, .pdf"]),
        (["ROWS", "--plot", "-"], ["'-'", ".png"]),
        (["ROWS", "--plot", "/dev/null/x.png"], ["/dev/null"]),
    ],
)
def test_wrong_usage_ends_with_2(rows: str, arguments: list[str], words: list[str]) -> None:
    refuses(run(*(rows if word == "ROWS" else word for word in arguments)), words)


def test_without_matplotlib_the_plot_names_the_extra(rows: str, monkeypatch: pytest.MonkeyPatch) -> None:
    missing: Callable[[str], Any] = lambda name: None if name == "matplotlib" else find_spec(name)  # noqa: E731
    monkeypatch.setattr(options, "find_spec", missing)
    refuses(run(rows, "--plot", "plot.png"), ['pip install "ascend-jax[plot]"'])
    assert run(rows).exit_code == 0


def test_a_plot_that_cannot_be_written_ends_with_2(rows: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tiling_search.jsonfile.write_atomically", full)
    refuses(run(rows, "--plot", str(tmp_path / "p.png")), ["p.png", "No space left", "--plot"])


def test_ctrl_c_ends_with_130(rows: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tiling_search.validate.validate", interrupted)
    assert run(rows).exit_code == 130


def refuses(done: Result, words: list[str]) -> None:
    assert done.exit_code == 2, done.output
    assert isinstance(done.exception, SystemExit)
    assert done.stdout == ""
    for word in words:
        assert word in done.stderr
