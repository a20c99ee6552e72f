"""The formulas of the collectives against slow simulations of what the algorithms send, step by step."""

import itertools
import math

import pytest

from ascend_jax.runtime.errors import AclError
from ascend_jax.runtime.hccl.choice import AlgoText, cheapest, choose, read_algo
from ascend_jax.runtime.hccl.constants import load_constants
from ascend_jax.runtime.hccl.costs import Cost, ahc, at_once, cost, pairwise
from ascend_jax.runtime.hccl.link_tasks import link_tasks
from ascend_jax.runtime.hccl.plan import Topology, exchange_plan, make_plan, transfer_plan

N = 5040.0
RANKS = range(2, 18)
CONSTANTS = load_constants("Ascend910B3")


def ring_steps(p: int) -> list[float]:
    """Bytes that the busiest rank sends in each step of a ring reduce-scatter: rank r begins with piece r - 1."""
    holds = {rank: (rank - 1) % p for rank in range(p)}
    steps = []
    for _ in range(p - 1):
        steps.append(N / p)
        holds = {(rank + 1) % p: piece for rank, piece in holds.items()}
    assert all(rank == piece for rank, piece in holds.items())  # everyone ends with its own piece
    return steps


def bruck_steps(p: int) -> list[float]:
    """The same of NB and NHR: pieces whose remaining distance is an odd multiple of the step's go on by that step."""
    pieces = {(rank, owner) for rank in range(p) for owner in range(p)}
    steps, distance = [], 1
    while distance < p:
        going = {(r, o) for r, o in pieces if (o - r) % p % (2 * distance) == distance}
        steps.append(max(sum(rank == r for r, _ in going) for rank in range(p)) * N / p)
        pieces = (pieces - going) | {((r + distance) % p, o) for r, o in going}
        distance *= 2
    assert all(rank == owner for rank, owner in pieces)
    return steps


def halving_steps(p: int) -> list[float]:
    """The same of recursive halving over a power of two."""
    steps, size = [], N
    while p > 1:
        size, p = size / 2, p // 2
        steps.append(size)
    return steps


def as_cost(steps: list[float], *, reduces: bool) -> Cost:
    return Cost(len(steps), sum(steps), sum(steps) if reduces else 0.0)


def close(found: Cost, expected: Cost) -> bool:
    return (found.steps, found.moved, found.reduced) == pytest.approx((expected.steps, expected.moved, expected.reduced))


@pytest.mark.parametrize("p", RANKS)
def test_formulas_are_the_steps_of_the_algorithms(p: int) -> None:
    for name, steps in (("ring", ring_steps(p)), ("nb", bruck_steps(p)), ("nhr", bruck_steps(p))):
        scattered, gathered = as_cost(steps, reduces=True), as_cost(steps, reduces=False)
        assert close(cost(name, "reduce_scatter", p, N), scattered)
        assert close(cost(name, "all_gather", p, N), gathered)
        assert close(cost(name, "all_reduce", p, N), scattered + gathered)
    if p & (p - 1) == 0:
        assert close(cost("rhd", "reduce_scatter", p, N), as_cost(halving_steps(p), reduces=True))


@pytest.mark.parametrize("p", [p for p in RANKS if p & (p - 1)])
def test_rhd_off_the_powers_of_two_merges_first_and_restores(p: int) -> None:
    block = 2 ** (p.bit_length() - 1)
    inner = cost("rhd", "all_reduce", block, N)
    assert close(cost("rhd", "all_reduce", p, N), inner + Cost(1, N, N) + Cost(1, N))
    assert close(cost("rhd", "reduce", p, N), inner + Cost(1, N, N))
    k = block.bit_length() - 1
    found = cost("rhd", "reduce_scatter", p, N)
    middle = (found.moved - N - N / p) / (N / p)  # bounds of the page: k + 2^k - 1 and 2^(k+1) - 2 shares
    assert k + block - 1 <= middle + 1e-9 and middle <= 2 * block - 2 + 1e-9
    assert found.steps == k + 2
    assert cost("rhd", "all_gather", p, N) == Cost(found.steps, found.moved)


