"""What the first phase checks of any call by its prototype: names, what is missing, types, and the outputs' shapes."""

from collections.abc import Mapping, Sequence
from typing import Any

from ascend_jax.attention.errors import AclnnError, InferShapeError, ParamInvalidError, ParamNullptrError
from ascend_jax.runtime.ops.operator import OpCall, Operator, Shape
from ascend_jax.runtime.ops.prototype import OpDef, Param, ParamType, entry
from ascend_jax.runtime.ops.tensor import Operand, Tensor, dtype_name

Given = Mapping[str, Any] | Sequence[Any]
Outputs = dict[str, tuple[Shape, str]]
"""Shape and dtype of each output."""


def by_name(params: tuple[Param, ...], given: Given, what: str) -> dict[str, Operand]:
    """Operands by name, None where one is absent; ``given`` by name or in the prototype's order.

    Raises:
      ParamInvalidError: a name that the prototype lacks, or too many; something that is no tensor.
      ParamNullptrError: a required one is missing.
    """
    names = [param.name for param in params]
    if not isinstance(given, Mapping):
        if len(given) > len(params):
            raise ParamInvalidError(
                f"{len(given)} {what}s", f"must be at most {len(params)}: {', '.join(names)}", "leave some out"
            )
        given = dict(zip(names, given, strict=False))
    if unknown := [name for name in given if name not in names]:
        raise ParamInvalidError(f"{what} {unknown[0]!r}", f"is none of {', '.join(names)}", "name one of these")
    found = {param.name: given.get(param.name) for param in params}
    for param in params:
        _check_operand(param, found[param.name], what)
    return found


def _check_operand(param: Param, operand: Any, what: str) -> None:
    if operand is None:
        if param.required:
            raise ParamNullptrError(f"{param.name}=None", f"is a required {what}", f"pass {param.name}")
    elif param.kind is ParamType.DYNAMIC:
        if not isinstance(operand, list) or not all(isinstance(one, Tensor) for one in operand) or not operand:
            raise ParamInvalidError(f"{param.name}={operand!r}", "must be a list of tensors", "pass [tensor, …]")
    elif not isinstance(operand, Tensor):
        raise ParamInvalidError(f"{param.name}={operand!r}", "must be a Tensor", "pass Tensor(address, shape, dtype)")


def filled_attrs(proto: OpDef, given: Mapping[str, Any] | None) -> dict[str, Any]:
    """The attributes with the defaults filled in.

    Raises:
      ParamInvalidError: an unknown one, a required one that is missing, or one of another type.
    """
    given = given or {}
    names = [attr.name for attr in proto.attrs]
    if unknown := [name for name in given if name not in names]:
        raise ParamInvalidError(
            f"attribute {unknown[0]!r}", f"is none of {', '.join(names) or 'no attributes'}", "leave it out"
        )
    for attr in proto.attrs:
        if attr.name not in given and attr.required:
            raise ParamInvalidError(f"attribute {attr.name}", f"must be given, a {attr.type.__name__}", f"pass {attr.name}")
        if attr.name in given and not attr.takes(given[attr.name]):
            wrong = f"{attr.name}={given[attr.name]!r}"
            raise ParamInvalidError(wrong, f"must be a {attr.type.__name__}", f"pass a {attr.type.__name__}")
    return {attr.name: given.get(attr.name, attr.default) for attr in proto.attrs}


def combination_of(proto: OpDef, inputs: dict[str, Operand]) -> int:
    """The first combination of dtypes and formats that the inputs are.

    Raises:
      ParamInvalidError: none is.
    """
    for combination in range(proto.combinations):
        if all(_fits(param, inputs[param.name], combination) for param in proto.inputs):
            return combination
    given = ", ".join(
        f"{param.name} {_types_of(inputs[param.name])}" for param in proto.inputs if inputs[param.name] is not None
    )
    known = [
        "(" + ", ".join(f"{p.name} {entry(p.dtypes, n)} {entry(p.formats, n)}" for p in proto.inputs if p.dtypes) + ")"
        for n in range(proto.combinations)
    ]
    rule = f"is no combination of types and formats that {proto.op_type} supports: {', '.join(known)}"
    raise ParamInvalidError(given, rule, "cast the inputs to one of these")


def _fits(param: Param, operand: Operand, combination: int) -> bool:
    tensors = operand if isinstance(operand, list) else [] if operand is None else [operand]
    dtypes_ok = not param.dtypes or all(one.dtype == entry(param.dtypes, combination) for one in tensors)
    return dtypes_ok and all(one.format == entry(param.formats, combination) for one in tensors)


def _types_of(operand: Operand) -> str:
    tensors = operand if isinstance(operand, list) else [operand]
    return "/".join(dict.fromkeys(f"{one.dtype} {one.format}" for one in tensors if one is not None))


def inferred_outputs(operator: Operator, call: OpCall) -> Outputs:
    """Shape and dtype of every output that the call has.

    Raises:
      InferShapeError: the operator's rule fails, or forgets a required output.
    """
    try:
        shapes = operator.infer_shape(call)
        dtypes = operator.infer_dtype(call) if operator.infer_dtype is not None else {}
    except (ValueError, TypeError, LookupError, AssertionError) as error:
        if isinstance(error, AclnnError):
            raise
        what = f"{operator.op_type}: {type(error).__name__}: {error}"
        raise InferShapeError(
            what, "no shape of the outputs follows from the inputs", "check the shapes of the inputs"
        ) from error
    found: Outputs = {}
    for param in operator.proto.outputs:
        if param.name not in shapes:
            if param.required:
                raise InferShapeError(
                    f"{operator.op_type}: {param.name}", "infer_shape gives it no shape", "correct infer_shape"
                )
            continue
        dtype = dtypes.get(param.name) or entry(param.dtypes or ("",), call.combination)
        if not dtype:
            raise InferShapeError(f"{operator.op_type}: {param.name}", "is not in what infer_dtype gives", "add it there")
        found[param.name] = tuple(shapes[param.name]), dtype_name(dtype)
    return found


def check_outputs(expected: Outputs, given: dict[str, Operand]) -> None:
    """The outputs have the shapes and types that follow from the inputs; raises ParamInvalidError."""
    for name, operand in given.items():
        if operand is None:
            continue
        assert isinstance(operand, Tensor)
        if name not in expected:
            raise ParamInvalidError(f"output {name}", "does not follow from the inputs", "leave it out")
        shape, dtype = expected[name]
        if (operand.shape, operand.dtype) != (shape, dtype):
            wrong = f"{name} of shape {list(operand.shape)} and type {operand.dtype}"
            raise ParamInvalidError(wrong, f"must be {list(shape)} {dtype}", f"allocate {name} so")
