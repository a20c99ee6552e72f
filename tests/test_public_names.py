"""The front doors of both packages: every name is there, and is what its home says, in any order of imports."""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import ascend_jax
import ascend_jax.attention
import ascend_jax.runtime
import tiling_search

PACKAGES = (ascend_jax, ascend_jax.attention, ascend_jax.runtime, tiling_search)


def typed_names(package: ModuleType) -> dict[str, str]:
    """What a type checker sees: name → module, from the imports under TYPE_CHECKING."""
    tree = ast.parse(Path(str(package.__file__)).read_text("utf-8"))
    [block] = [node for node in tree.body if isinstance(node, ast.If)]
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_every_public_name_is_there_and_typed(package: ModuleType) -> None:
    homes = typed_names(package)
    assert set(homes) == set(package.__all__)
    assert set(package.__all__) <= set(dir(package))
    for name, home in homes.items():
        assert getattr(package, name) is getattr(import_module(home), name)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_no_other_name_is_there(package: ModuleType) -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = package.nothing


@pytest.mark.parametrize("first", ["import tiling_search.tuner", "from tiling_search.tuner import tune", "pass"])
def test_the_function_tune_is_not_hidden_by_its_module(first: str) -> None:
    script = f"{first}\nfor _ in range(2):\n    from tiling_search import tune\n    assert callable(tune)\n"
    subprocess.run([sys.executable, "-c", script], check=True)
