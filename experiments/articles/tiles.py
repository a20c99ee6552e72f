"""Tiles on the chip: the tiling table, the allocator of UB, what lies in L1, the "OOM" example, and the fallback."""

from typing import Any

from ascend_jax import kernel_for, load_chip
from ascend_jax.occupancy import ALIGN_BYTES, Occupancy, occupancy
from ascend_jax.runtime.memory.ub_plan import plan_ub
from ascend_jax.runtime.ops.failures import op_error_of
from ascend_jax.runtime.ops.plan import layered_plan
from ascend_jax.tiling.cann import cann_kernel, cann_tiling
from ascend_jax.tiling.rules import articles_block, articles_tiling
from ascend_jax.tiling.tiling import Tiling
from ascend_jax.workload.sequences import sequences
from experiments.articles.machine import CHIP, OLD_CHIP, Log, Machine, work
from experiments.articles.page import ARCHITECTURE, CALL_PATH, HANDS_ON, Page, program, refusal

KIB = 1024
UB = 256 * KIB
PRINTED = {(512, 64): (256, 2), (2048, 128): (128, 16), (4096, 128): (128, 32), (8192, 128): (128, 64)}
"""(sequence, head dim) → block and number of blocks, as the hands-on trace prints them; each with 245.8 KB of UB."""


def rule(spec: Any, attention: Any) -> tuple[Tiling, str]:
    """The articles' way to choose a tiling, for the dataflow that the articles describe."""
    sizes = (int(getattr(attention, name)) for name in ("head_dim", "q_len", "kv_len"))
    return articles_tiling(int(spec.ub_bytes), *sizes), "ub_resident"


def counted_kib(block: int, head_dim: int) -> float:
    """UB by the tiling function: five buffers of block × head dim."""
    return block * head_dim * 5 * 2 / KIB


def allocated_bytes(block: int, head_dim: int) -> int:
    """UB by the allocator: four buffers of block × head dim, and P of block × block (all are multiples of 128 here)."""
    return (4 * block * head_dim + block * block) * 2


