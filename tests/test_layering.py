"""Imports point one way. The order is the data below; a new room of ascend_jax takes its place there."""

import ast
from importlib.util import resolve_name
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

UTILITIES = {"rounding", "_pytree", "_compile", "_largest", "_front_door", "_toml"}
CHAIN = ("verdict", "hardware", "workload", "tiling", "kernels", "occupancy", "proposal", "cost")
"""From the room that knows nothing to the one that knows all the others: a room imports only what stands before it."""
MODEL = UTILITIES | set(CHAIN)

MAY_IMPORT: dict[str, set[str]] = {
    **{room: set() for room in UTILITIES},
    **{room: UTILITIES | set(CHAIN[:place]) for place, room in enumerate(CHAIN)},
    "timeline": MODEL,  # beside cost, whose Report it returns
    "attention": UTILITIES | {"workload", "tiling"},
    "torch_npu": UTILITIES | {"workload", "tiling", "attention"},
    "calibration": MODEL | {"timeline"},
    "runtime": MODEL | {"timeline", "attention"},
    "graph": MODEL | {"timeline", "attention"},
}
MAY_IMPORT["ascend_jax"] = set(MAY_IMPORT)  # the front door, ascend_jax/__init__.py
MAY_IMPORT["tiling_search"] = set(MAY_IMPORT)
MAY_IMPORT["experiments"] = set(MAY_IMPORT)


def room_of(module: str) -> str:
    """``ascend_jax.cost.report`` → ``cost``; ``ascend_jax`` and a name that is no room → ``ascend_jax``; else the package."""
    package, *rest = module.split(".")
    return rest[0] if package == "ascend_jax" and rest and rest[0] in MAY_IMPORT else package


def imports_of(source: str, package: str) -> set[str]:
    """Every module that ``source``, a file of ``package``, imports, at its top or inside a function."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            origin = resolve_name("." * node.level + (node.module or ""), package)
            found |= {f"{origin}.{alias.name}" for alias in node.names}
    return found


def violations(source: str, package: str, room: str) -> list[str]:
    """The imports of ``source``, a file of ``package`` in ``room``, that the order forbids."""
    ours = {name for name in imports_of(source, package) if name.split(".")[0] in {*MAY_IMPORT, "tests"}}
    return sorted(name for name in ours if room_of(name) not in MAY_IMPORT[room] | {room})


def sources() -> list[Path]:
    """The Python files of the packages and experiments, relative to the checkout."""
    packages = ("ascend_jax", "tiling_search", "experiments")
    return [path.relative_to(ROOT) for package in packages for path in sorted((ROOT / package).rglob("*.py"))]


def test_every_room_has_a_place_in_the_order() -> None:
    rooms = {path.parts[1].removesuffix(".py") for path in sources() if path.parts[0] == "ascend_jax"} - {"__init__"}
    assert rooms <= set(MAY_IMPORT)


@pytest.mark.parametrize("path", sources(), ids=str)
def test_imports_point_one_way(path: Path) -> None:
    package, room = ".".join(path.parts[:-1]), room_of(".".join(path.with_suffix("").parts))
    assert violations((ROOT / path).read_text("utf-8"), package, room) == []


@pytest.mark.parametrize(
    ("package", "source", "forbidden"),
    [
        ("ascend_jax.hardware", "import numpy, ascend_jax.cost.report", ["ascend_jax.cost.report"]),
        ("ascend_jax.tiling", "def f():\n    from ascend_jax import kernels, verdict", ["ascend_jax.kernels"]),
        ("ascend_jax.workload", "from ..occupancy import occupancy", ["ascend_jax.occupancy.occupancy"]),
        ("ascend_jax.cost", "from ascend_jax import load_chip", ["ascend_jax.load_chip"]),
        ("ascend_jax.attention", "import ascend_jax.hardware.spec as s", ["ascend_jax.hardware.spec"]),
        ("ascend_jax.runtime", "from tiling_search.tuner import tune", ["tiling_search.tuner.tune"]),
        ("tiling_search", "import tests.oracles", ["tests.oracles"]),
        ("tiling_search", "from ascend_jax import load_chip\nfrom . import tune", []),
        ("ascend_jax.cost", "from .report import Report\nfrom ascend_jax._pytree import as_arrays", []),
    ],
)
def test_the_checker_can_fail(package: str, source: str, forbidden: list[str]) -> None:
    assert violations(source, package, room_of(package)) == forbidden


@pytest.mark.parametrize("path", [path for path in sources() if path.parts[0] != "experiments"], ids=str)
def test_no_module_configures_jax(path: Path) -> None:
    """The process belongs to whoever starts it; a library that switches x64 changes everyone's dtypes."""
    source = (ROOT / path).read_text("utf-8")
    assert "jax.config" not in imports_of(source, ".".join(path.parts[:-1]))
    assert not [node for node in ast.walk(ast.parse(source)) if ast.unparse(node) == "jax.config.update"]
