"""The table of pipes against adding up the events one by one."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_timeline import Event, MadeUpTimeline, as_chunk

from ascend_jax.timeline.events import StageInfo
from ascend_jax.timeline.pipe_csv import COLUMNS, Clocks, PipeTotals

CLOCKS = Clocks(cube_hz=1.8e9, vector_hz=1.2e9)
WORDS = {
    "cube": ("aic", {"MTE2": "mte2", "Cube": "cube", "FixPipe": "fixpipe"}),
    "vector": ("aiv", {"Vector MTE2": "mte2", "Vector": "vec", "MTE3": "mte3"}),
}


def rows_of(timeline: MadeUpTimeline) -> list[dict[str, str]]:
    totals, file = PipeTotals(timeline, CLOCKS), io.StringIO()
    for events in timeline.chunks(range(timeline.cores)):
        totals.add(events)
    count = totals.write(file)
    rows = list(csv.DictReader(io.StringIO(file.getvalue())))
    assert len(rows) == count
    return rows


@given(st.integers(0, 10**6), st.sampled_from([1, 6, 10**6]))
def test_times_cycles_and_ratios_are_those_of_the_events(seed: int, chunk: int) -> None:
    timeline = MadeUpTimeline(seed=seed, chunk=chunk)
    for row in rows_of(timeline):
        kind = "cube" if row["sub_block_id"] == "cube0" else "vector"
        (prefix, words), clock_hz = WORDS[kind], CLOCKS.cube_hz if kind == "cube" else CLOCKS.vector_hz
        mine = [event for event in timeline.events(int(row["block_id"])) if timeline.stages[event.stage].core == kind]
        whole_s = max(event.end_s for event in mine)
        assert float(row[f"{prefix}_time(us)"]) == pytest.approx(whole_s * 1e6, abs=1e-6)
        assert int(row[f"{prefix}_total_cycles"]) == pytest.approx(whole_s * clock_hz, abs=1)
        for pipe, word in words.items():
            busy_s = sum(event.end_s - event.start_s for event in mine if timeline.stages[event.stage].pipe == pipe)
            assert float(row[f"{prefix}_{word}_time(us)"]) == pytest.approx(busy_s * 1e6, abs=1e-6)
            assert float(row[f"{prefix}_{word}_ratio"]) == pytest.approx(busy_s / whole_s if whole_s else 0, abs=1e-6)
        known = {f"{prefix}_{word}_{what}" for word in words.values() for what in ("time(us)", "ratio")}
        known |= {f"{prefix}_time(us)", f"{prefix}_total_cycles", "block_id", "sub_block_id"}
        assert {name for name, value in row.items() if value != "N/A"} == known


def test_a_row_a_cube_core_and_a_row_a_vector_core() -> None:
    rows = rows_of(MadeUpTimeline())
    assert [(row["block_id"], row["sub_block_id"]) for row in rows] == [
        (core, part) for core in "01" for part in ("cube0", "vector0", "vector1")
    ]
    assert list(rows[0]) == COLUMNS
    for before, after in ((1, 2), (4, 5)):
        assert {**rows[before], "sub_block_id": ""} == {**rows[after], "sub_block_id": ""}


def test_an_ai_core_with_its_own_vector_unit_is_one_row() -> None:
    stages = (StageInfo("load_k", "MTE2", "cube"), StageInfo("mm_qk", "Cube", "cube"), StageInfo("softmax", "Vector", "vector"))
    timeline = MadeUpTimeline(stages=stages, flows=(), vector_cores_per_cube=1)
    totals, file = PipeTotals(timeline, CLOCKS), io.StringIO()
    totals.add(as_chunk(3, stages, [Event(3, 1, 0, 0, 0.0, 1e-6), Event(3, 2, 0, 0, 1e-6, 4e-6)]))
    assert totals.write(file) == 1
    [row] = csv.DictReader(io.StringIO(file.getvalue()))
    assert (row["block_id"], row["aic_cube_time(us)"], row["aiv_vec_time(us)"]) == ("3", "1.000000", "3.000000")
    assert (row["aiv_time(us)"], row["aiv_vec_ratio"], row["aic_mte2_time(us)"]) == ("4.000000", "0.750000", "0.000000")
    assert row["aic_mte1_time(us)"] == "N/A"
