"""FlashAttentionScore and its gradient as calls of the runtime: the operator's checks, numbers and seconds."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ascend_jax.attention.errors import NullptrError, ParamInvalidError, ParamNullptrError
from ascend_jax.attention.fusion.grad import npu_fusion_attention_grad
from ascend_jax.attention.fusion.ops import npu_fusion_attention
from ascend_jax.cost.evaluate import evaluate
from ascend_jax.hardware import load_chip
from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.runtime.engine.task import Task
from ascend_jax.runtime.ops.phases import SYSTEM_WORKSPACE_BYTES, Operators
from ascend_jax.runtime.ops.registry import Registry
from ascend_jax.runtime.ops.tensor import Tensor
from ascend_jax.runtime.system import Options, System
from ascend_jax.tiling.cann import cann_tiling
from ascend_jax.tiling.tiling import Tiling
from ascend_jax.workload.attention import Attention
from ascend_jax.workload.mask import Mask

HEADS: dict[str, Any] = {"head_num": 2, "input_layout": "BNSD", "scale_value": 0.25}
Q, KV = (1, 2, 32, 16), (1, 2, 48, 16)


class Machine:
    """One chip, and calls of attention from arrays to arrays."""

    def __init__(self, chip: str = "910b3", **options: Any) -> None:
        self.system = System([chip], options=Options(**options))
        self.system.init()
        self.stream = self.system.set_device(0).default_stream
        self.memory = self.stream.device.memory
        self.operators = Operators(self.system, Registry({}))

    def run(self, op_type: str, arrays: dict[str, Any], **attrs: Any) -> tuple[dict[str, np.ndarray], Task]:
        """Every output by name, and the task."""
        inputs = {name: self.tensor(np.asarray(array)) for name, array in arrays.items()}
        size, executor = self.operators.get_workspace_size(op_type, inputs, attrs)
        outputs = {
            name: self.tensor(np.zeros(shape, jnp.dtype(dtype))) for name, (shape, dtype) in executor.prepared.outputs.items()
        }
        size, executor = self.operators.get_workspace_size(op_type, inputs, attrs, outputs)
        task = self.operators.execute(self.memory.malloc(size), size, executor, self.stream)
        self.stream.synchronize()
        return {name: tensor.array(self.memory).copy() for name, tensor in outputs.items()}, task

    def tensor(self, array: np.ndarray) -> Tensor:
        made = Tensor(self.memory.malloc(max(array.nbytes, 1)), array.shape, array.dtype)
        made.array(self.memory)[...] = array
        return made

    def phase_one(self, q: tuple[int, ...] = Q, kv: tuple[int, ...] = KV, dtype: str = "float16", **attrs: Any) -> Any:
        """Workspace and executor of a call with shapes alone."""
        inputs = [Tensor(64, shape, dtype) for shape in (q, kv, kv)]
        return self.operators.get_workspace_size("FlashAttentionScore", inputs, HEADS | attrs)


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    made = Machine()
    yield made
    made.system.finalize()


def numbers(*shape: int, seed: int = 0, dtype: str = "float16") -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.dtype(dtype))


def test_forward_and_gradient_are_those_of_the_operators(machine: Machine) -> None:
    arrays = {"query": numbers(*Q), "key": numbers(*KV, seed=1), "value": numbers(*KV, seed=2)}
    arrays["atten_mask"] = np.random.default_rng(3).random((32, 48)) < 0.3
    found, task = machine.run("FlashAttentionScore", arrays, sparse_mode=1, **HEADS)
    q, k, v = (jnp.asarray(arrays[name]) for name in ("query", "key", "value"))
    options: dict[str, Any] = {"atten_mask": jnp.asarray(arrays["atten_mask"]), "sparse_mode": 1}
    tiling = Tiling(block_q=32, block_kv=48)
    expected = npu_fusion_attention(q, k, v, 2, "BNSD", scale=0.25, tiling=tiling, **options)
    for name in ("attention_out", "softmax_max", "softmax_sum"):
        np.testing.assert_array_equal(found[name], np.asarray(getattr(expected, name)), err_msg=name)
    assert found["softmax_out"].shape == (0,)
    assert task.core == "mix" and task.op_type == "FlashAttentionScore"

    dy = numbers(*Q, seed=4)
    saved = {"softmax_max": found["softmax_max"], "softmax_sum": found["softmax_sum"], "attention_in": found["attention_out"]}
    gradients, backward = machine.run("FlashAttentionScoreGrad", arrays | saved | {"dy": dy}, sparse_mode=1, **HEADS)
    arguments: dict[str, Any] = {name: jnp.asarray(array) for name, array in saved.items()} | options
    wanted = npu_fusion_attention_grad(q, k, v, jnp.asarray(dy), 2, "BNSD", scale_value=0.25, tiling=tiling, **arguments)
    for name in ("dq", "dk", "dv"):
        np.testing.assert_array_equal(gradients[name], np.asarray(getattr(wanted, name)), err_msg=name)
    launch = float(task.info["report"].launch_s)
    assert backward.duration_s == pytest.approx(launch + 2.5 * (task.duration_s - launch))


def test_packed_sequences_and_a_renamed_input(machine: Machine) -> None:
    """real_shift of the prototype is pse; statistics of TND are [T, N, 8]."""
    arrays = {"query": numbers(24, 2, 16), "key": numbers(24, 2, 16, seed=1), "value": numbers(24, 2, 16, seed=2)}
    arrays["real_shift"] = np.asarray([0.5, 0.25], np.float32)
    attrs: dict[str, Any] = {"head_num": 2, "input_layout": "TND", "sparse_mode": 3, "pse_type": 2}
    attrs |= {"actual_seq_qlen": [8, 24], "actual_seq_kvlen": [8, 24]}
    arrays["atten_mask"] = np.triu(np.ones((2048, 2048), bool), 1)
    inputs = {name: machine.tensor(array) for name, array in arrays.items()}
    prepared = machine.operators.get_workspace_size("FlashAttentionScore", inputs, attrs)[1].prepared
    assert prepared.outputs["softmax_max"] == ((24, 2, 8), "float32")
    assert prepared.data.blob["work"].q_len == (8, 16)
    assert prepared.data.blob["work"].mask == Mask(kind="causal")
    found = prepared.operator.kernel({name: jnp.asarray(array) for name, array in arrays.items()}, prepared.call, prepared.data)
    given = {name: jnp.asarray(array) for name, array in arrays.items()}
    given["pse"] = given.pop("real_shift")
    expected = npu_fusion_attention(**given, **attrs, tiling=Tiling(block_q=16, block_kv=16))
    np.testing.assert_allclose(found["attention_out"], np.asarray(expected.attention_out), atol=2e-3)


@pytest.mark.parametrize(
    ("change", "kind", "code", "text"),
    [
        ({"head_num": 3}, NullptrError, 561103, "head_num=3: must equal N1=2"),
        ({"input_layout": "BDNS"}, ParamInvalidError, 161002, "input_layout='BDNS'"),
        ({"kv": (2, 2, 48, 16)}, NullptrError, 561103, "B=1 of query and B=2 of key"),
        ({"q": (1, 2, 32, 2048), "kv": (1, 2, 48, 2048)}, ParamInvalidError, 161002, "D=2048: must lie in 1…768"),
        ({"dtype": "float64"}, ParamInvalidError, 161002, "query of type float64"),
        ({"keep_prob": 1.5}, ParamInvalidError, 161002, "keep_prob=1.5"),
        ({"sparse_mode": 2}, NullptrError, 561103, "atten_mask"),
        ({"pse_type": 2}, ParamInvalidError, 161002, "pse=None"),
    ],
)
def test_what_the_operator_refuses(machine: Machine, change: dict[str, Any], kind: type, code: int, text: str) -> None:
    if change == {"sparse_mode": 2}:
        inputs = {name: Tensor(64, Q, "float16") for name in ("query", "key", "value")}
        inputs["atten_mask"] = Tensor(64, (100, 100), "bool")
        with pytest.raises(kind, match=text):
            machine.operators.get_workspace_size("FlashAttentionScore", inputs, HEADS | change)
        return
    with pytest.raises(kind) as caught:
        machine.phase_one(**change)
    assert caught.value.code == code  # pyright: ignore[reportAttributeAccessIssue]
    assert text in str(caught.value).splitlines()[0]


def test_a_missing_value_is_a_null_pointer(machine: Machine) -> None:
    with pytest.raises(ParamNullptrError, match="value=None"):
        machine.operators.get_workspace_size(
            "FlashAttentionScore", {name: Tensor(64, Q, "float16") for name in ("query", "key")}, HEADS
        )


def test_seconds_are_those_of_the_cost_model(machine: Machine) -> None:
    q = kv = (1, 8, 4096, 128)
    _, executor = machine.phase_one(q, kv, head_num=8)
    chip, work = load_chip("910B3"), Attention(batch=1, q_heads=8, kv_heads=8, q_len=4096, kv_len=4096, head_dim=128)
    tiling = cann_tiling(chip, work, "FlashAttentionScore")
    report = evaluate(chip, work, tiling, kernel="flash_attention_score")
    prepared = executor.prepared
    assert prepared.data.tiling == tiling and prepared.data.kernel == "flash_attention_score"
    assert prepared.cost.seconds == pytest.approx(float(report.seconds))
    assert prepared.cost.cores == 20
    assert prepared.info["report"].bound_by == jax.device_get(report).bound_by
    # S and P of each core cross GM: two slots each of 128 × 1024 elements, and ΔO.
    assert prepared.workspace_bytes - SYSTEM_WORKSPACE_BYTES["separated"] >= 20 * 2 * 128 * 1024 * (4 + 2)


def test_the_way_to_choose_a_tiling_is_the_systems() -> None:
    asked: list[Attention] = []

    def choose(spec: NpuSpec, work: Attention) -> Tiling:
        asked.append(work)
        return Tiling(block_q=32, block_kv=64)

    machine = Machine(choose_tiling=choose)
    mask = {"sparse_mode": 0, "pre_tokens": 40, "next_tokens": 8}
    inputs = [Tensor(64, (1, 2, 64, 16), "float16")] * 3
    _, executor = machine.operators.get_workspace_size("FlashAttentionScore", inputs, HEADS | mask)
    assert (executor.prepared.data.tiling, executor.prepared.data.kernel) == (Tiling(block_q=32, block_kv=64), "separated")
    assert asked == [Attention(batch=1, q_heads=2, kv_heads=2, q_len=64, kv_len=64, head_dim=16, mask=asked[0].mask)]
    assert asked[0].mask == Mask()  # without a mask tensor the operator attends to every key
    masked = dict(zip(("query", "key", "value"), inputs, strict=True)) | {"atten_mask": Tensor(64, (64, 64), "bool")}
    machine.operators.get_workspace_size("FlashAttentionScore", masked, HEADS | mask)
    assert asked[1].mask == Mask(kind="band", pre=40, next=8)
    machine.system.finalize()


def test_an_empty_call_gives_zeros(machine: Machine) -> None:
    arrays = {"query": numbers(*Q), "key": numbers(1, 2, 0, 16), "value": numbers(1, 2, 0, 16)}
    inputs = {name: Tensor(64, array.shape, "float16") for name, array in arrays.items()}
    size, executor = machine.operators.get_workspace_size("FlashAttentionScore", inputs, HEADS)
    prepared = executor.prepared
    assert (size, prepared.cost.cores) == (0, 1)
    found = prepared.operator.kernel({name: jnp.asarray(array) for name, array in arrays.items()}, prepared.call, prepared.data)
    assert found["attention_out"].shape == Q and not found["attention_out"].any()
