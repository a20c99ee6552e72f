"""What a kernel is: buffers it occupies, stages a tile passes through, and the flows between them. Described once, read by
occupancy, cost, timeline and trace."""

from dataclasses import dataclass, field
from typing import Literal, Protocol

from jax import Array
from jax.tree_util import register_dataclass

from ascend_jax._pytree import Leaf
from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.kernels.geometry import Geometry
from ascend_jax.kernels.l0 import L0Steps
from ascend_jax.rounding import Rounding
from ascend_jax.tiling.tiling import Tiling
from ascend_jax.workload.attention import Attention

Memory = Literal["UB", "L1", "L0A", "L0B", "L0C", "GM"]
Path = Literal["gm_to_l1", "gm_to_ub", "ub_to_gm", "l0c_to_gm", "l0c_to_ub", "ub_to_l1"]
Stream = Literal["q", "kv", "again", "mask", "workspace", "out", "chip"]
"""What a transfer carries, which decides how much of it L2 serves: all of what was read just before (``again``); ``chip`` never
leaves the AI core."""


@dataclass(frozen=True)
class Stage:
    """One step of a tile on one pipe. Stages of a pipe are issued in the order in which the graph lists them.

    ``late`` stages work ``preload`` tiles behind the others. A ``per_row`` stage runs once per task, not once per tile: before
    the task's first tile if it ``opens`` the task, else after its last. A stage that moves data over ``gm`` keeps its pipe for
    as long as the bytes pass, but what it moved is visible only ``NpuSpec.gm_latency_s`` later.
    """

    name: str
    pipe: str
    late: bool = False
    per_row: bool = False
    opens: bool = False
    gm: bool = False


@dataclass(frozen=True)
class Flow:
    """A hand-off of a tile from ``producer`` to ``consumer`` through ``buffer``, whose slots bound how far one may run ahead.

    Without a buffer it is an order only: the consumer of tile t waits for the producer of tile t − ``lag``. A ``chunked`` flow
    hands the tile over in pieces, so that both work on one tile at a time; its slots, of L0C or of UB, each hold a piece.
    ``handoff`` marks a flag between cores, which takes ``NpuSpec.handoff_s`` in each direction.

    A flow with a ``per_row`` end holds a slot for a whole task: it is filled before (or with) the first tile, and free again
    after the last. From a row stage to a tile stage it binds the task's first tile, the other way its last.
    """

    producer: str
    consumer: str
    buffer: str | None = None
    chunked: bool = False
    handoff: bool = False
    lag: int = 0

    @property
    def in_l0c(self) -> bool:
        """Whether the buffer is L0C, which both matrix multiplications share."""
        return self.buffer is not None and self.buffer.endswith("in L0C")


@dataclass(frozen=True)
class Graph:
    """The static part of a kernel: stages in issue order, and the flows between them.

    Attributes:
      stages, flows: as they are.
      joined: pipes that one queue issues, each stage after the end of the one before, in the order of ``stages``.
      group: tiles that are issued together: each queue works through its first stage for all tiles of a group, then through
        the next (see :meth:`issue_order`). 1: stages take turns tile by tile, the late ones ``preload`` tiles behind.
    """

    stages: tuple[Stage, ...]
    flows: tuple[Flow, ...]
    joined: tuple[str, ...] = ()
    group: int = 1

    def stage(self, name: str) -> Stage:
        """The stage called ``name``."""
        return next(stage for stage in self.stages if stage.name == name)

    def queue(self, stage: Stage) -> str:
        """What issues ``stage`` in order: its pipe, or the queue of the joined pipes."""
        return " + ".join(self.joined) if stage.pipe in self.joined else stage.pipe

    def issue_order(self, tiles: int) -> dict[str, list[tuple[str, int]]]:
        """What each queue issues for a group of ``tiles`` tiles, in order: stages, and which tile of the group.

        In a queue of joined pipes a stage and what the others do with its result stay together: Q·Kᵀ and its FixPipe.
        """
        units: dict[str, list[list[str]]] = {}
        for stage in self.tile_stages:
            found = units.setdefault(self.queue(stage), [])
            follows = stage.pipe in self.joined[1:] and found
            found[-1].append(stage.name) if follows else found.append([stage.name])
        return {
            queue: [(name, tile) for unit in found for tile in range(tiles) for name in unit] for queue, found in units.items()
        }

    @property
    def tile_stages(self) -> tuple[Stage, ...]:
        """Stages that run once per tile."""
        return tuple(stage for stage in self.stages if not stage.per_row)

    @property
    def row_stages(self) -> tuple[Stage, ...]:
        """Stages that run once per task (a block of q rows)."""
        return tuple(stage for stage in self.stages if stage.per_row)

    @property
    def tile_flows(self) -> tuple[Flow, ...]:
        """Flows from tile to tile."""
        return tuple(flow for flow in self.flows if not self._of_a_row(flow))

    @property
    def row_flows(self) -> tuple[Flow, ...]:
        """Flows with a row stage at one end or both."""
        return tuple(flow for flow in self.flows if self._of_a_row(flow))

    @property
    def first_load(self) -> str:
        """The stage with which a tile begins to take its share of GM."""
        return next(stage.name for stage in self.tile_stages if stage.gm and not stage.late)

    def _of_a_row(self, flow: Flow) -> bool:
        return self.stage(flow.producer).per_row or self.stage(flow.consumer).per_row


