"""How results look: a page of headings, lines, tables and bars; boxes and colours on a terminal, plain ASCII in a pipe."""

import sys
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

BAR_WIDTH = 24
PIPE_WIDTH = 10_000
"""Columns of a page that no terminal shows: nothing is cut or wrapped."""


class Page:
    """What a command prints. ``fancy`` where a terminal shows it."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or _console()
        self.fancy = self.console.is_terminal
        self.blocks = self.fancy and self.console.encoding.lower().startswith("utf")

    def heading(self, text: str) -> None:
        """A bold line after an empty one."""
        self.line()
        self.line(text, "bold")

    def line(self, text: str = "", style: str = "") -> None:
        """One line, which the terminal may wrap."""
        self.console.print(Text(text, style), soft_wrap=not self.fancy)

    def fields(self, entries: dict[str, str]) -> None:
        """Names and values in two columns."""
        grid = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2))
        for name, value in entries.items():
            grid.add_row(Text(f"  {name}", "dim"), Text(value))
        self._show(grid)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str | Text]]) -> None:
        """A table; columns whose name ends in ``<`` are aligned to the left, the others to the right."""
        plain = box.SIMPLE_HEAD if self.blocks else box.ASCII2
        table = Table(box=plain if self.fancy else None, show_edge=False, header_style="bold", pad_edge=False, padding=(0, 1))
        for name in columns:
            table.add_column(Text(name.removesuffix("<")), justify="left" if name.endswith("<") else "right", overflow="fold")
        for row in rows:
            table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
        self._show(table)

    def bar(self, share: float | None) -> Text:
        """A bar for a share of 1, red beyond 1."""
        share = share or 0.0
        filled = min(BAR_WIDTH, int(share * BAR_WIDTH))  # full only where it is full
        on, off = ("█", "░") if self.blocks else ("#", ".")
        bar = Text(on * filled, "red" if share > 1 else "cyan").append(off * (BAR_WIDTH - filled), "dim")
        return bar if self.fancy else Text(f"[{bar.plain}]")

    def _show(self, table: Table) -> None:
        if self.fancy:
            self.console.print(table)
            return
        with self.console.capture() as capture:
            self.console.print(table)
        for line in capture.get().splitlines():
            self.line(line.rstrip())


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to the command: rich would end with 1, which here means that nothing fits."""
        raise BrokenPipeError


def _console() -> Console:
    if callable(reconfigure := getattr(sys.stdout, "reconfigure", None)):
        reconfigure(errors="replace")  # a chip of one's own may have any name, and the terminal any encoding
    console = _Console(markup=False, highlight=False, emoji=False)
    return console if console.is_terminal else _Console(markup=False, highlight=False, emoji=False, width=PIPE_WIDTH)


def seconds_text(seconds: float | None) -> str:
    """Four digits in us, ms or s.

    >>> seconds_text(0.0045712), seconds_text(1.4e-05), seconds_text(12.0), seconds_text(0.0)
    ('4.571 ms', '14.00 us', '12.00 s', '0 s')
    """
    if seconds is None:
        return "n/a"
    if seconds == 0:
        return "0 s"
    scale, unit = next(((s, u) for s, u in ((1e6, "us"), (1e3, "ms")) if seconds * s < 999.95), (1.0, "s"))
    value = seconds * scale
    return f"{value:,.{max(0, 4 - len(str(int(value))))}f} {unit}" if value < 1e6 else f"{value:.3g} {unit}"


def bytes_text(count: float | None) -> str:
    """KiB for what lies on a core, MiB, GiB or TiB beyond.

    >>> bytes_text(114688), bytes_text(170 * 2**20), bytes_text(64 * 2**30)
    ('112.0 KiB', '170.0 MiB', '64.0 GiB')
    """
    if count is None:
        return "n/a"
    for power, unit, below in ((10, "KiB", 2**21), (20, "MiB", 2**31), (30, "GiB", 2**44)):
        if count < below:
            return f"{count / 2**power:,.1f} {unit}"
    return f"{count / 2**40:,.1f} TiB" if count < 2**60 else f"{count / 2**40:.3g} TiB"


def number_text(value: float | None, digits: int = 1) -> str:
    """A number with separators.

    >>> number_text(1234.56), number_text(None)
    ('1,234.6', 'n/a')
    """
    return "n/a" if value is None else f"{value:,.{digits}f}"


def share_text(share: float | None) -> str:
    """A share of 1 in percent.

    >>> share_text(0.4078)
    '40.8 %'
    """
    return "n/a" if share is None else f"{share * 100:,.1f} %"


def assignments(values: dict[str, Any]) -> str:
    """``name=value`` with commas between, as ``--tiling`` reads it.

    >>> assignments({"block_q": 128, "block_kv": 512})
    'block_q=128, block_kv=512'
    """
    return ", ".join(f"{name}={value}" for name, value in values.items())
