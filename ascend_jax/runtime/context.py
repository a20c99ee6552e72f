"""Contexts: who owns streams and events, and what fails together."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ascend_jax.runtime.errors import AclError
from ascend_jax.runtime.event import Event
from ascend_jax.runtime.recording import recorded_calls
from ascend_jax.runtime.stream import Stream

if TYPE_CHECKING:
    from ascend_jax.runtime.device import Device
    from ascend_jax.runtime.system import System


@recorded_calls
class Context:
    """Streams, events and a state of failure of one device; one of another context cannot be used.

    ``primary`` is the one that ``set_device`` makes and all threads share; others come from ``create_context``.
    """

    def __init__(self, system: System, device: Device, context_id: int, *, primary: bool, site: str = "") -> None:
        self.system, self.device, self.context_id, self.primary, self.site = system, device, context_id, primary, site
        self.streams: dict[int, Stream] = {}
        self.events: dict[int, Event] = {}
        self.destroyed = False
        self.failure: str = ""
        self.default_stream = self.create_stream()

    def create_stream(self, *, priority: int = 0, persistent: bool = False) -> Stream:
        """A new stream. Raises 207008 when the device has no more, with a table of who owns them."""
        with self.system.lock:
            self.check_alive()
            limit = self.device.stream_limit
            owned = sum(len(context.streams) for context in self.device.contexts)
            if owned >= limit:
                what = f"device {self.device.device_id} has {limit} streams, all in use\n{self._owners('streams')}"
                raise AclError(207008, what, remedy="destroy streams that are no longer needed, or share them")
            stream = Stream(self, self.system.new_id(), priority=priority, persistent=persistent, site=self.system.site())
            self.streams[stream.stream_id] = stream
        return stream

    def destroy_stream(self, stream: Stream, *, force: bool = False) -> None:
        """Wait for its tasks (``force``: drop those that have not started), then destroy it. Not the default stream."""
        with self.system.lock:
            stream.check()
            if stream is stream.context.default_stream:
                raise AclError(107000, f"{stream} is the context's default stream", remedy="destroy the context instead")
            if stream.context is not self:
                raise AclError(107003, f"{stream} is not of context {self.context_id}", remedy="ask stream.context")
            if force:
                stream.abort()
            elif stream.tail is not None:
                self.system.wait_for(stream.tail, f"stream {stream.stream_id}", -1, 507046)
            stream.destroyed = True
            del self.streams[stream.stream_id]

    def create_event(self, *, timing: bool = True, classic: bool = False) -> Event:
        """A new event. Raises 207007 when it is of the classic kind and the device has no more of those."""
        with self.system.lock:
            self.check_alive()
            if classic and self.device.classic_events() >= self.device.event_limit:
                what = (
                    f"device {self.device.device_id} has {self.device.event_limit} events, all in use\n{self._owners('events')}"
                )
                raise AclError(207007, what, remedy="destroy events, or make them of the kind that needs none (classic=False)")
            event = Event(self, self.system.new_id(), timing=timing, classic=classic, site=self.system.site())
            self.events[event.event_id] = event
        return event

    def destroy_event(self, event: Event) -> None:
        """Destroy it at once, also where its record is still to come."""
        with self.system.lock:
            event._is_alive()
            event.destroyed = True
            self.events.pop(event.event_id, None)

    def synchronize(self, timeout_ms: int = -1) -> None:
        """The host waits for all streams of the context. Raises the first failure."""
        with self.system.lock:
            self.check_alive()
            for stream in list(self.streams.values()):
                stream.synchronize(timeout_ms)

    def check_alive(self) -> None:
        """Raises 107017 when it is destroyed."""
        if self.destroyed:
            raise AclError(107017, f"context {self.context_id} was destroyed", remedy="set another context in this thread")

    def check(self) -> None:
        """Whether it still takes work."""
        self.check_alive()
        if self.failure:
            raise AclError(107022, f"context {self.context_id} has stopped: {self.failure}", remedy="destroy and make it anew")

    def _owners(self, kind: str) -> str:
        """How many streams or events each place of the program has made, the most first."""
        owned = Counter(
            f"context {context.context_id}, {item.site or 'unknown place'}"
            for context in self.device.contexts
            for item in getattr(context, kind).values()
        )
        return "\n".join(f"  {number:6} {owner}" for owner, number in owned.most_common(10))
