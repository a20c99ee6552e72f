"""Several processes as one computation: join ``jax.distributed``, and leave it in a way that the others and people notice.

jax's settings are those of the whole process: only the command calls this. A process that joined must not simply fail, since
jax then waits for the others, who wait for it.
"""

import os
import socket
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, NoReturn

import click

GONE = 75
"""Exit status of a process whose computation lost another one (EX_TEMPFAIL: try again)."""
JOIN_S, SILENCE_S, LEAVE_S = 120, 20, 60
"""How long to wait for the others at the start, for a sign of life of one that is silent, and for them at the end."""
PAUSE_S = 0.2
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


@contextmanager
def joined(coordinator: str, processes: int, process_id: int) -> Iterator[IO[str]]:
    """Within the block, ``jax.devices()`` are those of all processes. Whatever goes wrong in it ends this process.

    The block is given the stdout to write to: what the collectives' library prints goes to stderr meanwhile.

    Call it before jax computes anything. Where another process ended, this one says so and ends with exit status ``GONE``, at
    once if its connection closed, else after ``SILENCE_S``: then jax itself ends it with SIGABRT and a message.

    Raises:
      click.UsageError: process 0 was not there within ``JOIN_S``. If another one is not, jax ends this process with SIGABRT.
    """
    import jax  # noqa: PLC0415 — the command's help must not wait for it

    click.echo(f"Process {process_id} waits up to {JOIN_S} s for {processes} processes to meet at {coordinator}", err=True)
    if process_id:
        _wait_for(coordinator)
    jax.distributed.initialize(
        coordinator,
        processes,
        process_id,
        coordinator_bind_address=coordinator if coordinator.rpartition(":")[0] in LOOPBACK else None,
        initialization_timeout=JOIN_S,
        heartbeat_timeout_seconds=SILENCE_S,
        shutdown_timeout_seconds=LEAVE_S,
    )
    try:
        with _native_output_to_stderr() as stdout:
            yield stdout
    except ConnectionError as error:
        _leave(
            f"Error: process {process_id} lost another process of this sweep ({error}). What is in the store stays; start "
            "all processes again to go on from there",
            GONE,
        )
    except click.ClickException as error:
        error.show()
        _leave("", error.exit_code)
    except (click.exceptions.Exit, SystemExit):
        raise
    except BaseException:
        _leave(traceback.format_exc(), 1)


def _wait_for(coordinator: str, patience_s: float = JOIN_S) -> None:
    """Until somebody listens there. jax would end the process with SIGABRT where nobody does."""
    host, _, port = coordinator.rpartition(":")
    started = time.monotonic()
    while True:
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=PAUSE_S).close()
            return
        except OSError as error:
            if time.monotonic() - started > patience_s:
                raise click.UsageError(
                    f"nobody listens at {coordinator} ({error}): start process 0 on that machine, with the same --coordinator"
                ) from error
        time.sleep(PAUSE_S)


@contextmanager
def _native_output_to_stderr() -> Iterator[IO[str]]:
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with os.fdopen(os.dup(kept), "w", encoding="utf-8") as stdout:
            yield stdout
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def _leave(message: str, status: int) -> NoReturn:
    """End without jax's farewell, for which it would wait in vain."""
    if message:
        click.echo(message, err=True)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
