"""The processes that a sweep starts on this machine: their rows as they come, and what happens when one of them ends early."""

import json
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from queue import Empty, Queue
from threading import Thread
from typing import IO, Any, NamedTuple

from tiling_search.sweep.together import GONE

INTERRUPTED = 130
LOOK_S, GRACE_S = 0.2, 1.0
LAST_LINES, LONGEST_LINE = 5, 200
LATE = {GONE, -signal.SIGABRT}
"""How a process ends that lost another one."""


class WorkerError(Exception):
    """A worker ended before its work was done; the message says which and how."""


class _Worker(NamedTuple):
    process: "subprocess.Popen[str]"
    errors: IO[str]


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def rows_of(commands: Sequence[Sequence[str]], stop: Callable[[], bool]) -> Iterator[dict[str, Any]]:
    """Run the commands side by side and yield what they write to stdout, a JSON object a line, as it comes.

    ``stop`` is asked now and then: once it says so, the workers get Ctrl-C. They are in sessions of their own, so that Ctrl-C
    on the terminal reaches them once, through here. They all have ended when this ends, however it does.

    Raises:
      WorkerError: one of them failed or was killed; the others were killed, too. A store takes no harm from that.
    """
    workers = [_start(command) for command in commands]
    queue: Queue[str | None] = Queue()
    readers = [Thread(target=_read, args=(worker, queue)) for worker in workers]
    for reader in readers:
        reader.start()
    try:
        running, told = len(workers), False
        while running:
            if stop() and not told:
                told = True
                for worker in workers:
                    worker.process.send_signal(signal.SIGINT)
            try:
                line = queue.get(timeout=LOOK_S)
            except Empty:
                continue
            if line is not None:
                yield json.loads(line)
                continue
            running -= 1
            _check(workers)
    finally:
        for worker in workers:
            worker.process.kill()
        for worker, reader in zip(workers, readers, strict=True):
            reader.join()
            worker.errors.close()


def _start(command: Sequence[str]) -> _Worker:
    errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 (it is closed with the worker)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True)
    return _Worker(process, errors)


def _read(worker: _Worker, queue: "Queue[str | None]") -> None:
    assert worker.process.stdout
    with worker.process.stdout as stdout:
        for line in stdout:
            if line.endswith("\n"):  # a worker that is killed may leave half a line
                queue.put(line)
    worker.process.wait()
    queue.put(None)


def _check(workers: Sequence[_Worker]) -> None:
    """Raise if a worker failed: name the one that began, not one that only lost it."""
    if all(worker.process.poll() in (None, 0, INTERRUPTED) for worker in workers):
        return
    time.sleep(GRACE_S)
    codes = [worker.process.poll() for worker in workers]
    failed = [place for place, code in enumerate(codes) if code not in (None, 0, INTERRUPTED)]
    first = min(failed, key=lambda place: codes[place] in LATE)
    raise WorkerError(f"process {first} of {len(workers)} {_how(codes[first] or 0, workers[first].errors)}")


def _how(code: int, errors: IO[str]) -> str:
    if code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    errors.seek(0)
    said = errors.read().splitlines()[-LAST_LINES:]
    return f"ended with exit status {code}" + "".join(f"\n  {line[:LONGEST_LINE]}" for line in said)
