"""Perfetto itself reads a profile's timeline: no slice inside another, every arrow between a call and its task."""

import io
from collections import Counter
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from test_profiler_files import recorded

from ascend_jax.runtime.profiler.trace import write_trace

READER = Path(__file__).parent.parent / "timeline" / "perfetto_in_node.py"
SLICES = "select depth, dur from slice join thread_track on slice.track_id = thread_track.id"
ARROWS = """
select a.name as source, b.name as target, b.ts >= a.ts as forward
from flow join slice a on flow.slice_out = a.id join slice b on flow.slice_in = b.id
"""
COUNTERS = "select count(*) from counter"
COMPLAINTS = "select name, value from stats where severity in ('error', 'data_loss') and value > 0"


def reader() -> Any:
    """The tests of the timeline have it beside them."""
    spec = spec_from_file_location(READER.stem, READER)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_perfetto_reads_what_was_written() -> None:
    file = io.StringIO()
    counts = write_trace(recorded(), file)
    with reader().trace_processor(file.getvalue().encode()) as perfetto:
        assert perfetto.query(COMPLAINTS) == []
        slices = perfetto.query(SLICES)
        assert sum(duration > 0 for _, duration in slices) == counts.slices
        assert {depth for depth, _ in slices} == {0}
        arrows = perfetto.query(ARROWS)
        assert perfetto.query(COUNTERS)[0][0] == 2 * counts.counters
    names = ("aclnnFlashAttentionScore", "copy", "hcom_allReduce__hccl_world_0")
    calls = ("Node@launch", "Acl@aclrtMemcpyAsync", "Communication@hcom_allReduce_")
    assert Counter(arrows) == {(call, name, 1): 2 for call, name in zip(calls, names, strict=True)}
