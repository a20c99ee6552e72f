"""Calling the operator: from Python, in two phases, by name through the registry, and who calls whom on the way."""

import inspect
import traceback
from pathlib import Path
from typing import Any

from ascend_jax.attention import npu_flash_attention, npu_fusion_attention
from ascend_jax.runtime.log import level_of
from ascend_jax.runtime.ops.plan import cann_choice
from ascend_jax.runtime.ops.registry import Registry
from ascend_jax.runtime.ops.tensor import Tensor
from experiments.articles.machine import CHIP, Log, Machine, attention_out, difference, on_host, random_qkv, softmax_attention
from experiments.articles.page import ARCHITECTURE, CALL_PATH, HANDS_ON, ROOT, Page, program, refusal

SHAPE = (1, 8, 512, 64)
SMALL = (1, 8, 256, 64)
CUSTOM = ROOT / "experiments" / "custom_operator" / "vendors" / "example"


@program(f"{HANDS_ON}: the smallest call in Python that works; {CALL_PATH}: what torch_npu makes of it")
def minimal_call(page: Page) -> None:
    """``npu_flash_attention`` on 1 × 8 × 512 × 64, and the same numbers from the runtime's two phases."""
    arrays = random_qkv(SHAPE)
    with Machine(numerics=True) as machine:
        prepared = machine.attention([machine.put(array) for array in arrays])
        task = machine.launch(prepared)
        machine.seconds()
        two_phases = machine.get(attention_out(prepared[1]))
        device = f"npu:{task.device_id}"
    tiling = prepared[1].prepared.data.tiling  # the blocks, so that the sums are the same bit by bit
    options: dict[str, Any] = {"scale": 1.0 / 64**0.5, "keep_prob": 1.0, "tiling": tiling}
    out = on_host(npu_flash_attention(*arrays, head_num=8, input_layout="BNSD", **options))  # pyright: ignore[reportArgumentType]
    page.point("output shape", list(SHAPE), list(out.shape))
    page.point("output device", "the NPU", device, "the first simulated device; JAX does the numerics on the host's CPU")
    page.point("the alias and the two phases agree", True, bool((out == two_phases).all()))
    page.point("largest error against plain softmax in float64", None, difference(out, softmax_attention(*arrays)), "not told")
    page.point(
        "name in torch_npu",
        "npu_flash_attention",
        npu_fusion_attention.__name__,
        "torch_npu has no operator of that name: npu_flash_attention is an alias of ours that gives the first of seven results",
    )
    page.point("arguments of the binding", ["q", "k", "v"], _names(), "the names are the prototype's; keep_prob is one of them")
    page.point(
        "way to the device",
        "an OpDesc that the graph engine executes",
        f"{task.name}GetWorkspaceSize, then {task.name} on a stream",
        "eager torch_npu calls aclnn's two phases; a graph engine takes part only where a graph was captured",
    )
    page.show(f"{task} took {task.duration_s * 1e6:.1f} µs of virtual time on {task.block_dim} cores of {CHIP}")


def _names() -> list[str]:
    proto = Registry({}).find("FlashAttentionScore").proto
    return [param.name for param in proto.inputs if param.required]


@program(f"{ARCHITECTURE}: tensors, size of the workspace, its allocation, the launch on a stream, and the wait")
def two_phases(page: Page) -> None:
    """The C program of the article, call by call, and what its short forms leave out."""
    with Machine() as machine:
        size, executor = machine.operators.get_workspace_size(
            "FlashAttentionScore",
            [machine.empty(SHAPE) for _ in range(3)],
            {"head_num": 8, "input_layout": "BNSD", "scale_value": 0.125},
        )
        outputs = [name for name, tensor in executor.outputs.items() if isinstance(tensor, Tensor)]
        no_memory = refusal(lambda: machine.launch((size, executor)))
        for name in outputs:
            tensor = executor.outputs[name]
            assert isinstance(tensor, Tensor)
            executor.set_output_address(name, machine.empty(tensor.shape, tensor.dtype).address)
        no_size = refusal(lambda: machine.operators.execute(64, 0, executor))
        stream = machine.current_context().create_stream()
        before = machine.host_now_s
        task = machine.launch((size, executor), stream)
        after = machine.host_now_s
        stream.synchronize()
        again = refusal(lambda: machine.launch((size, executor), stream))
        page.point("outputs", ["output"], outputs, "softmax_max and softmax_sum are outputs that must be given as well")
        page.point("an output without memory", "not told", no_memory.code, f"{no_memory.value}: {no_memory.rule}")
        arguments = len(inspect.signature(machine.operators.execute).parameters)
        page.point("arguments of the second phase", 3, arguments, "the size of the workspace goes with it, and is checked")
        page.point("a workspace of 0 bytes", "not told", no_size.code, no_size.rule)
        page.point("bytes of workspace", "what the first phase says", size, "S, P and O of all cores pass through GM on A2")
        page.point("the launch returns before the kernel ends", True, after < (task.end_s or 0.0))
        page.point("the executor a second time", "not told", again.code, again.rule)
        page.show(f"host: launch took {(after - before) * 1e6:.1f} µs; kernel: {task.duration_s * 1e6:.1f} µs")
        page.show(f"the second launch: {again}")


