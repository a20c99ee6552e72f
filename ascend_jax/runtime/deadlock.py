"""What stands still, and why: the explanation of a deadlock."""

from ascend_jax.runtime.engine.scheduler import Scheduler
from ascend_jax.runtime.engine.task import Task


def explain(scheduler: Scheduler) -> str:
    """A line for every stream whose first task cannot go on."""
    heads = [queue.tasks[0] for queue in scheduler.queues.values() if queue.tasks]
    lines = (f"  {head} {_reason(head)}; {len(head.queue.tasks) - 1} tasks behind it" for head in heads)
    return "\n".join(lines)


def _reason(head: Task) -> str:
    if head.rendezvous is not None:
        ready = ", ".join(f"device {task.device_id}" for task in head.rendezvous.tasks)
        return f"waits for {head.rendezvous.parties} parties, of which are ready: {ready or 'none'}"
    if head.after is not None and not head.after.done:
        source = head.after if isinstance(head.after, Task) else head.after.source
        if source is None:
            return "waits for an event that nobody has recorded"
        return f"waits for {source}, which stands behind {source.queue.tasks[0]}"
    return "waits for cores"