def table_row(seq: int, head_dim: int) -> dict[str, Any]:
    """One row, recomputed: by the tiling function, by the allocator, and what the allocator makes of it on two chips."""
    block = articles_block(UB, head_dim)
    blocks = -(-seq // min(block, seq))
    found = {"block": block, "blocks": blocks, "kib": counted_kib(block, head_dim)}
    needs = allocated_bytes(block, head_dim)
    fitting = {}
    for name in (OLD_CHIP, CHIP):
        spec = load_chip(name)
        attention = work(seq, head_dim)
        fitting[name] = int(plan_ub(spec, attention, rule(spec, attention)[0]).tiling.block_q)
    return found | {"allocator_bytes": needs, "fits_256_kib": needs <= UB, "block_that_fits": fitting}


@program(f"{HANDS_ON}: tiling by hand for four shapes, and its table; {CALL_PATH}: the tiling function")
def tiling_table(page: Page) -> None:
    """The table as printed, as its own code gives it, and as the articles' allocator accepts it."""
    for (seq, dim), (block, blocks) in PRINTED.items():
        ours = table_row(seq, dim)
        why = (
            f"its own code gives {ours['block']} rows, {ours['blocks']} blocks and {ours['kib']:.1f} KiB; the allocator wants "
        )
        why += f"{ours['allocator_bytes']:,} B for it, of {UB:,}; P is block × block there, not block × head dim"
        page.point(f"seq {seq}, dim {dim}", {"block": block, "blocks": blocks, "kib": 245.8}, ours, why)
        page.show(
            f"seq={seq:5} dim={dim:3}  printed {block:3} rows, {blocks:2} blocks, 245.8 KB; recomputed {ours['block']} rows, "
            f"{ours['blocks']} blocks, {ours['kib']:.1f} KiB; fits {ours['block_that_fits']}"
        )
    printed = [counted_kib(block, dim) for (_, dim), (block, _) in PRINTED.items()]
    page.point("KiB of the printed blocks", [245.8] * 4, printed, "245.8 is 0.96 of 256, and no multiple of 16 rows gives it")
    dims = [next(dim for dim in range(1, 4096) if articles_block(UB, dim) < least) for least in (32, 16)]
    page.point("a block below 32 comes from", "a long sequence", f"a head dim from {dims[0]} on", "the sequence only caps it")
    page.point("head dim from which the block is 0", "not told", dims[1], "the code then divides by zero")
    page.point(
        "bytes that 16 elements align to", 128, ALIGN_BYTES["UB"], "16 × 2 bytes, the block of UB; 128 bytes are 64 elements"
    )
    capped = [min(articles_block(UB, 64), 100), int(articles_tiling(UB, 64, 100, 100).block_q)]
    page.point(
        "block for a sequence of 100", capped[0], capped[1], "a cap after the rounding undoes it; here it is whole fractals"
    )
    sizes = {name: int(load_chip(name).ub_bytes) for name in (OLD_CHIP, CHIP)}
    page.point("bytes of UB", UB, sizes, "256 KiB are those of the first generation; the A2 has 192 KiB in each vector core")
    real = cann_tiling(load_chip(CHIP), work(4096, 128, 32), "FlashAttentionScore")
    blocks_of = [int(real.block_q), int(real.block_kv)]
    page.point(
        "rows of Q and of K that are really taken",
        "by UB and head dim",
        blocks_of,
        "the operator's host code takes 64 or 128 × 1024 on A2",
    )


@program(f"{CALL_PATH}: the allocator of UB with five buffers, that shrinks the blocks and tries again")
def ub_allocation(page: Page) -> None:
    """Blocks of 400 rows, shrunk until they fit; where the buffers lie; and where the recursion ends."""
    spec, attention = load_chip(OLD_CHIP), work(512, 64)
    asked = rule(spec, attention)[0]
    asked = Tiling(**{**vars(asked), "block_q": 400, "block_kv": 400})  # the rule caps it at the sequence's length
    plan = plan_ub(spec, attention, asked)
    for block_q, block_kv, used in plan.steps:
        page.show(f"block_q={block_q} block_kv={block_kv}: {used:,} of {plan.capacity:,} B")
    page.show("\n".join(f"{name}: offset {one.offset:>7}, {one.size:>7} B" for name, one in plan.buffers.items()))
    sizes = {name: one.size for name, one in plan.buffers.items()}
    page.point("offsets", sizes, {name: one.offset for name, one in plan.buffers.items()}, WHY_OFFSETS)
    page.point("bytes for blocks of 400", "at most 262144", plan.steps[0][2], "so the shrinking is the rule, not the exception")
    page.point(
        "block that fits", "not told", int(plan.tiling.block_q), f"after {len(plan.steps)} tries; it fills UB to the byte"
    )
    too_wide = refusal(lambda: plan_ub(spec, work(512, 2048), rule(spec, work(512, 1024))[0]))
    page.show(f"\nhead dim 2048: {too_wide}")
    page.point("the shrinking always ends well", True, too_wide.code, "there is a floor of 16 rows: 262,656 B of 262,144 there")
    small = plan_ub(spec, work(256, 64), rule(spec, work(256, 64))[0])
    page.point(
        "the small call of the debugger", "not told", [int(small.tiling.block_q), small.used], "256 rows fill UB to the byte"
    )


WHY_OFFSETS = (
    "its fields are aligned sizes, so all five buffers overlap; an offset is the end of the buffer before, the first is 0"
)


@program(f"{ARCHITECTURE}: levels of memory, and tiles of Q, K, V and the accumulator in L1")
def on_chip_tiles(page: Page) -> None:
    """What the vendor's dataflows keep in each memory of a core."""
    held = {name: _held(page, name) for name in (OLD_CHIP, CHIP, "950pr_957x")}
    sizes = {name: int(one.capacity_bytes["L1"]) // KIB for name, one in held.items()}
    page.point("KiB of L1", 1024, sizes, "1 MiB is the first generation's; later cores have half")
    chip = held[CHIP].buffer_bytes
    why = "L1 feeds the Cube; the accumulator of O lies in UB, where the Vector is"
    page.point("tiles in L1", ["K", "Q", "V", "acc"], sorted(chip["L1"]), why)
    why = "O is block × head dim: 64 rows of 128 float32 in each vector core"
    page.point("bytes of the accumulator", "block_m × block_n", int(chip["UB"]["O"]), why)
    why = "on A2 there is no way from L0C to UB on the chip; on 950 there is"
    page.point("intermediates in GM", [], [name for name in chip["GM"] if "workspace" in name], why)
    l2 = {name: int(load_chip(name).l2_bytes) // KIB**2 for name in held}
    page.point("MiB of L2", "a few", l2, "the levels are also more than three: L1, L0A, L0B, L0C and UB of a core, L2, GM")


def _held(page: Page, chip: str) -> Occupancy:
    """The bytes of every buffer of the vendor's tiling of 32 heads of 4096 × 128."""
    spec, attention = load_chip(chip), work(4096, 128, 32)
    kernel = cann_kernel(spec.architecture, attention, "FlashAttentionScore")
    tiling = cann_tiling(spec, attention, "FlashAttentionScore")
    held = occupancy(spec, attention, sequences(attention), tiling, kernel_for(spec, kernel))
    for memory, buffers in held.buffer_bytes.items():
        sizes = ", ".join(f"{buffer} {int(size):,}" for buffer, size in buffers.items())
        page.show(f"{spec.name} {memory} ({int(held.capacity_bytes[memory]):,} B): {sizes}")
    return held


@program(f"{HANDS_ON}: sequence 10,000 with head dim 256 to provoke a UB overflow, and how to find out why")
def oom_example(page: Page) -> None:
    """The call that is said to fail, the sum that is said to explain it, and a call that does fail."""
    for name in (CHIP, OLD_CHIP):
        with Machine(name) as machine:
            _, executor = machine.attention(shape=(1, 8, 10000, 256))
            steps = executor.prepared.data.steps
            page.point(
                f"the call on {name}",
                "Tiling calculation failed: UB overflow",
                steps[-1],
                "it fits: blocks, not sequences, lie in UB",
            )
            too_wide = refusal(lambda machine=machine: machine.attention(shape=(1, 8, 512, 2048)))
    row = table_row(10000, 256)
    page.point("by the articles' own code", "UB overflow", row, "96 rows, 105 blocks: both of its counts are below 262,144 B")
    page.point("MB of one block", 25.6, counted_kib(row["block"], 256) * KIB / 1e6, "25.6 MB are five whole tensors of a head")
    most = 256 * KIB / 10 / 256
    page.point(
        "longest block", f"{most:.0f}", articles_block(UB, 256), "102.4 is rounded to 102, and 96 is the multiple of 16 below"
    )
    padded = (100 + 15) // 16
    page.point("pad_to_align(100)", padded, -(-100 // 16) * 16, "as printed it gives the number of blocks; times 16 is missing")
    longer = table_row(10256, 256)
    same = "none of the blocks has another size: the sequence sets their number"
    page.point("bytes of a block after padding by 256 rows", "fewer", longer["allocator_bytes"] - row["allocator_bytes"], same)
    page.show(f"head dim 2048, the operator: {too_wide}")
    page.point("head dim 2048, the operator", "not told", too_wide.code, too_wide.value + " " + too_wide.rule)
    spec = load_chip(OLD_CHIP)
    full = refusal(lambda: layered_plan(spec, work(512, 2048), rule))
    page.show(f"\nhead dim 2048, past the operator's check: {full}")
    page.point("head dim 2048, the planner", "not told", full.code, "not even 16 rows fit: 262,656 B asked, 262,144 available")


@program(f"{CALL_PATH}: checks, tiling, smaller blocks, padding, and dispatch; its three common errors")
def fallback(page: Page) -> None:
    """The layers one by one, each on the first shape that needs it."""
    spec = load_chip(OLD_CHIP)
    plans = {}
    for what, attention in {"dim 256": work(512, 256), "dim 128": work(512, 128), "dim 1800": work(512, 1800)}.items():
        with Log(1) as log:
            plans[what] = layered_plan(spec, attention, rule)
        page.show(f"{what}:\n" + "\n".join(log.lines))
    said = {"dim 256": 1, "dim 128": 1, "dim 1800": "division by zero"}
    page.point("layers that were needed", said, {what: len(plan.steps) for what, plan in plans.items()}, WHY_LAYERS)
    page.point("rows of a block after padding", "fewer bytes than before", int(plans["dim 1800"].tiling.block_q), WHY_PADDING)
    with Log(1) as log:
        refused = refusal(lambda: layered_plan(spec, work(512, 2048), rule))
    page.show("dim 2048:\n" + "\n".join(log.lines))
    page.point(
        "what still does not fit", "is dispatched", refused.code, "here it is refused: a kernel would write beyond UB (507035)"
    )
    known = op_error_of(refused)
    page.point("the error for it", "UB_OOM", known and known.name)
    with Machine(OLD_CHIP) as machine:
        _, executor = machine.attention(shape=(1, 8, 512, 256))
        found = executor.prepared.data
        assert found.tiling is not None
        page.show("the vendor's tiling on 910A, dim 256:\n" + "\n".join(found.steps))
        page.point("vendor's blocks of 128 at dim 256", "not told", int(found.tiling.block_q), "the second layer, on the 910A")
        checked = refusal(lambda: machine.attention(shape=(1, 8, 512, 2048)))
    page.point("the first layer", "SHAPE_MISMATCH", checked.code, f"{checked.name} is CANN's name for it")


WHY_LAYERS = (
    "240 KiB by the tiling function are 264 KiB by the allocator at dim 128, so that smaller blocks are the normal case"
)
WHY_PADDING = "padding only adds bytes; what helps is that the tiling starts anew with blocks of 16, where the rule had given 0"
