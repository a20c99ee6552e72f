"""Watching a program: the profiler, and the articles' five errors beside the codes of CANN."""

import csv
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ascend_jax import load_chip
from ascend_jax.runtime.engine.task import Task
from ascend_jax.runtime.errors import OpErrorCode, peek_at_last_error
from ascend_jax.runtime.ops.failures import op_error_of
from ascend_jax.runtime.ops.plan import layered_plan
from ascend_jax.runtime.ops.registry import Registry
from ascend_jax.runtime.profiler.kinds import AicoreMetrics, DataType
from ascend_jax.runtime.profiler.session import Profiler
from experiments.articles.calls import CUSTOM
from experiments.articles.machine import OLD_CHIP, Machine, work
from experiments.articles.page import ARCHITECTURE, CALL_PATH, Page, program, refusal
from experiments.articles.tiles import rule

SMALL = (1, 8, 256, 64)


@program(f"{ARCHITECTURE}: a profiler's configuration, start, one execution, stop, and what the result holds")
def profiling(page: Page) -> None:
    """The four calls with their real order, and the files."""
    folder = page.folder / "prof_result"
    with Machine() as machine:
        profiler = Profiler(machine)
        early = refusal(lambda: profiler.start(profiler.create_config()))
        profiler.init(folder)
        config = profiler.create_config([0], AicoreMetrics.PIPE_UTILIZATION, DataType.TASK_TIME | DataType.TASK_MEMORY)
        profiler.start(config)
        for _ in range(2):
            machine.launch(machine.attention(shape=SMALL))
        machine.seconds()
        found = profiler.stop()
        files = profiler.finalize()
    page.show(found)
    names = sorted(path.name.rpartition("_")[0] or path.name for path in files)
    page.show("\n".join(sorted(path.name for path in files)))
    page.point("kind of data", "ACL_PROF_MODEL", str(config.data), "there is no such kind; these are bits of dataTypeConfig")
    page.point(
        "start before init",
        "the folder goes to the config",
        early.code,
        "init takes the folder: the profiler was not initialised",
    )
    page.point("tables and timeline", "a result folder", names, "written by finalize, below a folder PROF_…")
    table = next(path for path in files if path.name.startswith("op_summary"))
    with table.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    page.point("rows for two launches", 2, sum(row["OP Type"] == "FlashAttentionScore" for row in rows))
    wanted = [name for name in ("Task Duration(us)", "Task Wait Time(us)", "Stream ID", "Block Num") if name in rows[0]]
    page.point(
        "it tells time and streams",
        "time, memory, streams",
        wanted,
        "memory has tables of its own: memory_record, operator_memory",
    )


@program(f"{CALL_PATH}: the enumeration of an operator's errors, and its three common ones")
def error_codes(page: Page) -> None:
    """Each of the five provoked: the code that a program really gets, and the one that comes nearest to the name."""
    provoked: dict[OpErrorCode, Callable[[Path], Any]] = {
        OpErrorCode.SHAPE_MISMATCH: _wrong_layout,
        OpErrorCode.TILING_FAILED: _wrong_heads,
        OpErrorCode.UB_OOM: lambda folder: layered_plan(load_chip(OLD_CHIP), work(512, 2048), rule),
        OpErrorCode.COMPILATION_FAILED: _broken_package,
        OpErrorCode.DMA_TIMEOUT: _timeout,
    }
    for kind, call in provoked.items():
        error = refusal(lambda call=call: call(page.folder))
        known = op_error_of(error)
        page.show(f"{kind.name}: {error}\n".replace(str(page.folder), "…"))
        seen = {"code": error.code, "name": error.name, "is": known and known.name, "nearest": kind.code}
        page.point(kind.name, kind.value, seen, WHY[kind])
    unseen = _same_numbers()
    page.point("BSND given as BNSD is detected", True, unseen, "by head_num, and not where heads and rows are as many")
    page.point("the last error of the thread", "not told", peek_at_last_error(), "of the last call that failed in this thread")


WHY = {
    OpErrorCode.SHAPE_MISMATCH: "what the front end refuses is a wrong parameter",
    OpErrorCode.TILING_FAILED: "the tiling checks head_num, and its refusal reaches the user as an inner null pointer",
    OpErrorCode.UB_OOM: "the host plans the tiling, so nothing runs over later; 507035 is what a wrong kernel would give",
    OpErrorCode.COMPILATION_FAILED: "kernels come compiled; what can fail is loading a package (a graph's compiler: 500002)",
    OpErrorCode.DMA_TIMEOUT: "a kernel that does not end; the code does not say which unit it waits for",
}


def _wrong_layout(folder: Path) -> Any:
    with Machine() as machine:
        tensors = [machine.empty(SMALL) for _ in range(3)]
        machine.operators.get_workspace_size("FlashAttentionScore", tensors, {"head_num": 8, "input_layout": "BDNS"})


def _wrong_heads(folder: Path) -> Any:
    """``[B, S, N, D]`` given as BNSD."""
    with Machine() as machine:
        tensors = [machine.empty((1, 256, 8, 64)) for _ in range(3)]
        machine.operators.get_workspace_size("FlashAttentionScore", tensors, {"head_num": 8, "input_layout": "BNSD"})


def _same_numbers() -> bool:
    """Whether a wrong layout of 8 heads of 8 rows is seen."""
    with Machine() as machine:
        tensors = [machine.empty((1, 8, 8, 64)) for _ in range(3)]
        size, _ = machine.operators.get_workspace_size("FlashAttentionScore", tensors, {"head_num": 8, "input_layout": "BNSD"})
        return size < 0


def _broken_package(folder: Path) -> Any:
    """A package whose file cannot be run."""
    copy = Path(shutil.copytree(CUSTOM, folder / "broken", dirs_exist_ok=True))
    next(copy.rglob("*.py")).write_text("OPERATORS = (\n", "utf-8")
    Registry({"ASCEND_CUSTOM_OPP_PATH": str(copy)}).load()


def _timeout(folder: Path) -> Any:
    """A kernel that gives up after a while."""

    def wait() -> None:
        raise TimeoutError("a flag of MTE2 was never set")

    with Machine() as machine:
        stream = machine.current_stream()
        stream.submit(Task(name="kernel", kind="kernel", duration_s=1e-3, block_dim=1, core="mix", run=wait))
        stream.synchronize()
