"""A few ranks on simulated devices, each with a stream and buffers, for the tests of collectives."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ascend_jax.runtime.hccl.communicator import Communicator
from ascend_jax.runtime.hccl.init import CommConfig, comm_init_all
from ascend_jax.runtime.stream import Stream
from ascend_jax.runtime.system import Options, System

PATIENCE = Options(deadlock_patience_s=0.05, hazards="raise")


class World:
    """``ranks`` devices with a communicator each; ``streams[r]`` is the default one of rank r."""

    def __init__(
        self, ranks: int, config: CommConfig | None = None, *, chip: str = "910b3", options: Options = PATIENCE
    ) -> None:
        self.system = System([chip] * ranks, options=options)
        self.system.init()
        self.contexts = [self.system.set_device(rank) for rank in range(ranks)]
        self.streams: list[Stream] = [context.default_stream for context in self.contexts]
        self.comms = comm_init_all(self.system, range(ranks), config)

    @property
    def ranks(self) -> range:
        """Their numbers."""
        return range(len(self.comms))

    def on(self, rank: int) -> Stream:
        """Make the rank's context this thread's; its stream."""
        self.system.set_context(self.contexts[rank])
        return self.streams[rank]

    def put(self, rank: int, values: np.ndarray) -> int:
        """A new buffer with ``values`` on the rank's device; its address."""
        memory = self.system.device(rank).memory
        address = memory.malloc(max(values.nbytes, 1))
        memory.view(address, values.nbytes)[:] = values.reshape(-1).view(np.uint8)
        return address

    def get(self, rank: int, address: int, like: np.ndarray) -> np.ndarray:
        """What lies there, in shape and type of ``like``."""
        held = self.system.device(rank).memory.view(address, like.nbytes)
        return held.view(like.dtype).reshape(like.shape).copy()

    def each(self, call: Callable[[int, Communicator, Stream], Any], ranks: Sequence[int] | None = None) -> list[Any]:
        """Call it for every rank, in the rank's context."""
        return [call(rank, self.comms[rank], self.on(rank)) for rank in (self.ranks if ranks is None else ranks)]

    def synchronize(self) -> None:
        """Wait for all ranks."""
        self.each(lambda rank, comm, stream: comm.synchronize(stream))
