"""The flags of the command line: what kinds of values they take, and what they say about themselves. No jax, no rich."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from ascend_jax.hardware.chipfile import chip_names
from ascend_jax.workload.preset_table import preset_names

Command = TypeVar("Command", bound=Callable[..., Any])

KERNELS = ("auto", "ub_resident", "coupled", "separated", "direct")
SCHEDULES = (
    *(f"falite_{version}" for version in ("v0", "v1", "v2", "v3", "v4", "v5", "v8")),
    *(
        "flash_attention_score",
        "cann_separated",
        "cann_separated_wide",
        "cann_separated_mla",
        "cann_direct",
        "cann_direct_wide",
    ),
)
"""Kernels that exist, as schedules of these dataflows."""
OVERLAPS = ("serial", "roofline", "pipelined")
CHIP_EXAMPLES = "Ascend910B3, Ascend310P3 or Ascend950PR_958x"
TRACE_IDS = ("names", "numbers")
MOST_CORES = 2**16
"""More than any chip has."""
CALL_LAYOUTS = ("BNSD", "BSND", "BSH", "SBH")
CALL_MASKS = ("none", "causal")
STDOUT = "-"
PLOTS = (".png", ".svg", ".pdf")


class Lengths(click.ParamType):
    """``N``, or ``N,N,…`` as a tuple."""

    name = "N[,N...]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | tuple[int, ...]:
        """The number, or the tuple of numbers where there is a comma."""
        if not isinstance(value, str):
            return value
        try:
            numbers = tuple(int(part) for part in value.split(","))
        except ValueError:
            self.fail(f"{value!r} must be a whole number, or several with commas between them.", param, ctx)
        return numbers if "," in value else numbers[0]


class PresetName(click.ParamType):
    """A preset's name; it completes in a shell."""

    name = "PRESET"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Presets that begin with ``incomplete``."""
        return [CompletionItem(name) for name in preset_names() if name.startswith(incomplete)]


def workload_options(command: Command) -> Command:
    """Add the argument ``PRESET`` and a flag per field of ``Attention`` to a command."""
    lengths, whole = Lengths(), click.INT
    options = [
        click.argument("preset", type=PresetName(), required=False),
        click.option("--batch", type=lengths, help="Sequences [1]; with lists of lengths, how often each occurs."),
        click.option("--q-heads", type=whole, metavar="N", help="Heads of Q."),
        click.option("--kv-heads", type=whole, metavar="N", help="Heads of K and V [as q-heads]."),
        click.option("--q-len", type=lengths, help="Rows of Q a sequence; a list for variable lengths (TND)."),
        click.option("--kv-len", type=lengths, help="Rows of K and V a sequence [as q-len]."),
        click.option("--head-dim", type=whole, metavar="N", help="Columns of Q and K a head."),
        click.option("--value-dim", type=whole, metavar="N", help="Columns of V and O a head [as head-dim]."),
        click.option("--dtype", metavar="fp16|bf16|fp32", help="Element type [fp16]."),
        click.option("--mask", metavar="MASK", help="none, causal, left-up-causal, band:PRE,NEXT or prefix:N [none]."),
        click.option("--layout", metavar="BNSD|BSND|BSH|SBH|TND", help="Axes in memory [BNSD; TND with lists of lengths]."),
        click.option("--latent/--no-latent", default=None, help="V is the first columns of K, one tensor (MLA) [no]."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


class ChipName(click.ParamType):
    """A chip's name or file; it completes in a shell."""

    name = "NAME|FILE.toml"

    def get_missing_message(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        """What to give where ``--chip`` is missing."""
        return f"Give a chip such as {CHIP_EXAMPLES} (tiling-search chips lists all), or the TOML file of your own."

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Chips that begin with ``incomplete``."""
        return [CompletionItem(name) for name in chip_names() if name.startswith(incomplete)]


class JsonTarget(click.ParamType):
    """``-``, or a path whose folder exists: a search of minutes should not end at a typing error."""

    name = "FILE|-"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """``value`` as it is, once it looks like a place to write to."""
        if value != STDOUT:
            path = Path(value)
            if path.is_dir():
                self.fail(f"{value!r} is a folder: name a file in it.", param, ctx)
            if not path.absolute().parent.is_dir():
                self.fail(f"{str(path.parent)!r} is no folder: make it first, or choose another.", param, ctx)
        return value


class FileTarget(JsonTarget):
    """A path whose folder exists."""

    name = "FILE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """``value`` as it is, once it looks like a file to write to."""
        if value == STDOUT:
            self.fail("stdout is taken by the summary: name a file.", param, ctx)
        return super().convert(value, param, ctx)


class PlotTarget(JsonTarget):
    """A path whose ending is a format to draw in, on a machine that can draw."""

    name = f"FILE{'|'.join(PLOTS)}"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """``value`` as it is, once it can be drawn and written."""
        if Path(value).suffix.lower() not in PLOTS:
            self.fail(f"{value!r} must end in {', '.join(PLOTS)}: the ending says in which format to draw.", param, ctx)
        if find_spec("matplotlib") is None:
            self.fail('matplotlib is not installed: pip install "ascend-jax[plot]"', param, ctx)
        return super().convert(value, param, ctx)


class Cores(click.ParamType):
    """``all`` as None, or indices of cube cores, ``N,N-M,…``, as a tuple."""

    name = "N,N-M,...|all"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...] | None:
        """The indices in order, each once."""
        if not isinstance(value, str) or value == "all":
            return None if value == "all" else value
        try:
            ranges = [[int(end) for end in part.split("-", 1)] for part in value.split(",")]
        except ValueError:
            ranges = []
        cores = [range(ends[0], ends[-1] + 1) for ends in ranges]
        if not cores or not all(0 < some.stop - some.start <= MOST_CORES for some in cores):
            self.fail(f"{value!r} must be cube cores, such as 0 or 0,4-7, or all.", param, ctx)
        return tuple(sorted({core for some in cores for core in some}))


def simulate_options(command: Command) -> Command:
    """Add the files of ``simulate``, and what of the timeline goes into them."""
    whole = click.IntRange(min=1)
    options = [
        click.option("--trace", type=FileTarget(), help="Write the trace.json of the operator simulator."),
        click.option("--csv", type=FileTarget(), help="Write the time of each pipe, as PipeUtilization.csv has it."),
        click.option(
            "--series", type=FileTarget(), help="Write the bytes in use over time: JSON where it ends in .json, else CSV."
        ),
        click.option("--cores", type=Cores(), default="0", help="Cube cores to look at, with their vector cores [0]."),
        click.option("--tasks", type=whole, metavar="N", help="Only the first N tasks (blocks of q rows) of a core [all]."),
        click.option(
            "--arrows",
            type=click.IntRange(min=0),
            default=1,
            metavar="N",
            help="Arrows of every Nth tile of a task; 0: none [1].",
        ),
        click.option("--ids", type=click.Choice(TRACE_IDS), default="names", help="How the trace says core and pipe [names]."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def chip_options(command: Command) -> Command:
    """Add ``--chip``, ``--kernel`` and ``--json`` to a command."""
    kernel_help = f"Dataflow: {', '.join(KERNELS)}; or a schedule such as {SCHEDULES[0]} [auto: the chip's own]."
    options = [
        click.option("--chip", type=ChipName(), required=True, help="Name of a chip, or a TOML file of your own."),
        click.option("--kernel", type=click.Choice((*KERNELS, *SCHEDULES)), default="auto", metavar="NAME", help=kernel_help),
        click.option("--json", "target", type=JsonTarget(), help="Write JSON to a file, or with - to stdout and nothing else."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


class Fields(click.ParamType):
    """``FIELD,FIELD,…`` as a tuple."""

    name = "FIELD[,FIELD...]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """The names between the commas."""
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


def calibrate_options(command: Command) -> Command:
    """Add the chip, the files and the hints of ``calibrate``."""
    unclear = "Of calls in a profile whose shapes leave it open:"
    options = [
        click.option("--chip", type=ChipName(), required=True, help="The chip measured: a name, or a TOML file of your own."),
        click.option("--out", type=FileTarget(), required=True, help="Where to write the calibrated chip (chip.toml)."),
        click.option("--json", "target", type=JsonTarget(), help="Write JSON to a file, or with - to stdout and nothing else."),
        click.option("--fields", type=Fields(), default=(), help="Numbers of the chip to fit [those no document settles]."),
        click.option("--layout", type=click.Choice(CALL_LAYOUTS), help=f"{unclear} the axes."),
        click.option("--q-heads", type=click.IntRange(min=1), metavar="N", help=f"{unclear} heads of Q."),
        click.option("--mask", type=click.Choice(CALL_MASKS), help=f"{unclear} what the mask hides."),
        click.option(
            "--cross-validate/--no-cross-validate", default=True, help="Also fit without each group of kernels [yes]."
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def effort_options(command: Command) -> Command:
    """Add the limits of a search, and its log."""
    options = [
        click.option("--effort", type=click.Choice(("quick", "full")), default="full", help="quick: a coarse look [full]."),
        click.option("--max-evals", type=click.IntRange(min=1), metavar="N", help="Stop after N evaluations."),
        click.option("--budget-seconds", "budget_s", type=click.FloatRange(min=0, min_open=True), help="Stop after so long."),
        click.option("--log", type=FileTarget(), help="Append what happens, a JSON object a line."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def model_options(command: Command) -> Command:
    """Add ``--chip``, ``--kernel``, ``--json`` and ``--overlap`` to a command."""
    overlap_help = "How far stages overlap [pipelined]."
    return chip_options(click.option("--overlap", type=click.Choice(OVERLAPS), default="pipelined", help=overlap_help)(command))


list_json = click.option(
    "--json",
    "target",
    type=JsonTarget(),
    is_flag=False,
    flag_value=STDOUT,
    help="Write JSON to a file, or without one to stdout.",
)
"""``--json`` of a command without arguments, where its value may be left out."""
