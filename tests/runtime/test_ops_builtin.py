"""Add, Cast, Softmax and MatMul: numbers against NumPy, refusals, and seconds against the roofline by hand."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ascend_jax.attention.errors import ParamInvalidError
from ascend_jax.hardware import load_chip
from ascend_jax.runtime.engine.task import Task
from ascend_jax.runtime.ops.phases import Operators
from ascend_jax.runtime.ops.prototype import snake_case
from ascend_jax.runtime.ops.rates import matmul_cost, vector_cost
from ascend_jax.runtime.ops.registry import Registry
from ascend_jax.runtime.ops.tensor import Tensor, contiguous
from ascend_jax.runtime.system import System


class Machine:
    """One chip, and calls of its operators from NumPy to NumPy."""

    def __init__(self, chip: str = "910b3") -> None:
        self.system = System([chip])
        self.system.init()
        self.stream = self.system.set_device(0).default_stream
        self.memory = self.stream.device.memory
        self.operators = Operators(self.system, Registry({}))

    def tensor(self, array: np.ndarray) -> Tensor:
        made = Tensor(self.memory.malloc(max(array.nbytes, 1)), array.shape, array.dtype)
        made.array(self.memory)[...] = array
        return made

    def run(self, op_type: str, *inputs: np.ndarray | Tensor, out: Any = None, **attrs: Any) -> tuple[np.ndarray, Task]:
        """The output and the task. ``out``: a tensor to write to."""
        tensors = [one if isinstance(one, Tensor) else self.tensor(one) for one in inputs]
        if out is None:
            size, executor = self.operators.get_workspace_size(op_type, tensors, attrs)
            shape, dtype = executor.prepared.outputs["out"]
            out = Tensor(self.memory.malloc(max(Tensor(0, shape, dtype).bytes, 1)), shape, dtype)
            executor.set_output_address("out", out.address)
        else:
            size, executor = self.operators.get_workspace_size(op_type, tensors, attrs, [out])
        task = self.operators.execute(self.memory.malloc(size) if size else 0, size, executor, self.stream)
        self.stream.synchronize()
        return out.array(self.memory).copy(), task


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    made = Machine()
    yield made
    made.system.finalize()


def numbers(*shape: int, dtype: str = "float32", seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.dtype(dtype))


def test_add_broadcasts_scales_and_keeps_the_type(machine: Machine) -> None:
    one, other = numbers(3, 1, 5), numbers(4, 5, seed=1)
    out, _ = machine.run("Add", one, other, alpha=2.5)
    np.testing.assert_allclose(out, one + np.float32(2.5) * other, rtol=1e-6)
    small = np.arange(4, dtype=np.int32)
    assert machine.run("Add", small, small, alpha=3)[0].tolist() == [0, 4, 8, 12]
    with pytest.raises(ParamInvalidError, match="broadcast"):
        machine.run("Add", numbers(3), numbers(4))


def test_add_in_half_precision_rounds_once(machine: Machine) -> None:
    one, other = (numbers(1000, dtype="float16", seed=seed) for seed in (2, 3))
    out, _ = machine.run("Add", one, other, alpha=0.1)
    exact = one.astype(np.float64) + np.float32(0.1).astype(np.float64) * other.astype(np.float64)
    assert np.max(np.abs(out - exact) / np.spacing(np.abs(out)).astype(np.float64)) < 0.51


def test_add_may_write_where_it_reads(machine: Machine) -> None:
    x = machine.tensor(numbers(7))
    before = x.array(machine.memory).copy()
    out, task = machine.run("Add", x, x, out=x)
    np.testing.assert_array_equal(out, 2 * before)
    assert task.reads == (x.span, x.span) and task.writes == (x.span,)


@pytest.mark.parametrize(
    ("values", "source", "target", "expected"),
    [
        ([-1.7, 2.9, 0.0], "float32", "int32", [-1, 2, 0]),
        ([1.00390625, 3.0], "float32", "bfloat16", [1.0, 3.0]),  # halfway: to even
        ([0.0, -0.5, 2.0], "float32", "bool", [False, True, True]),
        ([True, False], "bool", "float16", [1.0, 0.0]),
    ],
)
def test_cast(machine: Machine, values: list[float], source: str, target: str, expected: list[Any]) -> None:
    out, _ = machine.run("Cast", np.asarray(values, source), dtype=target)
    assert (out.dtype.name, out.tolist()) == (target, expected)


def test_cast_refuses_types_that_it_does_not_know(machine: Machine) -> None:
    with pytest.raises(ParamInvalidError, match="dtype='complex64'"):
        machine.run("Cast", numbers(3), dtype="complex64")
    with pytest.raises(ParamInvalidError, match="dtype: must be given"):
        machine.run("Cast", numbers(3))


@pytest.mark.parametrize("dim", [-1, 0, 1, -3])
def test_softmax(machine: Machine, dim: int) -> None:
    x = 30 * numbers(2, 3, 4)
    power = np.exp(x.astype(np.float64) - x.max(axis=dim, keepdims=True))
    np.testing.assert_allclose(machine.run("Softmax", x, dim=dim)[0], power / power.sum(axis=dim, keepdims=True), rtol=1e-5)


def test_softmax_refuses_an_axis_that_is_not_there(machine: Machine) -> None:
    for dim in (3, -4):
        with pytest.raises(ParamInvalidError, match=f"dim={dim}"):
            machine.run("Softmax", numbers(2, 3, 4), dim=dim)


def test_empty_tensors(machine: Machine) -> None:
    assert machine.run("Softmax", numbers(0, 3))[0].shape == (0, 3)
    assert machine.run("MatMul", numbers(2, 0), numbers(0, 3))[0].tolist() == [[0.0] * 3] * 2


@pytest.mark.parametrize(("one", "other"), [((5, 7), (7, 3)), ((2, 1, 5, 7), (4, 7, 3)), ((1, 9), (9, 1))])
def test_matmul(machine: Machine, one: tuple[int, ...], other: tuple[int, ...]) -> None:
    a, b = numbers(*one), numbers(*other, seed=1)
    out, task = machine.run("MatMul", a, b)
    np.testing.assert_allclose(out, np.matmul(a, b), rtol=1e-4, atol=1e-5)
    assert task.core == "cube"


def test_matmul_adds_up_in_float32(machine: Machine) -> None:
    a = np.concatenate([np.full((1, 4096), 1.0), np.full((1, 4096), 2.0**-11)]).astype(np.float16)
    out, _ = machine.run("MatMul", a, np.ones((4096, 1), np.float16))
    assert out.tolist() == [[4096.0], [2.0]]  # float16 sums would stop at 2048 and at 1


def test_matmul_reads_a_transposed_view(machine: Machine) -> None:
    a, b = numbers(5, 7), numbers(3, 7, seed=1)
    out, _ = machine.run("MatMul", a, machine.tensor(b).transposed())
    np.testing.assert_allclose(out, a @ b.T, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("one", "other", "text"), [((5, 7), (5, 7), "k=7"), ((7,), (7, 3), "2 to 6"), ((2, 5, 7), (3, 7, 5), "batches")]
)
def test_matmul_refuses_shapes_that_do_not_fit(machine: Machine, one: Any, other: Any, text: str) -> None:
    with pytest.raises(ParamInvalidError, match=text):
        machine.run("MatMul", numbers(*one), numbers(*other))


@settings(max_examples=25)
@given(st.data())
def test_views_with_strides_and_offsets(machine: Machine, data: st.DataObject) -> None:
    """A view of a storage reads, and is written, as NumPy's own view of it."""
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    steps = tuple(data.draw(st.integers(1, 2)) * stride for stride in contiguous(shape))
    offset = data.draw(st.integers(0, 3))
    storage = machine.tensor(numbers(offset + sum((n - 1) * s for n, s in zip(shape, steps, strict=True)) + 1))
    view = Tensor(storage.address, shape, "float32", strides=steps, offset=offset)
    whole = storage.array(machine.memory)
    expected = np.lib.stride_tricks.as_strided(whole[offset:], shape, [4 * step for step in steps]).copy()
    out, task = machine.run("Add", view, view, out=view)
    np.testing.assert_array_equal(out, 2 * expected)
    assert task.writes[0] == (storage.address + 4 * offset, storage.bytes - 4 * offset)


