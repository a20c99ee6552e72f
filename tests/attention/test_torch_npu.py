"""The operators on PyTorch's tensors: the numbers of jax's and of PyTorch's own attention, gradients through its graph."""

import sys
from importlib import import_module
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from ascend_jax.attention.errors import AclnnError, ParamInvalidError
from ascend_jax.attention.fusion import ops as fusion
from ascend_jax.attention.infer import ops as infer
from ascend_jax.attention.unified import ops as unified

torch: Any = pytest.importorskip("torch")
torch_npu: Any = import_module("ascend_jax.torch_npu")
SHAPE = (1, 2, 40, 16)
BNSD: dict[str, Any] = {"head_num": 2, "input_layout": "BNSD", "scale": 0.25}


def normal(*shape: int, dtype: Any = None, seed: int = 0) -> Any:
    """A tensor that is always the same."""
    drawn = torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))
    return drawn.to(dtype or torch.float32)


def qkv(*shape: int, dtype: Any = None) -> list[Any]:
    """Three different leaves of a graph."""
    return [normal(*shape, dtype=dtype, seed=seed).requires_grad_() for seed in range(3)]


def as_jax(tensor: Any) -> Any:
    """A copy as jax's array."""
    return jnp.from_dlpack(tensor.detach().clone())


def same(tensor: Any, array: Any) -> bool:
    """Bit for bit, in the same type."""
    given = torch.from_dlpack(array)
    return tensor.dtype == given.dtype and torch.equal(tensor, given)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_tensors_of_every_type_give_what_arrays_give(dtype: str) -> None:
    q, k, v = (x.detach() for x in qkv(*SHAPE, dtype=getattr(torch, dtype)))
    found = torch_npu.npu_fusion_attention(q, k, v, **BNSD)
    wanted = fusion.npu_fusion_attention(as_jax(q), as_jax(k), as_jax(v), **BNSD)
    assert type(found) is type(wanted)
    assert all(same(found[i], wanted[i]) for i in range(3))
    assert found[4:] == wanted[4:]
    assert all(isinstance(number, int) for number in found[4:])


@pytest.mark.parametrize("mask_type", ["bool", "uint8"])
def test_forward_and_gradients_are_pytorchs(mask_type: str) -> None:
    q, k, v = qkv(*SHAPE)
    mask = torch.ones(40, 40, dtype=getattr(torch, mask_type)).triu(1)
    out, top, total, *_ = torch_npu.npu_fusion_attention(q, k, v, **BNSD, atten_mask=mask, next_tockens=0)
    wanted = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    towards = normal(*out.shape, seed=9)
    torch.testing.assert_close(out, wanted)
    torch.testing.assert_close(torch.autograd.grad(out, (q, k, v), towards), torch.autograd.grad(wanted, (q, k, v), towards))
    assert not top.requires_grad
    assert not total.requires_grad


def test_a_model_trains_through_the_operator() -> None:
    """Layers before and after, a layout with the heads in the width, weights that share one graph."""
    torch.manual_seed(0)
    project, last = torch.nn.Linear(32, 3 * 32), torch.nn.Linear(32, 1)
    x = normal(1, 40, 32)

    def loss(ours: bool) -> Any:
        q, k, v = project(x).chunk(3, dim=-1)
        if ours:
            out = torch_npu.npu_fusion_attention(q, k, v, head_num=2, input_layout="BSH", scale=0.25)[0]
        else:
            split = [part.reshape(1, 40, 2, 16).transpose(1, 2) for part in (q, k, v)]
            out = torch.nn.functional.scaled_dot_product_attention(*split).transpose(1, 2).reshape(1, 40, 32)
        return last(out).square().mean()

    ours, theirs = (torch.autograd.grad(loss(side), [*project.parameters(), *last.parameters()]) for side in (True, False))
    torch.testing.assert_close(ours, theirs)


def test_only_what_asks_for_a_gradient_gets_one() -> None:
    q, k, v = qkv(*SHAPE)
    pse = normal(1, 2, 40, 40, seed=5).requires_grad_()
    frozen = k.detach()
    out = torch_npu.npu_fusion_attention(q, frozen, v, **BNSD, pse=pse)[0]
    out.square().sum().backward()
    wanted = torch.softmax(0.25 * (q @ frozen.mT + pse), -1) @ v
    torch.testing.assert_close((q.grad, v.grad, pse.grad), torch.autograd.grad(wanted.square().sum(), (q, v, pse)))
    with torch.no_grad():
        assert not torch_npu.npu_fusion_attention(q, k, v, **BNSD)[0].requires_grad


