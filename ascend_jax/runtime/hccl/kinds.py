"""The enumerations of HCCL: data types, reductions and the operators themselves.

Numbers are those of ``hccl_types.h`` (hcomm, include/hccl).
"""

from enum import Enum, IntEnum

import jax.numpy as jnp
import numpy as np


class DataType(IntEnum):
    """``HcclDataType``."""

    INT8 = 0
    INT16 = 1
    INT32 = 2
    FP16 = 3
    FP32 = 4
    INT64 = 5
    UINT64 = 6
    UINT8 = 7
    UINT16 = 8
    UINT32 = 9
    FP64 = 10
    BFP16 = 11
    HIF8 = 14
    FP8E4M3 = 15
    FP8E5M2 = 16
    FP8E8M0 = 17

    @property
    def numpy(self) -> np.dtype:
        """The type of one element. HiFloat8 has none in numpy: its bytes are moved as they are."""
        return _NUMPY[self]

    @property
    def bytes(self) -> int:
        """Of one element; buffers must be aligned to it."""
        return self.numpy.itemsize


_NUMPY = {
    DataType.INT8: np.dtype(np.int8),
    DataType.INT16: np.dtype(np.int16),
    DataType.INT32: np.dtype(np.int32),
    DataType.FP16: np.dtype(np.float16),
    DataType.FP32: np.dtype(np.float32),
    DataType.INT64: np.dtype(np.int64),
    DataType.UINT64: np.dtype(np.uint64),
    DataType.UINT8: np.dtype(np.uint8),
    DataType.UINT16: np.dtype(np.uint16),
    DataType.UINT32: np.dtype(np.uint32),
    DataType.FP64: np.dtype(np.float64),
    DataType.BFP16: np.dtype(jnp.bfloat16),
    DataType.HIF8: np.dtype(np.uint8),
    DataType.FP8E4M3: np.dtype(jnp.float8_e4m3fn),
    DataType.FP8E5M2: np.dtype(jnp.float8_e5m2),
    DataType.FP8E8M0: np.dtype(jnp.float8_e8m0fnu),
}


class ReduceOp(IntEnum):
    """``HcclReduceOp``."""

    SUM = 0
    PROD = 1
    MAX = 2
    MIN = 3


class Collective(Enum):
    """The operators. The value is the name that the profiler shows (``hcom_allReduce_``)."""

    ALL_REDUCE = "allReduce"
    ALL_GATHER = "allGather"
    REDUCE_SCATTER = "reduceScatter"
    BROADCAST = "broadcast"
    REDUCE = "reduce"
    SCATTER = "scatter"
    ALL_TO_ALL = "alltoall"
    ALL_TO_ALL_V = "alltoallv"
    BARRIER = "barrier"
    SEND = "send"
    RECEIVE = "receive"
    BATCH_SEND_RECV = "batchSendRecv"

    @property
    def python(self) -> str:
        """The name of its method."""
        return self.name.lower().replace("receive", "recv")

    @property
    def reduces(self) -> bool:
        """It computes, and so has a :class:`ReduceOp`."""
        return self in (Collective.ALL_REDUCE, Collective.REDUCE_SCATTER, Collective.REDUCE)
