"""The profiler's files: exact headers, round trips, a timeline that viewers read."""

import csv
import json
import os
import re
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hccl_world import World

from ascend_jax.calibration.profiler import read_profile
from ascend_jax.runtime.engine.task import Task
from ascend_jax.runtime.hccl.kinds import DataType as HcclType
from ascend_jax.runtime.hccl.kinds import ReduceOp
from ascend_jax.runtime.profiler.files import replaced, write_profile
from ascend_jax.runtime.profiler.kinds import EVERYTHING, DataType
from ascend_jax.runtime.profiler.profile import Profile
from ascend_jax.runtime.profiler.session import ProfConfig, Profiler, profile

STAMP = "20261130120000"
ATTENTION = {
    "input_shapes": [(1, 8, 512, 64)] * 3,
    "input_dtypes": ["bfloat16"] * 3,
    "input_formats": ["ND"] * 3,
    "output_shapes": [(1, 8, 512, 8), (1, 8, 512, 8), (1, 8, 512, 64)],
    "output_dtypes": ["float32", "float32", "bfloat16"],
    "output_formats": ["ND"] * 3,
    "report": SimpleNamespace(cycles={"Cube": np.float64(90e3), "MTE2": np.float64(45e3), "Vector": np.float64(18e3)}),
}
HEADERS = {
    "op_summary": (
        "Device_id,Model ID,Task ID,Stream ID,Op Name,OP Type,OP State,Task Type,Task Start Time(us),Task Duration(us),"
        "Task Wait Time(us),Block Num,Mix Block Num,HF32 Eligible,Input Shapes,Input Data Types,Input Formats,Output Shapes,"
        "Output Data Types,Output Formats,Context ID,aicore_time(us),aic_total_cycles,aic_mac_time(us),aic_mac_ratio,"
        "aic_scalar_time(us),aic_scalar_ratio,aic_mte1_time(us),aic_mte1_ratio,aic_mte2_time(us),aic_mte2_ratio,"
        "aic_fixpipe_time(us),aic_fixpipe_ratio,aic_icache_miss_rate,aiv_time(us),aiv_total_cycles,aiv_vec_time(us),"
        "aiv_vec_ratio,aiv_scalar_time(us),aiv_scalar_ratio,aiv_mte2_time(us),aiv_mte2_ratio,aiv_mte3_time(us),aiv_mte3_ratio,"
        "aiv_icache_miss_rate,cube_utilization(%)"
    ),
    "op_statistic": "Device_id,OP Type,Core Type,Count,Total Time(us),Min Time(us),Avg Time(us),Max Time(us),Ratio(%)",
    "api_statistic": "Device_id,Level,API Name,Time(us),Count,Avg(us),Min(us),Max(us),Variance",
    "task_time": "Device_id,kernel_name,kernel_type,stream_id,task_id,task_time(us),task_start(us),task_stop(us)",
    "memory_record": "Device_id,Component,Timestamp(us),Total Allocated(KB),Total Reserved(KB),Device",
    "operator_memory": (
        "Device_id,Name,Size(KB),Allocation Time(us),Duration(us),Allocation Total Allocated(KB),"
        "Allocation Total Reserved(KB),Release Total Allocated(KB),Release Total Reserved(KB),Device"
    ),
    "communication_statistic": "Device_id,OP Type,Count,Total Time(us),Min Time(us),Avg Time(us),Max Time(us),Ratio(%)",
}
KERNEL_DETAILS = (
    "Device_id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Block Num,Input Shapes,Input Data Types,"
    "Input Formats,Output Shapes,Output Data Types,Output Formats"
)


