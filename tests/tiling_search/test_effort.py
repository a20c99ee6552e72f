"""A search that stops early: what it looked at, what it says, and how it ends."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from made_up import make_candidate, make_result

from ascend_jax import Attention, load_chip
from tiling_search import effort as efforts
from tiling_search import tune
from tiling_search.cli import main
from tiling_search.effort import EFFORTS, Effort, Log, interruptible
from tiling_search.tuner import COARSE, _coarse_first

CHIP = load_chip("910b3")
WORK = Attention(batch=1, q_heads=8, kv_heads=8, q_len=1024, kv_len=1024, head_dim=64)
ENV = {"TILING_SEARCH_DISABLE_CACHE": "1", "TILING_SEARCH_DISABLE_STORE": "1", "JAX_PLATFORMS": "cpu"}
FLAGS = ["--q-heads", "8", "--q-len", "1024", "--head-dim", "64", "--chip", "910b3"]


def test_coarse_blocks_come_first_and_none_is_lost() -> None:
    sizes = np.arange(16, 400, 16, dtype=float)
    blocks = np.stack([part.ravel() for part in np.meshgrid(sizes, sizes, indexing="ij")], axis=1)
    ordered = _coarse_first(blocks)
    assert sorted(map(tuple, ordered)) == sorted(map(tuple, blocks))
    steps = [int(np.gcd.reduce([*row.astype(int), COARSE])) for row in ordered]
    assert steps == sorted(steps, reverse=True) and steps[0] == 128


def test_the_best_so_far_gets_better_with_effort_and_says_that_it_is_not_proven() -> None:
    full = tune(CHIP, WORK, top=3)
    few, more = (tune(CHIP, WORK, top=3, effort=Effort(max_evals=number)) for number in (600, 3_000_000))
    assert full.best and few.best and more.best and full.exact
    assert (few.exact, more.exact) == (False, False)
    assert few.evaluated <= 600 < more.evaluated <= 3_000_000 < full.evaluated
    assert full.best.report.seconds <= more.best.report.seconds <= few.best.report.seconds
    assert float(more.best.report.seconds) <= 1.1 * float(full.best.report.seconds)
    enough = tune(CHIP, WORK, top=3, effort=Effort(max_evals=10**12, budget_s=3600))
    assert enough.exact and enough.best and enough.best.tiling == full.best.tiling and enough.rejected == full.rejected


def test_a_search_that_is_stopped_at_once_still_has_a_best() -> None:
    told: list[tuple[int, float | None]] = []
    found = tune(CHIP, WORK, top=1, effort=Effort(stop=lambda: True, watch=lambda *seen: told.append(seen)))
    assert found.best and not found.exact
    assert told == [(found.evaluated, pytest.approx(float(found.best.report.seconds), rel=1e-5))]
    assert tune(CHIP, WORK, top=1, effort=Effort(budget_s=1e-9)).evaluated <= found.evaluated


@pytest.mark.parametrize("limits", [{"max_evals": 0}, {"budget_s": 0.0}, {"budget_s": float("nan")}])
def test_limits_are_above_zero(limits: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(limits))):
        Effort(**limits)


def test_the_first_ctrl_c_is_noted_and_the_second_interrupts() -> None:
    before = signal.getsignal(signal.SIGINT)
    with interruptible() as pressed:
        assert not pressed()
        signal.raise_signal(signal.SIGINT)
        assert pressed()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_options_reach_the_search_and_the_log_has_its_story(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[Effort] = []

    def tuner(*_: Any, effort: Effort, **__: Any) -> Any:
        asked.append(effort)
        effort.watch(5, 0.5)
        return make_result(make_candidate(), exact=False)

    monkeypatch.setitem(sys.modules, "tiling_search.tuner", SimpleNamespace(tune=tuner))
    log = tmp_path / "log.jsonl"
    for options in (["--effort", "quick"], ["--max-evals", "7", "--budget-seconds", "2.5"], []):
        assert CliRunner().invoke(main, ["tune", *FLAGS, *options, "--log", str(log)], env=ENV).exit_code == 0
    limits = [(one.max_evals, one.budget_s) for one in asked]
    assert limits == [(EFFORTS["quick"].max_evals, None), (7, 2.5), (None, None)]
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["event"] for line in lines] == ["tune", "progress", "end"] * 3
    assert lines[1]["best_s"] == 0.5 and lines[2]["exact"] is False
    Log(None)("nothing")


def test_ctrl_c_gives_the_best_so_far_and_130() -> None:
    """A search of some seconds in a process of its own, interrupted when its log says that it has begun."""
    script = (
        "import sys, time, tiling_search.effort as e\n"
        "def over(self, started):\n"
        "    print('chunk', file=sys.stderr, flush=True)\n"
        "    time.sleep(0.5)\n"
        "    return self.stop()\n"
        "e.Effort.over = over\n"
        "from tiling_search.cli import main\n"
        f"main({['tune', *FLAGS, '--json', '-']!r})\n"
    )
    env = os.environ | ENV
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
    ) as process:
        assert process.stderr and process.stderr.readline() == "chunk\n"
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        text, _ = process.communicate(timeout=120)
    data = json.loads(text)
    assert process.returncode == 130
    assert data["exact"] is False and data["best"]["tiling"]["block_q"] >= 16


def test_the_presets_are_those_of_the_command_line() -> None:
    choices = next(option for option in main.commands["tune"].params if option.name == "effort").type
    assert set(choices.choices) == set(efforts.EFFORTS)  # type: ignore[attr-defined]
