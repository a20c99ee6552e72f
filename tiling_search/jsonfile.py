"""JSON as text and as a file. Imports nothing heavy."""

import json
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

Json = dict[str, Any]


def dumps(data: Mapping[str, Any] | Iterable[Any]) -> str:
    """``data`` as JSON text with a newline; an error, not invalid JSON, for a number that JSON lacks."""
    return json.dumps(data, indent=2, allow_nan=False) + "\n"


def write_atomically(path: Path, text: str) -> None:
    """Put ``text`` in ``path`` at one stroke: a reader sees the old file or the new one, never half of one.

    A link keeps pointing where it does, an existing file keeps its mode, and a device or pipe is written to as it is.

    Raises:
      OSError: the folder or the file cannot be written.
    """
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        if target.exists():
            shutil.copymode(target, temporary)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
