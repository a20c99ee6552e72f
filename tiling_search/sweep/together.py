"""Several processes as one computation: join ``jax.distributed``, and leave it in a way that the others and people notice.

jax's settings are those of the whole process: only the command calls this. A process that joined must not simply fail, since
jax then waits for the others, who wait for it.
"""

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, NoReturn

import click

GONE = 75
"""Exit status of a process whose computation lost another one (EX_TEMPFAIL: try again)."""
JOIN_S, SILENCE_S, LEAVE_S = 120, 20, 60
"""How long to wait for the others at the start, for a sign of life of one that is silent, and for them at the end."""
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


@contextmanager
def joined(coordinator: str, processes: int, process_id: int) -> Iterator[IO[str]]:
    """Within the block, ``jax.devices()`` are those of all processes. Whatever goes wrong in it ends this process.

    The block is given the stdout to write to: what the collectives' library prints goes to stderr meanwhile.

    Call it before jax computes anything. Where another process ended, this one says so and ends with exit status ``GONE``, at
    once if its connection closed, else after ``SILENCE_S``: then jax itself ends it with SIGABRT and a message.

    Raises:
      click.UsageError: not all processes came within ``JOIN_S``.
    """
    import jax  # noqa: PLC0415 — the command's help must not wait for it

    bind = coordinator if coordinator.rpartition(":")[0] in LOOPBACK else None
    try:
        jax.distributed.initialize(
            coordinator,
            processes,
            process_id,
            coordinator_bind_address=bind,
            initialization_timeout=JOIN_S,
            heartbeat_timeout_seconds=SILENCE_S,
            shutdown_timeout_seconds=LEAVE_S,
        )
    except RuntimeError as error:
        raise click.UsageError(
            f"no computation of {processes} processes came about at {coordinator} ({str(error).splitlines()[0]}): process 0 "
            f"must run on that machine, and all within {JOIN_S} s, with the same --coordinator and --processes"
        ) from error
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
