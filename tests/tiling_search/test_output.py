"""JSON, tables and files, from results made by hand."""

import io
import json
import os
import stat
from pathlib import Path

import pytest
from made_up import make_candidate, make_result
from rich.console import Console

from ascend_jax import Attention, Verdict
from tiling_search import views
from tiling_search.jsonfile import dumps, write_atomically
from tiling_search.jsonout import evaluation_dict, tuning_dict, workload_dict
from tiling_search.progress import SearchProgress
from tiling_search.render import BAR_WIDTH, Page, seconds_text

KEYS = {"chip", "workload", "kernel", "overlap", "best", "top", "pareto", "rejected", "space", "exact"}
KEYS |= {"evaluations_per_s", "provenance"}
CANDIDATE_KEYS = {"tiling", "latency_s", "tflops", "utilisation", "bound_by", "occupancy", "blocks"}


def page(*, terminal: bool, encoding: str = "utf-8", width: int = 400) -> tuple[Page, io.BytesIO]:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, write_through=True)
    return Page(Console(file=file, force_terminal=terminal, width=width, color_system="standard" if terminal else None)), raw


def shown(raw: io.BytesIO, encoding: str = "utf-8") -> str:
    return raw.getvalue().decode(encoding)


def test_the_json_of_a_search_has_the_agreed_keys() -> None:
    data = tuning_dict(make_result(make_candidate(), make_candidate(0.003, 64)))
    assert set(data) == KEYS
    assert data["best"] == data["top"][0]
    for one in (*data["top"], *data["pareto"]):
        assert set(one) == CANDIDATE_KEYS
        assert one["blocks"] == {"computed": 96, "skipped": 32, "partial": 32}
    assert data["best"]["occupancy"]["UB"] == {"used_bytes": 96 * 1024, "capacity_bytes": 192 * 1024}
    assert (data["best"]["tflops"], data["best"]["utilisation"]) == (pytest.approx(200), pytest.approx(0.5))
    assert data["space"] == {"candidates": 2000, "feasible": 2, "evaluated": 1000, "bounded": 0}
    assert data["evaluations_per_s"] == 2000
    assert data["workload"]["mask"] == "band:7,0"
    assert json.loads(dumps(data)) == data


def test_where_nothing_fits_the_json_says_what_comes_nearest() -> None:
    data = tuning_dict(make_result(nearest=make_candidate(0.002, 200, Verdict.UB_OVERFLOW)))
    assert set(data) == KEYS | {"message", "nearest"}
    assert (data["best"], data["top"]) == (None, [])
    assert set(data["nearest"]) == CANDIDATE_KEYS | {"verdict", "message"}
    assert "8,192 too many" in data["message"]
    assert tuning_dict(make_result())["nearest"] is None


def test_numbers_that_json_lacks_are_null() -> None:
    candidate = make_candidate(float("inf"), float("nan"), Verdict.BLOCK_TOO_SMALL)
    data = tuning_dict(make_result(candidate))
    assert data["best"]["latency_s"] is None
    assert data["best"]["occupancy"]["UB"]["used_bytes"] is None
    assert "NaN" not in dumps(data)
    paper, raw = page(terminal=False)
    views.show_tuning(paper, data)
    assert "n/a" in shown(raw)


def test_variable_lengths_are_lists() -> None:
    work = Attention(batch=1, q_heads=1, kv_heads=1, q_len=(1, 2), kv_len=(3, 4), head_dim=8, value_dim=8, layout="TND")
    assert workload_dict("ragged", work)["q_len"] == [1, 2]


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("width", [40, 80, 400])
def test_a_table_shows_every_section_at_any_width(terminal: bool, width: int) -> None:
    paper, raw = page(terminal=terminal, width=width)
    views.show_tuning(paper, tuning_dict(make_result(make_candidate(), make_candidate(0.003, 64, block_kv=128))))
    for section in ("Best tiling", "Memory", "Fastest 2", "Less UB", "Rejected", "2,000 tilings"):
        assert section in shown(raw)


