"""Where operator packages are looked for, and in which order. Source: plugin_manager.cc of GE.

Highest priority first: the entries of ``ASCEND_CUSTOM_OPP_PATH``, from the left; the vendors that ``load_priority`` of
``$ASCEND_OPP_PATH/vendors/config.ini`` names, from the left; the old folder ``$ASCEND_OPP_PATH/op_impl/custom``, only where
that file is missing; and at last what is built in. Unlike CANN, whose operators lie in ``ASCEND_OPP_PATH``, this runtime brings
its own along, so the variable may be unset.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ascend_jax.runtime.errors import AclError
from ascend_jax.runtime.log import get_logger

LOG = get_logger("OP")
CUSTOM, OPP = "ASCEND_CUSTOM_OPP_PATH", "ASCEND_OPP_PATH"
CONFIG = Path("vendors", "config.ini")


@dataclass(frozen=True)
class Place:
    """One folder that is searched.

    Attributes:
      path: a vendor's folder, which holds ``op_impl``.
      named_by: the variable or file that names it.
      problem: why it is skipped, "" where it is not.
    """

    path: Path
    named_by: str
    problem: str = ""

    def __str__(self) -> str:
        return f"{self.path} ({self.named_by})" + (f": skipped, {self.problem}" if self.problem else "")


def places(environ: Mapping[str, str]) -> tuple[Place, ...]:
    """The folders in order, those that cannot be used with the reason and a warning in the log.

    Raises:
      AclError: 148049, ASCEND_OPP_PATH is set and is no folder.
    """
    named = [(Path(entry), CUSTOM) for entry in environ.get(CUSTOM, "").split(":") if entry.strip()]
    if opp := environ.get(OPP, ""):
        named += _of_opp(Path(opp))
    found: list[Place] = []
    for path, named_by in named:
        problem = "named before" if any(path == place.path for place in found) else _problem(path)
        found.append(Place(path, named_by, problem))
        if problem:
            LOG.warning("OperatorRegistry: %s", found[-1])
    return tuple(found)


def _of_opp(opp: Path) -> list[tuple[Path, str]]:
    if not opp.is_dir():
        raise AclError(148049, f"{OPP}={opp} is not a folder")
    config = opp / CONFIG
    if not config.is_file():
        old = opp / "op_impl" / "custom"
        return [(old, f"{OPP}, the old place of custom operators")] if old.is_dir() else []
    return [(opp / "vendors" / vendor, f"load_priority of {config}") for vendor in _load_priority(config)]


def _load_priority(config: Path) -> list[str]:
    for line in config.read_text("utf-8").splitlines():
        key, _, value = line.partition("=")
        if key.strip() == "load_priority":
            return [vendor.strip() for vendor in value.split(",") if vendor.strip()]
    LOG.warning("OperatorRegistry: %s has no line load_priority=VENDOR,…: none of its vendors is loaded", config)
    return []


def _problem(path: Path) -> str:
    if not path.is_dir():
        return "does not exist" if not path.exists() else "is not a folder"
    if (path / "op_impl").is_dir() or path.parent.name == "op_impl":
        return ""
    vendors = sorted(path.glob("*/op_impl")) or sorted(path.glob("vendors/*/op_impl"))
    meant = f"; is {vendors[0].parent} meant?" if vendors else ""
    return f"holds no folder op_impl{meant}"
