"""The command line: what goes where, with which exit status."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result
from made_up import make_candidate, make_result

from ascend_jax import KERNELS, OVERLAPS, Verdict, chip_names, load_chip, load_preset, preset_names
from ascend_jax.kernels.schedules import SCHEDULES
from tiling_search import options
from tiling_search.cli import main

SMALL = ["--q-heads", "4", "--q-len", "256", "--head-dim", "64"]
ON_310P = ["--chip", "310p3", "--kernel", "ub_resident"]
BLOCKS = ["--tiling", "block_q=64,block_kv=64"]
EVALUATE = ["evaluate", *SMALL, *ON_310P, *BLOCKS]
PLAIN = {
    "TILING_SEARCH_DISABLE_CACHE": "1",
    "TILING_SEARCH_DISABLE_STORE": "1",
    "FORCE_COLOR": None,
    "TTY_COMPATIBLE": None,
    "JAX_PLATFORMS": "cpu",
}

Tuner = Callable[..., Any]


def run(*arguments: str, env: dict[str, str | None] | None = None) -> Result:
    return CliRunner().invoke(main, list(arguments), env=PLAIN | (env or {}))


def loads(text: str) -> Any:
    """Strict JSON: Python's reader takes NaN and Infinity, the standard does not."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in (os.environ | PLAIN).items() if value is not None}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=env, check=False)


@pytest.fixture
def tuner(monkeypatch: pytest.MonkeyPatch) -> Callable[[Tuner], None]:
    """Put a function in the place of the tuner."""

    def replace(function: Tuner) -> None:
        monkeypatch.setitem(sys.modules, "tiling_search.tuner", SimpleNamespace(tune=function))

    return replace


@pytest.mark.parametrize(
    "command", [[], ["tune"], ["evaluate"], ["chips"], ["workloads"], ["ask"], ["tell"], ["store"], ["sweep"], ["codesign"]]
)
def test_help_imports_nothing_heavy(command: list[str]) -> None:
    script = (
        "import sys; from tiling_search.cli import main\n"
        f"main({[*command, '--help']!r}, standalone_mode=False)\n"
        "sys.exit(','.join({'jax', 'numpy', 'rich'} & set(sys.modules)) or 0)"
    )
    done = python("-c", script)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage:" in done.stdout


def test_packages_import_nothing_heavy() -> None:
    done = python("-c", "import sys, ascend_jax, tiling_search; sys.exit(','.join({'jax', 'numpy'} & set(sys.modules)) or 0)")
    assert (done.returncode, done.stderr) == (0, "")


def test_python_m_is_the_same_command() -> None:
    done = python("-m", "tiling_search", "workloads")
    assert done.returncode == 0
    assert "llama3-8b-prefill-8k" in done.stdout
    assert done.stderr == ""


def test_the_choices_are_those_of_the_library() -> None:
    assert set(options.KERNELS) == {"auto", *KERNELS}
    assert set(options.SCHEDULES) == set(SCHEDULES)
    assert set(options.OVERLAPS) == set(OVERLAPS)
    for name in options.CHIP_EXAMPLES.replace(" or ", ", ").split(", "):
        assert load_chip(name).name == name


def test_chips_lists_every_chip_as_table_and_json() -> None:
    table, text = run("chips"), run("chips", "--json")
    assert (table.exit_code, text.exit_code) == (0, 0)
    rows = loads(text.stdout)
    assert [row["name"] for row in rows] == chip_names()
    assert all(row["name"] in table.stdout for row in rows)
    ours = next(row for row in rows if row["name"] == "Ascend910B3")
    assert (ours["cube_cores"], ours["vector_cores"], ours["ub_bytes"]) == (20, 40, 192 * 1024)


def test_workloads_lists_every_preset_as_table_and_json(tmp_path: Path) -> None:
    assert all(name in run("workloads").stdout for name in preset_names())
    done = run("workloads", "--json", str(tmp_path / "presets.json"))
    assert "llama3-8b-prefill-8k" in done.stdout
    assert [row["name"] for row in loads((tmp_path / "presets.json").read_text())] == list(preset_names())


def test_evaluate_says_what_it_takes() -> None:
    done = run(*EVALUATE)
    assert (done.exit_code, done.stderr) == (0, "")
    for text in ("custom on Ascend310P3", "kernel ub_resident", "fits", "TFLOPS", "bound by", "UB  ", "KiB", "skipped"):
        assert text in done.stdout
    assert done.stdout.isascii()
    assert "\x1b" not in done.stdout


