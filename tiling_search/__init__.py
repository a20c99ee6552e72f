"""The best tiling of an attention workload on an Ascend NPU. These are the public names; each is imported at its first use."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tiling_search.result import Candidate, TuningResult
    from tiling_search.tuner import tune

__all__ = ["Candidate", "TuningResult", "tune"]

_HOMES = {"Candidate": "result", "TuningResult": "result", "tune": "tuner"}


def __getattr__(name: str) -> Any:
    # Imported at first use: `tiling-search --help` must not pay for importing jax.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
