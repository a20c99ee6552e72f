"""JSON as text, and files written at one stroke. Imports nothing heavy."""

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

Json = dict[str, Any]


def dumps(data: Mapping[str, Any] | Iterable[Any]) -> str:
    """``data`` as JSON text with a newline; an error, not invalid JSON, for a number that JSON lacks."""
    return json.dumps(data, indent=2, allow_nan=False) + "\n"


def write_atomically(path: Path, content: str | bytes) -> None:
    """Put ``content`` (text as UTF-8) in ``path`` at one stroke: a reader sees the old file or the new one, never half of one.

    Raises:
      OSError: the folder or the file cannot be written.
    """
    with replacing(path) as file:
        file.write(content.encode("utf-8") if isinstance(content, str) else content)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file beside ``path`` that takes its place when the block ends, and is removed where the block fails.

    A link keeps pointing where it does, an existing file keeps its mode, and a device or pipe is written to as it is.

    Raises:
      OSError: the folder or the file cannot be written.
    """
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            yield file
        return
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            yield file
        if target.exists():
            shutil.copymode(target, temporary)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
