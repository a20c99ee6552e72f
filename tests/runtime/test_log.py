"""The log: levels and switches by CANN's environment variables, and its line format."""

import io
import logging
import re

import pytest

from ascend_jax.runtime.log import get_logger, logging_as


def logged(environ: dict[str, str]) -> list[str]:
    """What five messages, one of each level, leave in the printed log."""
    stream = io.StringIO()
    with logging_as(environ, stream):
        for level in ("debug", "info", "warning", "error", "critical"):
            getattr(get_logger("HCCL"), level)("at %s", level)
    return stream.getvalue().splitlines()


@pytest.mark.parametrize(("value", "lines"), [("0", 5), ("1", 4), ("2", 3), ("3", 2), ("4", 0), ("", 2), ("INFO", 2), ("7", 2)])
def test_levels_mean_what_cann_means(value: str, lines: int) -> None:
    assert len(logged({"ASCEND_GLOBAL_LOG_LEVEL": value, "ASCEND_SLOG_PRINT_TO_STDOUT": "1"})) == lines


@pytest.mark.parametrize(
    ("environ", "lines"),
    [
        ({}, 0),
        ({"ASCEND_SLOG_PRINT_TO_STDOUT": "0"}, 0),
        ({"ASCEND_LOG_PRINT_TO_STDOUT": "1"}, 2),
        ({"ASCEND_LOG_PRINT_TO_STDOUT": "0", "ASCEND_SLOG_PRINT_TO_STDOUT": "1"}, 0),
    ],
)
def test_the_newer_variable_decides_whether_the_log_is_printed(environ: dict[str, str], lines: int) -> None:
    assert len(logged(environ)) == lines


def test_a_line_looks_like_canns() -> None:
    line = logged({"ASCEND_LOG_PRINT_TO_STDOUT": "1"})[0]
    time = r"\d{4}-\d\d-\d\d-\d\d:\d\d:\d\d\.\d{3}\.\d{3}"
    assert re.fullmatch(rf"\[ERROR\] HCCL\(\d+,\w+\):{time} \[test_log\.py:\d+\]at error", line)


def test_the_programs_logging_is_as_before_afterwards(caplog: pytest.LogCaptureFixture) -> None:
    logger = get_logger()
    before = logger.level, logger.propagate, list(logger.handlers)
    logged({"ASCEND_GLOBAL_LOG_LEVEL": "0", "ASCEND_LOG_PRINT_TO_STDOUT": "1"})
    assert (logger.level, logger.propagate, logger.handlers) == before
    assert not caplog.records, "what is printed is not handed on as well"
    with caplog.at_level(logging.INFO, logger="ascend_jax.runtime"):
        get_logger("RUNTIME").info("handed on")
    assert [record.message for record in caplog.records] == ["handed on"]
