"""What a chip is: ``NpuSpec``, the chip files, and the peaks that follow from them."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ascend_jax.hardware.chipfile import chip_names

if TYPE_CHECKING:
    from ascend_jax.hardware.catalog import load_chip
    from ascend_jax.hardware.peak import peak_flops
    from ascend_jax.hardware.spec import NpuSpec, VectorCosts

__all__ = ["NpuSpec", "VectorCosts", "chip_names", "load_chip", "peak_flops"]

_HOMES = {"NpuSpec": "spec", "VectorCosts": "spec", "load_chip": "catalog", "peak_flops": "peak"}


def __getattr__(name: str) -> Any:
    # Imported at first use: listing the chips must not pay for importing jax.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