def program(world: World) -> None:
    """Attention, a copy and an all-reduce on every rank, and an allocation of one; the second rank comes late."""

    def of_rank(rank: int, comm: Any, stream: Any) -> None:
        name = "aclnnFlashAttentionScore"
        attention = Task(
            name=name, op_type="FlashAttentionScore", kind="kernel", duration_s=100e-6 * (1 + rank), info=dict(ATTENTION)
        )
        attention.core, attention.block_dim = "mix", 20
        stream.submit(attention)
        stream.submit(Task(name="copy", kind="copy", engine="d2h", duration_s=10e-6, info={"bytes": 4096}))
        address = world.put(rank, np.ones(4096, np.float32))
        stream.submit(Task(name="mark", kind="record"))
        comm.all_reduce(address, address, 4096, HcclType.FP32, ReduceOp.SUM, stream=stream)
        if rank == 0:
            world.system.device(0).memory.free(world.put(0, np.ones(1024, np.uint8)))

    world.each(of_rank)


def recorded(data: DataType = EVERYTHING) -> Profile:
    world = World(2)
    with profile(world.system, config=ProfConfig(data=data)) as found:
        program(world)
    return found


def table(paths: list[Path], name: str) -> list[dict[str, str]]:
    [path] = [path for path in paths if path.name.startswith(name)]
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_headers_are_those_of_cann(tmp_path: Path) -> None:
    paths = write_profile(recorded(), tmp_path, stamp=STAMP)
    folder = tmp_path / f"PROF_000001_{STAMP}" / "mindstudio_profiler_output"
    assert {path.name for path in paths} == {f"{name}_{STAMP}.csv" for name in HEADERS} | {f"msprof_{STAMP}.json"}
    assert {path.parent for path in paths} == {folder} and {*folder.iterdir()} == {*paths}
    for name, header in HEADERS.items():
        assert (folder / f"{name}_{STAMP}.csv").read_text().splitlines()[0] == header
    again = write_profile(recorded(), tmp_path, stamp=STAMP)
    assert again[0].parts[-3] == f"PROF_000002_{STAMP}"


def test_columns_and_tables_follow_the_data_types(tmp_path: Path) -> None:
    paths = write_profile(recorded(DataType.TASK_TIME), tmp_path, stamp=STAMP)
    assert {path.name.rpartition("_")[0] for path in paths} == {"op_summary", "op_statistic", "task_time", "msprof"}
    header = next(path for path in paths if path.name.startswith("op_summary")).read_text().splitlines()[0]
    assert header.endswith("Task Wait Time(us)")


def test_op_summary_holds_what_ran(tmp_path: Path) -> None:
    rows = table(write_profile(recorded(), tmp_path, stamp=STAMP), "op_summary")
    assert [(row["Device_id"], row["OP Type"], row["Task Type"]) for row in rows] == [
        ("0", "FlashAttentionScore", "MIX_AIC"),
        ("0", "hcom_allReduce_", "HCCL"),
        ("1", "FlashAttentionScore", "MIX_AIC"),
        ("1", "hcom_allReduce_", "HCCL"),
    ]
    attention, reduction = rows[:2]
    assert (attention["Task Duration(us)"], attention["Block Num"], attention["Mix Block Num"]) == ("100.000", "20", "40")
    assert attention["Input Shapes"] == "1,8,512,64;1,8,512,64;1,8,512,64" and attention["Input Data Types"].startswith(
        "DT_BF16"
    )
    assert (attention["aic_mac_time(us)"], attention["aic_mac_ratio"]) == ("50.000", "0.500")  # 90e3 cycles at 1.8 GHz
    assert (attention["aiv_vec_ratio"], attention["aic_scalar_ratio"]) == ("0.100", "N/A")
    assert attention["cube_utilization(%)"] == "100.000"
    assert reduction["Input Shapes"] == reduction["aicore_time(us)"] == "N/A"
    assert float(reduction["Task Wait Time(us)"]) == pytest.approx(100, abs=20)  # it waits for the other rank


