"""Files of a timeline: what is in them, which cores and tasks, and nothing at all where something fails."""

import csv
import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import pytest
from click.testing import CliRunner, Result
from made_up import make_candidate
from made_up_timeline import MadeUpTimeline
from trace_checker import checked, loads

from ascend_jax import Report, Verdict
from ascend_jax.timeline.events import Events
from ascend_jax.timeline.pipe_csv import Clocks
from ascend_jax.timeline.trace import Ids
from tiling_search import options
from tiling_search.cli import main
from tiling_search.simulate import Wanted, viewer_note, write_timeline

CLOCKS = Clocks(1e9, 1e9)
NAMES = ("trace.json", "pipes.csv", "series.csv")


class Broken(MadeUpTimeline):
    """Fails in the middle."""

    def chunks(self, cores: Sequence[int]) -> Iterator[Events]:
        yield next(super().chunks(cores))
        raise OSError(errno.ENOSPC, "no space left")


class Watched(MadeUpTimeline):
    """Remembers the tasks of each chunk that it was asked for."""

    def chunks(self, cores: Sequence[int]) -> Iterator[Events]:
        for chunk in super().chunks(cores):
            ASKED.append(int(chunk.task.min()))
            yield chunk


ASKED: list[int] = []


def files(folder: Path) -> Wanted:
    trace, pipes, series = (folder / name for name in NAMES)
    return Wanted(trace, pipes, series)


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def test_all_files_in_one_pass(tmp_path: Path) -> None:
    timeline = MadeUpTimeline()
    found = write_timeline(timeline, files(tmp_path), CLOCKS, {"chip": "made up"})
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(NAMES)
    slices = checked((tmp_path / "trace.json").read_text())
    assert found["written"]["trace"]["slices"] == sum(map(len, slices.values()))
    assert {process.split(".")[0] for process, _ in slices} == {"core0"}
    assert labels(tmp_path / "trace.json") == {"chip: made up, cores: 0 of 2 cube cores with tasks"}
    assert len(rows_of(tmp_path / "pipes.csv")) == found["written"]["csv"]["rows"] == 3
    assert len(rows_of(tmp_path / "series.csv")) == found["written"]["series"]["rows"]
    assert found["events"] == len(timeline.events(0))


def test_the_summary_needs_no_file() -> None:
    timeline = MadeUpTimeline(tasks=20)
    found = write_timeline(timeline, Wanted(), CLOCKS, {})
    cube = next(row for row in found["pipes"] if row["pipe"] == "Cube")
    mine = [event for event in timeline.events(0) if timeline.stages[event.stage].pipe == "Cube"]
    assert cube["busy_s"] == pytest.approx(sum(event.end_s - event.start_s for event in mine))
    assert 0 < cube["share"] < 1
    assert found["written"] == {}


def labels(trace: Path) -> set[str]:
    return {args["labels"] for event in loads(trace.read_text())["traceEvents"] if "labels" in (args := event.get("args", {}))}


@pytest.mark.parametrize(("cores", "text"), [(None, "0-4"), ((0, 2, 3), "0, 2-3"), ((4,), "4")])
def test_cores_are_those_that_were_asked_for(tmp_path: Path, cores: tuple[int, ...] | None, text: str) -> None:
    wanted = files(tmp_path)._replace(cores=cores)
    found = write_timeline(MadeUpTimeline(cores=5), wanted, CLOCKS, {})
    asked = list(range(5)) if cores is None else list(cores)
    assert found["cores"] == asked
    trace = loads((tmp_path / "trace.json").read_text())
    assert labels(tmp_path / "trace.json") == {f"cores: {text} of 5 cube cores with tasks"}
    assert {event["pid"].split(".")[0] for event in trace["traceEvents"]} == {f"core{core}" for core in asked}
    assert {int(row["block_id"]) for row in rows_of(tmp_path / "pipes.csv")} == set(asked)
    assert {int(row["core"]) for row in rows_of(tmp_path / "series.csv")} == set(asked)


