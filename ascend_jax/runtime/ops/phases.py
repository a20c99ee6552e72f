"""``Operators``: calls in two phases, as aclnn has them.

Phase one, ``get_workspace_size``, looks the operator up, checks the call, infers the outputs, runs the host's tiling, and gives
the bytes of workspace and an executor. Phase two, ``execute``, launches it on a stream and returns at once. Calls that differ
in addresses alone share what phase one found out, as opbase's executor cache does.
"""

import logging
from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from ascend_jax.attention.errors import NullptrError, TilingError
from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.runtime.engine.task import Task
from ascend_jax.runtime.errors import AclError, recorded
from ascend_jax.runtime.log import get_logger
from ascend_jax.runtime.ops.checks import Given, by_name, check_outputs, combination_of, filled_attrs, inferred_outputs
from ascend_jax.runtime.ops.executor import Executor, Prepared
from ascend_jax.runtime.ops.failures import OpNotFoundError
from ascend_jax.runtime.ops.inner_schedule import log_inner_schedule
from ascend_jax.runtime.ops.operator import Core, OpCall, Operator
from ascend_jax.runtime.ops.plan import cann_choice
from ascend_jax.runtime.ops.registry import Registry
from ascend_jax.runtime.ops.tensor import Memory, Operand, Tensor, tensors_of

if TYPE_CHECKING:
    from ascend_jax.runtime.stream import Stream
    from ascend_jax.runtime.system import System

LOG = get_logger("OP")
MOST_PREPARED = 1024
"""Calls that are remembered; then all are forgotten."""
SYSTEM_WORKSPACE_BYTES = {"separated": 16 << 20, "direct": 16 << 20, "coupled": 2 << 20}
"""What Ascend C's own library takes of the workspace (GetLibApiWorkSpaceSize), of an operator that has any workspace."""


class Operators:
    """The operators of one machine.

    >>> from ascend_jax.runtime.system import System
    >>> with System(["910b3"]) as system:
    ...     stream = system.set_device(0).default_stream
    ...     memory, operators = stream.device.memory, Operators(system)
    ...     x, y = (Tensor(memory.malloc(8), (2,), "float32") for _ in range(2))
    ...     x.array(memory)[:] = 3.0, 4.0
    ...     size, executor = operators.get_workspace_size("Add", [x, x], {"alpha": 2.0}, [y])
    ...     task = operators.execute(0, size, executor, stream)
    ...     stream.synchronize()
    ...     y.array(memory).tolist()
    [9.0, 12.0]
    """

    def __init__(self, system: "System", registry: Registry | None = None) -> None:
        """``registry``: its own if None, which reads the process's variables at the first call."""
        self.system = system
        self.registry = Registry() if registry is None else registry
        self._prepared: dict[Hashable, Prepared] = {}
        self._generation = -1

    @recorded
    def get_workspace_size(
        self, op_type: str, inputs: Given, attrs: Mapping[str, Any] | None = None, outputs: Given | None = None
    ) -> tuple[int, Executor]:
        """Phase one, for the device of this thread.

        Args:
          op_type: of the registry; the case counts.
          inputs: tensors by name or in the prototype's order; None for an optional one that is absent.
          attrs: by name; those with a default may be left out.
          outputs: as ``inputs``; None: those that the prototype requires, whose addresses the executor must be told.

        Returns:
          the bytes of workspace that phase two must be given, and the executor.

        Raises:
          OpNotFoundError: no such operator (561003).
          ParamNullptrError, ParamInvalidError: a tensor that is missing (161001), or a name, dtype, format, shape or attribute
            that is wrong (161002).
          InferShapeError: no output follows (561001).
          TilingError, NullptrError: the host's tiling refuses (561002, or as it reaches the user of attention 561103).
          AclError: this thread has no device (107002); packages that cannot be loaded (100025).
        """
        operator = self._operator(op_type)
        found = by_name(operator.proto.inputs, inputs, "input")
        given = None if outputs is None else by_name(operator.proto.outputs, outputs, "output")
        spec = self.system.current_context().device.spec
        key = self._key(operator, found, attrs, spec)
        prepared = self._prepared.get(key) if key is not None else None
        if prepared is None:
            prepared = prepare(operator, found, attrs, spec, self.system.options.choose_tiling or cann_choice)
            if key is not None:
                self._prepared[key] = prepared
        if given is None:
            given = _without_addresses(prepared)
        else:
            check_outputs(prepared.outputs, given)
        return prepared.workspace_bytes, Executor(prepared, found, given, self.system.site())

    @recorded
    def execute(
        self, workspace_address: int | None, workspace_bytes: int, executor: Executor | None, stream: "Stream | None" = None
    ) -> Task:
        """Phase two: launch on ``stream`` (None: the default one) and return.

        What goes wrong while the kernel runs is raised by the next synchronisation with the stream, with the line that called
        this; with ``launch_blocking`` by this call, which then waits for the kernel.

        Raises:
          NullptrError: no executor, or one that is used up (561103).
          ParamNullptrError, ParamInvalidError: the workspace is missing (161001) or too small (161002).
          AclError: a stream that this thread cannot use (107003).
        """
        if executor is None:
            raise NullptrError("executor=None", "phase two needs the executor of phase one", "call get_workspace_size first")
        stream = self.system.current_stream() if stream is None else stream
        stream.check()
        executor.take(workspace_address, workspace_bytes)
        task = stream.submit(self._task(executor, workspace_address or 0, stream))
        if LOG.isEnabledFor(logging.DEBUG):
            _log_launch(executor.prepared, task)
        if self.system.options.launch_blocking:
            stream.synchronize()
        return task

    def _operator(self, op_type: str) -> Operator:
        try:
            operator = self.registry.find(op_type)
        except AclError as error:
            if error.code != 100024:
                raise
            raise OpNotFoundError(f"op type {op_type!r}", f"has no kernel: {error.what}", error.remedy) from error
        if self._generation != self.registry.generation:
            self._prepared, self._generation = {}, self.registry.generation
        return operator

    def _key(
        self, operator: Operator, inputs: dict[str, Operand], attrs: Mapping[str, Any] | None, spec: NpuSpec
    ) -> Hashable | None:
        """What decides all but the addresses; None where an attribute cannot be compared cheaply."""
        if len(self._prepared) >= MOST_PREPARED:
            self._prepared = {}
        try:
            key = (operator, id(spec), tuple(map(_kind, inputs.values())), tuple(map(_plain, (attrs or {}).items())))
            hash(key)
        except TypeError:
            return None
        return key

    def _task(self, executor: Executor, workspace_address: int, stream: "Stream") -> Task:
        prepared = executor.prepared
        writes = [tensor.span for tensor in tensors_of(executor.outputs)]
        if prepared.workspace_bytes:
            writes.append((workspace_address, prepared.workspace_bytes))
        return Task(
            name=f"aclnn{prepared.operator.op_type}",
            kind="kernel",
            op_type=prepared.operator.op_type,
            duration_s=prepared.cost.seconds,
            block_dim=prepared.cost.cores,
            core=prepared.core,
            run=None if self.system.options.timing_only else _numerics(executor, stream.device.memory),
            reads=tuple(tensor.span for tensor in tensors_of(executor.inputs)),
            writes=tuple(writes),
            info=prepared.info,
        )


