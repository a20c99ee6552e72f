"""Operator packages on disk.

A package is a vendor's folder. Each operator in it is a folder with a Python file of the same name::

    vendors/example/
      version.info                      optional: one line, such as version=1.2
      op_impl/
        swi_glu_custom/
          swi_glu_custom.py             OPERATORS = (Operator(...),)

The file may import anything that the process can import. When it has run, ``OPERATORS`` must hold its operators, each an
:class:`~ascend_jax.runtime.ops.operator.Operator`. It is read anew at each load, and leaves no compiled copy behind.
"""

import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from ascend_jax.runtime.errors import AclError
from ascend_jax.runtime.ops.operator import Operator
from ascend_jax.runtime.ops.search import Place

FORM = "a file must set OPERATORS = (Operator(...), …)"


@dataclass(frozen=True)
class Package:
    """What one place holds.

    Attributes:
      name: the vendor's; ``built-in`` for the operators of the runtime.
      place: where it lies, None for the built-in one.
      operators: by type.
      files: where each comes from.
      version: of ``version.info``, "" without one.
    """

    name: str
    place: Place | None
    operators: dict[str, Operator]
    files: dict[str, Path]
    version: str = ""

    def __str__(self) -> str:
        where = self.place or "in this runtime"
        return (
            f"{self.name}{' ' + self.version if self.version else ''}, {where}: {', '.join(sorted(self.operators)) or 'empty'}"
        )


def read_package(place: Place) -> Package:
    """The operators of a place that can be used.

    Raises:
      AclError: 100025, with file and line, for a file that cannot be run, sets no OPERATORS, or names an operator twice.
    """
    root = place.path / "op_impl"
    root = root if root.is_dir() else place.path
    operators: dict[str, Operator] = {}
    files: dict[str, Path] = {}
    for folder in sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith((".", "__"))):
        path = folder / f"{folder.name}.py"
        if not path.is_file():
            raise AclError(100025, f"{folder}: holds no {path.name}", remedy="call the operator's file as its folder")
        for operator in read_file(path):
            if operator.op_type in files:
                what = f"{path}:1: {operator.op_type} is in {files[operator.op_type]} already"
                raise AclError(100025, what, remedy="keep one of them in the package")
            operators[operator.op_type], files[operator.op_type] = operator, path
    return Package(place.path.name, place, operators, files, _version(place.path))


def read_file(path: Path) -> tuple[Operator, ...]:
    """Run an operator's file and take its OPERATORS.

    Raises:
      AclError: 100025, with file and line.
    """
    module = ModuleType(f"ascend_jax_custom_operator_{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses of the file look their module up while they are made
    try:
        exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)
    except Exception as error:
        what = f"{path}:{_line_of(error, path)}: {type(error).__name__}: {_text_of(error)}"
        raise AclError(100025, what, remedy="correct that line, then call registry.reload()") from error
    finally:
        del sys.modules[module.__name__]
    return _operators_of(module, path)


def _operators_of(module: ModuleType, path: Path) -> tuple[Operator, ...]:
    found: Any = getattr(module, "OPERATORS", None)
    line = _line_of_name(path)
    if not isinstance(found, list | tuple) or not found:
        raise AclError(100025, f"{path}:{line}: OPERATORS is {found!r}", remedy=f"{FORM}")
    for one in found:
        if not isinstance(one, Operator):
            raise AclError(100025, f"{path}:{line}: OPERATORS holds {one!r}, which is no Operator", remedy=f"{FORM}")
    return tuple(found)


def _line_of(error: Exception, path: Path) -> int:
    """The last line of ``path`` that the error passed."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return error.lineno or 1
    frames = traceback.extract_tb(error.__traceback__)
    return next((frame.lineno or 1 for frame in reversed(frames) if frame.filename == str(path)), 1)


def _text_of(error: Exception) -> str:
    return error.msg if isinstance(error, SyntaxError) else str(error)


def _line_of_name(path: Path) -> int:
    """Where the file sets OPERATORS, else its last line."""
    lines = path.read_text("utf-8").splitlines() or [""]
    return next((number for number, line in enumerate(lines, 1) if line.startswith("OPERATORS")), len(lines))


def _version(path: Path) -> str:
    file = path / "version.info"
    if not file.is_file():
        return ""
    return file.read_text("utf-8").strip().splitlines()[0].rpartition("=")[2].strip() if file.stat().st_size else ""
