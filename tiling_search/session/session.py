"""``Session``: what may be measured, what was asked, what was told. A value; its file is written at one stroke.

Every number that ``ask`` and ``best`` give follows from these three, so that a session goes on where it was after any end.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ascend_jax.tiling.tiling import Tiling
from tiling_search.jsonfile import Json, dumps, write_atomically
from tiling_search.result import tiling_dict
from tiling_search.session.correction import Corrected, Correction, expected_improvement, features
from tiling_search.store.record import CORRECT, INVALIDITIES, now

SCHEMA_VERSION = 1
FIELDS = tuple(item.name for item in fields(Tiling))


class Told(NamedTuple):
    """One measurement of the tiling at ``place`` in the pool: seconds, or what went wrong."""

    place: int
    seconds: float | None
    invalidity: str = CORRECT
    reason: str = ""
    at: str = ""
    uid: str = ""


@dataclass(frozen=True, kw_only=True)
class Session:
    """A search by measurement.

    Attributes:
      key: what it is about, as :class:`tiling_search.store.key.Key` by field.
      name: the workload's, for people.
      tilings: the pool, fastest first by the model; ``model_s`` are its seconds.
      asked: places in the pool that were asked for, in order.
      told: measurements, in order.
      seed: of the bootstrap's draws.
    """

    key: Json
    name: str
    tilings: tuple[Tiling, ...]
    model_s: tuple[float, ...]
    asked: tuple[int, ...] = ()
    told: tuple[Told, ...] = ()
    seed: int = 0

    def ask(self, count: int) -> tuple["Session", tuple[int, ...]]:
        """The session with ``count`` more tilings asked for, and their places: what was asked for and never told comes first.

        Each of the others is the one with the largest expected improvement, where those before it are taken to turn out as
        expected. Fewer come back where the pool ends.
        """
        known = {one.place for one in self.told}
        waiting = [place for place in dict.fromkeys(self.asked) if place not in known][:count]
        fresh = self._most_promising(count - len(waiting), known | set(waiting), waiting)
        return replace(self, asked=(*self.asked, *fresh)), (*waiting, *fresh)

    def tell(self, told: Sequence[Told]) -> "Session":
        """The session with measurements added."""
        return replace(self, told=(*self.told, *(one if one.at else one._replace(at=now()) for one in told)))

    def place_of(self, tiling: Tiling) -> int:
        """Where a tiling is in the pool.

        Raises:
          ValueError: it is not there.
        """
        try:
            return self.tilings.index(tiling)
        except ValueError:
            raise ValueError(f"{tiling_dict(tiling)} is none of the {len(self.tilings)} tilings of this session") from None

    def times(self) -> dict[int, list[float]]:
        """Seconds by place, of tilings that were measured and never gave a wrong answer."""
        wrong = {one.place for one in self.told if one.invalidity == "correctness"}
        found: dict[int, list[float]] = {}
        for one in self.told:
            if one.seconds is not None and one.place not in wrong:
                found.setdefault(one.place, []).append(one.seconds)
        return found

    def failed(self) -> list[int]:
        """Places of tilings that failed and were never timed, or gave a wrong answer."""
        times = self.times()
        return [place for place in dict.fromkeys(one.place for one in self.told) if place not in times]

    def best(self) -> int | None:
        """The place with the least median of measured seconds; of equals the one that the model prefers."""
        medians = {place: float(np.median(seconds)) for place, seconds in self.times().items()}
        return min(medians, key=lambda place: (medians[place], place)) if medians else None

    def corrected(self) -> Corrected:
        """Logarithms of seconds of the whole pool, after all that was told."""
        return self._correct([], [])

    def _most_promising(self, count: int, taken: set[int], believed: Sequence[int]) -> tuple[int, ...]:
        fresh: list[int] = []
        while len(fresh) < count and len(taken) < len(self.tilings):
            extra = [*believed, *fresh]
            expected = self.corrected().mean[extra] if extra else []
            place = self._next(self._correct(extra, expected), taken, extra)
            fresh.append(place)
            taken = taken | {place}
        return tuple(fresh)

    def _next(self, corrected: Corrected, taken: set[int], believed: Sequence[int]) -> int:
        free = np.array([place for place in range(len(self.tilings)) if place not in taken])
        seen = [*self.times(), *believed]
        if not seen:
            return int(free[0])  # the model's first choice
        gain = expected_improvement(corrected, float(corrected.mean[seen].min()))[free]
        return int(free[np.lexsort((corrected.mean[free], -gain))[0]])

    def _correct(self, places: Sequence[int], logs: Sequence[float] | np.ndarray) -> Corrected:
        medians = {place: float(np.log(np.median(seconds))) for place, seconds in self.times().items()}
        learner = Correction(features(self.tilings), np.log(np.asarray(self.model_s)))
        return learner.fit([*medians, *places], [*medians.values(), *logs], self.failed())


def load_session(path: Path) -> Session:
    """The session in a file.

    Raises:
      OSError: it cannot be read.
      ValueError: it is no session, or of a later version.
    """
    try:
        data = json.loads(path.read_text("utf-8"))
        if data["schema_version"] > SCHEMA_VERSION:
            raise ValueError(f"version {data['schema_version']}, and this package reads {SCHEMA_VERSION}")
        return Session(
            key=data["key"],
            name=data["name"],
            tilings=tuple(Tiling(**dict(zip(data["fields"], row, strict=True))) for row in data["tilings"]),
            model_s=tuple(data["model_s"]),
            asked=tuple(data["asked"]),
            told=tuple(Told(**one) for one in data["told"]),
            seed=data["seed"],
        )
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is no session that can be read ({error}): begin another") from error


def save_session(path: Path, session: Session) -> None:
    """Write a session at one stroke: whoever is killed leaves the one before or the one after."""
    data: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "fields": FIELDS} | asdict(session)
    data["tilings"] = [list(tiling_dict(one).values()) for one in session.tilings]
    data["told"] = [one._asdict() for one in session.told]
    write_atomically(path, dumps(data))


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep other processes that ask for this lock from changing the session until the block ends."""
    try:
        import fcntl  # noqa: PLC0415 — not on Windows, where two at once are the user's to avoid
    except ImportError:
        yield
        return
    with path.with_name(f".{path.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def told_from(session: Session, rows: Sequence[Json]) -> list[Told]:
    """Rows as people write them: ``place`` or the tiling's fields, and ``seconds`` or ``invalidity`` (or ``error``).

    Raises:
      ValueError: a row that names no tiling of the session, or has neither time nor failure; with its number.
    """
    told = []
    for number, row in enumerate(rows, 1):
        try:
            told.append(_told(session, {name: value for name, value in row.items() if value not in ("", None)}))
        except (ValueError, TypeError, AttributeError) as error:
            raise ValueError(f"row {number}: {error}") from error
    return told


def _told(session: Session, row: Json) -> Told:
    if "place" in row:
        place = _whole(row, "place")
        if not 0 <= place < len(session.tilings):
            raise ValueError(f"place {place} is not in the pool of {len(session.tilings)}")
    else:
        place = session.place_of(_tiling(row.get("tiling", row)))
    invalidity, reason = row.get("invalidity", CORRECT), str(row.get("reason", row.get("error", "")))
    if invalidity == CORRECT and "seconds" not in row:
        if not reason:
            raise ValueError("no seconds, and no invalidity or error that says why")
        invalidity = "runtime"
    if invalidity not in INVALIDITIES:
        raise ValueError(f"invalidity {invalidity!r} must be one of {', '.join(INVALIDITIES)}")
    seconds = _number(row, "seconds") if invalidity == CORRECT else None
    if seconds is not None and not 0 < seconds < np.inf:
        raise ValueError(f"seconds={seconds} must be a finite number above zero")
    return Told(place, seconds, invalidity, reason, str(row.get("at", "")), str(row.get("uid", "")))


def _tiling(row: Json) -> Tiling:
    values = {name: _whole(row, name) for name in FIELDS if name in row}
    if missing := {"block_q", "block_kv"} - set(values):
        raise ValueError(f"{' and '.join(sorted(missing))} missing: give the place, or the tiling's fields")
    return Tiling(**values)


def _number(row: Json, name: str) -> float:
    try:
        return float(row[name])
    except (ValueError, TypeError):
        raise ValueError(f"{name}={row[name]!r} must be a number") from None


def _whole(row: Json, name: str) -> int:
    value = _number(row, name)
    if not value.is_integer():
        raise ValueError(f"{name}={row[name]!r} must be a whole number")
    return int(value)
