"""A store as JSON that Kernel Tuner and its kin read (schema T4, version 1.0.0), and such files back into a store.

Times in ``measurements`` and ``runtimes`` are milliseconds, as theirs are, beside the exact seconds; what the schema has no
word for is under ``metadata``, so that nothing is lost on the way out and back.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from math import isfinite
from statistics import fmean
from typing import Any

from tiling_search.jsonfile import Json
from tiling_search.store.key import Key
from tiling_search.store.record import CORRECT, Record, now
from tiling_search.store.store import Search, Store

SCHEMA_VERSION = "1.0.0"
OURS = "tiling_search"
COMPILE_TIMES = ("compilation_time", "compilation")
"""The schema's name, and the one that published files use (Kernel Tuner 1.5.0 writes it)."""
UNIT_S = {"s": 1.0, "seconds": 1.0, "ms": 1e-3, "milliseconds": 1e-3, "us": 1e-6, "microseconds": 1e-6}
FAILED = 1e20
"""Times from here on stand for a failure in files of Kernel Tuner's kin."""


def export(store: Store) -> Json:
    """Everything in the store as one T4 document."""
    keys = store.keys()
    return {
        "schema_version": SCHEMA_VERSION,
        "results": [_item(key.digest, record) for key in keys for record in store.records(key)],
        "metadata": {
            "timeunit": "milliseconds",
            OURS: {
                "keys": {key.digest: asdict(key) for key in keys},
                "searches": [{"key": key.digest} | search._asdict() for key in keys for search in store.searches(key)],
            },
        },
    }


def load(store: Store, document: Any, *, foreign: Key | None = None, origin: str = "") -> int:
    """Put a T4 document into the store; returns how many rows are new. Once more adds nothing.

    Args:
      document: as :func:`export` or another tuner wrote it.
      foreign: the key of results that name none, as those of another tuner.
      origin: what to call the file.

    Raises:
      ValueError: no T4 document, or a result that cannot be read; nothing is added then.
    """
    if not isinstance(document, dict) or not isinstance(document.get("results"), list):
        raise ValueError('no T4 document: it has no list "results"')
    metadata = document.get("metadata") or {}
    unit_s = UNIT_S.get(str(metadata.get("timeunit", "ms")), 1e-3)
    keys = {digest: Key(**values) for digest, values in metadata.get(OURS, {}).get("keys", {}).items()}
    if wrong := [digest for digest, key in keys.items() if digest != key.digest]:
        raise ValueError(f"key {wrong[0]} was changed after it was written: its content does not hash to its name")
    records: dict[Key, list[Record]] = {}
    for place, item in enumerate(document["results"]):
        key = _key_of(item, place, keys, foreign)
        records.setdefault(key, []).append(_record(item, place, unit_s, key, origin))
    searches: dict[Key, list[Search]] = {}
    for entry in metadata.get(OURS, {}).get("searches", []):
        values = {name: entry[name] for name in Search._fields}
        searches.setdefault(keys[entry["key"]], []).append(Search(**values))
    return sum(store.add(key, records.get(key, []), searches.get(key, [])) for key in {**records, **searches, **_all(keys)})


def _all(keys: Mapping[str, Key]) -> dict[Key, None]:
    return dict.fromkeys(keys.values())


def _item(digest: str, record: Record) -> Json:
    times: Json = {"runtimes": [1e3 * seconds for seconds in record.times]}
    if record.compile_s is not None:
        times["compilation_time"] = 1e3 * record.compile_s
    measurements = list(_measurements(record))
    return {
        "timestamp": record.at,
        "configuration": dict(record.configuration),
        "objectives": ["time"],
        "times": times,
        "invalidity": record.invalidity,
        "correctness": float(record.invalidity == CORRECT),
        "measurements": measurements,
        OURS: {"key": digest, "uid": record.uid, "kind": record.kind, "reason": record.reason, "origin": record.origin}
        | {"compile_s": record.compile_s},
    }


def _measurements(record: Record) -> Iterator[Json]:
    if record.seconds is not None:
        yield {"name": "time", "value": 1e3 * record.seconds, "unit": "ms"}
        yield {"name": "seconds", "value": record.seconds, "unit": "s"}
    if record.times:
        yield {"name": "times", "value": list(record.times), "unit": "s"}


def _key_of(item: Any, place: int, keys: Mapping[str, Key], foreign: Key | None) -> Key:
    if not isinstance(item, dict) or not isinstance(item.get("configuration"), dict) or not item["configuration"]:
        raise ValueError(f"result {place} has no configuration")
    if OURS in item:
        if item[OURS].get("key") not in keys:
            raise ValueError(f"result {place} names key {item[OURS].get('key')!r}, which metadata does not describe")
        return keys[item[OURS]["key"]]
    if foreign is None:
        raise ValueError(f"result {place} does not say which workload and chip it is of: give the workload and --chip")
    return foreign


def _record(item: Json, place: int, unit_s: float, key: Key, origin: str) -> Record:
    own = item.get(OURS, {})
    times = item.get("times") or {}
    measured = {entry.get("name"): entry for entry in item.get("measurements", [])}
    repeats = [value * unit_s for value in times.get("runtimes", []) if isinstance(value, int | float)]
    if "times" in measured:
        repeats = measured["times"]["value"]
    seconds = _seconds(item, measured, unit_s, repeats)
    invalidity = item.get("invalidity", CORRECT)
    if invalidity == CORRECT and seconds is None:
        invalidity = "runtime"
    compile_time = next((times[name] for name in COMPILE_TIMES if isinstance(times.get(name), int | float)), None)
    try:
        return Record(
            configuration=item["configuration"],
            kind=own.get("kind", "measured"),
            seconds=seconds if invalidity == CORRECT else None,
            invalidity=invalidity,
            reason=own.get("reason", ""),
            times=tuple(repeats),
            compile_s=own.get("compile_s", None if compile_time is None else compile_time * unit_s),
            origin=own.get("origin", origin),
            at=str(item.get("timestamp", now())),
            uid=own.get("uid") or _foreign_uid(item, place, key),
        )
    except ValueError as error:
        raise ValueError(f"result {place}: {error}") from error


def _seconds(item: Json, measured: Mapping[str, Json], unit_s: float, repeats: list[float]) -> float | None:
    """The exact seconds where the file has them, else the first objective, else the mean of the repeats."""
    if "seconds" in measured:
        return measured["seconds"]["value"]
    objective = next(iter(item.get("objectives", [])), "time")
    entry = measured.get(objective) if isinstance(objective, str) else None
    if entry is None:
        return fmean(repeats) if repeats else None
    value = entry.get("value")
    if not isinstance(value, int | float) or not isfinite(value) or value >= FAILED:
        return None
    return value * UNIT_S.get(str(entry.get("unit", "")), unit_s)


def _foreign_uid(item: Json, place: int, key: Key) -> str:
    """One and the same for one and the same result of a file, so that a second import adds nothing."""
    return "t4-" + Record(configuration={"item": repr(sorted(item.items())), "place": place}, seconds=0.0).uid_under(key.digest)
