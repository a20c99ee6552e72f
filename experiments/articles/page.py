"""A page: what one program of the articles says, what comes out here, and why where the two differ."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CALL_PATH = "the call path"
ARCHITECTURE = "the architecture"
HANDS_ON = "the hands-on trace"
ROOT = Path(__file__).parents[2]


@dataclass
class Page:
    """One program's outcome. ``says``, ``ours`` and ``why`` have the same keys: the points that the text makes.

    Attributes:
      name: the program's.
      article: which article, and what the passage does, in our words.
      output: lines that the program prints, such as a log.
      folder: where it may write files.
    """

    name: str
    article: str
    folder: Path
    says: dict[str, Any] = field(default_factory=dict)
    ours: dict[str, Any] = field(default_factory=dict)
    why: dict[str, str] = field(default_factory=dict)
    output: list[str] = field(default_factory=list)

    def point(self, what: str, says: Any, ours: Any, why: str = "") -> None:
        """Set one point. Without a reason both must be the same: a difference never passes in silence."""
        if not why and says != ours:
            raise ValueError(f"{self.name}, {what}: the text says {says!r}, here it is {ours!r}, and no reason is given")
        if what in self.says:
            raise ValueError(f"{self.name} has a point {what!r} already")
        self.says[what], self.ours[what], self.why[what] = says, ours, why

    def show(self, text: object) -> None:
        """Print ``text``, line by line, without the folder of the checkout."""
        self.output += str(text).replace(f"{ROOT}/", "").splitlines()

    def as_json(self) -> dict[str, Any]:
        """All but the folder."""
        return {key: getattr(self, key) for key in ("name", "article", "says", "ours", "why", "output")}


@dataclass(frozen=True)
class Program:
    """A program: its name, where it stands, and what runs it."""

    name: str
    article: str
    fill: Callable[[Page], None]

    def run(self, folder: Path) -> Page:
        """Run it."""
        page = Page(self.name, self.article, folder)
        self.fill(page)
        return page


def program(article: str) -> Callable[[Callable[[Page], None]], Program]:
    """Make a function the program of its name; ``article`` says where it stands."""
    return lambda fill: Program(fill.__name__, article, fill)


def refusal(call: Callable[[], Any]) -> Any:
    """The exception with a ``code`` that ``call`` raises."""
    try:
        call()
    except Exception as error:
        if hasattr(error, "code"):
            return error
        raise
    raise AssertionError("the call was not refused")