def prepare(
    operator: Operator, inputs: dict[str, Operand], attrs: Mapping[str, Any] | None, spec: NpuSpec, choose_tiling: Any
) -> Prepared:
    """Everything of phase one that addresses have no part in."""
    LOG.debug("Validate: %s", operator.op_type)
    call = OpCall(operator.op_type, inputs, filled_attrs(operator.proto, attrs), spec, choose_tiling)
    if operator.check is not None:
        operator.check(call)
    combination = combination_of(operator.proto, inputs)
    call = OpCall(call.op_type, inputs, call.attrs, spec, choose_tiling, combination)
    outputs = inferred_outputs(operator, call)
    data = _tiled(operator, call)
    workspace = data.workspace_bytes + SYSTEM_WORKSPACE_BYTES[spec.architecture] if data.workspace_bytes else 0
    # An AI core of the first generation has both units, and runs one kernel at a time.
    core: Core = "mix" if spec.architecture == "coupled" else operator.core
    info = _info(inputs, outputs) | {"tiling_key": data.tiling_key, "steps": data.steps}
    return Prepared(operator, call, outputs, data, workspace, core, info)


def _tiled(operator: Operator, call: OpCall) -> Any:
    """The tiling data; whatever a custom operator's tiling function raises is a refusal."""
    try:
        return operator.tiling(call)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        if hasattr(error, "code"):
            raise
        what = f"{operator.op_type}: {type(error).__name__}: {error}"
        raise TilingError(what, "its tiling function refuses the call", "see the function, or pass other shapes") from error


def _info(inputs: dict[str, Operand], outputs: Any) -> dict[str, Any]:
    read = list(tensors_of(inputs))
    written = [Tensor(0, shape, dtype) for shape, dtype in outputs.values()]
    return {
        "input_shapes": [one.shape for one in read],
        "input_dtypes": [one.dtype for one in read],
        "input_formats": [one.format for one in read],
        "output_shapes": [one.shape for one in written],
        "output_dtypes": [one.dtype for one in written],
        "output_formats": [one.format for one in written],
        "bytes": sum(one.bytes for one in (*read, *written)),
    }


def _without_addresses(prepared: Prepared) -> dict[str, Operand]:
    required = {param.name for param in prepared.operator.proto.outputs if param.required}
    return {name: Tensor(0, *kind) if name in required else None for name, kind in prepared.outputs.items()}


def _numerics(executor: Executor, memory: Memory) -> Callable[[], None]:
    """What the task does at its end: read the inputs from device memory, compute, write the outputs."""
    prepared, inputs, outputs = executor.prepared, dict(executor.inputs), dict(executor.outputs)

    def read(operand: Operand) -> Any:
        if isinstance(operand, list):
            return [read(one) for one in operand]
        return None if operand is None else jnp.asarray(operand.array(memory))

    def run() -> None:
        arrays = {name: read(operand) for name, operand in inputs.items()}
        found = prepared.operator.kernel(arrays, prepared.call, prepared.data)
        for name, tensor in outputs.items():
            if isinstance(tensor, Tensor):
                value = np.asarray(found[name])
                if (value.shape, value.dtype.name) != (tensor.shape, tensor.dtype):
                    raise ValueError(f"kernel gives {name} {value.shape} {value.dtype}, not {tensor.shape} {tensor.dtype}")
                tensor.array(memory)[...] = value

    return run


def _log_launch(prepared: Prepared, task: Task) -> None:
    LOG.debug("Launch: %s, block_dim=%d, tiling_key=%d", task, task.block_dim, prepared.data.tiling_key)
    if prepared.schedule is not None:
        log_inner_schedule(prepared.schedule)


def _kind(operand: Operand) -> Hashable:
    if operand is None:
        return None
    return tuple(map(_kind, operand)) if isinstance(operand, list) else (operand.shape, operand.dtype, operand.format)


def _plain(item: tuple[str, Any]) -> Hashable:
    name, value = item
    # 1 and 1.0 and True are equal, but not the same to a check of types.
    return name, type(value), tuple(value) if isinstance(value, list | tuple) else value
