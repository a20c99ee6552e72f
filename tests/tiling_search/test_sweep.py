"""Sweeps: what a file asks for, the same winners on eight devices as on one, and no cell searched twice."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ascend_jax import Attention, load_preset
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
    assert sorted(place for part in range(3) for place in part_of(20, part, 3)) == list(range(20))


def test_a_model_of_ones_own_is_written_as_a_preset_is(tmp_path: Path) -> None:
    own = '[model.mine]\nq_heads = 16\nkv_heads = 4\nhead_dim = 96\nmask = "causal"\nprefill = ["4k"]\ndecode = ["1k", "2k"]\n'
    asked = 'chips = ["310p3"]\nmodels = ["mine", "gpt2"]\n'
    cells = {cell.name: cell.work for cell in read_sweep(written(tmp_path, asked + own))}
    assert list(cells) == ["mine-prefill-4k", "mine-decode-1k", "mine-decode-2k", "gpt2-prefill-1k", "gpt2-decode-1k"]
    assert cells["mine-prefill-4k"] == Attention(
        batch=1, q_heads=16, kv_heads=4, q_len=4096, kv_len=4096, head_dim=96, mask="causal", layout="BSND", dtype="bfloat16"
    )
    assert (cells["mine-decode-2k"].batch, cells["mine-decode-2k"].q_len, cells["mine-decode-2k"].kv_len) == (8, 1, 2048)
    longer = {cell.name for cell in read_sweep(written(tmp_path, asked + "lengths = [512]\n" + own))}
    assert longer == {"mine-prefill-512", "mine-decode-512", "gpt2-prefill-512", "gpt2-decode-512"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('presets = ["gpt2-prefill-1k"]', "chips are missing"),
        ('chips = ["310p3"]', "no workload"),
        ('chips = ["310p3"]\nmodles = ["gpt2"]', "'modles' is no field"),
        ("chips = [", "spec.toml: is not valid TOML"),
        ('chips = "310p3"', "chips must be a list of texts"),
        ('chips = ["310p3"]\nlengths = [true]', "lengths must be a list of whole numbers"),
        ('chips = ["310p3"]\nmodels = ["gtp2"]', "model 'gtp2' is not among"),
        ('chips = ["310p3"]\nphases = ["train"]', "phase 'train'"),
        ('chips = ["999"]\npresets = ["gpt2-prefill-1k"]', "999"),
        ("chips = [", "Invalid"),
        ('chips = ["310p3"]\nmodels = ["a"]\n[model.a]\nheads = 2', "[model.a] has no phase"),
        ('chips = ["310p3"]\nmodels = ["a"]\n[model.a]\nq_heads = 2\nprefill = ["1k"]', "[model.a] must be written as"),
        ('chips = ["310p3"]\nmodels = ["a"]\n[model.a]\nheads = 2\nhead_dim = 64\nprefill = ["1k"]', "'heads'"),
        ('chips = ["310p3"]\nmodels = ["gpt2"]\n[model.gpt2]\nq_heads = 2', "the name of a preset"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path: Path, text: str, words: str) -> None:
    done = CliRunner().invoke(main, ["sweep", str(written(tmp_path, text)), "--store", str(tmp_path / "s.sqlite")], env=ENV)
    assert done.exit_code == 2 and words in done.stderr


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--process-id 2 --processes 2", "must be below --processes 2"),
        ("--share blocks --processes 2 --process-id 0", "needs --coordinator"),
        ("--share cells --processes 2 --process-id 0 --coordinator a:1", "goes with --share blocks"),
        ("--share blocks --processes 2 --coordinator a:1", "goes with --share blocks and --process-id"),
        ("--share blocks --processes 2 --process-id 0 --coordinator a", "must be HOST:PORT"),
        ("--devices 4096", "--devices 4096 is more than there are"),
    ],
)
def test_options_that_do_not_go_together_are_wrong_usage(tmp_path: Path, flags: str, words: str) -> None:
    place = ["--store", str(tmp_path / "s.sqlite")]
    done = CliRunner().invoke(main, ["sweep", str(written(tmp_path, SMALL)), *place, *flags.split()], env=ENV)
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


SCORES = """
import sys, jax, numpy as np
from ascend_jax import load_chip, load_preset
from ascend_jax.cost.evaluate import chosen
from tiling_search.exhaustive import CHUNK, Evaluator, within_ub
from tiling_search.space import build_space
from tiling_search.sweep.sharded import OnDevices
spec, work = load_chip("910b3"), load_preset("gpt2-prefill-1k")
asked = spec, work, *chosen(spec, "auto", "pipelined")
one, many = Evaluator.build(*asked), OnDevices(jax.devices()[: int(sys.argv[1])])(*asked)
blocks = within_ub(one, build_space(*asked[:3]))[0]
fits = blocks[one.least(blocks) == 0]
assert np.array_equal(one.least(blocks), many.least(blocks)) and len(fits) > CHUNK
for some in (fits[:CHUNK], fits[-37:], blocks[-CHUNK:]):
    assert np.array_equal(one.verdicts(some), many.verdicts(some))
    for ours, theirs in zip(one.scores(some), many.scores(some), strict=True):
        assert ours.shape == theirs.shape and np.array_equal(ours, theirs)
