"""The runtime's log, on Python's logging, with the environment variables and the line format of CANN.

Levels: ``ASCEND_GLOBAL_LOG_LEVEL`` is 0 debug, 1 info, 2 warning, 3 error (what it is without a valid value) or 4 off; the
article that calls 3 "INFO" is wrong. ``ASCEND_LOG_PRINT_TO_STDOUT=1``, or ``ASCEND_SLOG_PRINT_TO_STDOUT=1`` where the former is
not set, prints the log. Source: env_vars and log_ref of hicann/runtime.
"""

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import TextIO

ROOT = "ascend_jax.runtime"
OFF = logging.CRITICAL + 1
LEVELS = {"0": logging.DEBUG, "1": logging.INFO, "2": logging.WARNING, "3": logging.ERROR, "4": OFF}
DEFAULT_LEVEL = "3"


def get_logger(module: str = "") -> logging.Logger:
    """The logger of one module of the runtime (``RUNTIME``, ``HCCL``, ``OP``), below that of the whole runtime.

    >>> get_logger("HCCL").name
    'ascend_jax.runtime.HCCL'
    """
    return logging.getLogger(f"{ROOT}.{module}" if module else ROOT)


def level_of(environ: Mapping[str, str]) -> int:
    """Python's level for ``ASCEND_GLOBAL_LOG_LEVEL``; that of an error for a value that is none.

    >>> level_of({"ASCEND_GLOBAL_LOG_LEVEL": "3"}) == level_of({}) == logging.ERROR
    True
    """
    return LEVELS.get(environ.get("ASCEND_GLOBAL_LOG_LEVEL", ""), LEVELS[DEFAULT_LEVEL])


def prints(environ: Mapping[str, str]) -> bool:
    """Whether the log goes to standard output."""
    old = environ.get("ASCEND_SLOG_PRINT_TO_STDOUT")
    return environ.get("ASCEND_LOG_PRINT_TO_STDOUT", old) == "1"


class CannFormatter(logging.Formatter):
    """``[LEVEL] MODULE(pid,process):time [file:line]message``, time to the microsecond as ``ms.us``."""

    def format(self, record: logging.LogRecord) -> str:
        """One record as a line."""
        module = record.name.removeprefix(ROOT).lstrip(".").upper() or "RUNTIME"
        moment = datetime.fromtimestamp(record.created)
        time = f"{moment:%Y-%m-%d-%H:%M:%S}.{moment.microsecond // 1000:03}.{moment.microsecond % 1000:03}"
        where = f"[{record.filename}:{record.lineno}]"
        return f"[{record.levelname}] {module}({record.process},{record.processName}):{time} {where}{record.getMessage()}"


@contextmanager
def logging_as(environ: Mapping[str, str] | None = None, stream: TextIO | None = None) -> Iterator[logging.Logger]:
    """Log as the environment says while the block runs; before and after, Python's logging is as the program set it.

    Args:
      environ: the variables; None: those of the process, read now.
      stream: where the log is printed, if it is; None: standard output.
    """
    variables = os.environ if environ is None else environ
    logger = get_logger()
    before = logger.level, logger.propagate
    handler = logging.StreamHandler(stream or sys.stdout)
    handler.setFormatter(CannFormatter())
    logger.setLevel(level_of(variables))
    if prints(variables):
        logger.propagate = False
        logger.addHandler(handler)
    try:
        yield logger
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before[0])
        logger.propagate = before[1]
