"""``measure_loop``: ask, measure, tell, until it is decided. The caller measures; whatever goes wrong there is data."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import NamedTuple
from uuid import uuid4

import numpy as np

from ascend_jax.tiling.tiling import Tiling
from tiling_search.session.session import Session, Told, save_session
from tiling_search.store.record import now

Measure = Callable[[Tiling], float]
CONFIDENCE = 0.95
DRAWS = 2000


class WrongResult(Exception):
    """For ``measure`` to raise where the kernel ran and its output is wrong."""


class DoesNotCompile(Exception):
    """For ``measure`` to raise where there is no kernel to run."""


FAILURES: tuple[tuple[type[BaseException], str], ...] = (
    (WrongResult, "correctness"),
    (DoesNotCompile, "compile"),
    (TimeoutError, "timeout"),
)
"""What an exception means; any other is ``runtime``."""


class Finalist(NamedTuple):
    """A tiling's measurements: the median of its times, and an interval that holds the true median with ``CONFIDENCE``."""

    place: int
    median_s: float
    low_s: float
    high_s: float
    times: int


class Outcome(NamedTuple):
    """How a loop ended: the session, the finalists, fastest first, and whether the first is faster than the others for sure."""

    session: Session
    finalists: tuple[Finalist, ...]
    decided: bool


class Plan(NamedTuple):
    """How much to measure.

    Attributes:
      evaluations: tilings to measure, those of the session before included.
      batch: how many to ask for at a time.
      finalists, repeats: how many of the fastest to measure again, and how often; in turns, so that a machine that warms up
        favours none.
      timeout_s: after which a measurement counts as failed. It goes on in its thread: a callable that can hang for ever should
        end itself, or measure in a process of its own.
      budget_s: no measurement begins after so many seconds.
    """

    evaluations: int = 20
    batch: int = 1
    finalists: int = 3
    repeats: int = 5
    timeout_s: float | None = None
    budget_s: float = float("inf")


USUAL = Plan()


def measure_loop(
    session: Session,
    measure: Measure,
    plan: Plan = USUAL,
    *,
    path: Path | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Measure the tilings that the session asks for, then the fastest of them again and again in turns.

    Args:
      session: where to begin; what was told before counts.
      measure: seconds of a tiling. What it raises is stored as a failure: ``WrongResult``, ``DoesNotCompile``, a time-out, or
        anything else as a failure at run time. Ctrl-C is none: it ends the loop, and the session's file has all before it.
      plan: how much to measure.
      path: a file that is rewritten after every measurement.
      stop: asked before each measurement; True ends the loop.
    """
    until = time.monotonic() + plan.budget_s

    def over() -> bool:
        return stop() or time.monotonic() >= until

    def measured(session: Session, places: Sequence[int]) -> Session:
        for place in places:
            if over():
                break
            session = session.tell([attempt(place, session.tilings[place], measure, plan.timeout_s)])
            if path:
                save_session(path, session)
        return session

    while (left := plan.evaluations - len({one.place for one in session.told})) > 0 and not over():
        session, places = session.ask(min(plan.batch, left))
        if not places:
            break
        session = measured(session, places)
    chosen = _fastest(session, plan.finalists)
    for _ in range(plan.repeats if len(chosen) > 1 else 0):
        session = measured(session, chosen)
    found = summary(session, _fastest(session, plan.finalists))
    return Outcome(
        session, found, len(found) == 1 or (len(found) > 1 and found[0].high_s < min(one.low_s for one in found[1:]))
    )


def attempt(place: int, tiling: Tiling, measure: Measure, timeout_s: float | None = None) -> Told:
    """One measurement, whatever comes of it."""
    try:
        seconds = float(_in_time(measure, tiling, timeout_s) if timeout_s else measure(tiling))
        if not 0 < seconds < np.inf:
            raise ValueError(f"measured {seconds} seconds")
        return Told(place, seconds, at=now(), uid=uuid4().hex)
    except Exception as error:
        kind = next((word for family, word in FAILURES if isinstance(error, family)), "runtime")
        reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return Told(place, None, kind, reason, now(), uuid4().hex)


def summary(session: Session, places: Sequence[int]) -> tuple[Finalist, ...]:
    """Medians with bootstrap intervals, fastest first; the session's seed makes the draws."""
    times, draw, found = session.times(), np.random.default_rng(session.seed), []
    for place in sorted(places):
        seconds = np.array(times[place])
        medians = np.median(draw.choice(seconds, (DRAWS, len(seconds))), axis=1)
        low, high = np.quantile(medians, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
        if len(seconds) < 2:
            low, high = 0.0, np.inf  # one time says nothing of its own spread
        found.append(Finalist(place, float(np.median(seconds)), float(low), float(high), len(seconds)))
    return tuple(sorted(found, key=lambda one: (one.median_s, one.place)))


def _in_time(measure: Measure, tiling: Tiling, timeout_s: float) -> float:
    """``measure`` in a thread that no one waits for longer than ``timeout_s``, not even the interpreter's end."""
    found: SimpleQueue[tuple[float | None, Exception | None]] = SimpleQueue()

    def run() -> None:
        try:
            found.put((measure(tiling), None))
        except Exception as error:
            found.put((None, error))

    Thread(target=run, daemon=True).start()
    try:
        seconds, error = found.get(timeout=timeout_s)
    except Empty:
        raise TimeoutError(f"not done after {timeout_s} s") from None
    if error is not None or seconds is None:
        raise error or TypeError("measure returned None")
    return seconds


def _fastest(session: Session, count: int) -> list[int]:
    medians = {place: float(np.median(seconds)) for place, seconds in session.times().items()}
    return sorted(medians, key=lambda place: (medians[place], place))[:count]
