"""The store's file: SQLite with a write-ahead log, so that several processes share it and none can leave half a row."""

import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

VERSION = 1
"""Of the tables below; in the file as ``user_version``."""
PATIENCE_S = 60.0
"""How long to go on asking for a file that others are writing to."""
LONGEST_PAUSE_S = 0.02
TABLES = """
CREATE TABLE problem (
    id INTEGER PRIMARY KEY,
    digest TEXT NOT NULL UNIQUE,
    workload TEXT NOT NULL,
    dtype TEXT NOT NULL,
    chip TEXT NOT NULL,
    chip_hash TEXT NOT NULL,
    kernel TEXT NOT NULL,
    overlap TEXT NOT NULL,
    space TEXT NOT NULL,
    model TEXT NOT NULL
);
CREATE TABLE result (
    uid TEXT PRIMARY KEY,
    problem INTEGER NOT NULL REFERENCES problem (id),
    kind TEXT NOT NULL CHECK (kind IN ('model', 'measured')),
    configuration TEXT NOT NULL,
    seconds REAL,
    invalidity TEXT NOT NULL CHECK (invalidity IN ('timeout', 'compile', 'runtime', 'correctness', 'constraints', 'correct')),
    reason TEXT NOT NULL,
    times TEXT NOT NULL,
    compile_s REAL,
    origin TEXT NOT NULL,
    at TEXT NOT NULL,
    CHECK ((invalidity = 'correct') = (seconds IS NOT NULL))
) WITHOUT ROWID;
CREATE INDEX result_fastest ON result (problem, kind, seconds);
CREATE TABLE search (
    uid TEXT PRIMARY KEY,
    problem INTEGER NOT NULL REFERENCES problem (id),
    exact INTEGER NOT NULL CHECK (exact IN (0, 1)),
    outcome TEXT NOT NULL,
    at TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX search_of ON search (problem, exact);
"""
T = TypeVar("T")


class StoreError(ValueError):
    """The store cannot be used; the message says the file and the remedy."""


def connect(path: Path) -> sqlite3.Connection:
    """A connection to the store at ``path``, which is made if it is not there. Rows come back as ``sqlite3.Row``.

    A commit reaches the disk before it returns (``synchronous=FULL``): what was told is there after a power cut, too.

    Raises:
      StoreError: the file is no store, or one of a later version, or cannot be made or written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(path, timeout=0.0, isolation_level=None)
    except (OSError, sqlite3.OperationalError) as error:
        raise StoreError(f"{path} cannot be opened ({error}): name another with --store or TILING_SEARCH_STORE") from error
    connection.row_factory = sqlite3.Row
    try:
        patiently(lambda: connection.execute("PRAGMA journal_mode=WAL").fetchone())
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA foreign_keys=ON")
        _make_tables(connection, path)
    except sqlite3.DatabaseError as error:
        connection.close()
        raise StoreError(f"{path} is no store that can be written ({error}): move it away, or name another") from error
    except StoreError:
        connection.close()
        raise
    return connection


def _make_tables(connection: sqlite3.Connection, path: Path) -> None:
    found = connection.execute("PRAGMA user_version").fetchone()[0]
    if found > VERSION:
        raise StoreError(f"{path} has version {found} and this package reads {VERSION}: use a newer package, or another store")
    if found == VERSION:
        return
    with transaction(connection):
        if connection.execute("PRAGMA user_version").fetchone()[0] == VERSION:
            return  # another process was faster
        if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise StoreError(f"{path} is a database of something else: name another store")
        for statement in TABLES.split(";"):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version={VERSION}")


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """All of the block's writing, or none of it; waits while another process writes."""
    patiently(lambda: connection.execute("BEGIN IMMEDIATE"))
    try:
        yield connection
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    patiently(lambda: connection.execute("COMMIT"))


def patiently(attempt: Callable[[], T], patience_s: float = PATIENCE_S) -> T:
    """``attempt`` until the file is free, with growing pauses of random length, so that two do not ask in step.

    Raises:
      sqlite3.OperationalError: it was not free within ``patience_s``, or something else is wrong.
    """
    started, pause_s = time.monotonic(), 0.002
    while True:
        try:
            return attempt()
        except sqlite3.OperationalError as error:
            busy = error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
            if not busy or time.monotonic() - started > patience_s:
                raise
        time.sleep(pause_s * random.uniform(0.5, 1.0))
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
