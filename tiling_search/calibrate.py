"""``calibrate``: from measured rows or a profile to a chip file; which rows took part, what was fitted and how sure it is."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any

import jax.numpy as jnp
import numpy as np

from ascend_jax.calibration.assume import Case
from ascend_jax.calibration.call_shapes import Hints
from ascend_jax.calibration.chip_toml import chip_text, fitted_spec
from ascend_jax.calibration.constants import Constant, own_values, usual_constants, with_constants
from ascend_jax.calibration.fit import Fit, fit
from ascend_jax.calibration.leave_out import CrossValidation, errors_of, leave_one_group_out
from ascend_jax.calibration.predict import seconds
from ascend_jax.calibration.problem import WEIGHTS, Problem
from ascend_jax.calibration.profiler import read_profile
from ascend_jax.calibration.rows import Refused, Row, read_entries
from ascend_jax.hardware import NpuSpec, load_chip
from ascend_jax.hardware.chipfile import read_chain
from ascend_jax.tiling.tiling import Tiling
from tiling_search.predictor import Model as Predictor

Seconds = Callable[[Sequence[Case], Mapping[str, NpuSpec]], Any]
Progress = Callable[[int, int], None]
UNGRADED = WEIGHTS["B"]
MOST_REASONS = 5
SHIPPED = "chips/"
"""What the labels of the package's own chip files begin with."""


@dataclass(frozen=True, kw_only=True)
class Model:
    """What calibration asks of the model: the case of a row, a tiling where it states none, and seconds of all cases."""

    assume: Callable[[Row], Case]
    tiling: Callable[[Case], Tiling]
    seconds: Seconds


@dataclass(frozen=True, kw_only=True)
class Source:
    """Rows of a file, with the reasons why others are none: reason → ids or counts."""

    name: str
    rows: tuple[Row, ...]
    skipped: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """The outcome: ``text`` is the chip file, ``spec`` what it says."""

    chip: str
    source: Source
    cases: tuple[Case, ...]
    problem: Problem
    fit: Fit
    cross_validation: CrossValidation | None
    skipped: tuple[tuple[str, str], ...]
    spec: NpuSpec
    text: str


def the_model(programs: Path | None = None) -> Model:
    """The package's own; ``programs`` as in :func:`tiling_search.tune`."""
    predictor = Predictor(programs)
    return Model(assume=predictor.assume, tiling=predictor.tiling, seconds=seconds)


def read_source(path: Path, chip: str, hints: Hints) -> Source:
    """The rows of a JSON file, or of a profiler's table (it ends in ``.csv``).

    Raises:
      OSError: the file cannot be read.
      ValueError: it holds no rows.
    """
    if path.suffix.lower() == ".csv":
        profile = read_profile(path, chip=chip, hints=hints)
        skipped = [(f"line {each.line}", f"{each.op}, {each.count} times: {each.reason}") for each in profile.skipped]
        return Source(name=path.name, rows=profile.rows, skipped=tuple(skipped))
    entries = read_entries(path)
    refused = [(entry.id or "?", entry.reason) for entry in entries if isinstance(entry, Refused)]
    return Source(name=path.name, rows=tuple(entry for entry in entries if isinstance(entry, Row)), skipped=tuple(refused))


def calibrate(
    source: Source,
    *,
    chip: str,
    model: Model,
    out: Path,
    fields: Sequence[str] = (),
    cross_validate: bool = True,
    progress: Progress | None = None,
) -> Calibration:
    """Fit the constants of ``chip`` to the rows that were measured on it.

    Args:
      source: rows; of those with ``core_validation`` where there are any, of all others.
      chip: a name or a TOML file.
      model: what predicts.
      out: where the chip file will lie; nothing is written.
      fields: of ``NpuSpec``, which to fit; the usual ones if empty.
      cross_validate: also fit without each group of kernels, and predict it.
      progress: called with the fits done and their number.

    Raises:
      ValueError: no such chip or field, no row of this chip, or rows that determine nothing.
    """
    spec = load_chip(chip)
    base = _base(chip, out)
    constants = _constants(spec, fields)
    cases, skipped = _cases(source, chip, spec, model)
    if not cases:
        raise ValueError(f"{source.name} holds no row of attention on {spec.name} to fit: {_reasons(source.skipped + skipped)}")
    problem = _problem(cases, constants, spec, model.seconds)
    groups = len(set(problem.groups)) if cross_validate else 0
    tell = progress or (lambda done, total: None)
    tell(0, 1 + groups)
    found = fit(problem)
    tell(1, 1 + groups)
    if not any(constant.fitted for constant in found.constants):
        reasons = "; ".join(f"{constant.constant.name}: {constant.notes[0]}" for constant in found.constants)
        raise ValueError(f"the {found.rows} rows of {source.name} determine no constant of {spec.name}: {reasons}")
    without = leave_one_group_out(problem, lambda done: tell(1 + done, 1 + groups)) if groups > 1 else None
    return Calibration(
        chip=spec.name,
        source=source,
        cases=tuple(cases),
        problem=problem,
        fit=found,
        cross_validation=without,
        skipped=source.skipped + skipped,
        spec=fitted_spec(spec, found),
        text=chip_text(spec, found, base=base, about=_about(source, found, without)),
    )


