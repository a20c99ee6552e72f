"""Two-phase calls: checks, executors, workspaces, errors that come late, and the modes of the system."""

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ascend_jax.attention.errors import InferShapeError, NullptrError, ParamInvalidError, ParamNullptrError, TilingError
from ascend_jax.runtime.errors import AclError, OpErrorCode, get_last_error
from ascend_jax.runtime.ops.failures import OpNotFoundError, op_error_of
from ascend_jax.runtime.ops.phases import Operators
from ascend_jax.runtime.ops.registry import Registry
from ascend_jax.runtime.ops.tensor import Tensor
from ascend_jax.runtime.system import Options, System

CUSTOM = """
from ascend_jax.runtime.ops.operator import Cost, Operator, TilingData
from ascend_jax.runtime.ops.prototype import Attr, OpDef, Param

COUNT = []

def tiling(call):
    COUNT.append(call.attrs["how"])
    return TilingData(block_dim=2, tiling_key=7, workspace_bytes={"refuse": 1 // (call.attrs["how"] != "refuse")}.get("", 4096))

def kernel(arrays, call, data):
    if call.attrs["how"] == "fail":
        raise FloatingPointError("the Vector met a trap")
    if call.attrs["how"] == "shape":
        return {"y": arrays["x"][None]}
    return {"y": arrays["x"] * 2}

OPERATORS = (
    Operator(
        OpDef("TwiceCustom", inputs=(Param("x", ("float32",)),), outputs=(Param("y", ("float32",)),),
              attrs=(Attr("how", str, "well"),)),
        infer_shape=lambda call: {"y": call.shape("x")},
        tiling=tiling,
        kernel=kernel,
        duration=lambda call, data: Cost(1e-3, data.block_dim),
    ),
)
"""


class Bench:
    """A machine with one 910B3, a custom operator, and short words for what the tests do."""

    def __init__(self, root: Path, **options: Any) -> None:
        path = root / "op_impl" / "twice_custom" / "twice_custom.py"
        path.parent.mkdir(parents=True)
        path.write_text(CUSTOM, "utf-8")
        self.system = System(["910b3"], options=Options(**options))
        self.system.init()
        self.stream = self.system.set_device(0).default_stream
        self.memory = self.stream.device.memory
        self.operators = Operators(self.system, Registry({"ASCEND_CUSTOM_OPP_PATH": str(root)}))

    def tensor(self, values: Any, dtype: str = "float32") -> Tensor:
        array = np.asarray(values, dtype)
        made = Tensor(self.memory.malloc(max(array.nbytes, 1)), array.shape, dtype)
        made.array(self.memory)[...] = array
        return made

    def values(self, tensor: Tensor) -> list[Any]:
        return tensor.array(self.memory).tolist()

    def prepared(self, how: str = "well") -> tuple[Any, int, int, Tensor]:
        """Executor, workspace and its bytes, and the output of a call of the custom operator on [1, 2]."""
        out = self.tensor([0, 0])
        size, executor = self.operators.get_workspace_size("TwiceCustom", [self.tensor([1, 2])], {"how": how}, [out])
        return executor, self.memory.malloc(size), size, out


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.system.finalize()


def test_a_call_in_two_phases(bench: Bench) -> None:
    executor, workspace, size, out = bench.prepared()
    assert size == 4096 + (16 << 20)
    task = bench.operators.execute(workspace, size, executor, bench.stream)
    assert not task.done
    assert bench.values(out) == [0, 0]  # the host goes on at once
    bench.stream.synchronize()
    assert bench.values(out) == [2, 4]
    assert (task.op_type, task.core, task.block_dim, task.duration_s) == ("TwiceCustom", "vector", 2, 1e-3)
    assert task.reads == (executor.inputs["x"].span,)
    assert task.writes == (out.span, (workspace, size))
    assert task.info["tiling_key"] == 7 and task.info["input_shapes"] == [(2,)] and task.info["bytes"] == 16


def test_an_executor_serves_one_execution(bench: Bench) -> None:
    executor, workspace, size, _ = bench.prepared()
    bench.operators.execute(workspace, size, executor, bench.stream)
    with pytest.raises(NullptrError, match="was used up by its execution") as caught:
        bench.operators.execute(workspace, size, executor, bench.stream)
    assert caught.value.code == 561103
    assert "test_ops_phases.py" in str(caught.value)  # where the first phase was called
    with pytest.raises(NullptrError, match="used up"):
        executor.set_repeatable()
    with pytest.raises(NullptrError, match="executor=None"):
        bench.operators.execute(workspace, size, None, bench.stream)