def test_a_mesh_needs_one_step_and_a_single_rank_none() -> None:
    assert close(cost("mesh", "all_reduce", 8, 800.0), Cost(2, 200.0, 700.0))
    assert close(cost("mesh", "broadcast", 8, 800.0), Cost(2, 200.0))
    assert close(cost("star", "broadcast", 8, 800.0), Cost(1, 800.0))
    assert close(cost("double_ring", "all_gather", 4, 800.0), Cost(3, 300.0))
    for name in ("ring", "mesh", "rhd", "nhr", "star"):
        assert cost(name, "all_reduce", 1, N) == Cost()


def test_pairwise_waits_for_the_largest_message_of_each_step() -> None:
    sent = [[0.0, 5.0, 1.0], [2.0, 0.0, 3.0], [9.0, 4.0, 0.0]]
    by_step = [max(5.0, 3.0, 9.0), max(1.0, 2.0, 4.0)]
    assert pairwise(sent) == Cost(2, sum(by_step))
    assert at_once(sent) == Cost(1, 9.0)


def test_ahc_of_equal_groups_without_convergence_is_one_flat_exchange() -> None:
    found = ahc("all_reduce", (4, 4), N, 1.0)
    assert found.moved == pytest.approx(2 * 7 / 8 * N) and found.reduced == pytest.approx(7 / 8 * N)
    assert found.steps == 2 * (2 + 1)


def test_stages_over_servers_move_what_their_level_has_to() -> None:
    topology = Topology.even(16, 8)
    plan = make_plan("all_reduce", N, topology, CONSTANTS, read_algo("level0:NA;level1:NHR"))
    assert [(stage.level, stage.what, stage.algorithm, stage.ranks, stage.bytes) for stage in plan.stages] == [
        ("intra", "reduce_scatter", "mesh", 8, N),
        ("inter", "all_reduce", "nhr", 2, N / 8),
        ("intra", "all_gather", "mesh", 8, N),
    ]
    assert plan.seconds == pytest.approx(sum(stage.cost.seconds(stage.link) for stage in plan.stages))
    assert plan.algorithm == "mesh within, nhr between servers"
    gather = make_plan("all_gather", N, topology, CONSTANTS, read_algo("level1:ring"))
    assert [(stage.level, stage.bytes) for stage in gather.stages] == [("intra", N / 2), ("inter", N)]
    scatter = make_plan("reduce_scatter", N, topology, CONSTANTS, read_algo("level1:ring"))
    assert [(stage.level, stage.bytes) for stage in scatter.stages] == [("inter", N), ("intra", N / 2)]
    broadcast = make_plan("broadcast", N, topology, CONSTANTS, read_algo("level1:ring"))
    assert broadcast.stages[1].algorithm in ("rhd", "nhr")  # a ring does no broadcast


def test_seconds_by_hand() -> None:
    plan = make_plan("all_reduce", 8e6, Topology.even(8, 8), CONSTANTS, AlgoText())
    alpha, beta = (1.5 + 1 + 0.02) * 1e-6, 1 / (18.3 * 2**30)  # steps of 1 MB are large
    assert plan.seconds == pytest.approx(2 * alpha + 2 * 1e6 * beta + 7e6 * 1e-10)
    message = transfer_plan((0, 9), 1000.0, Topology.even(16, 8), CONSTANTS)
    assert message.seconds == pytest.approx((7 + 1.02) * 1e-6 + 1000 / (20 * 2**30))


def test_a_pipeline_hides_the_shorter_level() -> None:
    topology, n = Topology.even(32, 8), 32e6
    plan = make_plan("all_gather", n, topology, CONSTANTS, AlgoText())
    piece = n / 32
    inter, intra = Cost(1, piece).seconds(CONSTANTS.inter), Cost(1, piece).seconds(CONSTANTS.intra)
    assert plan.algorithm == "pipeline"
    assert plan.seconds == pytest.approx(max(inter, intra) * 3 + intra)
    twice = make_plan("all_reduce", 64e6, topology, CONSTANTS, AlgoText())
    assert twice.algorithm == "pipeline" and twice.seconds == pytest.approx(
        2 * (max(Cost(1, 2e6).seconds(CONSTANTS.inter), Cost(1, 2e6).seconds(CONSTANTS.intra)) * 3
             + Cost(1, 2e6).seconds(CONSTANTS.intra))
    )  # fmt: skip


