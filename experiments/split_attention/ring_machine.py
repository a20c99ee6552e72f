"""Ranks on simulated devices, tensors in their memory, and attention by the registered operator."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from ascend_jax.attention.merge import merge_partials
from ascend_jax.runtime.engine.task import Task
from ascend_jax.runtime.hccl.communicator import Communicator
from ascend_jax.runtime.hccl.init import CommConfig, comm_init_all
from ascend_jax.runtime.hccl.kinds import DataType
from ascend_jax.runtime.ops.phases import Operators
from ascend_jax.runtime.ops.tensor import Operand, Tensor
from ascend_jax.runtime.stream import Stream
from ascend_jax.runtime.system import Options, System

HCCL_TYPES = {"float16": DataType.FP16, "bfloat16": DataType.BFP16, "float32": DataType.FP32}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One attention call, batch 1, ``[N, S, D]`` a tensor."""

    seq: int
    q_heads: int = 32
    kv_heads: int = 8
    head_dim: int = 128
    dtype: str = "bfloat16"
    causal: bool = True


@dataclass(frozen=True)
class Partial:
    """Attention over some of the keys: the output and softmax's maximum and sum."""

    out: Tensor
    top: Tensor
    total: Tensor


class Machine:
    """``ranks`` devices of one chip. The host takes no time: each rank is a program of its own, here one after the other."""

    def __init__(self, chip: str, ranks: int, *, timing_only: bool, config: CommConfig | None = None) -> None:
        options = Options(host_submit_s=0.0, timing_only=timing_only, hazards="raise", deadlock_patience_s=0.1)
        self.timing_only = timing_only
        self.system = System([chip] * ranks, options=options)
        self.system.init()
        self.contexts = [self.system.set_device(rank) for rank in range(ranks)]
        self.comms: list[Communicator] = comm_init_all(self.system, range(ranks), config)
        self.operators = Operators(self.system)
        self._workspaces: dict[tuple[int, int], int] = {}

    @property
    def ranks(self) -> range:
        """Their numbers."""
        return range(len(self.comms))

    def on(self, rank: int) -> Stream:
        """Make the rank's device this thread's; its default stream."""
        self.system.set_context(self.contexts[rank])
        return self.contexts[rank].default_stream

    def new(self, rank: int, shape: Sequence[int], dtype: str, values: np.ndarray | None = None) -> Tensor:
        """A tensor on the rank's device, with ``values`` unless only time counts."""
        tensor = Tensor(0, tuple(shape), dtype)
        memory = self.system.device(rank).memory
        tensor = Tensor(memory.malloc(tensor.bytes), tuple(shape), dtype)
        if values is not None and not self.timing_only:
            tensor.array(memory)[:] = values
        return tensor

    def array(self, rank: int, tensor: Tensor) -> np.ndarray:
        """What the tensor holds now."""
        return tensor.array(self.system.device(rank).memory)

    def attention(self, rank: int, qkv: tuple[Tensor, Tensor, Tensor], *, causal: bool, stream: Stream) -> Partial:
        """FlashAttentionScore on ``stream``; ``causal`` from the top left corner."""
        query = qkv[0]
        statistics = [self.new(rank, (*query.shape[:3], 8), "float32") for _ in range(2)]
        out = self.new(rank, query.shape, query.dtype)
        inputs: dict[str, Operand] = dict(zip(("query", "key", "value"), qkv, strict=True))
        if causal:
            inputs["atten_mask"] = self._mask(rank)
        attrs = {
            "head_num": query.shape[1],
            "input_layout": "BNSD",
            "scale_value": 1 / math.sqrt(query.shape[3]),
            "sparse_mode": 2 if causal else 0,
        }
        outputs: dict[str, Operand] = {"softmax_max": statistics[0], "softmax_sum": statistics[1], "attention_out": out}
        size, executor = self.operators.get_workspace_size("FlashAttentionScore", inputs, attrs, outputs)
        self.operators.execute(self._workspace(rank, size), size, executor, stream)
        return Partial(out, *statistics)

    def merge(self, rank: int, part: Partial, sofar: tuple[Tensor, Tensor], out: Tensor | None, stream: Stream) -> Task:
        """Add a partial result to ``sofar``, output and log-sum-exp in float32; the last one also goes to ``out``.

        A vector kernel that is as fast as memory: it reads and writes what it has so far and reads the part once.
        """
        memory, (whole, lse) = self.system.device(rank).memory, sofar
        tensors = {"reads": [part.out, part.top, part.total, whole, lse], "writes": [whole, lse, *filter(None, [out])]}

        def run() -> None:
            top, total = (jnp.asarray(one.array(memory))[..., :1] for one in (part.top, part.total))
            outs = [jnp.asarray(whole.array(memory)), jnp.asarray(part.out.array(memory)).astype(jnp.float32)]
            merged, merged_lse = merge_partials(outs, [jnp.asarray(lse.array(memory)), top + jnp.log(total)])
            whole.array(memory)[:], lse.array(memory)[:] = merged, merged_lse
            if out is not None:
                out.array(memory)[:] = np.asarray(merged.astype(out.dtype))

        spec = self.system.device(rank).spec
        moved = sum(one.bytes for group in tensors.values() for one in group)
        return stream.submit(
            Task(
                name="MergeAttention",
                op_type="MergeAttention",
                kind="kernel",
                core="vector",
                block_dim=int(spec.cube_cores * spec.vector_cores_per_cube),
                duration_s=float(spec.launch_s) + moved / float(spec.gm_bytes_per_s),
                run=None if self.timing_only else run,
                reads=tuple(one.span for one in tensors["reads"]),
                writes=tuple(one.span for one in tensors["writes"]),
            )
        )

    def empty(self, rank: int, shape: Sequence[int]) -> tuple[Tensor, Tensor]:
        """The result over no keys: output 0, log-sum-exp +inf."""
        whole = self.new(rank, shape, "float32", np.zeros(1, np.float32))
        return whole, self.new(rank, (*shape[:3], 1), "float32", np.full(1, np.inf, np.float32))

    def synchronize(self) -> None:
        """Wait for all ranks."""
        for rank in self.ranks:
            self.on(rank)
            self.contexts[rank].synchronize()

    def _mask(self, rank: int) -> Tensor:
        """The mask of the compressed modes, one a device."""
        key = (rank, -1)
        if key not in self._workspaces:
            later = np.triu(np.ones((2048, 2048), np.uint8), 1)
            self._workspaces[key] = self.new(rank, (2048, 2048), "uint8", later).address
        return Tensor(self._workspaces[key], (2048, 2048), "uint8")

    def _workspace(self, rank: int, size: int) -> int:
        """One of a size for each device: its attention runs on one stream."""
        if size and (rank, size) not in self._workspaces:
            self._workspaces[rank, size] = self.new(rank, (size,), "uint8").address
        return self._workspaces.get((rank, size), 0)


def heads(values: np.ndarray, part: int, parts: int) -> np.ndarray:
    """The heads of one rank: ``[1, N / parts, S, D]`` of ``[1, N, S, D]``."""
    width = values.shape[1] // parts
    return values[:, part * width : (part + 1) * width]


def rows(values: np.ndarray, part: int, parts: int) -> np.ndarray:
    """The rows of one chunk: ``[1, N, S / parts, D]``."""
    height = values.shape[2] // parts
    return values[:, :, part * height : (part + 1) * height]
