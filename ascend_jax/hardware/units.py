"""The keys of a chip file: a field's name with its unit (``ub_kib``, ``gm_tb_per_s``), and what one unit is worth.

``NpuSpec`` holds base units only (bytes, bytes per second, hertz, seconds, cycles); this is the one place that knows others.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from ascend_jax.hardware.chipfile import near_matches


@dataclass(frozen=True)
class Unit:
    """One unit of a key: ``scale`` base units, times the chip's own fields named in ``times``."""

    scale: Fraction
    times: tuple[str, ...] = ()


def _units(**scales: int | Fraction) -> dict[str, Unit]:
    return {suffix: Unit(Fraction(scale)) for suffix, scale in scales.items()}


# Longest first: gm_bytes_per_s also ends in _s.
QUANTITIES = {
    "bytes_per_s": _units(bytes_per_s=1, gb_per_s=10**9, tb_per_s=10**12),
    "bytes": _units(bytes=1, kib=2**10, mib=2**20, gib=2**30),
    "hz": _units(hz=1, mhz=10**6, ghz=10**9),
    "s": _units(s=1, us=Fraction(1, 10**6), ns=Fraction(1, 10**9)),
}
PER_CYCLE = {"bytes_per_cycle": Unit(Fraction(1), ("cube_clock_hz",))}
PER_CYCLE_PER_CORE = {"bytes_per_cycle_per_core": Unit(Fraction(1), ("cube_clock_hz", "cube_cores"))}
WHOLE_CHIP_RATES = ("gm_bytes_per_s", "l2_bytes_per_s")
SUFFIXES = {suffix for units in (*QUANTITIES.values(), PER_CYCLE, PER_CYCLE_PER_CORE) for suffix in units}


def keys_of(field: str) -> dict[str, Unit]:
    """Every key that may set ``field``, with its unit.

    A rate may also be given per Cube clock cycle, as the chips' configuration files do: of one core, or, for the rates of
    the whole chip, of each Cube core.

    >>> list(keys_of("ub_bytes"))
    ['ub_bytes', 'ub_kib', 'ub_mib', 'ub_gib']
    >>> list(keys_of("gm_bytes_per_s"))
    ['gm_bytes_per_s', 'gm_gb_per_s', 'gm_tb_per_s', 'gm_bytes_per_cycle_per_core']
    >>> list(keys_of("cube_cores"))
    ['cube_cores']
    """
    for base, units in QUANTITIES.items():
        if field.endswith(f"_{base}"):
            per_cycle = PER_CYCLE_PER_CORE if field in WHOLE_CHIP_RATES else PER_CYCLE
            allowed = units | per_cycle if base == "bytes_per_s" else units
            return {f"{field.removesuffix(base)}{suffix}": unit for suffix, unit in allowed.items()}
    return {field: Unit(Fraction(1))}


def to_base(value: int | float, unit: Unit, known: Mapping[str, float]) -> float:
    """``value`` in base units, rounded once; ``known`` holds the fields that ``unit.times`` names.

    >>> to_base(54, QUANTITIES["s"]["ns"], {})
    5.4e-08
    """
    exact = Fraction(repr(value)) * unit.scale
    for field in unit.times:
        exact *= Fraction(known[field])
    return float(exact)


def explain_unknown(key: str, legal: Iterable[str]) -> str:
    """What was probably meant by a ``key`` that is none of the ``legal`` ones: another unit, or another spelling."""
    legal = list(legal)
    units = [other for other in legal if _same_stem(key, other)]
    if units:
        return f"the unit does not suit; write {' or '.join(units)}"
    near = near_matches(key, legal)
    return f"did you mean {' or '.join(near)}?" if near else f"the keys are {', '.join(legal)}"


def _same_stem(key: str, other: str) -> bool:
    """Whether ``key`` is the legal key ``other`` with a wrong unit or none: ``ub``, ``ub_kb`` and ``ub_mhz`` for ``ub_kib``."""
    suffix = max((suffix for suffix in SUFFIXES if other.endswith(f"_{suffix}")), key=len, default="")
    stem = other.removesuffix(f"_{suffix}")
    if key == stem:
        return True
    unit = key.removeprefix(f"{stem}_")
    return unit != key and (unit in SUFFIXES or "_" not in unit)
