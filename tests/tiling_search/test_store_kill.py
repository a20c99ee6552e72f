"""Whoever is killed while writing to the store leaves whole rows and nothing else."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

WRITERS = Path(__file__).with_name("store_writers.py")


def killed(path: Path, rounds: int) -> Any:
    command = [sys.executable, "-W", "ignore", str(WRITERS), str(path), str(rounds), "7"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | {"JAX_PLATFORMS": "cpu"})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_killed_writers_leave_whole_rows_and_go_on_where_they_were(tmp_path: Path) -> None:
    found = killed(tmp_path / "store.sqlite", 30)
    assert found["faults"] == []
    assert found["told"] >= 30  # they did write


@pytest.mark.slow
def test_a_hundred_kills(tmp_path: Path) -> None:
    found = killed(tmp_path / "store.sqlite", 100)
    assert found["faults"] == []
    assert found["told"] >= 100
