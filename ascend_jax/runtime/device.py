"""Devices: chips of the catalogue with memory, cores, contexts and limits."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from ascend_jax._toml import read_toml
from ascend_jax.runtime.engine.scheduler import Cores, Queue
from ascend_jax.runtime.errors import AclError
from ascend_jax.runtime.memory.device import DeviceMemory

if TYPE_CHECKING:
    from ascend_jax.hardware.spec import NpuSpec
    from ascend_jax.runtime.context import Context

ATTRIBUTES = {
    "CUBE_CORE_NUM": 102,
    "AICORE_CORE_NUM": 101,
    "VECTOR_CORE_NUM": 201,
    "UBUF_PER_VECTOR_CORE": 204,
    "TOTAL_GLOBAL_MEM_SIZE": 301,
    "L2_CACHE_SIZE": 302,
    "PHY_CHIP_ID": 402,
    "IS_VIRTUAL": 501,
    "NPU_ARCH": 601,
}
"""Names and numbers of ``aclrtDevAttr`` that a simulated chip can answer (hicann/runtime, acl_rt.h)."""

STREAM_LIMITS = {"310p": 1024, "310b": 512, "910a": 2048, "910p": 2048}
EVENT_LIMITS = {"310p": 1023, "910a": 65535, "910p": 65535}
"""By the start of the chip's name; 1984 streams and 65536 events otherwise (docs/zh/api_ref/06, 07 of hicann/runtime)."""
NPU_ARCH = {"310p": 2002, "310b": 3002, "910a": 1001, "910p": 1001, "910b": 2201, "910_": 2201, "950": 3510}


@cache
def links() -> dict[str, Any]:
    """Rates between host and devices."""
    return read_toml(files("ascend_jax.runtime") / "links.toml")


class Device:
    """One simulated chip.

    Attributes:
      references: how often ``set_device`` has been called without a ``reset_device``.
      primary: the context that ``set_device`` makes, or None.
      contexts: the primary and explicit ones that live.
      host_queue: where copies wait that the host makes beside all streams.
    """

    def __init__(self, device_id: int, spec: NpuSpec) -> None:
        self.device_id, self.spec, self.references = device_id, spec, 0
        self.primary: Context | None = None
        self.contexts: list[Context] = []
        self.host_queue: Queue
        self.memory = DeviceMemory(spec, device_id)
        self.cores = Cores(int(spec.cube_cores), int(spec.vector_cores_per_cube))
        self.stream_limit, self.event_limit = self._by_name(STREAM_LIMITS, 1984), self._by_name(EVENT_LIMITS, 65536)

    def classic_events(self) -> int:
        """Events in use that occupy a hardware event."""
        return sum(event.classic for context in self.contexts for event in context.events.values())

    def _by_name(self, table: dict[str, int], otherwise: int) -> int:
        return next(
            (value for start, value in table.items() if self.spec.name.lower().removeprefix("ascend").startswith(start)),
            otherwise,
        )

    def attribute(self, name: str | int) -> int:
        """One attribute by name (``CUBE_CORE_NUM``) or number. Raises 100000 for one that no simulated chip knows."""
        names = {number: text for text, number in ATTRIBUTES.items()}
        key = names.get(name, str(name)) if isinstance(name, int) else name.upper()
        spec = self.spec
        values = {
            "AICORE_CORE_NUM": spec.cube_cores,
            "CUBE_CORE_NUM": spec.cube_cores,
            "VECTOR_CORE_NUM": spec.cube_cores * spec.vector_cores_per_cube,
            "UBUF_PER_VECTOR_CORE": spec.ub_bytes,
            "TOTAL_GLOBAL_MEM_SIZE": spec.gm_bytes,
            "L2_CACHE_SIZE": spec.l2_bytes,
            "PHY_CHIP_ID": self.device_id,
            "IS_VIRTUAL": 0,
            "NPU_ARCH": self._by_name(NPU_ARCH, 0),
        }
        if key not in values:
            raise AclError(100000, f"device attribute {name!r} is not known", remedy=f"one of {', '.join(ATTRIBUTES)}")
        return int(values[key])

    def properties(self) -> dict[str, int | str]:
        """All attributes at once, and the chip's name."""
        return {"soc_name": self.spec.name} | {name: self.attribute(name) for name in ATTRIBUTES}

    def copy_s(self, engine: str, length: int) -> float:
        """Seconds that a copy of ``length`` bytes takes on an engine: ``h2d``, ``d2h``, ``d2d`` or ``p2p``."""
        rates = links()
        if engine == "d2d":
            rate = float(self.spec.gm_bytes_per_s) / 2  # every byte is read and written
        else:
            rate = rates["peer_bytes_per_s" if engine == "p2p" else "pcie_bytes_per_s"][self.spec.architecture]
        return rates["copy_startup_s"] + length / rate
