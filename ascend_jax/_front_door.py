"""A package's public names, each imported from its home at its first use."""

from collections.abc import Callable
from importlib import import_module
from typing import Any


def front_door(package: str, homes: dict[str, tuple[str, ...]]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of ``package``; ``homes`` are its modules with the names that each lends."""
    home_of = {name: home for home, names in homes.items() for name in names}

    def get(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{home_of[name]}"), name)

    return get, lambda: sorted(home_of)
