"""What a simulated timeline is made of: when each stage of each tile runs on its pipe. Plain NumPy."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np


class StageInfo(NamedTuple):
    """One stage of the kernel's graph.

    Attributes:
      name: what the kernel calls it, ``mm_qk``.
      pipe: what it occupies: ``Cube``, ``MTE1``, ``MTE2``, ``FixPipe``, ``Vector``, ``Vector MTE2``, ``MTE3`` or ``Scalar``.
      core: ``cube`` or ``vector``; a vector stage runs on each vector core of the pair, at the same time.
      per_row: whether it runs once per task rather than once per tile.
    """

    name: str
    pipe: str
    core: str
    per_row: bool = False


class FlowInfo(NamedTuple):
    """A hand-off from the stage ``producer`` to the stage ``consumer``.

    Attributes:
      producer: name of the stage that fills the slot.
      consumer: name of the stage that empties it.
      buffer: the buffer whose slot it is, None for order alone.
      handoff: whether it is a flag between cores.
      chunked: whether a tile passes in pieces, each through a slot of its own.
      lag: the consumer of tile t waits for the producer of tile t − lag.
    """

    producer: str
    consumer: str
    buffer: str | None
    handoff: bool
    chunked: bool = False
    lag: int = 0


@dataclass(frozen=True, kw_only=True)
class Events:
    """A chunk of the events of one cube core with its vector cores, in order of start; arrays ``[E]``.

    Attributes:
      core: index of the cube core.
      stages: the stages that ``stage`` points into.
      stage: index into ``stages``.
      task: task (block of q rows) on this core, from 0.
      tile: tile within the task; -1 for a stage that runs once per task.
      start_s: when it takes its pipe, seconds from the kernel's start.
      end_s: when it leaves the pipe.
      done_s: when its result is visible: the end, and the latency.
    """

    core: int
    stages: tuple[StageInfo, ...]
    stage: np.ndarray
    task: np.ndarray
    tile: np.ndarray
    start_s: np.ndarray
    end_s: np.ndarray
    done_s: np.ndarray


class Simulated(Protocol):
    """What a timeline has to tell those who write it down: its stages and flows, its buffers, and its events."""

    @property
    def stages(self) -> tuple[StageInfo, ...]:
        """The stages of a tile and of a task."""
        ...

    @property
    def flows(self) -> tuple[FlowInfo, ...]:
        """The hand-offs between them."""
        ...

    @property
    def slot_bytes(self) -> Mapping[str, float]:
        """Bytes of one slot, per buffer."""
        ...

    @property
    def memory(self) -> Mapping[str, str]:
        """The memory that holds it, per buffer."""
        ...

    @property
    def slots(self) -> Mapping[str, int]:
        """How many slots it has, per buffer."""
        ...

    @property
    def vector_cores_per_cube(self) -> int:
        """Vector cores that work with one cube core."""
        ...

    @property
    def cores(self) -> int:
        """Cube cores that have any task."""
        ...

    def chunks(self, cores: Sequence[int]) -> Iterator[Events]:
        """The events of these cube cores, core by core, in order of start."""
        ...