def _constants(spec: NpuSpec, fields: Sequence[str]) -> tuple[Constant, ...]:
    usual = {constant.field: constant for constant in usual_constants(spec)}
    if unknown := [field for field in fields if field not in usual]:
        raise ValueError(f"{', '.join(unknown)} cannot be fitted on {spec.name}: there are {', '.join(usual)}")
    return tuple(usual[field] for field in dict.fromkeys(fields)) or tuple(usual.values())


def _base(chip: str, out: Path) -> str:
    """How the file at ``out`` names the chip that it starts from."""
    label = read_chain(chip)[0].label
    if label.startswith(SHIPPED):
        return label.removeprefix(SHIPPED).removesuffix(".toml")
    if Path(chip).expanduser().resolve() == out.resolve():
        raise ValueError(f"--out {str(out)!r} is the file of --chip, from which the new one starts: choose another")
    return os.path.relpath(Path(chip).expanduser().resolve(), out.resolve().parent)


def _cases(source: Source, chip: str, spec: NpuSpec, model: Model) -> tuple[list[Case], tuple[tuple[str, str], ...]]:
    """The rows that take part, as cases on ``spec``; and why each of the others does not."""
    names = _names(chip)
    core = any(row.core_validation for row in source.rows)
    cases, skipped = [], []
    for row in source.rows:
        try:
            cases.append(_case(row, chip, spec, names, core, model))
        except ValueError as error:
            skipped.append((row.id, str(error)))
    return cases, tuple(skipped)


def _names(chip: str) -> set[str]:
    """Names under which the chip may have been measured: its own, and those of the files that it is made from, down to the
    first that the package ships (910B3 is written as a changed 910B2, and is not one)."""
    names = set()
    for layer in read_chain(chip):
        names.add(layer.table.get("name", PurePath(layer.label).stem))
        if layer.label.startswith(SHIPPED):
            break
    return names


def _case(row: Row, chip: str, spec: NpuSpec, names: set[str], core: bool, model: Model) -> Case:
    if row.measured_s is None:
        raise ValueError("it says no time")
    if _weight(row) == 0:
        raise ValueError(f"quality {row.quality}: not to be fitted")
    if core and not row.core_validation:
        raise ValueError("not marked core_validation, as other rows of the file are")
    case = model.assume(row if row.catalog_chip or row.chip else replace(row, catalog_chip=chip))
    if case.spec.name not in names:
        raise ValueError(f"measured on {case.spec.name}")
    case = replace(case, spec=spec)
    return case if case.tiling is not None else replace(case, tiling=model.tiling(case))


def _weight(row: Row) -> float:
    return WEIGHTS.get(row.quality or "", UNGRADED)


def _problem(cases: Sequence[Case], constants: tuple[Constant, ...], spec: NpuSpec, seconds: Seconds) -> Problem:
    return Problem(
        constants=constants,
        start=own_values(spec, constants),
        predict_log=lambda values: jnp.log(seconds(cases, {spec.name: with_constants(spec, constants, values)})),
        measured_s=np.array([case.row.measured_s for case in cases], np.float64),
        weights=np.array([_weight(case.row) for case in cases], np.float64),
        groups=tuple(case.group for case in cases),
        ids=tuple(case.row.id for case in cases),
    )


def _reasons(skipped: Sequence[tuple[str, str]]) -> str:
    """The reasons, most frequent first, with their number."""
    counts: dict[str, int] = {}
    for _, reason in skipped:
        counts[reason] = counts.get(reason, 0) + 1
    most = sorted(counts.items(), key=lambda entry: -entry[1])[:MOST_REASONS]
    return "; ".join(f"{reason} ({count})" for reason, count in most) or "it holds no rows of attention"


def _about(source: Source, found: Fit, without: CrossValidation | None) -> list[str]:
    before, after = errors_of(found.start_residuals), errors_of(found.residuals)
    lines = [
        f"Fitted by tiling-search calibrate to {found.rows} rows of {source.name}: mean error {_percent(after.mean)}, "
        f"before {_percent(before.mean)}."
    ]
    if without and without.overall.mean is not None:
        lines.append(f"Groups of kernels predicted from the others: mean error {_percent(without.overall.mean)}.")
    return lines


def _percent(share: float | None) -> str:
    return "n/a" if share is None else f"{share:.1%}"
