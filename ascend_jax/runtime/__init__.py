"""A small runtime: devices, memory, streams, events and operators as CANN has them, in virtual time.

These are the public names; each is imported at its first use.
"""

from typing import TYPE_CHECKING

from ascend_jax._front_door import front_door

if TYPE_CHECKING:
    from ascend_jax.runtime.context import Context
    from ascend_jax.runtime.engine.task import Rendezvous, Task
    from ascend_jax.runtime.errors import AclError, OutOfMemoryError
    from ascend_jax.runtime.event import Event
    from ascend_jax.runtime.hazards import Hazard
    from ascend_jax.runtime.hccl.init import comm_init_all
    from ascend_jax.runtime.host import Options
    from ascend_jax.runtime.memory.caching import CachingAllocator
    from ascend_jax.runtime.memory.pool import MemPool, MemPoolProps
    from ascend_jax.runtime.memory.ub_plan import plan_ub
    from ascend_jax.runtime.ops.phases import Operators
    from ascend_jax.runtime.ops.registry import Registry
    from ascend_jax.runtime.ops.tensor import Tensor
    from ascend_jax.runtime.profiler.session import profile
    from ascend_jax.runtime.stream import Stream
    from ascend_jax.runtime.system import System

__all__ = [
    "AclError",
    "CachingAllocator",
    "Context",
    "Event",
    "Hazard",
    "MemPool",
    "MemPoolProps",
    "Operators",
    "Options",
    "OutOfMemoryError",
    "Registry",
    "Rendezvous",
    "Stream",
    "System",
    "Task",
    "Tensor",
    "comm_init_all",
    "plan_ub",
    "profile",
]

__getattr__, __dir__ = front_door(
    __name__,
    {
        "context": ("Context",),
        "engine.task": ("Rendezvous", "Task"),
        "errors": ("AclError", "OutOfMemoryError"),
        "event": ("Event",),
        "hazards": ("Hazard",),
        "hccl.init": ("comm_init_all",),
        "host": ("Options",),
        "memory.caching": ("CachingAllocator",),
        "memory.pool": ("MemPool", "MemPoolProps"),
        "memory.ub_plan": ("plan_ub",),
        "ops.phases": ("Operators",),
        "ops.registry": ("Registry",),
        "ops.tensor": ("Tensor",),
        "profiler.session": ("profile",),
        "stream": ("Stream",),
        "system": ("System",),
    },
)
