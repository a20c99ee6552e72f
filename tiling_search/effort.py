"""How long a search may go on: presets, limits, and a way to stop that keeps what was found. No jax, no numpy."""

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

QUICK_EVALUATIONS = 2**23
"""Some eight million: a tenth of a second for a machine of two cores."""


Watch = Callable[[int, float | None], None]


def _never() -> bool:
    return False


def _nobody(evaluated: int, best_s: float | None) -> None:
    """Takes what a watcher would be told."""


@dataclass(frozen=True, kw_only=True)
class Effort:
    """The limits of one search; the first that is reached ends it. Looked at after each chunk, so that one is always done.

    Attributes:
      max_evals: tilings to evaluate one by one, those that turn out not to fit included; None for all.
      budget_s: seconds from the start of the search; None for no end.
      stop: asked after each chunk; True ends the search.
      watch: told after each chunk how many were evaluated, and the best seconds so far (None before the first that fits).
    """

    max_evals: int | None = None
    budget_s: float | None = None
    stop: Callable[[], bool] = _never
    watch: Watch = _nobody

    def __post_init__(self) -> None:
        if self.max_evals is not None and self.max_evals < 1:
            raise ValueError(f"max_evals={self.max_evals} must be at least 1")
        if self.budget_s is not None and not self.budget_s > 0:
            raise ValueError(f"budget_s={self.budget_s} must be above zero")

    def over(self, started: float) -> bool:
        """Whether the search, which began at ``started`` of ``time.perf_counter``, ends here."""
        return self.stop() or (self.budget_s is not None and time.perf_counter() - started >= self.budget_s)


FULL = Effort()
EFFORTS = {"quick": Effort(max_evals=QUICK_EVALUATIONS), "full": FULL}
"""``quick`` looks at coarse blocks first (multiples of 128, then of 64, …) and proves nothing; ``full`` looks at all."""


def limited(preset: str, *, max_evals: int | None, budget_s: float | None, **hooks: Any) -> Effort:
    """A preset with other limits where they are given, and ``stop`` and ``watch``.

    >>> limited("quick", max_evals=None, budget_s=2.0).max_evals == QUICK_EVALUATIONS
    True
    """
    own = EFFORTS[preset]
    return replace(own, max_evals=max_evals or own.max_evals, budget_s=budget_s or own.budget_s, **hooks)


@dataclass
class Interruption:
    """Whether Ctrl-C was pressed."""

    pressed: bool = False

    def __call__(self) -> bool:
        return self.pressed


@contextmanager
def interruptible() -> Iterator[Interruption]:
    """Within the block, the first Ctrl-C only sets what the block is given; the second interrupts as ever.

    Signals are the main thread's: in another one nothing is ever pressed.
    """
    found = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield found
        return

    def press(number: int, frame: FrameType | None) -> None:
        if found.pressed:
            raise KeyboardInterrupt
        found.pressed = True

    before = signal.signal(signal.SIGINT, press)
    try:
        yield found
    finally:
        signal.signal(signal.SIGINT, before)


@dataclass
class Log:
    """A file of one JSON object a line, appended to; None writes nothing."""

    path: Path | None

    def __call__(self, event: str, **values: Any) -> None:
        if self.path is not None:
            line = {"at": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event} | values
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line, allow_nan=False) + "\n")

    def watching(self, watch: Watch) -> Watch:
        """``watch``, and a line of the log each time."""

        def both(evaluated: int, best_s: float | None) -> None:
            watch(evaluated, best_s)
            self("progress", evaluated=evaluated, best_s=best_s)

        return both