def test_our_own_calibration_reads_it_back(tmp_path: Path) -> None:
    found = recorded()
    paths = write_profile(found, tmp_path, stamp=STAMP) + write_profile(found, tmp_path, stamp=STAMP, style="torch")
    for name in ("op_summary", "kernel_details"):
        [path] = [path for path in paths if path.name.startswith(name)]
        read = read_profile(path, chip="910b3")
        [row] = read.rows
        assert not read.skipped and read.others == 2
        assert (row.op, row.value, row.attrs["runs"]) == ("FlashAttentionScore", pytest.approx(150.0), 2)
        assert (row.layout, row.batch, row.q_heads, row.kv_seq, row.head_dim) == ("BNSD", 1, 8, 512, 64)
        assert row.dtype == "bfloat16"


def test_torch_names_eight_columns_otherwise(tmp_path: Path) -> None:
    data = EVERYTHING & ~DataType.AICORE_METRICS
    paths = write_profile(recorded(data), tmp_path, stamp=STAMP, style="torch")
    by_name = {path.name: path for path in paths}
    assert by_name["kernel_details.csv"].read_text().splitlines()[0] == KERNEL_DETAILS
    [device, _] = table(paths, "step_trace_time")
    parts = [
        float(device[name]) for name in ("Computing", "Communication(Not Overlapped)", "Overlapped", "Communication", "Free")
    ]
    assert parts[0] == pytest.approx(100) and parts[1] == parts[3] > 0 and parts[2] == 0
    assert by_name["trace_view.json"].parent.name == "ASCEND_PROFILER_OUTPUT"


def test_task_time_and_statistics_agree(tmp_path: Path) -> None:
    paths = write_profile(recorded(), tmp_path, stamp=STAMP)
    tasks = table(paths, "task_time")
    for row in tasks:
        assert float(row["task_stop(us)"]) - float(row["task_start(us)"]) == pytest.approx(
            float(row["task_time(us)"]), abs=2e-3
        )
    kinds = {row["kernel_type"] for row in tasks}
    assert kinds == {"KERNEL_MIX_AIC", "MEMCPY_ASYNC", "EVENT_RECORD", "HCCL"}
    [first, second] = table(paths, "communication_statistic")
    assert (first["OP Type"], first["Count"], first["Ratio(%)"]) == ("hcom_allReduce_", "1", "100.000")
    assert first["Total Time(us)"] == second["Total Time(us)"]
    calls = {(row["Level"], row["API Name"]): row for row in table(paths, "api_statistic")}
    launch = calls["node", "launch"]
    assert (launch["Count"], launch["Time(us)"], launch["Variance"]) == ("2", "4.000", "0.000")
    assert float(calls["acl", "aclrtSynchronizeStream"]["Max(us)"]) > 100


def test_memory_tables_pair_allocations_with_releases(tmp_path: Path) -> None:
    paths = write_profile(recorded(), tmp_path, stamp=STAMP)
    rows = table(paths, "operator_memory")
    assert [(row["Device_id"], row["Size(KB)"]) for row in rows] == [("0", "16.000"), ("0", "1.000"), ("1", "16.000")]
    assert [row["Duration(us)"] == "N/A" for row in rows] == [True, False, True]
    buffers = 2 * 200 * 1024  # of the communicator, in KB
    totals = rows[1]["Allocation Total Allocated(KB)"], rows[1]["Release Total Allocated(KB)"]
    assert totals == (f"{buffers + 17}.000", f"{buffers + 16}.000")
    assert "hccl_world.py:" in rows[0]["Name"]
    assert len(table(paths, "memory_record")) == 4


def test_long_tables_are_cut(tmp_path: Path) -> None:
    found = recorded()
    paths = write_profile(found, tmp_path, stamp=STAMP, most_rows=3)
    cut = sorted(path.name for path in paths if path.name.startswith("task_time"))
    assert cut == [f"task_time_slice_{number}_{STAMP}.csv" for number in range(3)]
    lines = [path.read_text().splitlines() for path in paths if path.name in cut]
    assert [len(one) for one in lines] == [4, 4, 3] and len({one[0] for one in lines}) == 1
    exact = write_profile(found, tmp_path, stamp=STAMP, most_rows=4)
    assert sum(path.name.startswith("op_summary") for path in exact) == 1


