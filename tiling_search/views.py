"""What each command shows, written from the dictionaries of ``jsonout``: the table and the JSON cannot disagree."""

from collections.abc import Sequence

from tiling_search.jsonfile import Json
from tiling_search.render import Page, assignments, bytes_text, number_text, seconds_text, share_text

MOST_PARETO = 8
ALWAYS = ("block_q", "block_kv")


def show_chips(page: Page, chips: Sequence[Json]) -> None:
    """One line a chip."""
    columns = ["name<", "architecture<", "cube", "vector", "GHz", "fp16 TFLOPS"]
    columns += ["UB KiB", "L1 KiB", "L0C KiB", "L2 MiB", "GM GiB", "GM TB/s"]
    rows = [
        [
            chip["name"],
            chip["architecture"],
            str(chip["cube_cores"]),
            str(chip["vector_cores"]),
            number_text(chip["cube_clock_hz"] / 1e9, 2),
            number_text(chip["peak_fp16_flops_per_s"] / 1e12),
            *(number_text(chip[f"{memory}_bytes"] / 2**10, 0) for memory in ("ub", "l1", "l0c")),
            number_text(chip["l2_bytes"] / 2**20, 0),
            number_text(chip["gm_bytes"] / 2**30, 0),
            number_text(chip["gm_bytes_per_s"] / 1e12, 2),
        ]
        for chip in chips
    ]
    page.table(columns, rows)


def show_workloads(page: Page, presets: Sequence[Json]) -> None:
    """One line a preset."""
    columns = ["name<", "batch", "heads q/kv", "q len", "kv len", "dims", "mask<", "dtype<", "layout<"]
    rows = [
        [
            row["name"],
            str(row["batch"]),
            f"{row['q_heads']}/{row['kv_heads']}",
            number_text(row["q_len"], 0),
            number_text(row["kv_len"], 0),
            f"{row['head_dim']}/{row['value_dim']}",
            row["mask"],
            row["dtype"],
            row["layout"],
        ]
        for row in presets
    ]
    page.table(columns, rows)


def show_tuning(page: Page, result: Json) -> None:
    """The best tiling, the memories it fills, the runners-up, and why the others were rejected."""
    _headline(page, result)
    best = result["best"]
    if best is None:
        page.line()
        page.line(result["message"], "red")
        if result["nearest"]:
            _memory(page, result["nearest"]["occupancy"])
    else:
        page.heading("Best tiling")
        page.line(f"  {assignments(best['tiling'])}", "green")
        page.fields(_outcome(best))
        _memory(page, best["occupancy"])
        _candidates(page, f"Fastest {len(result['top'])}", result["top"], ranked=True)
        _pareto(page, result["pareto"])
    _rejected(page, result)


def show_evaluation(page: Page, result: Json) -> None:
    """One tiling: does it fit, how long, bound by what, and what each memory, pipe and path carries."""
    _headline(page, result)
    fits = result["verdict"] == "FITS"
    page.heading("Tiling")
    page.line(f"  {assignments(result['tiling'])}")
    page.line(f"  {result['message']}", "green" if fits else "red")
    if not fits:
        page.line("  The times below are what it would take if it did fit.")
    report = result["report"]
    details = {
        "tile": f"one every {seconds_text(report['period_s'])}; a lone one takes {seconds_text(report['latency_tile_s'])}",
        "launch": seconds_text(report["launch_s"]),
        "tasks": f"{number_text(report['tasks'], 0)} on {number_text(report['active_cores'], 0)} cube cores",
    }
    page.fields(_outcome(report) | details)
    _memory(page, report["occupancy"])
    page.heading("Limits: share of the time that each alone would take")
    page.table(["share", "", "limit<"], [[share_text(x), page.bar(x), name] for name, x in report["limits"].items()])
    page.heading("Pipes and paths")
    page.table(["pipe<", "busy cycles of a core"], [[name, number_text(x, 0)] for name, x in report["cycles"].items()])
    page.table(["path<", "moved"], [[name, bytes_text(x)] for name, x in report["path_bytes"].items()])


