"""``Executor``: what the first phase hands to the second. It is used up by one execution, unless it is made repeatable."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ascend_jax.attention.errors import NullptrError, ParamInvalidError, ParamNullptrError
from ascend_jax.runtime.ops.checks import Outputs
from ascend_jax.runtime.ops.operator import Core, Cost, OpCall, Operator, TilingData
from ascend_jax.runtime.ops.tensor import Operand, Tensor


@dataclass(frozen=True, eq=False)
class Prepared:
    """What the first phase found out of a call; calls that differ in addresses alone share it.

    Attributes:
      outputs: shape and dtype of each.
      workspace_bytes: what the second phase must be given.
      core: what the task occupies.
      shown: what a task of it tells the profiler, apart from its cost.
    """

    operator: Operator
    call: OpCall
    outputs: Outputs
    data: TilingData
    workspace_bytes: int
    core: Core
    shown: dict[str, Any]

    @cached_property
    def cost(self) -> Cost:
        """Seconds and cores, worked out at the first execution: the first phase needs neither."""
        return self.operator.duration(self.call, self.data)

    @cached_property
    def schedule(self) -> Any:
        """The simulated timeline of what goes on inside, for the debug log; None where the operator has none."""
        schedule = self.operator.inner_schedule
        return None if schedule is None or self.data.tiling is None else schedule(self.call, self.data)

    @property
    def info(self) -> dict[str, Any]:
        """What a task of it tells the profiler."""
        return {**self.shown, "report": self.cost.report}


@dataclass(eq=False, slots=True)
class Executor:
    """One prepared call with its tensors.

    Attributes:
      prepared: all but the addresses.
      inputs, outputs: by name.
      site: the caller of the first phase.
      repeatable: whether executions leave it usable.
      state: what became of it, "" while it can be used.
    """

    prepared: Prepared
    inputs: dict[str, Operand]
    outputs: dict[str, Operand]
    site: str = ""
    repeatable: bool = False
    state: str = ""

    @property
    def workspace_bytes(self) -> int:
        """What the second phase must be given."""
        return self.prepared.workspace_bytes

    def set_repeatable(self) -> None:
        """Let it be executed any number of times, until :meth:`destroy` (``aclSetAclOpExecutorRepeatable``).

        Raises:
          NullptrError: it is used up or destroyed.
        """
        self.check()
        self.repeatable = True

    def destroy(self) -> None:
        """Release a repeatable executor (``aclDestroyAclOpExecutor``). Raises NullptrError a second time."""
        self.check()
        self.state = "was destroyed"

    def set_input_address(self, name: str, address: int) -> None:
        """Read an input elsewhere from the next execution on (``aclSetInputTensorAddr``)."""
        self._move(self.inputs, name, address)

    def set_output_address(self, name: str, address: int) -> None:
        """Write an output elsewhere from the next execution on (``aclSetOutputTensorAddr``)."""
        self._move(self.outputs, name, address)

    def check(self) -> None:
        """Raises NullptrError (561103) where it is used up: on the device its memory is released then."""
        if self.state:
            wrong = f"executor of {self.prepared.operator.op_type} from {self.site or 'the first phase'} {self.state}"
            remedy = "call get_workspace_size anew for each execution, or set_repeatable() before the first one"
            raise NullptrError(wrong, "an executor that is not repeatable serves one execution", remedy)

    def take(self, workspace_address: int | None, workspace_bytes: int) -> None:
        """The second phase begins: checks, and uses it up if it is not repeatable.

        Raises:
          NullptrError: it is used up.
          ParamNullptrError: no workspace where one is needed; an output without an address.
          ParamInvalidError: a workspace that is too small.
        """
        self.check()
        need = self.prepared.workspace_bytes
        if need and not workspace_address:
            raise ParamNullptrError("workspace_address=0", f"{need} bytes of workspace are needed", f"allocate {need} bytes")
        if workspace_bytes < need:
            raise ParamInvalidError(f"workspace_bytes={workspace_bytes}", f"must be at least {need}", f"allocate {need} bytes")
        for name, tensor in self.outputs.items():
            if isinstance(tensor, Tensor) and not tensor.address and tensor.bytes:
                remedy = f"pass it to get_workspace_size, or call set_output_address({name!r}, address)"
                raise ParamNullptrError(f"address 0 of output {name}", "has no memory", remedy)
        if not self.repeatable:
            self.state = "was used up by its execution"

    def _move(self, operands: dict[str, Operand], name: str, address: int) -> None:
        self.check()
        tensor = operands.get(name)
        if not isinstance(tensor, Tensor):
            known = ", ".join(key for key, one in operands.items() if isinstance(one, Tensor))
            raise ParamInvalidError(f"tensor {name!r}", f"is none of {known}", "name one of these")
        operands[name] = replace(tensor, address=address)
