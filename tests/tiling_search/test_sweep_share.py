"""What processes of a sweep do to share it: workers and their ends, messages, winners of parts, progress. No search is run."""

import socket
import sys
import time
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import click
import jax
import numpy as np
import pytest

from tiling_search.exhaustive import CHUNK, Scores
from tiling_search.kept import Found, keep, merged
from tiling_search.sweep.progress import LINE_EVERY_S, SweepProgress
from tiling_search.sweep.sharded import OnDevices
from tiling_search.sweep.together import GONE, _wait_for
from tiling_search.sweep.workers import WorkerError, rows_of

NAP = "import time; time.sleep(120)"


def python(code: str) -> list[str]:
    return [sys.executable, "-c", f"import os, signal, sys, time\n{code}"]


def never() -> bool:
    return False


def test_rows_come_as_they_are_written() -> None:
    slow = "for n in range(3): print('{\"n\": %d}' % n, flush=True); time.sleep(0.3)"
    arrived = [(row["n"], time.monotonic()) for row in rows_of([python(slow), python("print('{\"n\": 9}')")], never)]
    assert sorted(number for number, _ in arrived) == [0, 1, 2, 9]
    times = [at for number, at in arrived if number != 9]
    assert all(later - earlier > 0.05 for earlier, later in pairwise(times))


@pytest.mark.parametrize(
    ("codes", "words"),
    [
        (("os.kill(os.getpid(), signal.SIGKILL)", NAP), "process 0 of 2 was ended by SIGKILL"),
        ((NAP, "sys.exit('no such thing')"), "process 1 of 2 ended with exit status 1\n  no such thing"),
        ((f"sys.exit({GONE})", "time.sleep(0.2); os.kill(os.getpid(), 9)"), "process 1 of 2 was ended by SIGKILL"),
    ],
)
def test_a_worker_that_ends_early_ends_all_and_is_named(codes: Sequence[str], words: str) -> None:
    with pytest.raises(WorkerError) as found:
        list(rows_of([python(code) for code in codes], never))
    assert str(found.value) == words


def test_stop_is_handed_on_once_and_waits_for_the_workers() -> None:
    told = "signal.signal(signal.SIGINT, lambda *_: (print('{\"told\": 1}', flush=True), sys.exit(130)))"
    workers = [python(f"{told}\nprint('{{\"told\": 0}}', flush=True)\nwhile True: time.sleep(1)")] * 2
    seen: Counter[int] = Counter()
    for row in rows_of(workers, lambda: seen[0] == 2):
        seen[row["told"]] += 1
    assert seen == {0: 2, 1: 2}


@pytest.mark.parametrize("parts", [2, 3])
def test_winners_of_parts_are_those_of_all_rows(parts: int) -> None:
    rng = np.random.default_rng(parts)
    for _ in range(20):
        seconds = rng.integers(1, 6, (40, 6)).astype(np.float32)  # many ties
        seconds[rng.random(seconds.shape) < 0.3] = np.inf
        units = rng.integers(1, 5, 6)
        scores = Scores(seconds, np.where(np.isfinite(seconds), 0, 3).astype(np.int8), np.tile(32.0 * units, (40, 1)))
        blocks = np.stack(np.unravel_index(np.arange(40), (5, 8)), axis=1).astype(float)
        nothing = Found([], {}, Counter())
        one = keep(nothing, blocks, scores, 7)
        cuts = np.array_split(np.arange(40), parts)
        each = [keep(nothing, blocks[cut], Scores(*(part[cut] for part in scores)), 7) for cut in cuts]
        many = merged(each, 7)
        assert plain(many) == plain(one) == slowly(blocks, seconds, units, 7)
        assert many.verdicts == one.verdicts and one.verdicts.total() == seconds.size


def plain(found: Found) -> tuple[object, object]:
    best = [(seconds, tuple(block)) for seconds, block in found.best]
    return best, {size: (seconds, tuple(block)) for size, (seconds, block) in found.front.items()}


def slowly(blocks: np.ndarray, seconds: np.ndarray, units: np.ndarray, most: int) -> tuple[object, object]:
    """The fastest blocks, and the fastest per size of UB that no smaller size reaches, one candidate after the other."""
    best = sorted((min(map(float, row)), tuple(block)) for row, block in zip(seconds, blocks, strict=True))
    front, least = {}, np.inf
    for size in sorted(set(units.tolist())):
        of_size = [
            (float(row[depth]), tuple(block))
            for row, block in zip(seconds, blocks, strict=True)
            for depth in range(len(units))
            if units[depth] == size
        ]
        if min(of_size)[0] < least:
            front[size] = min(of_size)
            least = front[size][0]
    return [entry for entry in best if np.isfinite(entry[0])][:most], front


def test_one_process_has_all_rows_and_its_own_messages() -> None:
    devices = OnDevices(jax.devices()[:1])
    assert devices.rows(37) == slice(0, 37) and devices.rows(CHUNK) == slice(0, CHUNK)
    assert devices.gather({"a": 1}) == [{"a": 1}]
    with pytest.raises(ValueError, match="no devices"):
        OnDevices([])


def test_a_process_waits_for_the_first_one_and_says_where_it_is_not() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        _wait_for(place, patience_s=5.0)
    with pytest.raises(click.UsageError, match=f"nobody listens at {place} .*: start process 0"):
        _wait_for(place, patience_s=0.1)


def test_progress_says_a_line_now_and_then_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    with SweepProgress(10, clock=lambda: now[0]) as progress:
        progress.cell(0, stored=True)
        now[0] = 5.0
        progress.cell(1_000_000, stored=False)
        assert capsys.readouterr().err == ""
        now[0] = LINE_EVERY_S + 2
        progress.cell(2_000_000, stored=False)
    assert capsys.readouterr().err == "3 of 10 cells, 3,000,000 evaluations in 32 s, about 112 s to go\n"
