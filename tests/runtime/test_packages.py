"""Packages on disk: the form of a custom operator, and errors in it by file and line."""

from pathlib import Path

import pytest

from ascend_jax.runtime.errors import AclError
from ascend_jax.runtime.ops.packages import read_file, read_package
from ascend_jax.runtime.ops.registry import Registry
from ascend_jax.runtime.ops.search import Place

GOOD = """
from dataclasses import dataclass
from ascend_jax.runtime.ops.operator import Cost, Operator, TilingData
from ascend_jax.runtime.ops.prototype import OpDef, Param

@dataclass(frozen=True)
class Rate:
    seconds: "float"

RATE = Rate(2e-6)
OPERATORS = (
    Operator(
        OpDef("AddCustom", inputs=(Param("x", ("float32",)),), outputs=(Param("y", ("float32",)),)),
        infer_shape=lambda call: {"y": call.shape("x")},
        tiling=lambda call: TilingData(block_dim=1),
        kernel=lambda arrays, call, data: {"y": arrays["x"]},
        duration=lambda call, data: Cost(RATE.seconds, 1),
    ),
)
"""


def written(root: Path, source: str, name: str = "add_custom") -> Path:
    """An operator's file in a package at ``root``."""
    path = root / "op_impl" / name / f"{name}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source, "utf-8")
    return path


def test_a_package_is_a_folder_for_each_operator(tmp_path: Path) -> None:
    path = written(tmp_path / "example", GOOD)
    (tmp_path / "example" / "version.info").write_text("version=1.2\n", "utf-8")
    (path.parent / "__pycache__").mkdir()
    found = read_package(Place(tmp_path / "example", "a test"))
    assert (found.name, found.version, list(found.operators)) == ("example", "1.2", ["AddCustom"])
    assert found.files["AddCustom"] == path
    assert str(found) == f"example 1.2, {tmp_path / 'example'} (a test): AddCustom"


@pytest.mark.parametrize(
    ("source", "line", "text"),
    [
        ("x = 1\nOPERATORS = (\n", 2, "SyntaxError"),
        ("\n\nimport no_such_module_at_all\n", 3, "ModuleNotFoundError"),
        ("def f():\n    return {}['x']\n\nf()\n", 2, "KeyError: 'x'"),
        ("x = 1\ny = 2\n", 2, "OPERATORS is None"),
        ("x = 1\nOPERATORS = ()\n", 2, "OPERATORS is ()"),
        ("OPERATORS = (1,)\n", 1, "1, which is no Operator"),
        ("import json\n\njson.loads('{')\n", 3, "JSONDecodeError"),
        (GOOD.replace('"AddCustom"', '"add_custom"'), 13, "upper camel case"),
        ("raise SystemError('\\n'.join('ab'))\n", 1, "SystemError"),
    ],
)
def test_an_error_names_file_and_line(tmp_path: Path, source: str, line: int, text: str) -> None:
    path = written(tmp_path / "bad", source)
    with pytest.raises(AclError) as caught:
        read_file(path)
    assert caught.value.code == 100025
    assert caught.value.what.startswith(f"{path}:{line}: ")
    assert text in caught.value.what


def test_a_folder_without_its_file_and_a_name_twice_are_errors(tmp_path: Path) -> None:
    (tmp_path / "one" / "op_impl" / "empty_op").mkdir(parents=True)
    with pytest.raises(AclError, match=r"holds no empty_op\.py"):
        read_package(Place(tmp_path / "one", ""))
    written(tmp_path / "two", GOOD)
    written(tmp_path / "two", GOOD, "another")
    with pytest.raises(AclError, match="AddCustom is in"):
        read_package(Place(tmp_path / "two", ""))


def test_a_file_is_read_anew_and_leaves_nothing_behind(tmp_path: Path) -> None:
    path = written(tmp_path / "example", GOOD)
    registry = Registry({"ASCEND_CUSTOM_OPP_PATH": str(tmp_path / "example")})
    registry.load()
    path.write_text(GOOD.replace("AddCustom", "SubCustom"), "utf-8")
    registry.reload()
    assert "SubCustom" in registry.names() and "AddCustom" not in registry.names()
    assert [item.name for item in path.parent.iterdir()] == ["add_custom.py"]


def test_a_reload_that_fails_keeps_what_was_loaded(tmp_path: Path) -> None:
    path = written(tmp_path / "example", GOOD)
    registry = Registry({"ASCEND_CUSTOM_OPP_PATH": str(tmp_path / "example")})
    registry.load()
    generation = registry.generation
    path.write_text("1 / 0\n", "utf-8")
    with pytest.raises(AclError, match=r"add_custom\.py:1: ZeroDivisionError"):
        registry.reload()
    assert registry.generation == generation
    assert registry.find("AddCustom").op_type == "AddCustom"
