"""Prototypes, and what is checked of a call by them."""

import pytest

from ascend_jax.attention.errors import InferShapeError, ParamInvalidError, ParamNullptrError
from ascend_jax.hardware import load_chip
from ascend_jax.runtime.ops.checks import by_name, combination_of, filled_attrs, inferred_outputs
from ascend_jax.runtime.ops.operator import Cost, OpCall, Operator, TilingData
from ascend_jax.runtime.ops.plan import cann_choice
from ascend_jax.runtime.ops.prototype import Attr, OpDef, Param, ParamType
from ascend_jax.runtime.ops.tensor import Tensor

X, Y = Param("x", ("float16", "float32"), ("ND", "FRACTAL_NZ")), Param("y", ("float16", "float32"))
MANY = Param("many", ("float32",), kind=ParamType.DYNAMIC)
MAYBE = Param("maybe", ("float16", "int32"), kind=ParamType.OPTIONAL)
ATTRS = (Attr("n", int, required=True), Attr("rate", float, 0.5), Attr("flag", bool, False), Attr("sizes", list))


def half(format: str = "ND") -> Tensor:
    return Tensor(64, (2, 3), "float16", format)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"op_type": "addCustom"}, "upper camel case"),
        ({"op_type": "Add_Custom"}, "upper camel case"),
        ({"inputs": (X, Param("y"))}, "y twice"),
        ({"inputs": (X, Param("z", ("float16", "float32", "int32")))}, r"\[2, 3\] entries"),
        ({"inputs": tuple(Param(f"x{i}") for i in range(33))}, "at most 32"),
        ({"outputs": ()}, "1 to 32 outputs"),
    ],
)
def test_a_prototype_must_make_sense(arguments: dict[str, object], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        OpDef(**{"op_type": "AddCustom", "inputs": (X,), "outputs": (Y,)} | arguments)  # pyright: ignore[reportArgumentType]


def test_lists_of_types_and_formats_are_read_in_parallel() -> None:
    proto = OpDef("Some", inputs=(X, MAYBE), outputs=(Y,))
    assert proto.combinations == 2
    nz = Tensor(64, (2, 3), "float32", "FRACTAL_NZ")
    assert combination_of(proto, {"x": half(), "maybe": None}) == 0
    assert combination_of(proto, {"x": nz, "maybe": Tensor(64, (1,), "int32", "ND")}) == 1
    with pytest.raises(ParamInvalidError, match=r"x float16 FRACTAL_NZ: is no combination .*\(x float32 FRACTAL_NZ"):
        combination_of(proto, {"x": half("FRACTAL_NZ"), "maybe": None})
    with pytest.raises(ParamInvalidError, match="maybe int32 ND"):
        combination_of(proto, {"x": half(), "maybe": Tensor(64, (1,), "int32")})


@pytest.mark.parametrize(
    ("given", "kind", "text"),
    [
        ({"x": None}, ParamNullptrError, "x=None"),
        ([], ParamNullptrError, "x=None"),
        ({"x": half(), "zz": half()}, ParamInvalidError, "'zz'"),
        ([half(), [half()], None, half()], ParamInvalidError, "4 inputs"),
        ({"x": 5}, ParamInvalidError, "must be a Tensor"),
        ({"x": half(), "many": half()}, ParamInvalidError, "must be a list"),
        ({"x": half(), "many": []}, ParamInvalidError, "must be a list"),
    ],
)
def test_operands_are_checked(given: object, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        by_name((X, MANY, MAYBE), given, "input")  # pyright: ignore[reportArgumentType]


def test_operands_by_name_and_by_place_are_the_same() -> None:
    x, many = half(), [half(), half()]
    by_place = by_name((X, MANY, MAYBE), [x, many], "input")
    assert by_place == by_name((X, MANY, MAYBE), {"many": many, "x": x}, "input") == {"x": x, "many": many, "maybe": None}


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "n: must be given, a int"),
        ({"n": 1.0}, "n=1.0: must be a int"),
        ({"n": True}, "n=True"),
        ({"n": 1, "flag": 1}, "flag=1"),
        ({"n": 1, "rate": "0.5"}, "rate='0.5'"),
        ({"n": 1, "sizes": 3}, "sizes=3"),
        ({"n": 1, "scale": 3}, "'scale'"),
    ],
)
def test_attributes_are_checked(given: dict[str, object], text: str) -> None:
    with pytest.raises(ParamInvalidError, match=text):
        filled_attrs(OpDef("Some", inputs=(X,), outputs=(Y,), attrs=ATTRS), given)


def test_attributes_have_defaults_and_a_whole_number_is_a_float() -> None:
    proto = OpDef("Some", inputs=(X,), outputs=(Y,), attrs=ATTRS)
    assert filled_attrs(proto, {"n": 3, "rate": 1}) == {"n": 3, "rate": 1, "flag": False, "sizes": None}


def outputs_of(operator: Operator) -> dict[str, tuple[tuple[int, ...], str]]:
    return inferred_outputs(operator, OpCall("Some", {"x": half()}, {}, load_chip("910B3"), cann_choice))


def operator(output: Param, **functions: object) -> Operator:
    """One that says what ``functions`` say, and is never run."""
    rest = {"tiling": lambda call: TilingData(1), "kernel": lambda *_: {}, "duration": lambda *_: Cost(0.0, 1)}
    given = {"infer_shape": lambda call: {output.name: call.shape("x")[::-1]}} | rest | functions
    return Operator(OpDef("Some", inputs=(X,), outputs=(output,)), **given)  # pyright: ignore[reportArgumentType]


def test_types_of_outputs_follow_from_the_combination_or_the_operator() -> None:
    assert outputs_of(operator(Y)) == {"y": ((3, 2), "float16")}
    assert outputs_of(operator(Param("y"), infer_dtype=lambda call: {"y": "int32"})) == {"y": ((3, 2), "int32")}
    with pytest.raises(InferShapeError, match="infer_dtype gives"):
        outputs_of(operator(Param("y")))


def test_a_rule_of_shapes_that_fails_is_an_error_of_the_operator() -> None:
    with pytest.raises(InferShapeError, match="IndexError") as caught:
        outputs_of(operator(Y, infer_shape=lambda call: {"y": (call.shape("x")[7],)}))
    assert caught.value.code == 561001
    with pytest.raises(InferShapeError, match="y: infer_shape gives it no shape"):
        outputs_of(operator(Y, infer_shape=lambda call: {}))
    assert outputs_of(operator(Param("y", kind=ParamType.OPTIONAL), infer_shape=lambda call: {})) == {}
