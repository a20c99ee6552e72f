"""Starting and stopping: the calls of ``aclprof…`` with their order, and :func:`profile` for a ``with`` statement."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ascend_jax.runtime.errors import AclError, recorded
from ascend_jax.runtime.profiler.files import Style, write_profile
from ascend_jax.runtime.profiler.kinds import EVERYTHING, AicoreMetrics, DataType
from ascend_jax.runtime.profiler.profile import Profile
from ascend_jax.runtime.profiler.recorder import Recorder

if TYPE_CHECKING:
    from ascend_jax.runtime.system import System

NOT_RUN, ALREADY_RUN, CONFLICT = 100043, 100042, 148047


@dataclass(frozen=True)
class ProfConfig:
    """``aclprofCreateConfig``: devices (None: all), counters and kinds of data."""

    devices: tuple[int, ...] | None = None
    metrics: AicoreMetrics = AicoreMetrics.PIPE_UTILIZATION
    data: DataType = EVERYTHING


class Profiler:
    """The calls of ``aclprof…`` in their order: init, start, stop, finalize. Files are written when it is finalised."""

    def __init__(self, system: "System") -> None:
        self.system = system
        self.folder: Path | None = None
        self.profile: Profile | None = None
        self._recorder: Recorder | None = None

    @recorded
    def init(self, folder: str | Path) -> None:
        """Say where the files go. Raises 100042 a second time."""
        if self.folder is not None:
            raise AclError(ALREADY_RUN, f"the profiler is initialised already, with {self.folder}", remedy="finalize it first")
        self.folder = Path(folder)

    def create_config(
        self,
        devices: Sequence[int] | None = None,
        metrics: AicoreMetrics = AicoreMetrics.PIPE_UTILIZATION,
        data: DataType = EVERYTHING,
    ) -> ProfConfig:
        """What to collect. Raises 107001 for a device that is not there."""
        for device in devices or ():
            self.system.device(device)
        return ProfConfig(None if devices is None else tuple(devices), AicoreMetrics(metrics), DataType(data))

    @recorded
    def start(self, config: ProfConfig) -> None:
        """Record from now on. Raises 100043 before init, 100042 while one records, 148047 while torch's profiler does."""
        if self.folder is None:
            raise AclError(NOT_RUN, "the profiler is started before init", remedy="call init(folder) first")
        self._recorder = start_recording(self.system, "acl", config)

    @recorded
    def stop(self) -> Profile:
        """Stop recording. Raises 100043 where nothing records."""
        if self._recorder is None:
            raise AclError(NOT_RUN, "the profiler is stopped before it was started", remedy="call start(config) first")
        recorder, self._recorder = self._recorder, None
        self.profile = recorder.end()
        return self.profile

    @recorded
    def finalize(self) -> list[Path]:
        """Stop if need be, write the files of the last recording and return them. Raises 100043 before init."""
        if self.folder is None:
            raise AclError(NOT_RUN, "the profiler is finalised before init", remedy="call init(folder) first")
        if self._recorder is not None:
            self.stop()
        folder, self.folder = self.folder, None
        return [] if self.profile is None else write_profile(self.profile, folder)


@contextmanager
def profile(
    system: "System", folder: str | Path | None = None, config: ProfConfig | None = None, *, style: Style = "msprof"
) -> Iterator[Profile]:
    """Record what runs inside, to its end; and write files there if there is a ``folder``, whatever has been raised.

    Args:
      system: whose tasks.
      folder: where the files go; None: none.
      config: what to record; None: everything.
      style: ``msprof`` for the files of CANN's profiler, ``torch`` for those of torch_npu's.

    >>> from ascend_jax.runtime.engine.task import Task
    >>> from ascend_jax.runtime.system import System
    >>> with System(["910b3"]) as system, profile(system) as found:
    ...     _ = system.set_device(0).default_stream.submit(Task(name="add", op_type="Add", kind="kernel", duration_s=1e-6))
    >>> found.rows[0].name, round(found.rows[0].duration_s, 9)
    ('add', 1e-06)
    """
    recorder = start_recording(system, "torch" if style == "torch" else "acl", config or ProfConfig())
    try:
        yield recorder.profile
        if not system.finalised:
            drain(system)
    finally:
        found = recorder.end()
        if folder is not None:
            write_profile(found, folder, style=style)


def start_recording(system: "System", mode: str, config: ProfConfig) -> Recorder:
    """Begin, unless another records. Raises 100042 for one of the same kind, 148047 for the other."""
    running = next((one for one in system.listeners if isinstance(one, Recorder)), None)
    if running is not None and running.mode == mode:
        raise AclError(ALREADY_RUN, "a profiler records already", remedy="stop it first")
    if running is not None:
        what = f"a profiler of the other kind ({running.mode}) records already"
        raise AclError(CONFLICT, what, remedy="use one way of profiling at a time")
    recorder = Recorder(system, mode, config.devices, config.data, config.metrics)
    recorder.begin()
    return recorder


def drain(system: "System") -> None:
    """The host waits for everything that has been submitted, as a profiler does before it stops."""
    with system.lock:
        streams = [stream for device in system.devices for context in device.contexts for stream in context.streams.values()]
        for stream in streams:
            if stream.tail is not None and not stream.tail.done:
                system.wait_for(stream.tail, f"stream {stream.stream_id}", -1, 507046)
