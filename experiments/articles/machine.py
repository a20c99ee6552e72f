"""A simulated machine with short words for what the articles' programs do: tensors, calls in two phases, a log in memory."""

import io
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from ascend_jax.runtime.engine.task import Task
from ascend_jax.runtime.log import logging_as
from ascend_jax.runtime.ops.executor import Executor
from ascend_jax.runtime.ops.phases import Operators
from ascend_jax.runtime.ops.registry import Registry
from ascend_jax.runtime.ops.tensor import Tensor
from ascend_jax.runtime.stream import Stream
from ascend_jax.runtime.system import Options, System
from ascend_jax.workload.attention import Attention

CHIP = "910b3"
"""What calls run on: the operator exists from the A2 on."""
OLD_CHIP = "910a"
"""The chip of the articles' 256 KiB of UB."""


class Machine(System):
    """A system in which device 0 is set. ``numerics``: False keeps time, order and checks only."""

    def __init__(self, *chips: str, numerics: bool = False, environ: dict[str, str] | None = None, **options: Any) -> None:
        super().__init__(chips or (CHIP,), options=Options(timing_only=not numerics, **options))
        self.operators = Operators(self, Registry(environ or {}))

    def init(self) -> None:
        """Set device 0, too."""
        super().init()
        self.set_device(0)

    def __enter__(self) -> "Machine":
        super().__enter__()
        return self

    def empty(self, shape: Sequence[int], dtype: Any = "float16") -> Tensor:
        """A tensor on this thread's device."""
        one = Tensor(0, tuple(shape), dtype)
        return Tensor(self.memory.malloc(max(one.bytes, 1)), one.shape, one.dtype)

    def put(self, values: np.ndarray) -> Tensor:
        """``values`` on this thread's device, without a task."""
        tensor = self.empty(values.shape, values.dtype)
        tensor.array(self.current_context().device.memory)[...] = values
        return tensor

    def get(self, tensor: Tensor) -> np.ndarray:
        """A copy of what lies there."""
        return tensor.array(self.device(self.get_device()).memory).copy()

    def attention(
        self, qkv: Sequence[Tensor] | None = None, layout: str = "BNSD", *, shape: Sequence[int] = ()
    ) -> tuple[int, Executor]:
        """Phase one of FlashAttentionScore with memory for its outputs; new tensors of ``shape`` where none are given."""
        q, k, v = qkv if qkv is not None else [self.empty(shape) for _ in range(3)]
        heads = q.shape[layout.index("N")]
        attrs = {"head_num": heads, "input_layout": layout, "scale_value": q.shape[-1] ** -0.5, "keep_prob": 1.0}
        size, executor = self.operators.get_workspace_size("FlashAttentionScore", [q, k, v], attrs)
        for name, tensor in executor.outputs.items():
            if isinstance(tensor, Tensor):
                executor.set_output_address(name, self.empty(tensor.shape, tensor.dtype).address)
        return size, executor

    def launch(self, prepared: tuple[int, Executor], stream: Stream | None = None) -> Task:
        """Phase two, with a workspace of its own."""
        size, executor = prepared
        return self.operators.execute(self.memory.malloc(size) if size else 0, size, executor, stream)

    def seconds(self) -> float:
        """Virtual time of the host, after everything has ended."""
        self.current_context().synchronize()
        return self.host_now_s


def attention_out(executor: Executor) -> Tensor:
    """Where the call's output lies."""
    tensor = executor.outputs["attention_out"]
    assert isinstance(tensor, Tensor)
    return tensor


def work(seq: int, head_dim: int, heads: int = 8) -> Attention:
    """The articles' workload: one batch, float16, no mask."""
    return Attention(batch=1, q_heads=heads, kv_heads=heads, q_len=seq, kv_len=seq, head_dim=head_dim, dtype="float16")


def random_qkv(shape: Sequence[int], seed: int = 0) -> list[np.ndarray]:
    """``torch.randn`` of the articles, three times."""
    generator = np.random.default_rng(seed)
    return [generator.normal(size=shape).astype(np.float16) for _ in range(3)]


def softmax_attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Plain attention ``[B, N, S, D]`` in float64, with NumPy."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ v


def difference(found: np.ndarray, expected: np.ndarray) -> float:
    """The largest absolute difference."""
    return float(np.abs(np.asarray(found, np.float64) - expected).max())


def on_host(array: Any) -> np.ndarray:
    """A JAX array in NumPy."""
    return np.asarray(jnp.asarray(array))


class Log:
    """The runtime's log at a level of ``ASCEND_GLOBAL_LOG_LEVEL`` while a ``with`` block runs; then its ``lines``."""

    def __init__(self, level: int) -> None:
        self.text = io.StringIO()
        variables = {"ASCEND_GLOBAL_LOG_LEVEL": str(level), "ASCEND_SLOG_PRINT_TO_STDOUT": "1"}
        self.context = logging_as(variables, self.text)

    def __enter__(self) -> "Log":
        self.context.__enter__()
        return self

    def __exit__(self, *_: Any) -> None:
        self.context.__exit__(None, None, None)

    @property
    def lines(self) -> list[str]:
        """Level and message of each record, as the articles print them: ``[DEBUG] DMA Submit: …``."""
        records = (line for line in self.text.getvalue().splitlines() if line.startswith("["))
        return [f"{line.partition(']')[0]}] {line.split('[', 2)[2].partition(']')[2]}" for line in records]
