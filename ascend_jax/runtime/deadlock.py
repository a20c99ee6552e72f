"""What stands still, and why: the explanation of a deadlock."""

from ascend_jax.runtime.engine.scheduler import Scheduler
from ascend_jax.runtime.engine.task import Task
from ascend_jax.runtime.errors import AclError


def waits_in_vain(scheduler: Scheduler) -> Exception | None:
    """The error of a collective that holds up a stream because others never come to it; None without one."""
    parties = (queue.tasks[0].rendezvous for queue in scheduler.queues.values() if queue.tasks)
    return next(filter(None, (party.timeout() for party in parties if party is not None)), None)


def deadlock(scheduler: Scheduler, what: str, code: int) -> Exception:
    """The error for ``what``, which will never be done: a collective's own, or ``code`` with all that stands still."""
    if (error := waits_in_vain(scheduler)) is not None:
        return error
    return AclError(
        code,
        f"deadlock: {what} will never be done\n{explain(scheduler)}",
        cause="tasks wait for what nobody is going to do",
        remedy="record the events, or join the collectives, named above",
    )


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