def test_the_first_tasks_are_whole_and_the_rest_is_not_simulated(tmp_path: Path) -> None:
    timeline, asked = Watched(tasks=60, cores=1), ASKED
    asked.clear()
    found = write_timeline(timeline, files(tmp_path)._replace(tasks=2), CLOCKS, {})
    assert found["events"] == sum(event.task < 2 for event in timeline.events(0))
    assert max(asked) < 10
    text = (tmp_path / "trace.json").read_text()
    checked(text)
    assert labels(tmp_path / "trace.json") == {"cores: 0 of 1 cube cores with tasks, cut: the first 2 tasks of each core"}
    assert {event["args"]["task"] for event in loads(text)["traceEvents"] if event["ph"] == "X"} == {0, 1}


def test_a_series_is_json_by_its_name(tmp_path: Path) -> None:
    write_timeline(MadeUpTimeline(), Wanted(series=tmp_path / "series.JSON"), CLOCKS, {})
    assert json.loads((tmp_path / "series.JSON").read_text())["columns"][:2] == ["core", "time_us"]


def test_what_fails_leaves_the_old_files_and_no_others(tmp_path: Path) -> None:
    for name in NAMES:
        (tmp_path / name).write_text("old")
    with pytest.raises(OSError, match="no space"):
        write_timeline(Broken(), files(tmp_path), CLOCKS, {})
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == dict.fromkeys(NAMES, "old")