"""


@pytest.mark.slow
@pytest.mark.parametrize("devices", [8, 3])
def test_each_score_is_the_same_to_the_last_bit_on_many_devices(devices: int) -> None:
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "TF_CPP_MIN_LOG_LEVEL": "3"}
    subprocess.run([sys.executable, "-c", SCORES, str(devices)], env=os.environ | ENV | flags, check=True)


@pytest.mark.slow
@pytest.mark.parametrize("share", ["cells", "blocks"])
def test_two_processes_find_what_one_finds_and_go_on_when_one_is_killed(tmp_path: Path, share: str) -> None:
    spec = written(tmp_path, SMALL.replace('"310p3"', '"310p3", "910b3"').replace(", 256", ""))  # two kernels to compile
    alone = swept(str(spec), "--store", str(tmp_path / "alone.sqlite"), devices=1)
    assert [row["stored"] for row in alone] == [False] * 4
    place = tmp_path / f"{share}.sqlite"
    arguments = [str(spec), "--store", str(place), "--processes", "2", "--share", share]
    process = subprocess.Popen(
        [sys.executable, "-m", "tiling_search", "sweep", *arguments], env=os.environ | ENV, stderr=subprocess.PIPE, text=True
    )
    while not searches(place):
        assert process.poll() is None
        time.sleep(0.02)
    victim = next(pid for pid, words in children(process.pid).items() if words[words.index("--process-id") + 1] == "1")
    os.kill(victim, signal.SIGKILL)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 1 and "process 1 of 2 was ended by SIGKILL" in said and "goes on from there" in said
    kept = searches(place)
    assert kept
    rows = swept(*arguments, devices=1)
    assert sum(row["stored"] for row in rows) == len(kept) and kept <= searches(place)
    for row, one in zip(rows, alone, strict=True):
        assert row["evaluated"] in (0, one["evaluated"])
        assert {**row, "stored": 0, "evaluated": 0} == {**one, "stored": 0, "evaluated": 0}


def searches(place: Path) -> set[tuple[Any, ...]]:
    """All that the store at ``place`` has of searches; nothing while it is being made."""
    if not place.exists():
        return set()
    with closing(sqlite3.connect(place)) as connection:
        try:
            return set(connection.execute("SELECT * FROM search"))
        except sqlite3.OperationalError:
            return set()


def children(parent: int) -> dict[int, list[str]]:
    """The processes that ``parent`` started, with their arguments."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            status, words = (folder / "status").read_text(), (folder / "cmdline").read_text().split("\0")
        except OSError:  # ended meanwhile
            continue
        if f"PPid:\t{parent}\n" in status:
            found[int(folder.name)] = words
    return found