def _headline(page: Page, result: Json) -> None:
    work = result["workload"]
    page.line(f"{work['name']} on {result['chip']}", "bold")
    lengths = f"q {_lengths(work['q_len'])}, kv {_lengths(work['kv_len'])}"
    heads, dims = f"heads {work['q_heads']}/{work['kv_heads']}", f"dims {work['head_dim']}/{work['value_dim']}"
    page.line(
        f"  batch {_lengths(work['batch'])}, {heads}, {lengths}, {dims}, mask {work['mask']}, {work['dtype']}, {work['layout']}"
    )
    page.line(f"  kernel {result['kernel']}, overlap {result['overlap']}")


def _lengths(value: int | list[int]) -> str:
    if isinstance(value, int):
        return str(value)
    shown = ",".join(str(length) for length in value[:4])
    return f"{shown},... ({len(value)} lengths)" if len(value) > 4 else shown


def _outcome(report: Json) -> dict[str, str]:
    blocks = report["blocks"]
    total = (blocks["computed"] or 0) + (blocks["skipped"] or 0)
    skipped = f" ({share_text(blocks['skipped'] / total)})" if total and blocks["skipped"] is not None else ""
    return {
        "latency": seconds_text(report["latency_s"]),
        "throughput": f"{number_text(report['tflops'])} TFLOPS, {share_text(report['utilisation'])} of the Cube's peak",
        "bound by": report["bound_by"],
        "blocks": f"{number_text(blocks['computed'], 0)} computed ({number_text(blocks['partial'], 0)} of them partial), "
        f"{number_text(blocks['skipped'], 0)} skipped{skipped}",
    }


def _memory(page: Page, occupancy: dict[str, Json]) -> None:
    page.heading("Memory")
    detailed = any("buffers" in held for held in occupancy.values())
    rows = []
    for memory, held in occupancy.items():
        used, capacity = held["used_bytes"], held["capacity_bytes"]
        share = used / capacity if used is not None and capacity else None
        row = [memory, page.bar(share), bytes_text(used), bytes_text(capacity), share_text(share)]
        sizes = [f"{name}: {bytes_text(size)}" for name, size in held.get("buffers", {}).items() if size]
        rows.append([*row, "; ".join(sizes)] if detailed else row)
    page.table(["memory<", "", "used", "of", "share", *(["buffers<"] if detailed else [])], rows)


def _pareto(page: Page, front: Sequence[Json]) -> None:
    if len(front) < 2:
        return
    title = "Less UB for more time: no other tiling beats these in both"
    _candidates(page, title, front[:MOST_PARETO], ranked=False)
    if len(front) > MOST_PARETO:
        page.line(f"  and {len(front) - MOST_PARETO} more, all in --json")


def _candidates(page: Page, title: str, candidates: Sequence[Json], *, ranked: bool) -> None:
    """A table of the fields in which ``candidates`` differ; a line for those that they share."""
    tilings = [candidate["tiling"] for candidate in candidates]
    varying = [name for name in tilings[0] if name in ALWAYS or len({tiling[name] for tiling in tilings}) > 1]
    page.heading(title)
    if same := {name: value for name, value in tilings[0].items() if name not in varying}:
        page.line(f"  all with {assignments(same)}", "dim")
    columns = [*(["#"] if ranked else []), *varying, "latency", "TFLOPS", "of peak", "UB", "bound by<"]
    rows = [
        [
            *([str(rank)] if ranked else []),
            *(str(candidate["tiling"][name]) for name in varying),
            seconds_text(candidate["latency_s"]),
            number_text(candidate["tflops"]),
            share_text(candidate["utilisation"]),
            bytes_text(candidate["occupancy"]["UB"]["used_bytes"]),
            candidate["bound_by"],
        ]
        for rank, candidate in enumerate(candidates, 1)
    ]
    page.table(columns, rows)


def _rejected(page: Page, result: Json) -> None:
    space, rejected = result["space"], result["rejected"]
    if any(rejected.values()):
        page.heading("Rejected")
        by_count = sorted(rejected.items(), key=lambda entry: -entry[1])
        page.table(["verdict<", "tilings"], [[code, number_text(count, 0)] for code, count in by_count if count])
    page.line()
    how = "exact: no faster one is among them" if result["exact"] else "not exact: only some were looked at"
    ruled_out = f" (a lower bound rules out {space['bounded']:,} of them)" if space.get("bounded") else ""
    size, rate = f"{space['candidates']:,} tilings", number_text(result["evaluations_per_s"], 0)
    page.line(f"Space of {size}, {space['feasible']:,} fit{ruled_out}; {how}; {rate} evaluations a second")
