"""``Store``: results in, results out. Every call that writes is one transaction."""

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np

from tiling_search.jsonfile import Json
from tiling_search.store.database import StoreError, connect, transaction
from tiling_search.store.key import Key, canonical
from tiling_search.store.record import CORRECT, Kind, Record, now

KEY_FIELDS = tuple(item.name for item in fields(Key))
RECORD_FIELDS = ("uid", "kind", "configuration", "seconds", "invalidity", "reason", "times", "compile_s", "origin", "at")


class Search(NamedTuple):
    """A search that ended: whether it proved its optimum, and what it found, as ``tune --json`` says it."""

    exact: bool
    outcome: Json
    at: str = ""
    uid: str = ""


class Fastest(NamedTuple):
    """The fastest configuration of a key: seconds (the median, where it was measured more than once) and how many times."""

    configuration: dict[str, Any]
    seconds: float
    times: int


class Store:
    """A store at ``path``; a context manager that closes it. For one thread: others and other processes open their own.

    Raises:
      StoreError: see :func:`tiling_search.store.database.connect`.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._connection = connect(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def add(self, key: Key, records: Iterable[Record], searches: Iterable[Search] = ()) -> int:
        """Add what is not there yet, all of it or nothing; returns how many rows are new."""
        with transaction(self._connection) as connection:
            problem = self._problem(connection, key)
            added = [self._insert(connection, problem, key.digest, record) for record in records]
            added += [self._insert_search(connection, problem, key.digest, search) for search in searches]
        return sum(added)

    def merge(self, other: Path | str) -> int:
        """Add everything of another store; returns how many rows are new. Both keep all they have.

        Raises:
          StoreError: ``other`` is not there or no store.
        """
        if not Path(other).is_file():
            raise StoreError(f"{other} is not there: give the file of a store")
        with Store(other) as theirs:
            return sum(self.add(key, theirs.records(key), theirs.searches(key)) for key in theirs.keys())  # noqa: SIM118

    def keys(self) -> list[Key]:
        """All keys, oldest first."""
        rows = self._connection.execute(f"SELECT {', '.join(KEY_FIELDS)} FROM problem ORDER BY id")
        return [Key(**dict(row)) for row in rows]

    def records(self, key: Key, kind: Kind | None = None) -> list[Record]:
        """All results of ``key`` (or of one kind), oldest first."""
        rows = self._connection.execute(
            f"SELECT {', '.join(f'result.{name}' for name in RECORD_FIELDS)} FROM result JOIN problem ON problem.id = problem "
            "WHERE digest = ? AND (? IS NULL OR kind = ?) ORDER BY at, uid",
            (key.digest, kind, kind),
        )
        return [_record(row) for row in rows]

    def searches(self, key: Key) -> list[Search]:
        """The searches of ``key``, oldest first."""
        rows = self._connection.execute(
            "SELECT exact, outcome, at, uid FROM search JOIN problem ON problem.id = problem WHERE digest = ? ORDER BY at, uid",
            (key.digest,),
        )
        return [Search(bool(row["exact"]), json.loads(row["outcome"]), row["at"], row["uid"]) for row in rows]

    def fastest(self, key: Key) -> Fastest | None:
        """The fastest that the model found for ``key``, once a search has looked at all of its space."""
        proven = any(search.exact for search in self.searches(key))
        records = self.records(key, "model") if proven else []
        return _fastest([(one.configuration, one.seconds) for one in records if one.seconds is not None])

    def fastest_measured(self, key: Key) -> Fastest | None:
        """The configuration with the least median of measured seconds, whatever the space and the model that led there.

        One that gave a wrong answer even once is out.
        """
        rows = self._connection.execute(
            "SELECT configuration, seconds, invalidity FROM result JOIN problem ON problem.id = problem "
            "WHERE kind = 'measured' AND workload = ? AND dtype = ? AND chip_hash = ? AND kernel = ?",
            (key.workload, key.dtype, key.chip_hash, key.kernel),
        ).fetchall()
        wrong = {row["configuration"] for row in rows if row["invalidity"] == "correctness"}
        right = [row for row in rows if row["invalidity"] == CORRECT and row["configuration"] not in wrong]
        return _fastest([(json.loads(row["configuration"]), row["seconds"]) for row in right])

    def why_missed(self, key: Key) -> str:
        """Which stored key comes closest, and in which fields it differs; for the message of a miss."""
        keys = self.keys()
        if not keys:
            return f"{self.path} is empty"
        near = min(keys, key=lambda one: len(_differing(one, key)))
        names = _differing(near, key)
        if not names:
            return f"{self.path} has results of this very key, and no search that looked at all of the space"
        return "the closest key differs in " + "; ".join(f"{name} ({getattr(near, name)} there)" for name in names)

    def counts(self) -> Json:
        """Rows by kind and invalidity, keys and searches."""
        count = "SELECT count(*) FROM"
        kinds = self._connection.execute("SELECT kind, invalidity, count(*) AS n FROM result GROUP BY kind, invalidity")
        return {
            "keys": self._connection.execute(f"{count} problem").fetchone()[0],
            "searches": self._connection.execute(f"{count} search").fetchone()[0],
            "results": {f"{row['kind']}, {row['invalidity']}": row["n"] for row in kinds},
        }

    def check(self) -> None:
        """Raise StoreError unless the file is whole: SQLite's own check of pages, indices and references."""
        found = [row[0] for row in self._connection.execute("PRAGMA integrity_check")]
        broken = self._connection.execute("PRAGMA foreign_key_check").fetchall()
        if found != ["ok"] or broken:
            raise StoreError(f"{self.path} is damaged: {'; '.join(found[:3])}; export what can be read, and start a new one")

    def _problem(self, connection: sqlite3.Connection, key: Key) -> int:
        values = asdict(key) | {"digest": key.digest}
        names = ", ".join(values)
        connection.execute(f"INSERT OR IGNORE INTO problem ({names}) VALUES ({_marks(values)})", tuple(values.values()))
        return connection.execute("SELECT id FROM problem WHERE digest = ?", (key.digest,)).fetchone()[0]

    def _insert(self, connection: sqlite3.Connection, problem: int, digest: str, record: Record) -> int:
        values = {name: getattr(record, name) for name in RECORD_FIELDS} | {
            "problem": problem,
            "uid": record.uid_under(digest),
            "configuration": canonical(dict(record.configuration)),
            "times": canonical(list(record.times)),
        }
        statement = f"INSERT OR IGNORE INTO result ({', '.join(values)}) VALUES ({_marks(values)})"
        return connection.execute(statement, tuple(values.values())).rowcount

    def _insert_search(self, connection: sqlite3.Connection, problem: int, digest: str, search: Search) -> int:
        outcome = canonical(search.outcome)
        uid = search.uid or sha256(canonical([digest, search.exact, outcome]).encode()).hexdigest()[:32]
        values = (uid, problem, int(search.exact), outcome, search.at or now())
        return connection.execute("INSERT OR IGNORE INTO search VALUES (?, ?, ?, ?, ?)", values).rowcount


def _marks(values: Mapping[str, object]) -> str:
    return ", ".join("?" * len(values))


def _record(row: sqlite3.Row) -> Record:
    values = dict(row) | {"configuration": json.loads(row["configuration"]), "times": tuple(json.loads(row["times"]))}
    return Record(**values)


def _fastest(found: Sequence[tuple[Mapping[str, Any], float]]) -> Fastest | None:
    """Of configurations with the same median the one that comes first in canonical text: the same on every machine."""
    times: dict[str, list[float]] = {}
    for configuration, seconds in found:
        times.setdefault(canonical(dict(configuration)), []).append(seconds)
    if not times:
        return None
    text = min(times, key=lambda one: (float(np.median(times[one])), one))
    return Fastest(json.loads(text), float(np.median(times[text])), len(times[text]))


def _differing(one: Key, other: Key) -> list[str]:
    return [name for name in KEY_FIELDS if name != "chip" and getattr(one, name) != getattr(other, name)]
