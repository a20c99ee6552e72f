"""What each rank has after a collective: one function an operator, from all ranks' inputs to all ranks' outputs.

Inputs are one array a rank, in order of the ranks; outputs a list of arrays, None where a rank gets nothing.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate

import numpy as np

from ascend_jax.runtime.hccl.kinds import ReduceOp
from ascend_jax.runtime.hccl.plan import INTER, INTRA, Plan, Topology
from ascend_jax.runtime.hccl.reduction import Combine, combine_with, reduce_parts

Inputs = Sequence[np.ndarray]
Outputs = list[np.ndarray | None]


def all_reduce(inputs: Inputs, op: ReduceOp, plan: Plan, topology: Topology) -> Outputs:
    """The reduction of all inputs, for everyone."""
    total = reduced(inputs, op, plan, topology)
    return [total] * len(inputs)


def reduce(inputs: Inputs, op: ReduceOp, plan: Plan, topology: Topology, root: int) -> Outputs:
    """The reduction of all inputs, for the root."""
    total = reduced(inputs, op, plan, topology)
    return [total if rank == root else None for rank in range(len(inputs))]


def reduced(inputs: Inputs, op: ReduceOp, plan: Plan, topology: Topology) -> np.ndarray:
    """Within each server piece by piece, then each piece between the servers, in the orders of the plan."""
    combine, orders = combine_with(op), plan.orders()
    within, between = orders.get(INTRA, "mesh"), orders.get(INTER, "ring")
    if not topology.is_even:
        sums = [reduce_parts(within, [inputs[rank] for rank in ranks], 0, combine) for ranks in topology.servers]
        return reduce_parts(within, sums, 0, combine)
    total = np.empty_like(inputs[0])
    for place, piece in _pieces(len(total), topology.sizes[0]):
        sums = [reduce_parts(within, [inputs[rank][piece] for rank in ranks], place, combine) for ranks in topology.servers]
        mine = total[piece]
        for server, part in _pieces(len(mine), len(sums)):
            mine[part] = reduce_parts(between, [one[part] for one in sums], server, combine)
    return total


def reduce_scatter(inputs: Inputs, op: ReduceOp, plan: Plan, topology: Topology) -> Outputs:
    """Piece r of the reduction, for rank r: between the servers first, then within."""
    combine, orders = combine_with(op), plan.orders()
    within, between = orders.get(INTRA, "mesh"), orders.get(INTER, "ring")
    pieces = [np.split(one, len(inputs)) for one in inputs]
    outputs: Outputs = [None] * len(inputs)
    for server, ranks in enumerate(topology.servers):
        for place, rank in enumerate(ranks):
            parts = [one[rank] for one in pieces]
            outputs[rank] = _between_first(parts, (server, place), (within, between), combine, topology)
    return outputs


def _between_first(
    parts: Inputs, owner: tuple[int, int], orders: tuple[str, str], combine: Combine, topology: Topology
) -> np.ndarray:
    (server, place), (within, between) = owner, orders
    if not topology.is_even:
        sums = [reduce_parts(within, [parts[rank] for rank in ranks], 0, combine) for ranks in topology.servers]
        return reduce_parts(within, sums, 0, combine)
    planes = zip(*topology.servers, strict=True)  # ranks of one place, server by server
    sums = [reduce_parts(between, [parts[rank] for rank in plane], server, combine) for plane in planes]
    return reduce_parts(within, sums, place, combine)


def all_gather(inputs: Inputs) -> Outputs:
    """All inputs behind one another, for everyone."""
    whole = np.concatenate(inputs)
    return [whole] * len(inputs)


def broadcast(inputs: Inputs, root: int) -> Outputs:
    """The root's, for everyone."""
    return [inputs[root]] * len(inputs)


def scatter(whole: np.ndarray, ranks: int) -> Outputs:
    """Piece r of the root's, for rank r."""
    return list(np.split(whole, ranks))


def all_to_all(inputs: Inputs) -> Outputs:
    """Piece j of rank i becomes piece i of rank j."""
    pieces = [np.split(one, len(inputs)) for one in inputs]
    return [np.concatenate([one[rank] for one in pieces]) for rank in range(len(inputs))]


def _pieces(count: int, ranks: int) -> Iterator[tuple[int, slice]]:
    """``count`` elements over the ranks as evenly as possible: the first ones get one more."""
    small, more = divmod(count, ranks)
    ends = list(accumulate([small + (rank < more) for rank in range(ranks)]))
    for rank, end in enumerate(ends):
        yield rank, slice(0 if rank == 0 else ends[rank - 1], end)
