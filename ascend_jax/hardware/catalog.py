"""``load_chip``: from a chip file to an ``NpuSpec``. Reads, follows ``base``, converts units, validates; the only factory."""

import math
import os
from dataclasses import MISSING, dataclass, fields
from pathlib import PurePath
from typing import Any

from ascend_jax.hardware.chipfile import ChipFile, read_chain
from ascend_jax.hardware.spec import NpuSpec, VectorCosts
from ascend_jax.hardware.units import Unit, explain_unknown, keys_of, to_base

TEXTS = ("name", "base", "architecture")
NUMBERS = [item.name for item in fields(NpuSpec) if item.name not in (*TEXTS, "vector")]
COSTS = [item.name for item in fields(VectorCosts)]
OPTIONAL = {item.name for item in fields(NpuSpec) if item.default is not MISSING}
KEYS = {key: (field, unit) for field in NUMBERS for key, unit in keys_of(field).items()}
VECTOR_KEYS = {key: (f"vector.{field}", unit) for field in COSTS for key, unit in keys_of(field).items()}


def load_chip(name_or_path: str | os.PathLike[str]) -> NpuSpec:
    """The numbers of one chip.

    A chip file is TOML: ``base`` (a chip or core to start from), ``architecture``, and numbers whose keys carry their unit
    (``ub_kib = 192``, ``gm_tb_per_s = 1.6``); instruction costs in cycles stand in a ``[vector]`` table. The files that
    come with the package, in ``hardware/chips``, give the source of every number.

    Args:
      name_or_path: a name of :func:`~ascend_jax.hardware.chip_names` or an alias (case, the prefix "Ascend", ``-``, ``_``
        and spaces do not matter), or the path of your own file (it ends in ``.toml`` or contains a separator).

    Returns:
      The spec, every number a Python float, in the base units of :class:`~ascend_jax.hardware.NpuSpec`.

    Raises:
      ValueError: an unknown name; a file that cannot be read, has an unknown key, a wrong unit or a wrong value, or lacks
        a number; a ``base`` that does not exist or that loops. The message names the file, the key and the remedy.

    >>> chip = load_chip("910b3")
    >>> chip.name, chip.cube_cores, chip.ub_bytes / 1024
    ('Ascend910B3', 20.0, 192.0)
    """
    chain = read_chain(name_or_path)
    entries: dict[str, _Entry] = {}
    for layer in reversed(chain):
        entries |= _entries(layer)
    _check_complete(chain[0], entries)
    try:
        return _build(chain, entries)
    except ValueError as error:
        raise ValueError(f"{chain[0].label}: {error}") from error


@dataclass(frozen=True)
class _Entry:
    value: float
    unit: Unit


def _entries(layer: ChipFile) -> dict[str, _Entry]:
    """The numbers of one file by field; a later file of the chain replaces a field whatever unit either used."""
    table = dict(layer.table)
    for key in TEXTS:
        if not isinstance(table.pop(key, ""), str):
            raise ValueError(f"{layer.label}: {key}={layer.table[key]!r} must be text in quotes")
    table.pop("aliases", None)
    vector = table.pop("vector", {})
    if not isinstance(vector, dict):
        raise ValueError(f"{layer.label}: vector={vector!r} must be a table: write [vector] and one cost a line below it")
    return _numbers(layer.label, table, KEYS) | _numbers(f"{layer.label}: [vector]", vector, VECTOR_KEYS)


def _numbers(label: str, table: dict[str, Any], legal: dict[str, tuple[str, Unit]]) -> dict[str, _Entry]:
    entries: dict[str, _Entry] = {}
    origin: dict[str, str] = {}
    for key, value in table.items():
        if key not in legal:
            raise ValueError(f"{label}: unknown key {key!r}: {explain_unknown(key, legal)}")
        field, unit = legal[key]
        if field in entries:
            raise ValueError(f"{label}: {key} and {origin[field]} say the same thing twice; keep one")
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
            raise ValueError(f"{label}: {key}={value!r} must be a finite number that is not negative, without quotes")
        entries[field] = _Entry(value, unit)
        origin[field] = key
    return entries


def _check_complete(layer: ChipFile, entries: dict[str, _Entry]) -> None:
    wanted = [field for field in NUMBERS if field not in OPTIONAL] + [f"vector.{cost}" for cost in COSTS]
    missing = [field for field in wanted if field not in entries]
    if missing:
        remedy = 'give them (ub_kib = 192 sets ub_bytes) or start from a chip with base = "910b3"'
        raise ValueError(f"{layer.label}: {', '.join(missing)} missing: {remedy}")


def _build(chain: list[ChipFile], entries: dict[str, _Entry]) -> NpuSpec:
    values: dict[str, float] = {}
    # Rates per cycle need the clock and the cores, which are plain numbers.
    for field, entry in sorted(entries.items(), key=lambda item: len(item[1].unit.times)):
        values[field] = to_base(entry.value, entry.unit, values)
    architecture: Any = next((layer.table["architecture"] for layer in chain if "architecture" in layer.table), "")
    # A name is not inherited: a file that changes a chip describes another chip.
    name = chain[0].table.get("name", PurePath(chain[0].label).stem)
    vector = VectorCosts(**{cost: values.pop(f"vector.{cost}") for cost in COSTS})
    return NpuSpec(name=name, architecture=architecture, vector=vector, **values)
