"""``Scheduler``: which task runs when. Streams are queues; cores and copy engines are what tasks compete for.

A task starts when it is the head of its stream, has been submitted, what it waits for has happened, and all cores (or the
engine) that it needs are free. Among tasks that wait for the same cores the smaller priority number goes first, then the one
that was ready first; none overtakes another that needs the same kind of core, and none is interrupted.
"""

import heapq
from collections import deque
from collections.abc import Callable
from itertools import count

from ascend_jax.runtime.engine.task import Signal, Task


class Queue:
    """The tasks of one stream that have not ended, oldest first."""

    def __init__(self, scheduler: "Scheduler", device_id: int, stream_id: int, priority: int) -> None:
        self.scheduler, self.device_id, self.stream_id, self.priority = scheduler, device_id, stream_id, priority
        self.tasks: deque[Task] = deque()


class Cores:
    """The cores and copy engines of one device, and the tasks that wait for them."""

    def __init__(self, cube: int, vector_per_cube: int) -> None:
        self.total = {"cube": cube, "vector": cube * vector_per_cube}
        self.free = dict(self.total)
        self.vector_per_cube = vector_per_cube
        self.waiting: list[tuple[int, float, int, Task]] = []

    def needs(self, task: Task) -> dict[str, int]:
        """Cores of each kind, or the engine, that ``task`` occupies: never more than there are."""
        if task.engine:
            return {task.engine: 1}
        if task.core == "none":
            return {}
        cube = min(max(1, task.block_dim), self.total["cube"])
        if task.core == "cube":
            return {"cube": cube}
        if task.core == "mix":
            return {"cube": cube, "vector": cube * self.vector_per_cube}
        return {"vector": min(max(1, task.block_dim), self.total["vector"])}

    def take(self) -> list[Task]:
        """The waiting tasks that may start now; their cores are taken."""
        started, kept, blocked = [], [], set()
        while self.waiting:
            entry = heapq.heappop(self.waiting)
            if entry[-1].dropped:
                continue
            needs = self.needs(entry[-1])
            if not blocked.intersection(needs) and all(self.free.setdefault(kind, 1) >= n for kind, n in needs.items()):
                self._change(needs, -1)
                started.append(entry[-1])
            else:
                kept.append(entry)
                blocked.update(needs)
                if len(blocked) == len(self.free):
                    break
        for entry in kept:
            heapq.heappush(self.waiting, entry)
        return started

    def give_back(self, task: Task) -> None:
        """The cores of a task that has ended."""
        self._change(self.needs(task), 1)

    def _change(self, needs: dict[str, int], sign: int) -> None:
        for kind, number in needs.items():
            self.free[kind] += sign * number


class Scheduler:
    """Virtual time and everything that happens in it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.cores: dict[int, Cores] = {}
        self.queues: dict[int, Queue] = {}
        self.listeners: list[Callable[[Task], None]] = []
        self.task_timeout_s = 0.0
        self._events: list[tuple[float, int, Callable[[Task], None], Task]] = []
        self._numbers, self._task_ids = count(), count()
        self._wanted: set[int] = set()

    def queue(self, device_id: int, stream_id: int, priority: int) -> Queue:
        """A new stream's queue."""
        self.queues[stream_id] = Queue(self, device_id, stream_id, priority)
        return self.queues[stream_id]

    def submit(self, queue: Queue, task: Task, at_s: float) -> None:
        """Append ``task``; the host submits it at ``at_s``, which is now where time has passed that already."""
        task.task_id, task.stream_id, task.device_id = next(self._task_ids), queue.stream_id, queue.device_id
        task.submit_s, task.queue = max(at_s, self.now), queue
        queue.tasks.append(task)
        if len(queue.tasks) == 1:
            self._to_head(task)

    def advance(self, until_s: float) -> None:
        """Everything that happens up to ``until_s``."""
        while self._events and self._events[0][0] <= until_s:
            self.step()
        self.now = max(self.now, until_s)

    @property
    def next_s(self) -> float | None:
        """When the next thing happens; None: nothing will by itself."""
        return self._events[0][0] if self._events else None

    def step(self) -> bool:
        """The next thing that happens; False if nothing will. Cores are given out once all that happens at one time has."""
        if not self._events:
            return False
        self.now, _, act, task = heapq.heappop(self._events)
        act(task)
        if self._wanted and (not self._events or self._events[0][0] > self.now):
            wanted, self._wanted = self._wanted, set()
            for device_id in sorted(wanted):
                for started in self.cores[device_id].take():
                    self._start(started)
        return True

    def drop(self, queue: Queue, error: Callable[[Task], BaseException]) -> None:
        """End every task of the stream that has not started, with ``error``."""
        dropped = [task for task in queue.tasks if task.start_s is None]
        for task in dropped:
            task.dropped, task.error = True, error(task)
            if task.rendezvous is not None and task in task.rendezvous.tasks:
                task.rendezvous.tasks.remove(task)
        while queue.tasks and queue.tasks[-1].dropped:
            queue.tasks.pop()
        for task in dropped:
            self._end(task)

    def offer(self, task: Task) -> None:
        """The head of a stream, once more or for the first time: it starts, or waits for what it lacks."""
        if task.dropped or task.ready_s is not None:
            return
        if task.after is not None and not task.after.done:
            task.after.waiters.append(task)
            if task.timeout_s:
                self._at(self.now + task.timeout_s, self._wait_is_over, task)
            return
        task.ready_s = self.now
        if task.rendezvous is not None:
            self._meet(task)
        elif task.core == "none" and not task.engine:
            self._start(task)
        else:
            heapq.heappush(self.cores[task.device_id].waiting, (task.queue.priority, self.now, task.task_id, task))
            self._wanted.add(task.device_id)

    def _to_head(self, task: Task) -> None:
        self._at(max(task.submit_s, self.now), self.offer, task)

    def _meet(self, task: Task) -> None:
        party = task.rendezvous
        assert party is not None
        party.tasks.append(task)
        if len(party.tasks) == party.parties:
            for one in party.tasks:
                self._start(one)

    def _start(self, task: Task) -> None:
        task.start_s = self.now
        if task.kind == "kernel" and 0 < self.task_timeout_s < task.duration_s:
            task.error = TimeoutError(f"{task} ran longer than {self.task_timeout_s} s")
            task.duration_s = self.task_timeout_s
        self._at(self.now + task.duration_s, self._finish, task)

    def _wait_is_over(self, task: Task) -> None:
        """The timeout of a wait: it fails, and its stream goes on."""
        if task.ready_s is None and not task.dropped:
            assert task.after is not None
            task.after.waiters.remove(task)
            task.ready_s = task.start_s = self.now
            task.error = TimeoutError(f"{task} waited {task.timeout_s} s in vain")
            self._finish(task)

    def _finish(self, task: Task) -> None:
        if task.core != "none" or task.engine:
            self.cores[task.device_id].give_back(task)
            self._wanted.add(task.device_id)
        if task.run is not None and task.error is None:
            try:
                task.run()
            except Exception as error:
                task.error = error
        task.queue.tasks.popleft()
        self._end(task)
        if task.queue.tasks:
            self._to_head(task.queue.tasks[0])

    def _end(self, task: Task) -> None:
        task.end_s = self.now
        Signal.wake(task)
        for listener in self.listeners:
            listener(task)

    def _at(self, time_s: float, act: Callable[[Task], None], task: Task) -> None:
        heapq.heappush(self._events, (time_s, next(self._numbers), act, task))