def test_evaluate_as_json() -> None:
    done = run(*EVALUATE, "--mask", "causal", "--json", "-")
    assert (done.exit_code, done.stderr) == (0, "")
    data = loads(done.stdout)
    assert set(data) == {"chip", "workload", "kernel", "overlap", "tiling", "verdict", "message", "report"}
    assert (data["verdict"], data["message"], data["workload"]["mask"]) == ("FITS", "fits", "causal")
    report = data["report"]
    assert report["blocks"] == {"computed": 4 * 10, "partial": 4 * 4, "skipped": 4 * 6}
    assert all(isinstance(count, int) for count in report["blocks"].values())
    assert set(report["occupancy"]) == {"UB", "L1", "L0A", "L0B", "L0C", "GM"}
    for held in report["occupancy"].values():
        assert isinstance(held["used_bytes"], int)
        assert sum(held["buffers"].values()) == held["used_bytes"]
    assert len(report["limits"]) <= 10
    assert max(report["limits"], key=report["limits"].get) == next(iter(report["limits"]))


def test_evaluate_of_what_does_not_fit_ends_with_1() -> None:
    long = ["evaluate", *SMALL, *ON_310P, "--tiling", "block_q=256,block_kv=2048", "--kv-len", "4096"]
    table, text = run(*long), run(*long, "--json", "-")
    assert (table.exit_code, text.exit_code) == (1, 1)
    assert "UB overflow" in table.stdout
    assert loads(text.stdout)["verdict"] == "UB_OVERFLOW"
    assert "UB overflow" in text.stderr


def test_a_tiling_without_finite_numbers_is_still_json() -> None:
    done = run("evaluate", *SMALL, *ON_310P, "--tiling", "block_q=0,block_kv=64", "--json", "-")
    assert done.exit_code == 1
    assert loads(done.stdout)["verdict"] == "BLOCK_TOO_SMALL"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["evaluate", *SMALL, *BLOCKS], ["--chip", "Ascend910B3", "TOML"]),
        (["evaluate", *SMALL, "--chip", "311", *BLOCKS], ["'311'", "TOML file"]),
        (["evaluate", *SMALL, "--chip", "no/such.toml", *BLOCKS], ["no/such.toml"]),
        (["evaluate", *ON_310P, *BLOCKS], ["--q-heads", "--q-len", "--head-dim"]),
        (["evaluate", *ON_310P, *BLOCKS, "--q-heads", "8"], ["--q-len, --head-dim missing"]),
        (["evaluate", "llama3-8b-prefill-9k", *ON_310P, *BLOCKS], ["llama3-8b-prefill-8k"]),
        (["evaluate", *SMALL, *ON_310P], ["--tiling"]),
        (["evaluate", *SMALL, *ON_310P, "--tiling", "block_q=64"], ["block_kv missing"]),
        (["evaluate", *SMALL, *ON_310P, "--tiling", "block_q=64,block_kw=64"], ["block_kw", "did you mean block_kv"]),
        (["evaluate", *SMALL, *ON_310P, "--tiling", "block_q=64,block_kv=6.4"], ["block_kv=6.4", "whole number"]),
        (["evaluate", *SMALL, *ON_310P, "--tiling", "block_q=64,block_kv=-64"], ["block_kv=-64", "at least"]),
        (["evaluate", *SMALL, *ON_310P, "--tiling", "block_q=64,block_kv=64,block_q=64"], ["block_q", "twice"]),
        ([*EVALUATE, "--kernel", "fast"], ["fast", "ub_resident"]),
        ([*EVALUATE, "--overlap", "none"], ["none", "roofline"]),
        ([*EVALUATE, "--mask", "diagonal"], ["diagonal", "left-up-causal"]),
        ([*EVALUATE, "--mask", "band:-5,2"], ["pre=-5"]),
        ([*EVALUATE, "--dtype", "int4"], ["int4", "bf16"]),
        ([*EVALUATE, "--layout", "SBHD"], ["SBHD", "BNSD"]),
        ([*EVALUATE, "--kv-heads", "3"], ["q_heads=4", "kv_heads=3"]),
        ([*EVALUATE, "--q-len", "12,x"], ["12,x"]),
        ([*EVALUATE, "--q-len", "128,256", "--kv-len", "128"], ["one length per sequence"]),
        ([*EVALUATE, "--q-len", str(10**30)], ["2^53"]),
        ([*EVALUATE, "--json", "no/such/folder.json"], ["no/such"]),
        (["tune", *SMALL, *ON_310P, "--top", "0"], ["--top"]),
        (["tune", *SMALL], ["--chip"]),
        (["tune", *SMALL, "--chip", "910b3", "--kernel", "coupled"], ["kernel 'coupled'", "Ascend910B3"]),
    ],
)
def test_wrong_usage_ends_with_2_and_says_what_is_right(arguments: list[str], words: list[str]) -> None:
    done = run(*arguments)
    assert done.exit_code == 2
    assert isinstance(done.exception, SystemExit)
    assert done.stdout == ""
    for word in words:
        assert word in done.stderr