def test_a_core_without_a_task_and_a_file_for_two_purposes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cube core 2 has no task: those from 0 to 1 have"):
        write_timeline(MadeUpTimeline(), files(tmp_path)._replace(cores=(0, 2)), CLOCKS, {})
    with pytest.raises(ValueError, match="a file of its own"):
        write_timeline(MadeUpTimeline(), files(tmp_path)._replace(csv=tmp_path / "." / "trace.json"), CLOCKS, {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["trace.json", "trace_view.json", "msprof_20250101.json", "msprof_slice_0_1.json"])
def test_names_that_mindstudio_insight_opens(name: str) -> None:
    assert viewer_note(Wanted(trace=Path("somewhere") / name), 2**30) is None


@pytest.mark.parametrize("name", ["mytrace.json", "trace.JSON", "trace.json.txt", "msprof.json"])
def test_names_that_it_does_not_open(name: str) -> None:
    assert name in str(viewer_note(Wanted(trace=Path(name)), 0))


def test_what_else_it_does_not_open() -> None:
    assert viewer_note(Wanted(), 0) is None
    trace = Wanted(trace=Path("trace.json"))
    assert "--tasks" in str(viewer_note(trace, 2**30 + 1))
    assert "--ids names" in str(viewer_note(trace._replace(ids="numbers"), 0))


@dataclass(frozen=True, kw_only=True)
class WithReport(MadeUpTimeline):
    """A timeline as the engine returns it."""

    report: Report


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Put a timeline made by hand in the place of the engine."""

    def replace(timeline: MadeUpTimeline | None = None, **candidate: Any) -> None:
        made = WithReport(report=make_candidate(**candidate).report) if timeline is None else timeline
        monkeypatch.setattr("tiling_search.simulate.simulate", lambda *args, **options: made)

    return replace


def run(*arguments: str) -> Result:
    command = ["simulate", "llama3-8b-prefill-8k", "--chip", "910b3", "--tiling", "block_q=128,block_kv=256", *arguments]
    return CliRunner().invoke(main, command, env={"TILING_SEARCH_DISABLE_CACHE": "1", "FORCE_COLOR": None})


def test_the_command_writes_and_tells(engine: Callable[..., None], tmp_path: Path) -> None:
    engine()
    paths = [tmp_path / name for name in NAMES]
    flags = [text for flag, path in zip(("--trace", "--csv", "--series"), paths, strict=True) for text in (flag, str(path))]
    done = run(*flags, "--cores", "0-1")
    assert (done.exit_code, done.stderr) == (0, "")
    assert "Timeline of 2 of 2 cube cores" in done.stdout and "Cube" in done.stdout
    assert all(str(path) in done.stdout for path in paths)
    assert {process.split(".")[0] for process, _ in checked(paths[0].read_text())} == {"core0", "core1"}
    assert all("block_q" in label and "llama3-8b-prefill-8k" in label for label in labels(paths[0]))


def test_the_command_as_json(engine: Callable[..., None]) -> None:
    engine()
    done = run("--json", "-", "--tasks", "1")
    data = loads(done.stdout)
    assert (data["overlap"], data["verdict"]) == ("simulated", "FITS")
    assert set(data["timeline"]) == {"active_cores", "cores", "tasks", "events", "pipes", "written", "note"}
    assert (data["timeline"]["cores"], data["timeline"]["tasks"]) == ([0], 1)


def test_what_does_not_fit_is_not_written(engine: Callable[..., None], tmp_path: Path) -> None:
    engine(verdict=Verdict.UB_OVERFLOW, ub_kib=300)
    done = run("--trace", str(tmp_path / "trace.json"))
    assert done.exit_code == 1
    assert "UB" in done.stdout and "Timeline" not in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--cores", "2"], "cube core 2 has no task: those from 0 to 1 have"),
        (["--cores", "a"], "must be cube cores, such as 0 or 0,4-7, or all"),
        (["--cores", "3-1"], "must be cube cores"),
        (["--cores", "0-99999999999999999999"], "must be cube cores"),
        (["--tasks", "0"], "--tasks"),
        (["--trace", "-"], "stdout is taken by the summary"),
        (["--trace", "nowhere/trace.json"], "is no folder"),
        (["--csv", "same", "--series", "same"], "a file of its own"),
        (["--overlap", "serial"], "No such option"),
    ],
)
def test_wrong_usage_ends_with_two(engine: Callable[..., None], flags: list[str], message: str) -> None:
    engine()
    done = run(*flags)
    assert done.exit_code == 2
    assert message in done.stderr.replace("\n", " ")


@pytest.mark.slow
def test_a_second_run_uses_the_stored_program_and_says_the_same(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tiling_search", "simulate", "--q-heads", "8", "--q-len", "512", "--head-dim", "64"]
    command += ["--chip", "310p3", "--kernel", "coupled", "--tiling", "block_q=64,block_kv=64", "--json", "-"]
    env = os.environ | {"TILING_SEARCH_CACHE_DIR": str(tmp_path), "JAX_PLATFORMS": "cpu"}
    env = {name: value for name, value in env.items() if name != "TILING_SEARCH_DISABLE_CACHE"}
    env.pop("TF_CPP_MIN_LOG_LEVEL", None)  # which jax has set in this process
    first, second, apart = (
        subprocess.run(command, env=env | extra, capture_output=True, text=True, check=True)
        for extra in ({}, {}, {"TILING_SEARCH_DISABLE_CACHE": "1"})
    )
    assert loads(first.stdout) == loads(second.stdout) == loads(apart.stdout)
    assert len(list(tmp_path.rglob("*.programs"))) == 1
    assert list(tmp_path.rglob("*-cache"))  # jax's own, of the smaller programs
    assert (first.stderr, second.stderr) == ("", "")


def test_help_of_simulate_imports_nothing_heavy() -> None:
    script = (
        "import sys; from tiling_search.cli import main\n"
        "main(['simulate', '--help'], standalone_mode=False)\n"
        "sys.exit(','.join({'jax', 'numpy', 'rich'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "--trace" in done.stdout


def test_the_choices_of_ids_are_those_of_the_writer() -> None:
    assert get_args(Ids) == options.TRACE_IDS
