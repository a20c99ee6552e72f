"""Sweeps: what a file asks for, the same winners on eight devices as on one, and no cell searched twice."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ascend_jax import load_chip, load_preset
from tiling_search import tune
from tiling_search.cli import main
from tiling_search.result import tiling_dict
from tiling_search.store.keep import keep_search, search_key
from tiling_search.store.store import Store
from tiling_search.sweep.run import part_of
from tiling_search.sweep.spec import read_sweep

ENV = {"TILING_SEARCH_DISABLE_CACHE": "1", "JAX_PLATFORMS": "cpu"}
SMALL = 'chips = ["310p3"]\nmodels = ["gpt2"]\nphases = ["prefill"]\nlengths = [128, 256]\nmasks = ["none", "causal"]\n'


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "spec.toml"
    path.write_text(text)
    return path


def test_a_file_asks_for_every_workload_on_every_chip(tmp_path: Path) -> None:
    text = 'chips = ["310p3", "910b3"]\npresets = ["gpt2-prefill-1k"]\nmodels = ["llama3-8b"]\nlengths = [512, 4096]\n'
    cells = read_sweep(written(tmp_path, text))
    assert len(cells) == 2 * (1 + 2 * 2)
    assert cells[0].work == load_preset("gpt2-prefill-1k")
    shapes = {cell.name: (cell.work.q_len, cell.work.kv_len) for cell in cells}
    assert shapes["llama3-8b-prefill-512"] == (512, 512) and shapes["llama3-8b-decode-4096"] == (1, 4096)
    masked = read_sweep(written(tmp_path, SMALL))
    assert [str(cell.work.mask) for cell in masked] == ["none", "causal"] * 2
    parts = [part_of(cells, part, 3) for part in range(3)]
    assert sorted(map(id, cells)) == sorted(id(cell) for part in parts for cell in part)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('presets = ["gpt2-prefill-1k"]', "chips are missing"),
        ('chips = ["310p3"]', "no workload"),
        ('chips = ["310p3"]\nmodles = ["gpt2"]', "'modles' is no field"),
        ('chips = "310p3"', "chips must be a list of texts"),
        ('chips = ["310p3"]\nlengths = [true]', "lengths must be a list of whole numbers"),
        ('chips = ["310p3"]\nmodels = ["gtp2"]', "model 'gtp2' is not among"),
        ('chips = ["310p3"]\nphases = ["train"]', "phase 'train'"),
        ('chips = ["999"]\npresets = ["gpt2-prefill-1k"]', "999"),
        ("chips = [", "Invalid"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path: Path, text: str, words: str) -> None:
    done = CliRunner().invoke(main, ["sweep", str(written(tmp_path, text)), "--store", str(tmp_path / "s.sqlite")], env=ENV)
    assert done.exit_code == 2 and words in done.stderr


def swept(*arguments: str, devices: int) -> list[dict[str, Any]]:
    env = os.environ | ENV | {"XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}", "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-m", "tiling_search", "sweep", *arguments, "--json", "-"]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_eight_devices_find_what_one_finds_to_the_last_bit_and_a_sweep_goes_on(tmp_path: Path) -> None:
    spec, place = written(tmp_path, SMALL.replace(", 256", "")), tmp_path / "s.sqlite"
    cells = read_sweep(spec)
    alone = [tune(cell.spec, cell.work, name=cell.name, top=3) for cell in cells]
    with Store(place) as store:  # what a sweep that was killed after its first cell leaves
        keep_search(store, search_key(cells[0].spec, cells[0].work), alone[0])
    rows = swept(str(spec), "--store", str(place), devices=8)
    assert [row["workload"] for row in rows] == [cell.name for cell in cells]
    assert [row["stored"] for row in rows] == [True, False]
    for row, result in zip(rows, alone, strict=True):
        assert result.best and row["tiling"] == tiling_dict(result.best.tiling)
        assert row["seconds"] == float(result.best.report.seconds)
    assert rows[1]["evaluated"] == alone[1].evaluated
    again = CliRunner().invoke(main, ["sweep", str(spec), "--store", str(place), "--json", "-"], env=ENV)
    assert again.exit_code == 0, again.output
    later = json.loads(again.stdout)
    assert [row["stored"] for row in later] == [True, True]
    assert [row["seconds"] for row in later] == [row["seconds"] for row in rows]


@pytest.mark.slow
def test_two_processes_share_a_sweep(tmp_path: Path) -> None:
    rows = swept(str(written(tmp_path, SMALL)), "--store", str(tmp_path / "s.sqlite"), "--processes", "2", devices=1)
    assert [row["stored"] for row in rows] == [True] * 4
    best = tune(load_chip("310p3"), read_sweep(tmp_path / "spec.toml")[0].work, top=1).best
    assert best and rows[0]["tiling"] == tiling_dict(best.tiling)