@program(f"{HANDS_ON}: the log of the registry, and an operator that is not found; {CALL_PATH}: the look-up")
def registry_miss(page: Page) -> None:
    """The log of loading, a miss with what was searched, the late variable, and the fix."""
    variables: dict[str, str] = {}
    registry = Registry(variables)
    with Log(1) as log:
        found = registry.find("FlashAttentionScore")
    page.show("\n".join(log.lines))
    page.point("level 3 of the log", "INFO", _level_name("3"), "0 debug, 1 info, 2 warning, 3 error (the default), 4 off")
    page.point(
        "lines that say so", 3, sum(line.endswith(("built-in", " FlashAttentionScore")) for line in log.lines), WHY_LINES
    )
    missed = refusal(lambda: registry.find("flashattentionscore"))
    page.show(f"\nfind('flashattentionscore'):\n{missed}")
    page.point("the case of a name counts", True, "FlashAttentionScore" not in missed.what.split(":")[0])
    page.point("text of a miss", "FlashAttentionScore not found", missed.what.splitlines()[0], f"and code {missed.code}")
    with Machine() as machine:
        phase_one = refusal(lambda: machine.operators.get_workspace_size("SwiGluCustom", [machine.empty((2, 4))]))
    page.point("a miss in phase one", "an error", [phase_one.code, phase_one.__cause__.code], "the look-up's code is the cause")
    variables["ASCEND_CUSTOM_OPP_PATH"] = str(CUSTOM)
    late = refusal(lambda: registry.find("SwiGluCustom"))
    page.show(f"\nASCEND_CUSTOM_OPP_PATH set, find('SwiGluCustom'):\n{late}")
    page.point("setting the variable", "helps in a new process", late.code, "in this process, only after registry.reload()")
    registry.reload()
    page.point("found after the fix", True, "SwiGluCustom" in registry.names())
    page.show(f"\nafter reload:\n{registry}")
    order = [package.name for package in registry.packages]
    page.point(
        "order of the search", ["registered", "custom path"], order, "custom packages go first: they replace built-in ones"
    )
    proto = found.proto
    types = sorted({dtype for param in proto.inputs for dtype in param.dtypes})
    page.point("types of the inputs", ["float16"], types, "lists that are read in parallel, one entry a combination")
    wanted = [attr.name for attr in proto.attrs if attr.required]
    page.point("attributes", ["head_num", "input_layout", "scale"], wanted, WHY_ATTRS.format(len(proto.attrs)))


WHY_LINES = "the package and the operator, as in the text; the look-up writes none, and the graph engine has no part in it"
WHY_ATTRS = "these must be given; there are {} in all, and scale is scale_value, with a default of 1"


def _level_name(text: str) -> str:
    levels = {10: "DEBUG", 20: "INFO", 30: "WARNING", 40: "ERROR"}
    return levels[level_of({"ASCEND_GLOBAL_LOG_LEVEL": text})]


@program(f"{HANDS_ON}: a debugger that stops where UB is given out, and the stack there; {CALL_PATH}: the chain of calls")
def call_stack(page: Page) -> None:
    """The stack at the moment when the tiling is chosen, from the program inwards."""
    stack: list[str] = []

    def choose(*given: Any) -> Any:
        frames = [frame for frame in traceback.extract_stack() if "ascend_jax/runtime/ops" in frame.filename]
        stack.extend(f"{Path(frame.filename).stem}.{frame.name}" for frame in reversed(frames))
        return cann_choice(*given)

    with Machine(choose_tiling=choose) as machine:
        machine.attention(shape=SMALL)
    named = ["UBAllocator::Allocate", "RuntimeScheduler::ScheduleFlashAttention", "GraphEngine::ExecuteNode"]
    page.point(
        "stack, innermost first",
        [*named, "torch_npu::npu_flash_attention"],
        stack,
        "the operator's host code chooses the tiling in phase one, before there is a task; nothing allocates UB later, and the "
        "kernel places its buffers by itself",
    )
    page.show("\n".join(f"#{number} {frame}" for number, frame in enumerate(stack)))
