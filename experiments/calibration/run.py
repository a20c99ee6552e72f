"""What do the published measurements say about the numbers that no document gives? One fit for each family of AI cores.

``python experiments/calibration/run.py [--rows FILE] [--out FILE] [--family NAME]... [--record FILE] [--prior-scale X]``
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click
import jax.numpy as jnp
import numpy as np
from jax import Array

from ascend_jax.calibration.assume import Case
from ascend_jax.calibration.chip_toml import fitted_spec
from ascend_jax.calibration.constants import own_values, shared_constants, with_constants
from ascend_jax.calibration.fit import Fit, fit
from ascend_jax.calibration.leave_out import leave_one_group_out
from ascend_jax.calibration.predict import seconds
from ascend_jax.calibration.problem import WEIGHTS, Problem
from ascend_jax.calibration.rows import Refused, Row, read_entries
from ascend_jax.hardware import NpuSpec
from tiling_search.calibration_json import fit_dict
from tiling_search.calibration_views import show_calibration
from tiling_search.jsonfile import Json, dumps, write_atomically
from tiling_search.predictor import Model
from tiling_search.render import Page

HERE = Path(__file__).parent
ROWS = HERE.parent / "validation" / "rows.json"
FAMILIES = {"coupled": "910 (coupled cores)", "separated": "910B and 910_93 (separated cores)", "direct": "950 (direct paths)"}
"""Chips of one architecture share their AI core, so one set of factors: on hand-off, launch, slopes, effective bandwidths."""
FEWEST = 6
"""Rows of a family that are worth a fit."""


def cases_of(entries: Sequence[Row | Refused], model: Model) -> tuple[dict[str, list[Case]], list[Json]]:
    """The dense attention rows by architecture, each as a case with a tiling; and why the others take no part."""
    cases: dict[str, list[Case]] = defaultdict(list)
    skipped = []
    for entry in entries:
        try:
            case = _case(entry, model)
            cases[case.spec.architecture].append(case)
        except ValueError as error:
            skipped.append({"id": entry.id or "?", "reason": str(error)})
    return cases, skipped


def _case(entry: Row | Refused, model: Model) -> Case:
    if isinstance(entry, Refused):
        raise ValueError(entry.reason)
    if not entry.core_validation:
        raise ValueError("not dense attention with its full shape (core_validation)")
    if entry.measured_s is None or WEIGHTS.get(entry.quality or "", 0.0) == 0:
        raise ValueError(f"quality {entry.quality}, {entry.metric} in {entry.unit}: not to be fitted")
    case = model.assume(entry)
    return case if case.tiling is not None else replace(case, tiling=model.tiling(case))


def problem_of(cases: Sequence[Case], prior_scale: float) -> tuple[Problem, list[NpuSpec]]:
    """One problem for the chips of a family, with factors that they share."""
    specs = list({case.spec.name: case.spec for case in cases}.values())
    shared = shared_constants(specs)
    constants = tuple(replace(each, prior_log_std=each.prior_log_std * prior_scale) for each in shared)

    def predict_log(values: Array) -> Array:
        return jnp.log(seconds(cases, {spec.name: with_constants(spec, constants, values) for spec in specs}))

    problem = Problem(
        constants=constants,
        start=own_values(specs[0], constants),
        predict_log=predict_log,
        measured_s=np.array([case.row.measured_s for case in cases], np.float64),
        weights=np.array([WEIGHTS[case.row.quality or ""] for case in cases]),
        groups=tuple(case.group for case in cases),
        ids=tuple(case.row.id for case in cases),
    )
    return problem, specs


def numbers_of(specs: Sequence[NpuSpec], found: Fit) -> Json:
    """What each fitted factor makes of each chip's number: before and after, in base units."""
    fields = [each.constant.field for each in found.constants if each.fitted and each.constant.field != "vector"]
    after = {spec.name: fitted_spec(spec, found) for spec in specs}
    return {
        spec.name: {field: [float(getattr(chip, field)) for chip in (spec, after[spec.name])] for field in fields}
        for spec in specs
    }


def calibrate_family(name: str, cases: Sequence[Case], source: str, prior_scale: float = 1.0) -> Json:
    """The fit of one family and its cross-validation over kernels."""
    problem, specs = problem_of(cases, prior_scale)
    found = fit(problem)
    head = {"chip": name, "source": source, "chips": [spec.name for spec in specs]}
    return head | fit_dict(problem, found, leave_one_group_out(problem)) | {"numbers": numbers_of(specs, found), "skipped": []}


@click.command()
@click.option("--rows", type=click.Path(exists=True, dir_okay=False, path_type=Path), default=ROWS, help="Measured rows.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), default=HERE / "result.json", help="Where to write.")
@click.option("--family", type=click.Choice(list(FAMILIES)), multiple=True, help="Only this architecture [all].")
@click.option(
    "--record", type=click.Path(dir_okay=False, path_type=Path), help="Also write the ids of the rows that took part."
)
@click.option("--prior-scale", type=click.FloatRange(min=0, min_open=True), default=1.0, help="Widen all priors by this [1].")
def main(rows: Path, out: Path, family: tuple[str, ...], record: Path | None, prior_scale: float) -> None:
    """Fit each family, print its tables, and write result.json."""
    cases, skipped = cases_of(read_entries(rows), Model())
    results, fitted = {}, []
    for architecture, members in sorted(cases.items()):
        if architecture not in (family or FAMILIES):
            continue
        if len(members) < FEWEST:
            skipped += [{"id": case.row.id, "reason": f"one of {len(members)} rows of {architecture}"} for case in members]
            continue
        results[architecture] = calibrate_family(FAMILIES[architecture], members, rows.name, prior_scale)
        fitted += [case.row.id for case in members]
        show_calibration(Page(), results[architecture])
        click.echo()
    write_atomically(out, dumps({"families": results, "skipped": skipped}))
    if record is not None:
        write_atomically(record, dumps(sorted(fitted)))


if __name__ == "__main__":
    main()
