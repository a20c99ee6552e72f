"""What HCCL refuses of one rank's call before it looks at the others'."""

from typing import TYPE_CHECKING

from ascend_jax.runtime.engine.task import Span
from ascend_jax.runtime.errors import AclError
from ascend_jax.runtime.hccl.calls import Call
from ascend_jax.runtime.hccl.group import Group
from ascend_jax.runtime.hccl.kinds import Collective, DataType

if TYPE_CHECKING:
    from ascend_jax.runtime.device import Device

OUT_OF_BOUNDS = 1
"""HCCL_E_PARA: found before anything is submitted, where hardware would fault."""

SENT: dict[Collective, tuple[str, bool | None]] = {
    Collective.REDUCE_SCATTER: ("whole", None),
    Collective.ALL_TO_ALL: ("whole", None),
    Collective.BROADCAST: ("each", True),
    Collective.SCATTER: ("whole", True),
    Collective.RECEIVE: ("", None),
}
"""What a rank reads where it is not ``count``: a piece for each rank, or nothing; and whether only the root does (True)."""
RECEIVED: dict[Collective, tuple[str, bool | None]] = {
    Collective.ALL_GATHER: ("whole", None),
    Collective.ALL_TO_ALL: ("whole", None),
    Collective.BROADCAST: ("each", False),
    Collective.REDUCE: ("each", True),
    Collective.SEND: ("", None),
}
"""The same of what it writes; False: all but the root."""
Spans = tuple[tuple[Span, ...], tuple[Span, ...]]


def check_call(call: Call, group: Group, device: "Device", peer: int | None = None) -> Spans:
    """What the rank's task reads and writes. Raises ``AclError`` for arguments that are wrong by themselves.

    ``peer`` is that of a message.
    """
    if call.collective is Collective.BARRIER:
        return (), ()
    _check_kinds(call, group)
    if call.count < 0:
        raise _refused(call, f"count {call.count} is negative", "give the number of elements")
    for name, rank in (("root", call.root), ("peer", peer)):
        if rank is not None and not 0 <= rank < group.size:
            raise _refused(call, f"{name} {rank} is no rank of {group.name}", f"0 to {group.size - 1}")
    if peer == call.rank:
        raise _refused(call, f"rank {peer} is its own peer", "copy on the device instead")
    if call.collective is Collective.ALL_TO_ALL_V:
        _check_counts(call, group.size)
    return _check_buffers(call, group.size, device)


def _check_kinds(call: Call, group: Group) -> None:
    if not isinstance(call.dtype, DataType):
        raise _refused(call, f"dtype {call.dtype!r} is no DataType", "write DataType.FP16, for example")
    if call.collective.reduces and call.op is None:
        raise _refused(call, "there is no reduction", "give ReduceOp.SUM, PROD, MAX or MIN")
    if not group.constants.takes(call.collective, call.dtype, call.op):
        what = f"{call.collective.python} of {call.dtype.name}" + ("" if call.op is None else f" with {call.op.name}")
        types = group.constants.reduced if call.collective.reduces else group.constants.moved
        remedy = f"use one of {', '.join(sorted(one.name for one in types))}"
        raise AclError(5, f"{what} is not supported on {group.constants.generation}", remedy=remedy)


def _check_counts(call: Call, size: int) -> None:
    for name, counts in zip(("send counts", "send offsets", "receive counts", "receive offsets"), call.counts, strict=True):
        if len(counts) != size or min(counts) < 0:
            raise _refused(call, f"{name} {list(counts)} are wrong", f"give {size} numbers, none negative")
    if call.send == call.receive:
        raise _refused(call, "both buffers are the same", "receive into another one")


def _check_buffers(call: Call, size: int, device: "Device") -> Spans:
    """Null, alignment to the element, and whether the allocation holds them."""
    reads, writes = spans(call, size)
    for name, needed, address in (("send", reads, call.send), ("receive", writes, call.receive)):
        for start, length in needed:
            if not address:
                raise AclError(2, f"{call.collective.python} of rank {call.rank}: the {name} buffer is null")
            if start % call.dtype.bytes:
                what = f"{name} buffer {start:#x} is not aligned to the {call.dtype.bytes} B of {call.dtype.name}"
                raise _refused(call, what, "give an aligned address")
            if length:
                device.memory.table.check(start, length, f"{name} buffer of {call.collective.python}", OUT_OF_BOUNDS)
    return reads, writes


def spans(call: Call, size: int) -> Spans:
    """What the rank's task reads and writes."""
    if call.collective is Collective.ALL_TO_ALL_V:
        return _pieces(call, call.send or 0, 0), _pieces(call, call.receive or 0, 2)
    each = call.count * call.dtype.bytes
    sizes = {"each": each, "whole": each * size}
    is_root = call.rank == call.root
    what, of_root = SENT.get(call.collective, ("each", None))
    reads = ((call.send or 0, sizes[what]),) if what and of_root in (None, is_root) else ()
    what, of_root = RECEIVED.get(call.collective, ("each", None))
    return reads, ((call.receive or 0, sizes[what]),) if what and of_root in (None, is_root) else ()


def _pieces(call: Call, address: int, first: int) -> tuple[Span, ...]:
    size = call.dtype.bytes
    pieces = zip(call.counts[first], call.counts[first + 1], strict=True)
    return tuple((address + offset * size, count * size) for count, offset in pieces if count)


def _refused(call: Call, what: str, remedy: str) -> AclError:
    return AclError(
        1, f"{call.collective.python} of rank {call.rank}: {what}", cause="the argument is not valid", remedy=remedy
    )