def test_tune_passes_on_what_was_asked(tuner: Callable[[Tuner], None]) -> None:
    calls = []
    tuner(lambda *args, **kwargs: calls.append((args, kwargs)) or make_result(make_candidate()))
    done = run("tune", "gpt2-decode-1k", "--chip", "310p3", "--kernel", "coupled", "--overlap", "serial", "--top", "3")
    assert done.exit_code == 0
    [((spec, work), kwargs)] = calls
    assert (spec.name, work) == ("Ascend310P3", load_preset("gpt2-decode-1k"))
    kwargs.pop("progress")(1, 2)
    kwargs.pop("programs")
    effort = kwargs.pop("effort")
    assert (effort.max_evals, effort.budget_s) == (None, None)
    assert kwargs == {"name": "gpt2-decode-1k", "kernel": "coupled", "overlap": "serial", "top": 3, "space": "usual"}


def test_tune_shows_the_best_and_ends_with_0(tuner: Callable[[Tuner], None]) -> None:
    found = make_result(make_candidate(0.002, 96), make_candidate(0.003, 64, block_kv=128))
    tuner(lambda *_, **__: found)
    done = run("tune", *SMALL, *ON_310P)
    assert (done.exit_code, done.stderr) == (0, "")
    for text in ("made-up on Ascend910B3", "block_kv=256", "2.000 ms", "200.0 TFLOPS", "50.0 %", "Vector", "L1_OVERFLOW"):
        assert text in done.stdout


def test_json_to_a_file_leaves_the_table(tuner: Callable[[Tuner], None], tmp_path: Path) -> None:
    tuner(lambda *_, **__: make_result(make_candidate()))
    both = run("tune", *SMALL, *ON_310P, "--json", str(tmp_path / "out.json"))
    only = run("tune", *SMALL, *ON_310P, "--json", "-")
    assert "TFLOPS" in both.stdout
    assert (tmp_path / "out.json").read_text() == only.stdout
    assert loads(only.stdout)["best"]["latency_s"] == 0.002
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]


def test_nothing_fits_ends_with_1(tuner: Callable[[Tuner], None]) -> None:
    nearest = make_candidate(0.002, 200, Verdict.UB_OVERFLOW, block_kv=16)
    tuner(lambda *_, **__: make_result(nearest=nearest))
    table, text = run("tune", *SMALL, *ON_310P), run("tune", *SMALL, *ON_310P, "--json", "-")
    assert (table.exit_code, text.exit_code) == (1, 1)
    for done in (table.stdout, text.stderr):
        for words in ("nothing fits", "UB overflow: 204,800 bytes asked, 196,608 available", "8,192", "block_kv=16"):
            assert words in done
    assert loads(text.stdout)["nearest"]["verdict"] == "UB_OVERFLOW"


def test_ctrl_c_ends_with_130(tuner: Callable[[Tuner], None]) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    tuner(interrupted)
    done = run("tune", *SMALL, *ON_310P)
    assert (done.exit_code, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_a_chip_of_ones_own_may_have_any_name(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('base = "310p3"\nname = "[bold]Ünï:smile:"\n', encoding="utf-8")
    done = run("evaluate", *SMALL, "--chip", str(file), "--kernel", "ub_resident", *BLOCKS)
    assert done.exit_code == 0
    assert "[bold]Ünï:smile:" in done.stdout


@pytest.mark.slow
def test_a_real_search_from_the_shell(tmp_path: Path) -> None:
    done = python("-m", "tiling_search", "tune", "gpt2-prefill-1k", "--chip", "310p3", "--top", "3", "--json", "-")
    assert (done.returncode, done.stderr) == (0, "")
    data = loads(done.stdout)
    assert len(data["top"]) == 3
    assert data["best"] == data["top"][0]
    times = [one["latency_s"] for one in data["top"]]
    assert times == sorted(times)
    tiling = ",".join(f"{name}={value}" for name, value in data["best"]["tiling"].items())
    again = run("evaluate", "gpt2-prefill-1k", "--chip", "310p3", "--tiling", tiling, "--json", "-")
    assert loads(again.stdout)["report"]["latency_s"] == pytest.approx(times[0], rel=1e-9)


def test_a_closed_pipe_and_a_full_disk_are_not_taken_for_nothing_fits() -> None:
    script = f"{sys.executable} -m tiling_search workloads | true; echo ${{PIPESTATUS[0]}}"
    closed = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert (closed.stdout.strip(), closed.stderr) == ("141", "")
    with open("/dev/full", "w", encoding="utf-8") as full:
        command = [sys.executable, "-m", "tiling_search", "workloads"]
        unwritten = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert unwritten.returncode == 74 and unwritten.stderr.startswith("Error: cannot write")
    assert "Traceback" not in unwritten.stderr