def test_only_a_terminal_gets_boxes_and_colours() -> None:
    data = tuning_dict(make_result(make_candidate()))
    texts = {}
    for terminal in (False, True):
        paper, raw = page(terminal=terminal)
        views.show_tuning(paper, data)
        texts[terminal] = shown(raw)
    assert texts[False].isascii() and "\x1b" not in texts[False]
    assert all(line == line.rstrip() for line in texts[False].splitlines())
    assert "\x1b[1m" in texts[True] and "█" in texts[True] and "─" in texts[True]


def test_a_terminal_without_unicode_gets_ascii() -> None:
    paper, raw = page(terminal=True, encoding="ascii")
    views.show_tuning(paper, tuning_dict(make_result(make_candidate())))
    assert "###" in shown(raw, "ascii")


def test_an_evaluation_shows_limits_and_buffers() -> None:
    candidate = make_candidate(0.002, 200, Verdict.UB_OVERFLOW)
    data = evaluation_dict("chip", workload_dict("made-up", make_result().workload), "separated", "serial", candidate)
    assert len(data["report"]["limits"]) == 10
    assert data["report"]["path_bytes"] == {"gm": 10**9, "l2": 4 * 10**9}
    paper, raw = page(terminal=False)
    views.show_evaluation(paper, data)
    for text in ("UB overflow", "what it would take if it did fit", "S: 200.0 KiB", "75.0 %", "104.2 %", "16 cube cores"):
        assert text in shown(raw)


def test_fields_that_all_share_are_said_once() -> None:
    paper, raw = page(terminal=False)
    two = (make_candidate(0.002, preload=1), make_candidate(0.003, preload=2))
    views.show_tuning(paper, tuning_dict(make_result(*two, pareto=())))
    head = next(line for line in shown(raw).splitlines() if "preload" in line and "latency" in line)
    assert "kv_depth" not in head
    assert "all with vector_rows=16, kv_depth=2" in shown(raw)


@pytest.mark.parametrize(
    ("share", "filled"), [(None, 0), (0.0, 0), (0.5, BAR_WIDTH // 2), (0.999, BAR_WIDTH - 1), (7.0, BAR_WIDTH)]
)
def test_a_bar_is_full_only_where_it_is_full(share: float | None, filled: int) -> None:
    assert page(terminal=False)[0].bar(share).plain == f"[{'#' * filled}{'.' * (BAR_WIDTH - filled)}]"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "n/a"), (9.9999e-4, "1.000 ms"), (0.99996, "1.000 s"), (2e-9, "0.002 us"), (1e9, "1e+09 s")],
)
def test_times_take_the_sensible_unit(seconds: float | None, text: str) -> None:
    assert seconds_text(seconds) == text


def test_a_file_is_replaced_at_one_stroke(tmp_path: Path) -> None:
    target, link = tmp_path / "out.json", tmp_path / "link.json"
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to(target)
    write_atomically(link, "new")
    assert target.read_text() == "new"
    assert link.is_symlink()
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert {path.name for path in tmp_path.iterdir()} == {"out.json", "link.json"}


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError("disk full")

    target = tmp_path / "out.json"
    target.write_text("old")
    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(target, "new")
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]


def test_a_device_stays_a_device() -> None:
    write_atomically(Path(os.devnull), "gone")
    assert Path(os.devnull).is_char_device()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "after_s", "done", "visible"),
    [(Terminal(), 2.0, 5, True), (Terminal(), 0.5, 5, False), (Terminal(), 2.0, 10, False), (io.StringIO(), 2.0, 5, False)],
)
def test_progress_shows_on_a_terminal_after_a_second(
    stream: io.StringIO, after_s: float, done: int, visible: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter([0.0, after_s])
    monkeypatch.setattr("sys.stderr", stream)
    with SearchProgress(lambda: next(times)) as progress:
        progress(done, 10)
    assert ("searching" in stream.getvalue()) == visible