def test_a_repeatable_executor_serves_many_and_can_be_given_other_addresses(bench: Bench) -> None:
    executor, workspace, size, out = bench.prepared()
    executor.set_repeatable()
    other, source = bench.tensor([0, 0]), bench.tensor([5, 6])
    bench.operators.execute(workspace, size, executor, bench.stream)
    executor.set_output_address("y", other.address)
    executor.set_input_address("x", source.address)
    bench.operators.execute(workspace, size, executor, bench.stream)
    bench.stream.synchronize()
    assert (bench.values(out), bench.values(other)) == ([2, 4], [10, 12])
    with pytest.raises(ParamInvalidError, match="'z': is none of x"):
        executor.set_input_address("z", 64)
    executor.destroy()
    with pytest.raises(NullptrError, match="was destroyed"):
        bench.operators.execute(workspace, size, executor, bench.stream)


def test_the_workspace_must_be_there_and_large_enough(bench: Bench) -> None:
    executor, workspace, size, _ = bench.prepared()
    with pytest.raises(ParamNullptrError, match=f"{size} bytes of workspace are needed"):
        bench.operators.execute(0, size, executor, bench.stream)
    with pytest.raises(ParamInvalidError, match=f"workspace_bytes={size - 1}"):
        bench.operators.execute(workspace, size - 1, executor, bench.stream)
    bench.operators.execute(workspace, size, executor, bench.stream)  # a refusal has not used it up


def test_outputs_may_be_told_later(bench: Bench) -> None:
    out = bench.tensor([0, 0])
    size, executor = bench.operators.get_workspace_size("Add", [bench.tensor([1, 2]), bench.tensor([3, 4])])
    assert size == 0
    assert executor.outputs["out"] == Tensor(0, (2,), "float32")
    with pytest.raises(ParamNullptrError, match="set_output_address"):
        bench.operators.execute(0, 0, executor, bench.stream)
    executor.set_output_address("out", out.address)
    bench.operators.execute(0, 0, executor)  # on the default stream
    bench.stream.synchronize()
    assert bench.values(out) == [4, 6]


def test_what_phase_one_refuses(bench: Bench) -> None:
    x, phase_one = bench.tensor([1, 2]), bench.operators.get_workspace_size
    refusals: list[tuple[type[Exception], int, Any]] = [
        (OpNotFoundError, 561003, lambda: phase_one("twiceCustom", [x])),
        (ParamNullptrError, 161001, lambda: phase_one("TwiceCustom", [None])),
        (ParamInvalidError, 161002, lambda: phase_one("TwiceCustom", [bench.tensor([1, 2], "float16")])),
        (ParamInvalidError, 161002, lambda: phase_one("TwiceCustom", [x], {"how": 3})),
        (ParamInvalidError, 161002, lambda: phase_one("TwiceCustom", [x], {}, [bench.tensor([1, 2, 3])])),
        (ParamInvalidError, 161002, lambda: phase_one("TwiceCustom", [x], {}, [bench.tensor([1, 2], "int32")])),
        (ParamNullptrError, 161001, lambda: phase_one("TwiceCustom", [x], {}, [None])),
        (TilingError, 561002, lambda: phase_one("TwiceCustom", [x], {"how": "refuse"})),
    ]
    for kind, code, call in refusals:
        with pytest.raises(kind) as caught:
            call()
        assert (caught.value.code, get_last_error()) == (code, code)  # pyright: ignore[reportAttributeAccessIssue]


def test_a_miss_tells_what_was_searched(bench: Bench) -> None:
    with pytest.raises(OpNotFoundError, match=r"did you mean TwiceCustom\?") as caught:
        bench.operators.get_workspace_size("twicecustom", [])
    assert "EZ3003 ACLNN_ERR_INNER_FIND_KERNEL_ERROR (561003)" in str(caught.value)
    assert "1. " in str(caught.value) and "2. built-in" in str(caught.value)
    assert isinstance(caught.value.__cause__, AclError) and caught.value.__cause__.code == 100024


def test_an_error_of_a_kernel_comes_at_the_next_synchronisation(bench: Bench) -> None:
    executor, workspace, size, _ = bench.prepared("fail")
    task = bench.operators.execute(workspace, size, executor, bench.stream)
    after, workspace_2, _, out = bench.prepared()
    bench.operators.execute(workspace_2, size, after, bench.stream)
    with pytest.raises(AclError, match="the Vector met a trap") as caught:
        bench.stream.synchronize()
    assert caught.value.code == 507035
    assert re.search(r"aclnnTwiceCustom.*submitted at .*test_ops_phases\.py:\d+", caught.value.what)
    assert isinstance(task.error, FloatingPointError)
    assert bench.values(out) == [2, 4]  # later tasks run


