"""What a simulated timeline is made of: when each stage of each tile runs on its pipe. Plain NumPy."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


class StageInfo(NamedTuple):
    """One stage of the kernel's graph.

    Attributes:
      name: what the kernel calls it, ``mm_qk``.
      pipe: what it occupies: ``Cube``, ``MTE1``, ``MTE2``, ``FixPipe``, ``Vector``, ``Vector MTE2``, ``MTE3`` or ``Scalar``.
      core: ``cube`` or ``vector``; a vector stage runs on each vector core of the pair, at the same time.
    """

    name: str
    pipe: str
    core: str


class FlowInfo(NamedTuple):
    """A hand-off from the stage ``producer`` to the stage ``consumer``.

    Attributes:
      producer: name of the stage that fills the slot.
      consumer: name of the stage that empties it.
      buffer: the buffer whose slot it is, None for order alone.
      handoff: whether it is a flag between cores.
    """

    producer: str
    consumer: str
    buffer: str | None
    handoff: bool


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
