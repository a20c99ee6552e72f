"""``Registry``: the operators that a call can name, and which package each comes from."""

import difflib
import os
import threading
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ascend_jax.runtime.errors import AclError
from ascend_jax.runtime.log import get_logger
from ascend_jax.runtime.ops.builtin import OPERATORS
from ascend_jax.runtime.ops.operator import Operator
from ascend_jax.runtime.ops.packages import Package, read_package
from ascend_jax.runtime.ops.search import CUSTOM, OPP, Place, places

LOG = get_logger("OP")
BUILT_IN = Package("built-in", None, {operator.op_type: operator for operator in OPERATORS}, {})
"""The operators of the runtime."""


class Shadow(NamedTuple):
    """An operator that several packages have: the one that is used, and those that it hides, in order of priority."""

    op_type: str
    used: str
    hidden: tuple[str, ...]


class Registry:
    """Operators by type, of custom packages and of the runtime; the case of names counts.

    The paths are read when the packages are loaded, at the first look-up or by :meth:`load`, and not again before
    :meth:`reload`: setting ``ASCEND_CUSTOM_OPP_PATH`` later has no effect, as on the device.

    Attributes:
      places: what was searched, also what was skipped.
      packages: what was found, highest priority first, the built-in one last.
      generation: changes whenever the operators may have.
    """

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        """``environ``: the variables that are read at each load; None: those of the process."""
        self._environ = os.environ if environ is None else environ
        self.places: tuple[Place, ...] = ()
        self.packages: tuple[Package, ...] = ()
        self.generation = 0
        self._operators: dict[str, Operator] = {}
        self._read: dict[str, str | None] = {}
        self._lock = threading.Lock()

    def load(self) -> None:
        """Read the paths and the packages, unless that is done.

        Raises:
          AclError: 100025, a package that cannot be loaded (nothing is changed then); 148049, a wrong ASCEND_OPP_PATH.
        """
        with self._lock:
            if not self.packages:
                self.reload()

    def reload(self) -> None:
        """Read the paths and the packages anew; raises as :meth:`load`, and then keeps what was loaded before."""
        searched = places(self._environ)
        found = [read_package(place) for place in searched if not place.problem]
        self.places, self._read = searched, self._variables()
        self._use((*found, BUILT_IN))

    def unload(self, name: str | None = None) -> None:
        """Drop a package by its name, and so uncover what it hid; None: all of them, until the next load.

        Raises:
          AclError: 100000, no such package, or the built-in one.
        """
        if name is None:
            self.packages, self._operators, self.places = (), {}, ()
            self.generation += 1
            return
        names = [package.name for package in self.packages]
        if name not in names or name == BUILT_IN.name:
            remedy = f"one of {', '.join(names[:-1]) or 'none: no custom package is loaded'}"
            raise AclError(100000, f"there is no custom package {name!r} to unload", remedy=remedy)
        self._use(tuple(package for package in self.packages if package.name != name))

    def find(self, op_type: str) -> Operator:
        """The operator of that type, of the package with the highest priority.

        Raises:
          AclError: 100024, there is none: what was searched, in order, and names that are near; as :meth:`load`.
        """
        if not self.packages:
            self.load()
        found = self._operators.get(op_type)
        if found is None:
            raise self._not_found(op_type)
        return found

    def owner(self, op_type: str) -> Package:
        """The package that :meth:`find` takes it from."""
        self.find(op_type)
        return next(package for package in self.packages if op_type in package.operators)

    def names(self) -> tuple[str, ...]:
        """Every type, sorted."""
        self.load()
        return tuple(sorted(self._operators))

    def shadows(self) -> tuple[Shadow, ...]:
        """The operators that more than one package has."""
        self.load()
        return tuple(self._shadows())

    def near(self, op_type: str) -> tuple[str, ...]:
        """Types that ``op_type`` may be meant for: the same but for case first, then similar ones."""
        same = [name for name in self._operators if name.lower() == op_type.lower()]
        lowered = {name.lower(): name for name in sorted(self._operators)}
        similar = (lowered[name] for name in difflib.get_close_matches(op_type.lower(), lowered, n=3, cutoff=0.6))
        return tuple(dict.fromkeys([*same, *similar]))

    def __str__(self) -> str:
        """The packages in order, what they hold and hide, and the places that were skipped."""
        hides = [f"  {one.op_type} of {one.used} hides that of {', '.join(one.hidden)}" for one in self._shadows()]
        skipped = [f"  {place}" for place in self.places if place.problem]
        return "\n".join([*(f"{number}. {package}" for number, package in enumerate(self.packages, 1)), *hides, *skipped])

    def _use(self, packages: tuple[Package, ...]) -> None:
        operators: dict[str, Operator] = {}
        for package in reversed(packages):
            operators |= package.operators
        self.packages, self._operators = packages, operators
        self.generation += 1
        for package in packages:
            LOG.info("OperatorRegistry: Loading ops from %s", package.place or package.name)
            for name in package.operators:
                LOG.info("OperatorRegistry: Register %s", name)
        for shadow in self._shadows():
            LOG.info("OperatorRegistry: %s of %s hides that of %s", shadow.op_type, shadow.used, ", ".join(shadow.hidden))

    def _variables(self) -> dict[str, str | None]:
        return {name: self._environ.get(name) for name in (CUSTOM, OPP)}

    def _shadows(self) -> Iterator[Shadow]:
        for op_type in sorted(self._operators):
            used, *hidden = (package.name for package in self.packages if op_type in package.operators)
            if hidden:
                yield Shadow(op_type, used, tuple(hidden))

    def _not_found(self, op_type: str) -> AclError:
        near = self.near(op_type)
        case = [name for name in near if name.lower() == op_type.lower()]
        searched = [*(str(place) for place in self.places), f"{BUILT_IN.name}: {len(BUILT_IN.operators)} operators"]
        listed = "\n".join(f"  {number}. {place}" for number, place in enumerate(searched, 1))
        hint = f"did you mean {', '.join(near)}?" if near else "no name is near"
        hint += " (the case of names counts)" if case else ""
        what = f"no package has an operator of type {op_type!r}: {hint}\nSearched, in this order:\n{listed}"
        if late := [name for name, value in self._variables().items() if value != self._read.get(name)]:
            what += f"\nSet too late: {', '.join(late)} has changed since the packages were loaded"
        remedy = "the paths were read when the packages were loaded: after a change call registry.reload()"
        return AclError(100024, what, remedy=remedy)