def test_a_file_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("before")
    with pytest.raises(RuntimeError), replaced(path) as file:
        file.write("half")
        raise RuntimeError
    assert path.read_text() == "before" and os.listdir(tmp_path) == ["table.csv"]
    with replaced(path) as file:
        file.write("whole")
        assert path.read_text() == "before"
    assert path.read_text() == "whole" and os.listdir(tmp_path) == ["table.csv"]


def test_an_empty_recording_has_all_files(tmp_path: Path) -> None:
    world = World(1)
    profiler = Profiler(world.system)
    profiler.init(tmp_path)
    profiler.start(profiler.create_config())
    paths = profiler.finalize()
    assert {path.name.partition("_2")[0] for path in paths} == {*HEADERS, "msprof"}
    assert json.loads(next(path for path in paths if path.suffix == ".json").read_text()) == []
    assert profiler.profile is not None and not profiler.profile.overlap(0).total_s
    assert "0 tasks" in str(profiler.profile)


def test_the_name_of_the_timeline_is_one_that_insight_opens(tmp_path: Path) -> None:
    pattern = re.compile(r"^(trace_view|trace|msprof(_slice)?(_[0-9]{1,15}){1,4})\.json$")
    for style in ("msprof", "torch"):
        [path] = [path for path in write_profile(recorded(), tmp_path, style=style) if path.suffix == ".json"]
        assert pattern.match(path.name)


def test_the_timeline_keeps_the_rules_of_its_viewers(tmp_path: Path) -> None:
    paths = write_profile(recorded(), tmp_path, stamp=STAMP)
    events = json.loads(next(path for path in paths if path.suffix == ".json").read_text())
    slices: dict[tuple[int, int], list[tuple[int, int, str]]] = defaultdict(list)
    named = set()
    for event in events:
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int) and event["pid"] < 1000
        if event["ph"] == "M":
            named.add((event["name"], event["pid"], event["tid"] if event["name"].startswith("thread") else None))
            continue
        assert ("process_name", event["pid"], None) in named and ("thread_name", event["pid"], event["tid"]) in named
        assert isinstance(event["ts"], float) and 0 <= event["ts"] < 1e6
        if event["ph"] == "X":
            start = round(event["ts"] * 1000)
            assert int(event["ts"] * 1000) == start  # whole nanoseconds, also for who truncates
            slices[event["pid"], event["tid"]].append((start, start + round(event["dur"] * 1000), event["name"]))
    for found in slices.values():
        assert all(before[1] <= after[0] for before, after in pairwise(sorted(found)))
    assert not {(event["pid"], event["tid"]) for event in events if event["ph"] == "i"} & set(slices)
    _check_arrows(events, slices)
    processes = {event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert processes == {"CANN", "Ascend Hardware", "Communication", "NPU MEM", "Overlap Analysis"}
    names = {event["name"] for event in events}
    assert {"Notify Wait", "Reduce_Inline", "Memcpy", "Node@launch", "APP/allocated", "Free", "mark"} <= names


def _check_arrows(events: list[dict[str, Any]], slices: dict[tuple[int, int], list[tuple[int, int, str]]]) -> None:
    """Each arrow goes forward from a call of the host to the start of its task."""
    arrows = [event for event in events if event["ph"] in "sf"]
    assert [event["id"] for event in arrows] == [1 + place // 2 for place in range(len(arrows))]
    assert len(arrows) == 2 * 2 * 3  # attention, copy and all-reduce of two ranks
    for begin, end in zip(arrows[::2], arrows[1::2], strict=True):
        assert (begin["ph"], end["ph"], begin["cat"]) == ("s", "f", "HostToDevice")
        assert begin["ts"] <= end["ts"] and begin["pid"] == 1
        at = round(end["ts"] * 1000)
        assert any(start == at for start, _, _ in slices[end["pid"], end["tid"]])
        leaves = round(begin["ts"] * 1000)
        assert any(start <= leaves < stop for start, stop, _ in slices[begin["pid"], begin["tid"]])
