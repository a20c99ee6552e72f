"""Perfetto itself reads a trace: every slice where it belongs, none inside another, every arrow between the right slices."""

from collections import Counter

import pytest
from made_up_timeline import MadeUpTimeline
from perfetto_in_node import trace_processor
from test_trace import written
from trace_checker import checked

from ascend_jax.timeline.trace import Ids

SLICES = """
select process.name as process, thread.name as thread, slice.name, slice.ts, slice.dur, slice.depth
from slice join thread_track on slice.track_id = thread_track.id join thread using (utid) join process using (upid)
order by slice.ts
"""
ARROWS = """
select a.name as source, b.name as target, b.ts >= a.ts as forward
from flow join slice a on flow.slice_out = a.id join slice b on flow.slice_in = b.id
"""
COMPLAINTS = "select name, value from stats where severity in ('error', 'data_loss') and value > 0"


@pytest.mark.parametrize("ids", ["names", "numbers"])
def test_perfetto_reads_what_was_written(ids: Ids) -> None:
    timeline = MadeUpTimeline(seed=5, tasks=12)
    text, counts = written(timeline, ids=ids)
    expected = {
        (process, thread, one.name, one.start, one.end - one.start)
        for (process, thread), slices in checked(written(timeline)[0]).items()
        for one in slices
    }
    with trace_processor(text.encode()) as perfetto:
        assert perfetto.query(COMPLAINTS) == []
        rows = perfetto.query(SLICES)
        assert len(rows) == counts.slices
        assert {row[:5] for row in rows} == expected
        assert {row[5] for row in rows} == {0}  # no slice lies in another
        arrows = Counter(perfetto.query(ARROWS))
    handed_on = {(flow.producer, flow.consumer, 1) for flow in timeline.flows if flow.handoff}
    assert set(arrows) == handed_on
    assert arrows.total() == counts.arrows
