"""Two writers into one store, killed again and again: run as a program, which prints what it found wrong as JSON.

Each writer adds batches of ``BATCH`` rows, one transaction each, and says on a pipe which batch it has finished. It begins
where the store says that it ended. After each kill, the store must open, be whole, and hold every batch that was told, in
whole; of those that were not told, the one that was under way at most.
"""

import json
import os
import random
import select
import signal
import sys
import time
from pathlib import Path

from tiling_search.store.key import Key
from tiling_search.store.record import Record
from tiling_search.store.store import Store

BATCH = 7
WRITERS = ("one", "two")
TEXTS = {name: name for name in ("dtype", "chip", "chip_hash", "kernel", "overlap", "space", "model")}


def key_of(writer: str) -> Key:
    return Key(workload=json.dumps({"writer": writer}), **TEXTS)


def batch(number: int) -> list[Record]:
    rows = [
        Record(configuration={"batch": number, "row": row}, seconds=1.0 + number, kind="measured") for row in range(BATCH - 1)
    ]
    return [*rows, Record(configuration={"batch": number, "row": BATCH - 1}, invalidity="timeout", reason="late")]


def batches(store: Store, writer: str) -> dict[int, int]:
    """Rows by batch."""
    counts: dict[int, int] = {}
    for record in store.records(key_of(writer)):
        number = int(record.configuration["batch"])
        counts[number] = counts.get(number, 0) + 1
    return counts


def write_for_ever(path: Path, writer: str, told: int) -> None:
    with Store(path) as store:
        number = max(batches(store, writer), default=-1)
        while True:
            number += 1
            store.add(key_of(writer), batch(number))
            os.write(told, f"{number}\n".encode())
            time.sleep(0.003)  # a search computes between two writes; without a pause one writer keeps the other out


def one_round(path: Path, delay_s: float, patient: bool) -> dict[str, list[int]]:
    """Let both write for a while, or until both told something and a while on; kill both, and return what they told."""
    running = {}
    for writer in WRITERS:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                write_for_ever(path, writer, writing)
            finally:
                os._exit(3)
        os.close(writing)
        running[writer] = (child, reading)
    for _, reading in running.values() if patient else ():
        assert select.select([reading], [], [], 60)[0], "a writer told nothing in a minute"
    time.sleep(delay_s)
    told = {}
    for writer, (child, reading) in running.items():
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), f"writer {writer} ended by itself: {status}"
        with os.fdopen(reading, encoding="utf-8") as pipe:
            told[writer] = [int(line) for line in pipe]
    return told


def faults(path: Path, told: dict[str, list[int]]) -> list[str]:
    found = []
    with Store(path) as store:
        store.check()
        for writer in WRITERS:
            counts = batches(store, writer)
            found += [f"{writer}: batch {number} has {count} rows" for number, count in counts.items() if count != BATCH]
            found += [f"{writer}: batch {number} was told and is not there" for number in told[writer] if number not in counts]
            if sorted(counts) != list(range(len(counts))):
                found.append(f"{writer}: batches {sorted(counts)} have gaps")
            if told[writer] and max(counts, default=0) > max(told[writer]) + 1:
                found.append(f"{writer}: more than one batch beyond those told")
    return found


def main(path: Path, rounds: int, seed: int) -> None:
    draw, found, told = random.Random(seed), [], 0
    for number in range(rounds):
        heard = one_round(path, draw.uniform(0.0, 0.06), patient=number % 2 == 1)
        told += sum(map(len, heard.values()))
        found += faults(path, heard)
    print(json.dumps({"faults": found, "told": told}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
