"""The operators on PyTorch's CPU tensors, under torch_npu's names: ``import ascend_jax.torch_npu as torch_npu``.

Tensors go in and come out by DLPack; names, arguments, checks and errors are those of the functions below, which take
jax arrays. Gradients are jax's, as one step of PyTorch's graph. A tensor whose elements have 64 bits goes in as a NumPy
array, since jax may not be allowed 64 bits: lengths keep their values, and the checks see a float64 as what it is.

Of the fusion attention only ``attention_out`` has a gradient: torch_npu's backward reads no other. The backward operators
themselves, and anything inside the backward pass, cannot be differentiated again. Where weights are dropped and no seed is
given, PyTorch's generator gives it, so that `torch.manual_seed` decides.
"""

import functools
import inspect
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ascend_jax.attention.errors import ParamInvalidError
from ascend_jax.attention.fusion import grad, ops
from ascend_jax.attention.infer import variants
from ascend_jax.attention.infer.ops import npu_fused_infer_attention_score as fused_infer
from ascend_jax.attention.unified import metadata
from ascend_jax.attention.unified.ops import flash_attn as unified

try:
    torch: Any = import_module("torch")
except ModuleNotFoundError as missing:
    message = "ascend_jax.torch_npu needs PyTorch, which is not installed\nRemedy: pip install 'ascend-jax[torch]'"
    raise ImportError(message) from missing

Run = Callable[[Sequence[Any]], tuple[list[Any], list[Any]]]
"""An operator as a function of its tensors alone: the results that have a gradient, and the others."""


def to_jax(tensor: Any) -> jax.Array | np.ndarray:
    """A CPU tensor as an array, without a copy where its elements lie one behind the other.

    Raises:
      ParamInvalidError: the tensor is on another device.
    """
    if tensor.device.type != "cpu":
        raise ParamInvalidError(f"device={tensor.device}", "must be the CPU, where the model computes", "pass tensor.cpu()")
    compact = tensor.detach().contiguous()
    return compact.numpy() if compact.dtype.itemsize == 8 else jnp.from_dlpack(compact)


def to_torch(result: Any) -> Any:
    """An array as a tensor of its own, which may be written to; what is no array stays what it is."""
    return torch.from_dlpack(jax.block_until_ready(result)).clone() if isinstance(result, jax.Array) else result


class _Operator(torch.autograd.Function):
    """An operator as one step of PyTorch's graph."""

    @staticmethod
    def forward(ctx: Any, run: Run, wanted: list[int], *tensors: Any) -> tuple[Any, ...]:
        arrays = [to_jax(tensor) for tensor in tensors]
        # jax would make 32 bits of 64 where it takes gradients: the operators are to see, and refuse, what was passed.
        wanted = [place for place in wanted if isinstance(arrays[place], jax.Array) or arrays[place].ndim == 0]
        ctx.wanted = wanted

        def of_wanted(*chosen: Any) -> tuple[list[Any], list[Any]]:
            given = dict(zip(wanted, chosen, strict=True))
            return run([given.get(place, array) for place, array in enumerate(arrays)])

        if wanted:
            found, ctx.back, others = jax.vjp(of_wanted, *(arrays[place] for place in wanted), has_aux=True)
        else:
            found, others = of_wanted()
        results, rest = [to_torch(x) for x in found], [to_torch(x) for x in others]
        ctx.count = len(results)
        ctx.mark_non_differentiable(*(x for x in rest if isinstance(x, torch.Tensor)))
        ctx.save_for_backward(*tensors)  # jax reads their memory again: PyTorch then refuses a tensor written to meanwhile
        return (*results, *rest)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *towards: Any) -> tuple[Any, ...]:
        tensors = ctx.saved_tensors
        gradients = ctx.back([to_jax(x) for x in towards[: ctx.count]])
        found = dict(zip(ctx.wanted, gradients, strict=True))
        return None, None, *(to_torch(found[place]) if place in found else None for place in range(len(tensors)))


def on_tensors(operator: Callable[..., Any], with_gradient: int) -> Callable[..., Any]:
    """``operator`` with tensors for arrays, in lists of them too. Its first ``with_gradient`` results have a gradient."""

    @functools.wraps(operator)
    def call(*args: Any, **kwargs: Any) -> Any:
        leaves, arguments = jax.tree.flatten((args, kwargs))
        places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        structure = None

        def run(arrays: Sequence[Any]) -> tuple[list[Any], list[Any]]:
            nonlocal structure
            given = dict(zip(places, arrays, strict=True))
            args, kwargs = jax.tree.unflatten(arguments, [given.get(place, leaf) for place, leaf in enumerate(leaves)])
            results, structure = jax.tree.flatten(operator(*args, **kwargs))
            return results[:with_gradient], results[with_gradient:]

        tensors = [leaves[place] for place in places]
        needed = torch.is_grad_enabled() and with_gradient > 0
        wanted = [place for place, tensor in enumerate(tensors) if needed and tensor.requires_grad]
        results = _Operator.apply(run, wanted, *tensors)
        return jax.tree.unflatten(structure, results)

    return call


def with_drawn_seed(operator: Callable[..., Any]) -> Callable[..., Any]:
    """``operator`` with a seed from PyTorch's generator where it would draw a dropout mask and the caller gave none."""
    signature = inspect.signature(operator)

    @functools.wraps(operator)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments
        given |= given.pop("options", {})
        keep_prob = given.get("keep_prob", 1.0)
        drops = hasattr(keep_prob, "__float__") and keep_prob < 1  # what is no number, the operator refuses
        if drops and given.get("dropout_mask") is None and "seed" not in given:
            kwargs["seed"] = int(torch.randint(2**63 - 1, ()))
        return operator(*args, **kwargs)

    return call


npu_fusion_attention = with_drawn_seed(on_tensors(ops.npu_fusion_attention, 1))
npu_fusion_attention_v2 = with_drawn_seed(on_tensors(ops.npu_fusion_attention_v2, 1))
npu_flash_attention = with_drawn_seed(on_tensors(ops.npu_flash_attention, 1))
npu_fusion_attention_grad = on_tensors(grad.npu_fusion_attention_grad, 0)
npu_fusion_attention_grad_v2 = on_tensors(grad.npu_fusion_attention_grad_v2, 0)
npu_fusion_attention_grad_v3 = on_tensors(grad.npu_fusion_attention_grad_v3, 0)
npu_fused_infer_attention_score = on_tensors(fused_infer, 2)
npu_fused_infer_attention_score_v2 = on_tensors(variants.npu_fused_infer_attention_score_v2, 2)
npu_prompt_flash_attention = on_tensors(variants.npu_prompt_flash_attention, 1)
npu_incre_flash_attention = on_tensors(variants.npu_incre_flash_attention, 1)
flash_attn = on_tensors(unified, 2)
flash_attn_metadata = on_tensors(metadata.flash_attn_metadata, 0)


@functools.wraps(npu_fusion_attention)
def npu_fusion_attention_v3(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
    """``npu_fusion_attention`` as its third version gives it: lengths may be tensors, seed and offset are, and no numels."""
    found = npu_fusion_attention(*args, **kwargs)
    return *found[:4], torch.tensor(found.seed), torch.tensor(found.offset)
