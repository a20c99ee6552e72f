"""Compiled programs on disk: a second run skips tracing as well as compiling. A miss of any kind only costs time.

jax's own compilation cache keys a program by its lowered text, so it has to trace and lower first, which takes longer than
the search. Here the key is what the text follows from: the packages' source, jax, the static parts of the inputs.
"""

import os
import pickle
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import jax
from jax.experimental.serialize_executable import deserialize_and_load, serialize

from ascend_jax._compile import compile_with

Program = Callable[..., Any]


class Stored(NamedTuple):
    """One program as it lies on disk: its machine code, and its output with every leaf replaced by 0."""

    code: bytes
    output: Any


def compiled(
    folder: Path | None, key: str, inputs: Sequence[tuple[Any, ...]], trace: Callable[[], Iterable[tuple[Any, dict[str, Any]]]]
) -> list[Program]:
    """The programs of ``key``: of this process, from ``folder``, or else traced and compiled side by side, and stored there.

    Args:
      folder: where programs are kept; None keeps none.
      key: everything that the programs depend on besides the packages' source and jax.
      inputs: the arguments of each program without static ones, or stand-ins of the same structure; an :class:`Output`
        stands for the output of another program.
      trace: yields each program traced (``jax.stages.Traced``) and its compiler options, the slowest to compile first.
    """
    if key not in _COMPILED:
        _COMPILED[key] = _from_disk_or_new(folder, key, inputs, trace)
    return _COMPILED[key]


_COMPILED: dict[str, list[Program]] = {}
"""Programs of this process, by key: many chips and workloads share one compilation."""


def _from_disk_or_new(
    folder: Path | None, key: str, inputs: Sequence[tuple[Any, ...]], trace: Callable[[], Iterable[tuple[Any, dict[str, Any]]]]
) -> list[Program]:
    path = folder / f"{sha256('|'.join((key, _source(), *_versions())).encode()).hexdigest()[:32]}.programs" if folder else None
    if path and (loaded := _load(path, inputs)):
        return loaded
    traced, pending = [], []
    with ThreadPoolExecutor() as pool:  # XLA leaves Python's lock while it compiles: the next one is traced meanwhile
        for one, wanted in trace():
            traced.append(one)
            pending.append(pool.submit(compile_with, one.lower(), wanted))
    programs = [future.result() for future in pending]
    # What jax itself loaded from its cache does not survive being stored again (it lacks functions when loaded).
    if path and not getattr(jax.config, "jax_compilation_cache_dir", None):
        _store(path, [jax.tree.map(lambda _: 0, one.out_info) for one in traced], programs)
    return programs


def _load(path: Path, inputs: Sequence[tuple[Any, ...]]) -> list[Program] | None:
    try:
        stored: list[Stored] = pickle.loads(path.read_bytes())
        structures = [jax.tree.structure((_filled(args, stored), {})) for args in inputs]
        return [
            deserialize_and_load(one.code, structure, jax.tree.structure(one.output))
            for one, structure in zip(stored, structures, strict=True)
        ]
    except Exception:  # absent, cut short, from another build: compile anew
        return None


def _filled(args: tuple[Any, ...], stored: Sequence[Stored]) -> tuple[Any, ...]:
    """``args`` with each ``Output`` replaced by the output of the program that it names."""
    return tuple(stored[arg.program].output if isinstance(arg, Output) else arg for arg in args)


class Output(NamedTuple):
    """Stands for the output of program number ``program`` among another program's inputs."""

    program: int


def _store(path: Path, outputs: Sequence[Any], programs: Sequence[Any]) -> None:
    try:
        stored = [Stored(serialize(program)[0], output) for program, output in zip(programs, outputs, strict=True)]
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            (Path(folder) / path.name).write_bytes(pickle.dumps(stored))
            os.replace(Path(folder) / path.name, path)
    except Exception:  # a program that cannot be serialised, a full disk: the search goes on without
        return


@cache
def _source() -> str:
    """Fingerprint of the packages' source."""
    digest = sha256()
    for package in ("ascend_jax", "tiling_search"):
        for path in sorted(Path(str(files(package))).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _versions() -> tuple[str, ...]:
    flags = (os.environ.get(name, "") for name in ("XLA_FLAGS", "JAX_PLATFORMS"))
    return version("jax"), version("jaxlib"), jax.default_backend(), *flags
