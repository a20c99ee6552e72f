"""``Operator``: a prototype with what the host and the device do for it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.runtime.ops.prototype import OpDef
from ascend_jax.runtime.ops.tensor import Operand, Tensor
from ascend_jax.tiling.tiling import Tiling
from ascend_jax.workload.attention import Attention

Core = Literal["cube", "vector", "mix"]
Shape = tuple[int, ...]
Choice = tuple[Tiling, str] | Tiling
ChooseTiling = Callable[[NpuSpec, Attention], Choice]
"""A way to choose the tiling of attention: ``(tiling, kernel's name)``, or a tiling for the chip's own kernel."""


@dataclass(frozen=True)
class OpCall:
    """One call, as the functions of an operator see it.

    Attributes:
      inputs: by name; None where an optional one is absent, a list for a dynamic one.
      attrs: by name, with the defaults filled in.
      chip: the device's.
      choose_tiling: how attention is tiled.
      combination: which of the prototype's combinations of dtypes and formats it is.
    """

    op_type: str
    inputs: dict[str, Operand]
    attrs: dict[str, Any]
    chip: NpuSpec
    choose_tiling: ChooseTiling
    combination: int = 0

    def tensor(self, name: str) -> Tensor:
        """The tensor of a required input."""
        operand = self.inputs[name]
        assert isinstance(operand, Tensor), f"{name} of {self.op_type} is a list, or may be absent"
        return operand

    def shape(self, name: str) -> Shape:
        """The shape of a required input."""
        return self.tensor(name).shape


@dataclass(frozen=True)
class TilingData:
    """What the host's tiling function hands to the kernel.

    Attributes:
      block_dim: cores that the kernel is launched on: cube cores, or vector cores for an operator of the Vector.
      tiling_key: which of its variants runs.
      workspace_bytes: what the kernel itself needs in GM; the runtime adds the part of the system.
      tiling: of attention, None elsewhere.
      kernel: the dataflow's name, "" elsewhere.
      steps: of the layered fallback, in words.
      blob: whatever else the kernel reads.
    """

    block_dim: int
    tiling_key: int = 0
    workspace_bytes: int = 0
    tiling: Tiling | None = None
    kernel: str = ""
    steps: tuple[str, ...] = ()
    blob: dict[str, Any] = field(default_factory=dict)


class Cost(NamedTuple):
    """Seconds from start to end, cores that are busy, and the report of the model that says so (None: a plain formula)."""

    seconds: float
    cores: int
    report: Any = None


@dataclass(frozen=True, eq=False)
class Operator:
    """All there is to an operator.

    Attributes:
      proto: its prototype.
      infer_shape: call → shapes of the outputs, by name; an optional output that is absent may be left out.
      tiling: call → ``TilingData``.
      kernel: arrays of the inputs (as ``OpCall.inputs`` has them), call, tiling data → arrays of the outputs, by name.
      duration: call, tiling data → ``Cost``, from the numbers of ``call.chip``.
      infer_dtype: call → dtypes of the outputs, by name; None: the prototype's combination says them.
      check: refuses a call beyond what the prototype says, with an ``AclnnError``.
      core: what it runs on.
      inner_schedule: call, tiling data → its simulated timeline, for the debug log; None: it has none.
    """

    proto: OpDef
    infer_shape: Callable[[OpCall], dict[str, Shape]]
    tiling: Callable[[OpCall], TilingData]
    kernel: Callable[[dict[str, Any], OpCall, TilingData], dict[str, Any]]
    duration: Callable[[OpCall, TilingData], Cost]
    infer_dtype: Callable[[OpCall], dict[str, str]] | None = None
    check: Callable[[OpCall], None] | None = None
    core: Core = "vector"
    inner_schedule: Callable[[OpCall, TilingData], Any] | None = None

    @property
    def op_type(self) -> str:
        """Its name."""
        return self.proto.op_type
