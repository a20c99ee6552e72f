"""The tuner's evaluator over all devices of a mesh: blocks are cut into as many parts, everything else is on each of them.

Every candidate is worked out by itself, so that the parts exchange nothing while they work. The devices may be those of several
processes (``jax.distributed``): each reads the rows of its own devices, and what the processes keep of them is gathered and
merged by the rules by which one process merges chunks. So the winners are those of one device.
"""

import pickle
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ascend_jax._compile import OFTEN, SELDOM, options
from ascend_jax._pytree import as_arrays
from ascend_jax.cost.overlap import Overlap
from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.kernels.kernel import Kernel
from ascend_jax.workload.attention import Attention
from ascend_jax.workload.problem import problem
from tiling_search.exhaustive import (
    CHUNK,
    MILLIONS,
    Columns,
    Evaluator,
    fit_depths,
    prepare_blocks,
    report_tilings,
    score_depths,
)
from tiling_search.space import depth_rows

BLOCKS = "blocks"
LENGTH_BYTES = 8
SMALLEST_MESSAGE = 1024
"""Bytes that a gathered value takes at least; beyond, powers of two, so that few shapes occur."""
T = TypeVar("T")


class LostError(ConnectionError):
    """Another process of the computation is not there any more."""


class _Programs(NamedTuple):
    """The computations of one kernel and overlap model."""

    fit_least: Callable[..., Any]
    fit: Callable[..., Any]
    prepare: Callable[..., Any]
    score: Callable[..., Any]
    prepare_here: Callable[..., Any]
    report: Callable[..., Any]


class OnDevices:
    """Builds evaluators over ``devices``; to be given to :func:`tiling_search.tune` as ``evaluators``.

    It is the share (:class:`tiling_search.exhaustive.Share`) of its evaluators, too. Where the devices are those of several
    processes, all of them must do the same searches in the same order; they trust each other's messages, as jax does.

    Raises:
      ValueError: no device.
    """

    def __init__(self, devices: Sequence[Any]) -> None:
        if not devices:
            raise ValueError("no devices: give at least one")
        self._mesh = Mesh(np.array(devices), (BLOCKS,))
        self._blocks = NamedSharding(self._mesh, PartitionSpec(BLOCKS))
        self._devices, self._each = len(devices), -(-CHUNK // len(devices))
        owners = [device.process_index for device in devices]
        self._firsts = [owners.index(process) for process in dict.fromkeys(owners)]
        mine = [place for place, owner in enumerate(owners) if owner == jax.process_index()]
        self._rows = mine[0] * self._each, (mine[-1] + 1) * self._each
        self._replicate = jax.jit(lambda tree: tree, out_shardings=NamedSharding(self._mesh, PartitionSpec()))
        self._programs = cache(self._programs_of)

    def __call__(
        self, spec: NpuSpec, work: Attention, kernel: Kernel, overlap: Overlap, folder: Path | None = None
    ) -> Evaluator:
        """As :meth:`tiling_search.exhaustive.Evaluator.build`; nothing is kept in ``folder``: jax's own cache does that."""
        with jax.enable_x64(True):
            numbers, given = as_arrays(spec), problem(work)
        return Evaluator(numbers, given, depth_rows(kernel), *self._programs(kernel, overlap), share=self)

    def rows(self, count: int) -> slice:
        start, stop = (min(row, count) for row in self._rows)
        return slice(start, stop)

    def gather(self, own: T) -> list[T]:
        if len(self._firsts) == 1:
            return [own]
        message = pickle.dumps(own)
        size = SMALLEST_MESSAGE
        while True:
            sent = np.zeros(size, np.uint8)
            sent[:LENGTH_BYTES] = np.frombuffer(len(message).to_bytes(LENGTH_BYTES, "little"), np.uint8)
            part = message[: size - LENGTH_BYTES]
            sent[LENGTH_BYTES : LENGTH_BYTES + len(part)] = np.frombuffer(part, np.uint8)
            got = [row.tobytes() for row in self._exchange(sent)]
            lengths = [int.from_bytes(row[:LENGTH_BYTES], "little") for row in got]
            if max(lengths) + LENGTH_BYTES <= size:
                return [pickle.loads(row[LENGTH_BYTES:][:length]) for row, length in zip(got, lengths, strict=True)]
            size = 1 << (max(lengths) + LENGTH_BYTES - 1).bit_length()

    def _exchange(self, sent: np.ndarray) -> np.ndarray:
        """The array of each process, a row each. Nothing else waits for other processes."""
        shape = self._devices, len(sent)
        rows = jax.make_array_from_callback(shape, self._blocks, lambda index: sent[None])
        try:
            return np.asarray(self._replicate(rows))[self._firsts]
        except (jax.errors.JaxRuntimeError, ValueError) as error:  # which one depends on who notices first
            raise LostError(str(error).partition("\n")[0]) from error

    def _cut(self, columns: Columns) -> Columns:
        """Columns ``[CHUNK]``, filled up to what the devices share evenly, a part on each."""
        filler = self._each * self._devices - CHUNK
        filled = [np.concatenate([column, np.repeat(column[-1:], filler)]) for column in columns]
        return tuple(
            jax.make_array_from_callback(column.shape, self._blocks, lambda index, column=column: column[index])
            for column in filled
        )

    def _programs_of(self, kernel: Kernel, overlap: Overlap) -> _Programs:
        one, cut = PartitionSpec(), PartitionSpec(BLOCKS)

        def sharded(function: Callable[..., Any], wanted: dict[str, Any], *specs: PartitionSpec) -> Callable[..., Any]:
            """By ``shard_map``: a partitioner would have the devices agree on when to end a loop, without need."""
            mapped = jax.shard_map(function, mesh=self._mesh, in_specs=specs, out_specs=cut, check_vma=False)
            return jax.jit(mapped, compiler_options=options(wanted))

        fits = lambda *args: fit_depths(*args, kernel)  # noqa: E731
        fit = sharded(fits, OFTEN, one, one, cut, one)
        prepares = lambda *args: prepare_blocks(*args, kernel, overlap)  # noqa: E731
        prepare = sharded(prepares, SELDOM, one, one, cut)
        score = sharded(lambda *args: score_depths(*args, kernel), MILLIONS, one, one, cut, cut, one)
        return _Programs(
            jax.jit(fits, compiler_options=options(OFTEN)),
            lambda spec, given, blocks, depths: _own(fit(spec, given, self._cut(blocks), depths)),
            lambda spec, given, blocks: prepare(spec, given, self._cut(blocks)),
            lambda spec, given, ready, blocks, depths: tuple(map(_own, score(spec, given, ready, self._cut(blocks), depths))),
            jax.jit(prepares, compiler_options=options(SELDOM)),
            jax.jit(lambda *args: report_tilings(*args, kernel), compiler_options=options(SELDOM)),
        )


def _own(array: Any) -> np.ndarray:
    """The rows of an array that lie on devices of this process, in order."""
    shards = sorted(array.addressable_shards, key=lambda shard: shard.index[0].start or 0)
    return np.concatenate([np.asarray(shard.data) for shard in shards])