def test_seconds_of_an_add_are_its_bytes_over_the_rate_of_gm() -> None:
    chip = load_chip("910B3")
    elements = 1 << 26
    cost = vector_cost(chip, elements, {"add": 1}, 8 * elements, 4 * elements)
    assert cost.cores == 40
    assert cost.seconds == pytest.approx(float(chip.launch_s) + 12 * elements / float(chip.gm_bytes_per_s))
    few = vector_cost(chip, 4096, {"add": 1}, 8 * 4096, 4 * 4096)
    assert few.cores == 2  # 8 KiB a core
    assert few.seconds == pytest.approx(float(chip.launch_s) + 8 * 4096 / (2 * float(chip.gm_to_ub_bytes_per_s)))


def test_seconds_of_heavy_operations_are_those_of_the_vector() -> None:
    chip = load_chip("910B3")
    elements, names = 40 * 64 * 1000, {"exp": 100, "divide": 1}
    cycles = 1000 * (100 * float(chip.vector.exp) + float(chip.vector.divide))
    found = vector_cost(chip, elements, names, 4 * elements, 4 * elements)
    assert found.seconds == pytest.approx(float(chip.launch_s) + cycles / float(chip.vector_clock_hz))


def test_seconds_of_a_matmul() -> None:
    chip = load_chip("910B3")
    rate = 16 * 16 * 16 * 2 * float(chip.cube_clock_hz)  # one core, float16
    assert matmul_cost(chip, (1, 128, 1024, 256 * 20), "float16", 2).cores == 20
    one = matmul_cost(chip, (1, 128, 1024, 256), "float16", 2)
    fed = 1024 * (128 + 256) * 2 / float(chip.gm_to_l1_bytes_per_s)
    assert one.cores == 1
    assert one.seconds == pytest.approx(float(chip.launch_s) + max(2 * 128 * 256 * 1024 / rate, fed))
    two_rounds = matmul_cost(chip, (1, 128, 1024, 256 * 21), "float16", 2)
    assert two_rounds.seconds - float(chip.launch_s) == pytest.approx(2 * (one.seconds - float(chip.launch_s)))
    half, whole = (matmul_cost(chip, (1, 4096, 4096, 4096), f"float{bits}", bits // 8).seconds for bits in (16, 32))
    assert whole / half > 1.9


def test_a_core_of_the_first_generation_runs_one_kernel_at_a_time() -> None:
    machine = Machine("910a")
    assert machine.run("Add", numbers(8), numbers(8))[1].core == "mix"
    assert machine.run("MatMul", numbers(8, 8), numbers(8, 8))[1].core == "mix"
    machine.system.finalize()


def test_names_of_files() -> None:
    assert [snake_case(name) for name in ("Add", "MatMulV2", "FFTCustom")] == ["add", "mat_mul_v2", "fft_custom"]
