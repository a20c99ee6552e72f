"""TOML files that people write: what is wrong with one is said by its name."""

import tomllib
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any


def read_toml(source: Path | Traversable, label: str = "") -> dict[str, Any]:
    """The table in a file, which messages call ``label``, or by its path.

    Raises:
      OSError: it cannot be read.
      ValueError: it is no TOML.
    """
    try:
        return tomllib.loads(source.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{label or source}: is not valid TOML ({error}): write key = value lines, text in quotes") from error
