"""What a profiler may collect: numbers of ``acl_prof.h`` (hicann/runtime, docs/zh/api_ref/19-01_data_profiling_apis.md)."""

from enum import IntEnum, IntFlag


class DataType(IntFlag):
    """``dataTypeConfig``: bits that may be joined."""

    ACL_API = 0x1
    TASK_TIME = 0x2
    AICORE_METRICS = 0x4
    AICPU = 0x8
    L2CACHE = 0x10
    HCCL_TRACE = 0x20
    TRAINING_TRACE = 0x40
    MSPROFTX = 0x80
    RUNTIME_API = 0x100
    GE_API_L0 = 0x200
    TASK_TIME_L0 = 0x800
    TASK_MEMORY = 0x1000
    TASK_TIME_L2 = 0x2000
    OP_ATTR = 0x4000


EVERYTHING = (
    DataType.ACL_API
    | DataType.TASK_TIME
    | DataType.AICORE_METRICS
    | DataType.HCCL_TRACE
    | DataType.RUNTIME_API
    | DataType.TASK_MEMORY
    | DataType.OP_ATTR
)
"""All of it that a simulated chip can tell."""
ANY_TIME = DataType.TASK_TIME | DataType.TASK_TIME_L0 | DataType.TASK_TIME_L2
ANY_API = DataType.ACL_API | DataType.RUNTIME_API | DataType.GE_API_L0


class AicoreMetrics(IntEnum):
    """Which counters of the cores. A simulated chip has those of PIPE_UTILIZATION."""

    ARITHMETIC_UTILIZATION = 0
    PIPE_UTILIZATION = 1
    MEMORY_BANDWIDTH = 2
    L0B_AND_WIDTH = 3
    RESOURCE_CONFLICT_RATIO = 4
    MEMORY_UB = 5
    L2_CACHE = 6
    PIPE_EXECUTE = 7
    MEMORY_ACCESS = 8
    NONE = 0xFF
