"""The best tiling of an attention workload on an Ascend NPU. These are the public names; each is imported at its first use."""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tiling_search.result import Candidate, TuningResult
    from tiling_search.tune import tune

__all__ = ["Candidate", "TuningResult", "tune"]

_HOMES = {"Candidate": "result", "TuningResult": "result", "tune": "tune"}


class _Package(ModuleType):
    def __setattr__(self, name: str, value: Any) -> None:
        # The function `tune` shares its name with its module, which the import system would put in its place.
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    # Imported at first use: `tiling-search --help` must not pay for importing jax.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
