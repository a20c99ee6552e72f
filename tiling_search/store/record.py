"""``Record``: one configuration with what is known of it. Failures are records too."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import Literal
from uuid import uuid4

from tiling_search.store.key import canonical

Kind = Literal["model", "measured"]
CORRECT = "correct"
INVALIDITIES = ("timeout", "compile", "runtime", "correctness", "constraints", CORRECT)
"""What may be wrong, in the words of Kernel Tuner's T4 schema; ``correct`` where nothing is."""


def now() -> str:
    """The time in UTC, to the microsecond."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


@dataclass(frozen=True, kw_only=True)
class Record:
    """A result of one configuration.

    Attributes:
      configuration: its numbers by name; the fields of ``Tiling`` unless it was imported from elsewhere.
      kind: whether the model predicted it or a machine measured it.
      seconds: None where it failed.
      invalidity: one of ``INVALIDITIES``.
      reason: what went wrong, for people.
      times: each repeat's seconds.
      compile_s: how long the compiler took, where that is known.
      origin: who says so: a command, a session, a file.
      at: when, UTC.
      uid: what makes it one and the same in two stores. A measurement is an event with a random one; a prediction is a fact,
        whose uid follows from its content together with its key.
    """

    configuration: Mapping[str, int | float | str]
    kind: Kind = "model"
    seconds: float | None = None
    invalidity: str = CORRECT
    reason: str = ""
    times: tuple[float, ...] = ()
    compile_s: float | None = None
    origin: str = ""
    at: str = field(default_factory=now)
    uid: str = ""

    def __post_init__(self) -> None:
        if self.invalidity not in INVALIDITIES:
            raise ValueError(f"invalidity {self.invalidity!r} must be one of {', '.join(INVALIDITIES)}")
        if (self.invalidity == CORRECT) != (self.seconds is not None):
            raise ValueError(f"seconds={self.seconds} with invalidity {self.invalidity!r}: a result has a time or a failure")

    def uid_under(self, digest: str) -> str:
        """The uid, made where there is none yet; ``digest`` is the key's."""
        if self.uid:
            return self.uid
        if self.kind == "measured":
            return uuid4().hex
        content = [digest, self.kind, dict(self.configuration), self.seconds and float(self.seconds).hex(), self.invalidity]
        return sha256(canonical(content).encode()).hexdigest()[:32]
