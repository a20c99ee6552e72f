"""Where compiled programs are kept, and that nothing breaks where they cannot be."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tiling_search.compile_cache import cache_folder, use_compile_cache

VARIABLE = "JAX_COMPILATION_CACHE_DIR"


def setting(script: str = "", **env: str) -> str:
    """What jax is pointed at in a process of its own."""
    code = f"{script}\nimport os\nfrom tiling_search.compile_cache import use_compile_cache\nuse_compile_cache()\n"
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("TILING_SEARCH", "JAX"))}
    done = subprocess.run(
        [sys.executable, "-c", f"{code}print(os.environ.get({VARIABLE!r}))"],
        capture_output=True,
        text=True,
        env=clean | env,
        check=True,
    )
    return done.stdout.strip()


def test_the_folder_is_made_where_it_was_asked_for(tmp_path: Path) -> None:
    folder = Path(setting(TILING_SEARCH_CACHE_DIR=str(tmp_path / "deep" / "cache")))
    assert folder.parent == tmp_path / "deep" / "cache"
    assert folder.is_dir()


def test_the_default_is_the_users_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TILING_SEARCH_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder().name == cache_folder().name
    assert "tiling-search" in cache_folder().parts


@pytest.mark.parametrize("value", ["1", "yes"])
def test_it_can_be_switched_off(value: str, tmp_path: Path) -> None:
    assert setting(TILING_SEARCH_CACHE_DIR=str(tmp_path), TILING_SEARCH_DISABLE_CACHE=value) == "None"
    assert not list(tmp_path.iterdir())


def test_the_variables_of_jax_win(tmp_path: Path) -> None:
    assert setting(TILING_SEARCH_CACHE_DIR=str(tmp_path), JAX_COMPILATION_CACHE_DIR="mine") == "mine"


def test_a_folder_that_cannot_be_made_is_no_error(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    assert setting(TILING_SEARCH_CACHE_DIR=str(file / "below")) == "None"


def test_a_process_that_has_jax_already_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TILING_SEARCH_DISABLE_CACHE", raising=False)
    monkeypatch.setenv("TILING_SEARCH_CACHE_DIR", str(tmp_path))
    before = dict(os.environ)
    assert "jax" in sys.modules
    assert use_compile_cache() is None
    assert dict(os.environ) == before
