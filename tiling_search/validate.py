"""``validate``: what the model says of measured rows, and how far it is off. No row stops the others."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, TypeAlias

from ascend_jax.calibration.rows import Refused, Row
from ascend_jax.tiling.tiling import Tiling
from tiling_search.error_stats import NOT_COUNTED, all_groups, overall
from tiling_search.jsonfile import Json
from tiling_search.result import tiling_dict

if TYPE_CHECKING:
    from ascend_jax.calibration.assume import Case
    from ascend_jax.calibration.elementary import Elementary
    from ascend_jax.calibration.predict import Prediction

Progress = Callable[[int, int], None]
AnyCase: TypeAlias = "Case | Elementary"


class Predictor(Protocol):
    """The model as validation asks it."""

    def assume(self, row: Row) -> AnyCase:
        """The chip, workload, kernel and tiling that stand for a row; a ValueError says why there is none."""
        ...

    def tiling(self, case: AnyCase) -> Tiling | None:
        """The tiling of a case that states none; None where it is no attention; a ValueError says why there is none."""
        ...

    def predict(self, cases: Sequence[AnyCase]) -> "Sequence[Prediction]":
        """Seconds and bound of each case."""
        ...


class _Skip(ValueError):
    """Why a row has no prediction."""


def validate(entries: Sequence[Row | Refused], *, predictor: Predictor, progress: Progress | None = None) -> Json:
    """Predict every row and compare: ``{rows, groups, overall}``.

    Args:
      entries: rows in the order of the result; refused ones are listed as skipped.
      predictor: what predicts; :class:`tiling_search.predictor.EveryRow` is the package's own.
      progress: called with the rows prepared and their number.

    Returns:
      ``rows``: one object a row, with ``error`` = (predicted − measured) / measured, or null and the reason in ``skipped``;
      ``counted`` is false for rows of grade C, which count only under their grade. ``groups``: totals by chip, kernel, both
      and grade, and of the core_validation rows by chip, kernel and both. ``overall``: totals of all counted rows.
    """
    cases: dict[int, AnyCase] = {}
    reasons: dict[int, str] = {}
    for at, entry in enumerate(entries):
        try:
            cases[at] = _case(entry, predictor)
        except Exception as error:  # whatever one row brings, the others are still asked about
            reasons[at] = _reason(error)
        if progress:
            progress(at + 1, len(entries))
    answers = dict(zip(cases, _predict(list(cases.values()), predictor), strict=True))
    rows = []
    for at, entry in enumerate(entries):
        answer = answers.get(at, reasons.get(at, ""))
        rows.append(_skipped(entry, answer) if isinstance(answer, str) else _predicted(cases[at], answer))
    return {"rows": rows, "groups": all_groups(rows), "overall": overall(rows)}


def _case(entry: Row | Refused, predictor: Predictor) -> AnyCase:
    """The case of a row, with a tiling if it is attention."""
    if isinstance(entry, Refused):
        raise _Skip(entry.reason)
    if entry.measured_s is None:
        raise _Skip(f"a {entry.metric or 'value'} in {entry.unit or 'no unit'}, and the row does not say of how much: no time")
    case = predictor.assume(entry)
    if case.tiling is not None or (chosen := predictor.tiling(case)) is None:
        return case
    return replace(case, tiling=chosen)


def _predict(cases: list[AnyCase], predictor: Predictor) -> "list[Prediction | str]":
    """A prediction for each case, or the reason why there is none: where a batch fails, its halves are tried."""
    if not cases:
        return []
    try:
        found = list(predictor.predict(cases))
        if len(found) != len(cases):
            raise RuntimeError(f"{len(found)} predictions for {len(cases)} rows")
    except Exception as error:
        if len(cases) == 1:
            return [_reason(error)]
        half = len(cases) // 2
        return _predict(cases[:half], predictor) + _predict(cases[half:], predictor)
    return [one if 0 < one.seconds < math.inf else f"predicted {one.seconds} s, which is no time" for one in found]


def _reason(error: Exception) -> str:
    """The words of an error that was meant for a reader; the name of one that was not, too."""
    return str(error) if isinstance(error, ValueError) and str(error) else f"{type(error).__name__}: {error}"


def _predicted(case: AnyCase, answer: "Prediction") -> Json:
    measured, predicted = case.row.measured_s or math.nan, float(answer.seconds)
    return _about(case.row) | {
        "predicted_s": predicted,
        "error": (predicted - measured) / measured,
        "group": case.group,
        "kernel": case.kernel.name,
        "tiling": tiling_dict(case.tiling) if case.tiling is not None else None,
        "bound_by": answer.bound_by,
        "counted": case.row.quality != NOT_COUNTED,
        "skipped": None,
    }


def _skipped(entry: Row | Refused, reason: str) -> Json:
    unknown = dict.fromkeys(("predicted_s", "error", "group", "kernel", "tiling", "bound_by"))
    return _about(entry) | unknown | {"counted": False, "skipped": reason}


def _about(entry: Row | Refused) -> Json:
    """What a row says of itself."""
    row = Row(id=entry.id or "", value=1.0) if isinstance(entry, Refused) else entry
    return {
        "id": entry.id,
        "chip": row.catalog_chip or row.chip,
        "op": row.op or None,
        "category": row.category or None,
        "quality": row.quality,
        "core_validation": row.core_validation,
        "measured_s": row.measured_s,
    }
