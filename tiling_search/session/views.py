"""What the session's commands say, as dictionaries, and how a terminal shows them."""

from collections.abc import Sequence

import numpy as np

from tiling_search.jsonfile import Json
from tiling_search.render import Page, assignments, seconds_text
from tiling_search.result import tiling_dict
from tiling_search.session.loop import summary
from tiling_search.session.session import Session


def asked_dict(session: Session, places: Sequence[int]) -> list[Json]:
    """The tilings at ``places``: what the model says of each, and what to expect after what was told."""
    corrected = session.corrected()
    return [
        {
            "place": place,
            "tiling": tiling_dict(session.tilings[place]),
            "model_s": session.model_s[place],
            "expected_s": float(np.exp(corrected.mean[place])),
        }
        for place in places
    ]


def status_dict(session: Session) -> Json:
    """How far a session is, and how far off the model was."""
    times, told = session.times(), {one.place for one in session.told}
    ratios = [float(np.median(seconds)) / session.model_s[place] for place, seconds in times.items()]
    failures = [one for one in session.told if one.seconds is None]
    return {
        "workload": session.name,
        "chip": session.key["chip"],
        "pool": len(session.tilings),
        "asked": len(set(session.asked)),
        "waiting": [place for place in dict.fromkeys(session.asked) if place not in told],
        "measured": len(times),
        "measurements": len(session.told),
        "failures": {
            kind: sum(one.invalidity == kind for one in failures) for kind in sorted({f.invalidity for f in failures})
        },
        "measured_over_model": {"least": min(ratios), "median": float(np.median(ratios)), "most": max(ratios)}
        if ratios
        else None,
        "best": best_dict(session),
    }


def best_dict(session: Session, count: int = 1) -> list[Json]:
    """The fastest measured, with the median's interval where there is more than one time."""
    medians = {place: float(np.median(seconds)) for place, seconds in session.times().items()}
    chosen = sorted(medians, key=lambda place: (medians[place], place))[:count]
    return [
        {
            "place": one.place,
            "tiling": tiling_dict(session.tilings[one.place]),
            "median_s": one.median_s,
            "low_s": one.low_s if one.times > 1 else None,
            "high_s": one.high_s if one.times > 1 else None,
            "times": one.times,
            "model_s": session.model_s[one.place],
        }
        for one in summary(session, chosen)
    ]


def show_asked(page: Page, rows: Sequence[Json]) -> None:
    """A line a tiling."""
    columns = ["place", "expected", "by the model", "tiling<"]
    page.table(columns, [[str(r["place"]), seconds_text(r["expected_s"]), seconds_text(r["model_s"]), _short(r)] for r in rows])


def show_best(page: Page, rows: Sequence[Json]) -> None:
    """A line a tiling, fastest first."""
    table = []
    for row in rows:
        interval = f"{seconds_text(row['low_s'])} to {seconds_text(row['high_s'])}" if row["times"] > 1 else "measured once"
        place, model = str(row["place"]), seconds_text(row["model_s"])
        table.append([place, seconds_text(row["median_s"]), interval, str(row["times"]), model, _short(row)])
    page.table(["place", "median", "95 %", "times", "by the model", "tiling<"], table)


def show_status(page: Page, data: Json) -> None:
    """A few lines."""
    page.line(f"{data['workload']} on {data['chip']}", "bold")
    failures = ", ".join(f"{count} {kind}" for kind, count in data["failures"].items()) or "none"
    ratios = data["measured_over_model"]
    about = f"{ratios['median']:.3f} ({ratios['least']:.3f} to {ratios['most']:.3f})" if ratios else "nothing measured yet"
    page.fields(
        {
            "pool": f"{data['pool']:,} tilings, {data['asked']} asked for, {data['measured']} timed",
            "failures": failures,
            "waiting for": ", ".join(map(str, data["waiting"])) or "nothing",
            "measured / model": about,
        }
    )
    if data["best"]:
        show_best(page, data["best"])


def _short(row: Json) -> str:
    return assignments(row["tiling"])