@register_dataclass
@dataclass(frozen=True, kw_only=True)
class Buffer:
    """``slots`` copies of ``rows × columns`` elements in one memory of one core (numbers of rank 0).

    Each slot is padded to the memory's alignment; ``align_bytes`` overrides that for an allocator with a rule of its own.
    """

    memory: Memory = field(metadata={"static": True})
    rows: Leaf
    columns: Leaf
    element_bytes: int = field(metadata={"static": True})
    slots: Leaf = 1.0
    align_bytes: int | None = field(default=None, metadata={"static": True})


@register_dataclass
@dataclass(frozen=True, kw_only=True)
class Transfer:
    """Bytes over one path: ``bursts`` contiguous bursts of ``burst_bytes``, issued as ``instructions`` DMA instructions.

    ``units`` cores of one task do it at the same time (each of the vector cores moves its own rows).
    """

    path: Path = field(metadata={"static": True})
    stream: Stream = field(metadata={"static": True})
    bursts: Leaf
    burst_bytes: Leaf
    instructions: Leaf = 1.0
    units: Leaf = 1.0


@register_dataclass
@dataclass(frozen=True, kw_only=True)
class Matmul:
    """``[m, k] × [k, n]`` on the Cube, fed from L1 through L0A and L0B and left in L0C."""

    m: Leaf
    k: Leaf
    n: Leaf


@register_dataclass
@dataclass(frozen=True, kw_only=True)
class VectorOps:
    """Vector instructions on float32 elements of one vector core.

    ``elements`` maps an operation (a field of ``VectorCosts``) to how many elements it works on; ``instructions`` is how
    many start on an idle pipe. ``fused`` operations are one vector function, which keeps operands in registers.
    """

    elements: dict[str, Leaf]
    instructions: Leaf
    fused: bool = field(default=False, metadata={"static": True})


Work = tuple[Transfer | Matmul | VectorOps, ...]
"""What one stage does for one tile (or row): its parts run one after the other on the stage's pipe."""


class Kernel(Protocol):
    """A dataflow: static graph, and the numbers on it for one chip, workload and tiling (all of rank 0)."""

    @property
    def name(self) -> str:
        """What a person calls it."""
        ...

    @property
    def graph(self) -> Graph:
        """Its stages and flows."""
        ...

    @property
    def runs_on(self) -> tuple[str, ...]:
        """Architectures whose cores can work this way."""
        ...

    @property
    def ignores(self) -> tuple[str, ...]:
        """Fields of ``Tiling`` that make no difference to it."""
        ...

    @property
    def kv_rows(self) -> int:
        """Keys of the pieces in which a block passes through L1; 0: whole blocks."""
        ...

    @property
    def trim(self) -> bool:
        """Whether it leaves out those pieces of a block that the mask hides."""
        ...

    @property
    def operator(self) -> bool:
        """Whether it is one of the vendor's operators, with their scalar work before the first task."""
        ...

    @property
    def needs(self) -> tuple[str, ...]:
        """Fields of ``NpuSpec`` (paths) without which it cannot run."""
        ...

    def buffers(self, spec: NpuSpec, work: Attention, tiling: Tiling, rounding: Rounding) -> dict[str, Buffer]:
        """Every buffer by name; those that a flow passes through carry the flow's ``buffer`` name."""
        ...

    def work(self, spec: NpuSpec, work: Attention, shape: Geometry) -> dict[str, Work]:
        """What each stage does, by stage name."""
        ...

    def chunks(self, shape: Geometry, qk: L0Steps, pv: L0Steps) -> dict[str, Array]:
        """Into how many pieces each chunked flow's tile is cut, by buffer name."""
        ...
