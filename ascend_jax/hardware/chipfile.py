"""Chip files: finding them, reading them and following ``base``. Plain dictionaries; nothing here imports jax."""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from ascend_jax._toml import read_toml

OWN_CHIP = 'for a chip of your own give the path of a TOML file, e.g. one that says base = "910b3" and what differs'


@dataclass(frozen=True)
class ChipFile:
    """One TOML file as read; ``label`` names it in messages."""

    source: Traversable
    label: str
    table: dict[str, Any]


def chip_names() -> list[str]:
    """The chips that the package describes, by the name that CANN prints, sorted.

    >>> chip_names()[0]
    'Ascend310P3'
    """
    return sorted(_catalog().names.values())


def read_chain(name_or_path: str | os.PathLike[str]) -> list[ChipFile]:
    """The file of a chip, followed by its ``base``, the base of that, and so on.

    Args:
      name_or_path: a chip's name or alias (case, the prefix "Ascend", ``-``, ``_`` and spaces do not matter), or the path
        of a TOML file (it ends in ``.toml`` or contains a separator).

    Raises:
      ValueError: no such chip or file, not valid TOML, a ``base`` that does not exist or that comes back to itself.
    """
    chain = [_open(name_or_path)]
    while "base" in chain[-1].table:
        chain.append(_open_base(chain[-1]))
        if chain[-1].source in [layer.source for layer in chain[:-1]]:
            loop = " → ".join(layer.label for layer in chain)
            raise ValueError(f"{chain[-2].label}: base: the files form a loop: {loop}; let one of them stand without a base")
    return chain


@dataclass(frozen=True)
class _Catalog:
    stems: dict[str, str]
    """Normalised name or alias → file stem."""
    names: dict[str, str]
    """File stem → printed name."""


@cache
def _catalog() -> _Catalog:
    stems: dict[str, str] = {}
    names: dict[str, str] = {}
    for source in _chips().iterdir():
        if not source.name.endswith(".toml"):
            continue
        stem = source.name.removesuffix(".toml")
        table = _read(source, f"chips/{source.name}").table
        names[stem] = table["name"]
        for name in (stem, table["name"], *table.get("aliases", [])):
            if stems.setdefault(_normalise(name), stem) != stem:
                raise ValueError(f"chips/{source.name}: {name!r} already names {names[stems[_normalise(name)]]}")
    return _Catalog(stems, names)


def _chips() -> Traversable:
    return files("ascend_jax.hardware").joinpath("chips")


def _normalise(name: str) -> str:
    return re.sub(r"[\s_-]", "", name.casefold()).removeprefix("ascend")


def _open(name_or_path: str | os.PathLike[str]) -> ChipFile:
    text = os.fspath(name_or_path)
    is_path = not isinstance(name_or_path, str) or text.endswith(".toml") or "/" in text or os.sep in text
    return _read_user(Path(text)) if is_path else _open_shipped(text)


def _open_shipped(name: str) -> ChipFile:
    catalog = _catalog()
    stem = catalog.stems.get(_normalise(name))
    if stem is None:
        near = dict.fromkeys(catalog.names[catalog.stems[key]] for key in near_matches(_normalise(name), catalog.stems))
        hint = f"did you mean {', '.join(near)}?" if near else f"there are {', '.join(chip_names())};"
        raise ValueError(f"no chip is called {name!r}: {hint} {OWN_CHIP}")
    return _read(_chips().joinpath(f"{stem}.toml"), f"chips/{stem}.toml")


def _open_base(child: ChipFile) -> ChipFile:
    base = child.table["base"]
    if not isinstance(base, str):
        raise ValueError(f'{child.label}: base={base!r} must be text: a chip ("910b3"), a core ("cores/c220") or a .toml file')
    try:
        if base.endswith(".toml"):
            return _read_user(Path(str(child.source)).parent / base)
        if base.startswith("cores/"):
            return _open_core(base)
        return _open_shipped(base)
    except ValueError as error:
        raise ValueError(f"{child.label}: base={base!r}: {error}") from error


def _open_core(base: str) -> ChipFile:
    cores = sorted(f"cores/{core.name.removesuffix('.toml')}" for core in _chips().joinpath("cores").iterdir())
    if base not in cores:
        raise ValueError(f"no such core; there are {', '.join(cores)}")
    return _read(_chips().joinpath(f"{base}.toml"), f"chips/{base}.toml")


def _read_user(path: Path) -> ChipFile:
    # Resolved, so that a loop is seen however its files spell each other.
    return _read(path.expanduser().resolve(), str(path))


def _read(source: Traversable, label: str) -> ChipFile:
    try:
        return ChipFile(source, label, read_toml(source, label))
    except OSError as error:
        remedy = f"check the path, or use one of {', '.join(chip_names())}"
        raise ValueError(f"{label}: cannot be read ({error.strerror}): {remedy}") from error


def near_matches(word: str, known: Iterable[str]) -> list[str]:
    """Up to five of ``known`` that look like ``word``, nearest first."""
    return get_close_matches(word, list(known), n=5, cutoff=0.6)
