"""The registry: which places are searched in which order, what hides what, and what a miss tells."""

import logging
from pathlib import Path

import pytest

from ascend_jax.runtime.errors import AclError
from ascend_jax.runtime.ops.registry import Registry

BUILT_IN = {"Add", "Cast", "FlashAttentionScore", "FlashAttentionScoreGrad", "MatMul", "Softmax"}
SOURCE = """
from ascend_jax.runtime.ops.operator import Cost, Operator, TilingData
from ascend_jax.runtime.ops.prototype import OpDef, Param

OPERATORS = tuple(
    Operator(
        OpDef(name, inputs=(Param("x", ("float32",)),), outputs=(Param("y", ("float32",)),)),
        infer_shape=lambda call: {{"y": call.shape("x")}},
        tiling=lambda call: TilingData(block_dim=1, tiling_key={key}),
        kernel=lambda arrays, call, data: {{"y": arrays["x"]}},
        duration=lambda call, data: Cost(1e-6, 1),
    )
    for name in {names}
)
"""


def package(root: Path, *names: str, key: int = 0, folder: str = "some_op") -> Path:
    """A package at ``root`` with operators of these names, told apart by their tiling key."""
    place = root / "op_impl" / folder
    place.mkdir(parents=True, exist_ok=True)
    (place / f"{folder}.py").write_text(SOURCE.format(names=names, key=key), "utf-8")
    return root


def test_the_built_in_operators_need_no_variable() -> None:
    registry = Registry({})
    assert set(registry.names()) == BUILT_IN
    assert registry.owner("Add").name == "built-in"


def test_custom_paths_come_first_and_the_leftmost_wins(tmp_path: Path) -> None:
    left, right = package(tmp_path / "left", "Add", "Mine"), package(tmp_path / "right", "Mine", "Theirs")
    registry = Registry({"ASCEND_CUSTOM_OPP_PATH": f"{left}:{right}"})
    owners = {name: registry.owner(name).name for name in ("Mine", "Theirs", "Add", "Cast")}
    assert owners == {"Mine": "left", "Theirs": "right", "Add": "left", "Cast": "built-in"}
    assert [tuple(shadow) for shadow in registry.shadows()] == [("Add", "left", ("built-in",)), ("Mine", "left", ("right",))]
    assert "Mine of left hides that of right" in str(registry)


def test_vendors_follow_load_priority_behind_the_custom_paths(tmp_path: Path) -> None:
    vendors = tmp_path / "opp" / "vendors"
    for vendor in ("a", "b", "unlisted"):
        package(vendors / vendor, "Shared", vendor.upper())
    (vendors / "config.ini").write_text("# order\nload_priority=b, a ,gone\n", "utf-8")
    custom = package(tmp_path / "custom", "B")
    registry = Registry({"ASCEND_OPP_PATH": str(tmp_path / "opp"), "ASCEND_CUSTOM_OPP_PATH": str(custom)})
    registry.load()
    assert [one.name for one in registry.packages] == ["custom", "b", "a", "built-in"]
    assert registry.owner("Shared").name == "b"
    assert registry.owner("B").name == "custom"
    assert "UNLISTED" not in registry.names()
    assert [place.problem for place in registry.places] == ["", "", "", "does not exist"]


def test_the_old_place_counts_only_without_a_config_file(tmp_path: Path) -> None:
    opp = tmp_path / "opp"
    old = package(tmp_path / "elsewhere", "Old").joinpath("op_impl")
    (opp / "op_impl").mkdir(parents=True)
    old.rename(opp / "op_impl" / "custom")
    variables = {"ASCEND_OPP_PATH": str(opp)}
    assert "Old" in Registry(variables).names()
    (opp / "vendors").mkdir()
    (opp / "vendors" / "config.ini").write_text("load_priority=\n", "utf-8")
    assert "Old" not in Registry(variables).names()


def test_an_opp_path_that_is_no_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(AclError, match="ASCEND_OPP_PATH") as caught:
        Registry({"ASCEND_OPP_PATH": str(tmp_path / "none")}).load()
    assert caught.value.code == 148049