def test_the_backward_operator_takes_what_the_forward_one_gave() -> None:
    q, k, v = qkv(*SHAPE)
    out, top, total, _, seed, offset, numels = torch_npu.npu_fusion_attention(q, k, v, **BNSD)
    towards = normal(*out.shape, seed=9)
    given = {"softmax_max": top, "softmax_sum": total, "attention_in": out, "scale_value": 0.25}
    given |= {"seed": seed, "offset": offset, "numels": numels}
    found = torch_npu.npu_fusion_attention_grad(q, k, v, towards, 2, "BNSD", **given)
    torch.testing.assert_close(tuple(found[:3]), torch.autograd.grad(out, (q, k, v), towards))


def test_dropout_keeps_what_the_seed_keeps() -> None:
    q, k, v = (x.detach() for x in qkv(*SHAPE, dtype=torch.float16))
    found = torch_npu.npu_fusion_attention(q, k, v, **BNSD, keep_prob=0.8, seed=7, offset=32)
    wanted = fusion.npu_fusion_attention(as_jax(q), as_jax(k), as_jax(v), **BNSD, keep_prob=0.8, seed=7, offset=32)
    assert same(found[0], wanted[0])
    assert (found.seed, found.offset) == (7, 32)


def test_pytorchs_generator_gives_the_seed_that_the_caller_does_not() -> None:
    q, k, v = qkv(*SHAPE)
    results = []
    for _ in range(2):
        torch.manual_seed(3)
        results += [torch_npu.npu_fusion_attention(q, k, v, **BNSD, keep_prob=0.5) for _ in range(2)]
    assert results[0].seed == results[2].seed != results[1].seed == results[3].seed
    assert torch.equal(results[0][0], results[2][0])
    assert not torch.equal(results[0][0], results[1][0])
    *_, seed, offset = torch_npu.npu_fusion_attention_v3(q, k, v, **BNSD, keep_prob=0.5, seed=results[0].seed)
    assert (int(seed), int(offset)) == (results[0].seed, 0)
    torch.manual_seed(3)
    assert torch_npu.npu_fusion_attention_v2(q, k, v, **BNSD, keep_prob=0.5).seed == results[0].seed
    assert torch_npu.npu_fusion_attention_v2(q, k, v, **BNSD).seed == 0


def test_inference_takes_lists_lengths_and_masks() -> None:
    q = normal(2, 2, 1, 64, dtype=torch.float16)
    k, v = ([normal(1, 2, 48, 64, dtype=torch.float16, seed=seed + i) for i in range(2)] for seed in (1, 3))
    found = torch_npu.npu_fused_infer_attention_score(
        q, k, v, num_heads=2, input_layout="BNSD", scale=0.125, actual_seq_lengths_kv=[48, 30], softmax_lse_flag=True
    )
    wanted = infer.npu_fused_infer_attention_score(
        as_jax(q),
        [as_jax(x) for x in k],
        [as_jax(x) for x in v],
        **{"num_heads": 2, "input_layout": "BNSD", "scale": 0.125, "actual_seq_lengths_kv": [48, 30], "softmax_lse_flag": True},
    )
    assert all(same(ours, theirs) for ours, theirs in zip(found, wanted, strict=True))


def test_an_operator_with_one_result_gives_a_tensor_alone() -> None:
    q, k, v = (x.detach() for x in qkv(*SHAPE, dtype=torch.float16))
    given = {"num_heads": 2, "input_layout": "BNSD", "scale_value": 0.25, "next_tokens": 40}
    found = torch_npu.npu_prompt_flash_attention(q, k, v, **given)
    assert torch.equal(found, torch_npu.npu_flash_attention(q, k, v, **BNSD))


def test_the_unified_operator_takes_lengths_as_tensors() -> None:
    q, k, v = (normal(50, 2, 64, dtype=torch.bfloat16, seed=seed) for seed in range(3))
    ends = torch.tensor([0, 20, 50], dtype=torch.int32)
    sizes = {"max_seqlen_q": 30, "max_seqlen_kv": 30, "mask_mode": 0}
    layouts: dict[str, Any] = {"layout_q": "TND", "layout_kv": "TND", "layout_out": "TND"}
    plan = torch_npu.flash_attn_metadata(2, 2, 64, cu_seqlens_q=ends, cu_seqlens_kv=ends, **sizes, **layouts)
    assert plan.dtype == torch.int32
    found = torch_npu.flash_attn(
        q, k, v, cu_seqlens_q=ends, cu_seqlens_kv=ends, metadata=plan, return_softmax_lse=True, **layouts
    )
    lengths: dict[str, Any] = {"cu_seqlens_q": [0, 20, 50], "cu_seqlens_kv": [0, 20, 50], "metadata": as_jax(plan)}
    wanted = unified.flash_attn(as_jax(q), as_jax(k), as_jax(v), **lengths, return_softmax_lse=True, **layouts)
    assert all(same(ours, theirs) for ours, theirs in zip(found, wanted, strict=True))