def test_a_kernel_that_gives_another_shape_fails(bench: Bench) -> None:
    executor, workspace, size, _ = bench.prepared("shape")
    bench.operators.execute(workspace, size, executor, bench.stream)
    with pytest.raises(AclError, match=r"kernel gives y \(1, 2\) float32, not \(2,\) float32"):
        bench.stream.synchronize()


def test_use_after_free_comes_late_too(bench: Bench) -> None:
    executor, workspace, size, _ = bench.prepared()
    bench.operators.execute(workspace, size, executor, bench.stream)
    bench.memory.free(executor.inputs["x"].address)
    with pytest.raises(AclError, match="aclnnTwiceCustom"):
        bench.stream.synchronize()


def test_launch_blocking_raises_where_the_call_is(tmp_path: Path) -> None:
    bench = Bench(tmp_path, launch_blocking=True)
    executor, workspace, size, _ = bench.prepared("fail")
    with pytest.raises(AclError, match="the Vector met a trap"):
        bench.operators.execute(workspace, size, executor, bench.stream)
    executor, workspace, size, out = bench.prepared()
    assert bench.operators.execute(workspace, size, executor, bench.stream).done
    assert bench.values(out) == [2, 4]


def test_timing_only_computes_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path, timing_only=True)
    executor, workspace, size, out = bench.prepared("fail")
    task = bench.operators.execute(workspace, size, executor, bench.stream)
    bench.stream.synchronize()
    assert bench.values(out) == [0, 0]
    assert (task.end_s or 0.0) - (task.start_s or 0.0) == pytest.approx(1e-3)


def test_calls_that_differ_in_addresses_alone_are_prepared_once(bench: Bench) -> None:
    first, _, _, _ = bench.prepared()
    second, _, _, _ = bench.prepared()
    assert first.prepared is second.prepared
    assert bench.prepared("other")[0].prepared is not first.prepared
    other = bench.operators.get_workspace_size("TwiceCustom", [bench.tensor([1, 2, 3])])[1]
    assert other.prepared is not first.prepared
    bench.operators.registry.reload()
    assert bench.prepared()[0].prepared is not first.prepared


def test_a_thread_without_a_device_is_told(bench: Bench) -> None:
    bench.system.reset_device(0)
    with pytest.raises(AclError, match="no current context") as caught:
        bench.operators.get_workspace_size("TwiceCustom", [Tensor(64, (2,), "float32")])
    assert caught.value.code == 107002
    bench.system.set_device(0)


def test_a_stream_of_another_context_is_refused_and_the_executor_stays(bench: Bench) -> None:
    executor, workspace, size, _ = bench.prepared()
    mine, other = bench.system.current_context(), bench.system.create_context(0)
    bench.system.set_context(mine)
    with pytest.raises(AclError) as caught:
        bench.operators.execute(workspace, size, executor, other.default_stream)
    assert caught.value.code == 107003
    bench.operators.execute(workspace, size, executor, bench.stream)
    bench.system.destroy_context(other)


def test_the_articles_errors_are_the_codes_of_cann() -> None:
    texts = ("x=1", "must be 2", "pass 2")
    assert op_error_of(ParamInvalidError(*texts)) is op_error_of(InferShapeError(*texts)) is OpErrorCode.SHAPE_MISMATCH
    assert op_error_of(TilingError(*texts)) is op_error_of(NullptrError(*texts)) is OpErrorCode.TILING_FAILED
    assert op_error_of(AclError(100025, "x")) is OpErrorCode.COMPILATION_FAILED
    assert op_error_of(AclError(507034, "x")) is OpErrorCode.DMA_TIMEOUT
    assert op_error_of(AclError(107002, "x")) is op_error_of(KeyError("x")) is None


def test_the_debug_log_tells_each_step(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "ascend_jax.runtime"):
        executor, workspace, size, _ = bench.prepared()
        bench.operators.execute(workspace, size, executor, bench.stream)
    lines = [record.getMessage() for record in caplog.records]
    assert "Validate: TwiceCustom" in lines
    assert any(line.startswith("Launch: task ") and "tiling_key=7" in line for line in lines)