def test_unusable_entries_are_skipped_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    package(tmp_path / "vendors" / "right", "Mine")
    entries = [tmp_path / "none", tmp_path / "vendors", tmp_path / "vendors" / "right", tmp_path / "vendors" / "right"]
    with caplog.at_level(logging.WARNING, "ascend_jax.runtime"):
        registry = Registry({"ASCEND_CUSTOM_OPP_PATH": ":".join(["", *map(str, entries)])})
        assert "Mine" in registry.names()
    assert [place.problem.split(";")[0] for place in registry.places] == [
        "does not exist",
        "holds no folder op_impl",
        "",
        "named before",
    ]
    assert f"is {tmp_path / 'vendors' / 'right'} meant?" in registry.places[1].problem
    assert len(caplog.records) == 3


@pytest.mark.parametrize(
    ("asked", "near"),
    [("flashAttentionScore", "FlashAttentionScore"), ("FLASHATTENTIONSCORE", "FlashAttentionScore"), ("Matmul", "MatMul")],
)
def test_the_case_counts_and_a_miss_says_so(asked: str, near: str) -> None:
    with pytest.raises(AclError, match=f"did you mean {near}") as caught:
        Registry({}).find(asked)
    assert caught.value.code == 100024
    assert caught.value.category == "EZ3003"
    assert "the case of names counts" in caught.value.what


def test_a_miss_lists_the_places_in_order(tmp_path: Path) -> None:
    here = package(tmp_path / "here", "Mine")
    registry = Registry({"ASCEND_CUSTOM_OPP_PATH": f"{tmp_path / 'gone'}:{here}"})
    with pytest.raises(AclError, match="no name is near") as caught:
        registry.find("Zzz")
    lines = caught.value.what.splitlines()[2:]
    assert lines[0].startswith("  1. ") and "gone" in lines[0] and "skipped, does not exist" in lines[0]
    assert lines[1].startswith("  2. ") and "here" in lines[1] and "skipped" not in lines[1]
    assert lines[2] == "  3. built-in: 6 operators"
    assert "registry.reload()" in caught.value.remedy


def test_the_path_is_read_at_load_and_reload_reads_it_again(tmp_path: Path) -> None:
    variables: dict[str, str] = {}
    registry = Registry(variables)
    registry.load()
    generation = registry.generation
    variables["ASCEND_CUSTOM_OPP_PATH"] = str(package(tmp_path / "late", "Late"))
    registry.load()
    assert registry.generation == generation
    with pytest.raises(AclError, match="Set too late: ASCEND_CUSTOM_OPP_PATH has changed"):
        registry.find("Late")
    registry.reload()
    with pytest.raises(AclError) as caught:
        registry.find("Later")
    assert "too late" not in str(caught.value)
    assert registry.find("Late").op_type == "Late"
    assert registry.generation > generation


def test_unloading_a_package_uncovers_what_it_hid(tmp_path: Path) -> None:
    registry = Registry({"ASCEND_CUSTOM_OPP_PATH": str(package(tmp_path / "mine", "Add", "Mine"))})
    assert registry.owner("Add").name == "mine"
    registry.unload("mine")
    assert registry.owner("Add").name == "built-in"
    assert "Mine" not in registry.names()
    with pytest.raises(AclError, match="no custom package"):
        registry.unload("mine")
    with pytest.raises(AclError, match="no custom package"):
        registry.unload("built-in")
    registry.unload()
    assert registry.packages == ()
    assert "Mine" in registry.names()  # the next look-up loads


def test_the_log_tells_what_is_loaded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "ascend_jax.runtime"):
        Registry({"ASCEND_CUSTOM_OPP_PATH": str(package(tmp_path / "mine", "Add"))}).load()
    lines = [record.getMessage() for record in caplog.records]
    assert any(line.startswith("OperatorRegistry: Loading ops from") and "mine" in line for line in lines)
    assert "OperatorRegistry: Register FlashAttentionScore" in lines
    assert "OperatorRegistry: Add of mine hides that of built-in" in lines