def test_packed_lengths_may_be_tensors_of_64_bits() -> None:
    q, k, v = (normal(50, 2, 16, seed=seed) for seed in range(3))
    given = {"head_num": 2, "input_layout": "TND", "scale": 0.25}
    ends = torch.tensor([20, 50])
    found = torch_npu.npu_fusion_attention_v3(q, k, v, **given, actual_seq_qlen=ends, actual_seq_kvlen=ends)
    wanted = torch_npu.npu_fusion_attention(q, k, v, **given, actual_seq_qlen=[20, 50], actual_seq_kvlen=[20, 50])
    assert torch.equal(found[0], wanted[0])


def test_the_third_version_of_the_gradient_takes_seed_and_offset_as_tensors() -> None:
    q, k, v = qkv(*SHAPE)
    out, top, total, _, seed, offset = torch_npu.npu_fusion_attention_v3(q, k, v, **BNSD, keep_prob=0.5)
    towards = normal(*out.shape, seed=9)
    given = {"softmax_max": top, "softmax_sum": total, "attention_in": out, "scale_value": 0.25, "keep_prob": 0.5}
    found = torch_npu.npu_fusion_attention_grad_v3(q, k, v, towards, 2, "BNSD", **given, seed=seed, offset=offset)
    torch.testing.assert_close(tuple(found[:3]), torch.autograd.grad(out, (q, k, v), towards))


def test_the_alias_takes_options_by_position_and_draws_a_seed() -> None:
    q, k, v = qkv(*SHAPE)
    results = []
    for _ in range(2):
        torch.manual_seed(4)
        results.append(torch_npu.npu_flash_attention(q, k, v, 2, "BNSD", None, None, None, 0.25, 0.5))
    assert torch.equal(*results)
    assert not torch.equal(results[0], torch_npu.npu_flash_attention(q, k, v, 2, "BNSD", None, None, None, 0.25, 0.5))


def test_strided_tensors_give_what_compact_ones_give() -> None:
    strided = [normal(1, 2, 80, 16, seed=seed)[:, :, ::2] for seed in range(3)]
    compact = [x.contiguous() for x in strided]
    found, wanted = (torch_npu.npu_fusion_attention(*given, **BNSD)[0] for given in (strided, compact))
    assert torch.equal(found, wanted)


def test_memory_written_to_between_the_passes() -> None:
    """An input: PyTorch refuses the gradient. The output: it is the caller's own, and the gradient stays what it was."""
    q, k, v = qkv(*SHAPE)
    out = torch_npu.npu_fusion_attention(q, k, v, **BNSD)[0]
    towards = torch.ones_like(out)
    wanted = torch.autograd.grad(out, (q, k, v), towards, retain_graph=True)
    out.detach().zero_()
    found = torch.autograd.grad(out, (q, k, v), towards, retain_graph=True)
    torch.testing.assert_close(found, wanted, rtol=0, atol=0)
    with torch.no_grad():
        v.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_gradients_have_no_gradients() -> None:
    q, k, v = qkv(*SHAPE)
    out = torch_npu.npu_fusion_attention(q, k, v, **BNSD)[0]
    [first] = torch.autograd.grad(out.square().sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()


def test_the_operators_errors_come_through() -> None:
    q, k, v = qkv(*SHAPE)
    with pytest.raises(AclnnError, match="head_num"):
        torch_npu.npu_fusion_attention(q, k, v, 3, "BNSD")
    with pytest.raises(AclnnError, match="float64"):
        torch_npu.npu_fusion_attention(q.double(), k.double(), v.double(), 2, "BNSD")
    with pytest.raises(ParamInvalidError, match="device=meta: must be the CPU"):
        torch_npu.npu_fusion_attention(q.to("meta"), k, v, 2, "BNSD")


def test_without_pytorch_the_import_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "ascend_jax.torch_npu")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r"pip install 'ascend-jax\[torch\]'"):
        import_module("ascend_jax.torch_npu")
