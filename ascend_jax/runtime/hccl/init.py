"""Making communicators: for all devices at once, or rank by rank with a root's information."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING

from ascend_jax.runtime.errors import AclError, recorded
from ascend_jax.runtime.hccl.choice import read_algo
from ascend_jax.runtime.hccl.communicator import Communicator
from ascend_jax.runtime.hccl.constants import Constants, load_constants
from ascend_jax.runtime.hccl.group import Group
from ascend_jax.runtime.hccl.plan import Topology

if TYPE_CHECKING:
    from ascend_jax.runtime.system import System


@dataclass(frozen=True, kw_only=True)
class CommConfig:
    """How a communicator works, where it is not to be as the environment and the chip say.

    Attributes:
      name: of the group, as the profile shows it.
      ranks_per_server: None: as many as a server of the chip's generation has.
      servers: ranks of each server, where they are uneven or not in order.
      algo: text of ``HCCL_ALGO``; None: the environment's.
      constants: α, β, γ; None: those of the chip in ``constants.toml``.
      buffer_mib: of each of its two buffers on the device; None: ``HCCL_BUFFSIZE``, or 200.
    """

    name: str = "hccl_world"
    ranks_per_server: int | None = None
    servers: tuple[tuple[int, ...], ...] | None = None
    algo: str | None = None
    constants: Constants | None = None
    buffer_mib: int | None = None


@recorded
def comm_init_all(system: "System", devices: Sequence[int], config: CommConfig | None = None) -> list[Communicator]:
    """One communicator a device, rank r on ``devices[r]`` (``HcclCommInitAll``).

    Raises:
      AclError: 107001 for a device that is not there, HCCL_E_PARA for one that comes twice or for servers that are no
        partition of the ranks.
    """
    twice = sorted({device for device in devices if devices.count(device) > 1})
    if twice or not devices:
        raise AclError(1, f"devices {list(devices)}: {f'{twice} come twice' if twice else 'none'}", remedy="each device once")
    group = _group(len(devices), system.device(devices[0]).spec.name, config or CommConfig())
    return [_join(system, group, rank, device) for rank, device in enumerate(devices)]


@dataclass(eq=False)
class RootInfo:
    """What the root gives to the others (``HcclGetRootInfo``)."""

    number: int = field(default_factory=count(1).__next__)
    group: Group | None = None


def get_root_info() -> RootInfo:
    """Information by which ranks find each other; the same object for all of them."""
    return RootInfo()


@recorded
def comm_init_root_info(
    system: "System", ranks: int, info: RootInfo, rank: int, config: CommConfig | None = None
) -> Communicator:
    """Rank ``rank`` of ``ranks``, on the device of this thread's context (``HcclCommInitRootInfo``); does not wait for others.

    Raises:
      AclError: 107002 without a context, HCCL_E_PARA for a rank or device that is taken or another number of ranks.
    """
    device = system.current_context().device.device_id
    with system.lock:
        if info.group is None:
            config = config or CommConfig(name=f"hccl_{info.number}")
            info.group = _group(ranks, system.device(device).spec.name, config)
        if info.group.size != ranks:
            what = f"rank {rank} joins a group of {info.group.size} ranks as one of {ranks}"
            raise AclError(4, what, remedy="give the same number of ranks everywhere", category="EI0015")
        return _join(system, info.group, rank, device)


def _group(ranks: int, chip: str, config: CommConfig) -> Group:
    constants = config.constants or load_constants(chip)
    if (size := _buffer_mib(config)) is not None:
        constants = replace(constants, buffer_bytes=size * 2**20)
    topology = Topology.even(ranks, config.ranks_per_server or constants.server_ranks)
    if config.servers is not None:
        topology = Topology(tuple(map(tuple, config.servers)))
        if sorted(rank for server in topology.servers for rank in server) != list(range(ranks)):
            raise AclError(1, f"servers {config.servers} are no partition of {ranks} ranks", remedy="name each rank once")
    algo = read_algo(os.environ.get("HCCL_ALGO", "") if config.algo is None else config.algo)
    return Group(name=config.name, size=ranks, constants=constants, topology=topology, algo=algo)


def _join(system: "System", group: Group, rank: int, device_id: int) -> Communicator:
    device = system.device(device_id)
    if not 0 <= rank < group.size or rank in group.devices:
        taken = "is taken" if rank in group.devices else f"is none of 0 to {group.size - 1}"
        raise AclError(1, f"rank {rank} of {group.name} {taken}", remedy="give each device a rank of its own")
    if device in group.devices.values():
        raise AclError(1, f"device {device_id} is already a rank of {group.name}", remedy="one rank a device")
    group.devices[rank] = device
    return Communicator(system, group, rank, device)


def _buffer_mib(config: CommConfig) -> int | None:
    """What the program or ``HCCL_BUFFSIZE`` says; None where neither does. Raises HCCL_E_PARA (EI0001) for what is no size."""
    text = os.environ.get("HCCL_BUFFSIZE", "") if config.buffer_mib is None else str(config.buffer_mib)
    if not text.strip():
        return None
    if not text.strip().isdecimal() or int(text) < 1:
        cause, remedy = "the variable cannot be read", "give whole MiB, at least 1"
        raise AclError(1, f"HCCL_BUFFSIZE={text!r} is no size", cause=cause, remedy=remedy, category="EI0001")
    return int(text)
