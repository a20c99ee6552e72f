"""What a task that has failed becomes where the host synchronises."""

from ascend_jax.runtime.engine.task import Task
from ascend_jax.runtime.errors import AclError


def failure(tasks: list[Task]) -> AclError:
    """The exception for tasks that have failed: the first one's, with the place that submitted it."""
    task, error = tasks[0], tasks[0].error
    code = {"wait": 107019}.get(task.kind, 507014) if isinstance(error, TimeoutError) else getattr(error, "code", _fault(task))
    more = f" (and {len(tasks) - 1} more)" if len(tasks) > 1 else ""
    raised = AclError(code, f"{task} failed{more}: {type(error).__name__}: {error}")
    raised.__cause__ = error
    return raised


def _fault(task: Task) -> int:
    """The code of a kernel that went wrong: on vector cores, elsewhere on cores, or not on cores at all."""
    return 507035 if task.core == "vector" else 507015 if task.kind == "kernel" else 500000
