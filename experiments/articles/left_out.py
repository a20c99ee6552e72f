"""What the articles hold besides programs and tables, and why it is no program here."""

from experiments.articles.page import ARCHITECTURE, CALL_PATH, HANDS_ON

LEFT_OUT = {
    f"{HANDS_ON}: installing CANN, npu-smi, versions of torch and torch_npu": "about a machine with a card; here is none",
    f"{HANDS_ON}: the C++ binding, and how the operator is registered": "sources of other projects, whose points are on the "
    "pages minimal_call and registry_miss; the operator's own file is op_host/flash_attention_score_def.cpp",
    f"{HANDS_ON}: attaching a debugger": "there is no process of another language; call_stack shows the stack at that point",
    f"{HANDS_ON}: what follows pad_to_align": "the text ends there",
    f"{ARCHITECTURE}: the five layers": "a drawing, of which the call path has four. The runtime is a library below the graph "
    "engine and no part of it; the operators lie beside it",
    f"{ARCHITECTURE}: the steps of a call": "a drawing; two_phases runs them",
    f"{ARCHITECTURE}: loading and executing model.om": "the runtime here has no compiled models. The real calls are others: "
    "loading gives a model's id, a second call its description, and execution takes no stream",
    f"{ARCHITECTURE}: what the graph engine and what the runtime does": "a drawing; it is frameworks that fuse attention",
    f"{ARCHITECTURE}: the comparison with CUDA": "prose",
    f"{CALL_PATH}: the layers and the chain of calls": "drawings; call_stack has the chain of a call",
    f"{CALL_PATH}: the runtime as the graph engine's scheduler": "prose, and the text ends there; it is not so (see above)",
}