def test_all_to_all_gathers_within_the_server_what_goes_to_one_place() -> None:
    plan = exchange_plan([[1.0] * 4] * 4, Topology.even(4, 2), CONSTANTS, AlgoText())
    assert [(stage.algorithm, stage.cost.moved) for stage in plan.stages] == [("mesh", 2.0), ("pairwise", 2.0)]


def test_uneven_servers_need_ahc() -> None:
    topology = Topology.even(5, 3)
    assert make_plan("all_reduce", N, topology, CONSTANTS, AlgoText()).stages[0].algorithm == "ahc"
    with pytest.raises(AclError, match="3, 2 ranks"):
        make_plan("broadcast", N, topology, CONSTANTS, AlgoText())


@pytest.mark.parametrize("m", [2, 3, 4, 5, 8, 12])
@pytest.mark.parametrize("size", [1e3, 1e6, 1e9])
def test_the_cheapest_is_the_cheapest_with_ties_to_the_ring(m: int, size: float) -> None:
    bandwidth, latency = 20 * 2**30, 60e-6
    seconds = {
        "ring": (m - 1) * latency + (m - 1) / m * size / bandwidth,
        "nhr": math.ceil(math.log2(m)) * latency + (m - 1) / m * size / bandwidth,
        "rhd": math.ceil(math.log2(m)) * latency
        + (1 if m & (m - 1) else 0) * size / bandwidth
        + (m - 1) / m * size / bandwidth,
    }
    best = cheapest("all_gather", m, 8, size, CONSTANTS)
    assert seconds[best] == pytest.approx(min(seconds.values()))
    if m == 2:
        assert best == "ring"
    assert best != "rhd"  # NHR is never worse, and comes first


def test_chips_differ_in_what_they_take_between_servers() -> None:
    old, new = load_constants("Ascend910A"), load_constants("Ascend950PR_957x")
    assert [choose("all_reduce", servers, 8, 1e6, old, AlgoText()) for servers in (3, 4)] == ["ring", "rhd"]
    assert choose("all_reduce", 2, 8, 1e3, new, AlgoText()) == "nhr"
    assert load_constants("Ascend910_9382").level0 == "double_ring"
    with pytest.raises(ValueError, match="Ascend910B"):
        load_constants("H100")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("level0:ring;level1:ring", "only NA"),
        ("level1:fast", "level1:fast"),
        ("gather=level1:ring", "gather"),
        ("ring", "ring"),
    ],
)
def test_a_wrong_hccl_algo_is_refused_with_its_word(text: str, word: str) -> None:
    with pytest.raises(AclError, match=word) as raised:
        read_algo(text)
    assert raised.value.category == "EI0001"


def test_nhr_v1_has_no_published_time() -> None:
    with pytest.raises(AclError, match="NHR_V1"):
        choose("all_reduce", 4, 8, 1e6, CONSTANTS, read_algo("level1:NHR_V1"))


@pytest.mark.parametrize("what", ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"])
@pytest.mark.parametrize(("per_server", "level1"), [(16, "NHR"), (8, "ring"), (8, "H-D_R"), (8, "pipeline"), (4, "NB")])
def test_tasks_of_links_fill_the_time_of_the_plan(what: str, per_server: int, level1: str) -> None:
    plan = make_plan(what, 64e6, Topology.even(16, per_server), CONSTANTS, read_algo(f"level1:{level1}"))
    tasks = list(link_tasks(plan, 5, CONSTANTS.notify_wait_s))
    assert max(task.start_s + task.duration_s for task in tasks) == pytest.approx(plan.seconds)
    assert sum(task.bytes for task in tasks if task.plane == 0) == pytest.approx(sum(stage.cost.moved for stage in plan.stages))
    for plane in {task.plane for task in tasks}:
        mine = [task for task in tasks if task.plane == plane and plan.pipelined_s is None]  # a pipeline's levels overlap
        ends = sorted((task.start_s, task.start_s + task.duration_s) for task in mine)
        assert all(end <= start + 1e-12 for (_, end), (start, _) in itertools.pairwise(ends))
    assert ("Reduce_Inline" in {task.name for task in tasks}) == (what in ("all_reduce", "reduce_scatter", "reduce"))
    assert all(task.source != task.target for task in tasks)
