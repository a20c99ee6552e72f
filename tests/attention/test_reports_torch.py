"""What PyTorch's tensors and arguments are refused for: the same as jax's, gradients wanted or not."""

from importlib import import_module
from typing import Any

import jax
import pytest

from ascend_jax.attention.errors import ParamInvalidError

torch: Any = pytest.importorskip("torch")
torch_npu: Any = import_module("ascend_jax.torch_npu")
BNSD: dict[str, Any] = {"head_num": 2, "input_layout": "BNSD"}


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("x64", [False, True])
def test_doubles_are_refused(gradients: bool, x64: bool) -> None:
    x = torch.ones(1, 2, 16, 8, dtype=torch.float64, requires_grad=gradients)
    with jax.enable_x64(x64), pytest.raises(ParamInvalidError, match="query of type float64"):
        torch_npu.npu_fusion_attention(x, x, x, **BNSD)


@pytest.mark.parametrize("x64", [False, True])
def test_a_scale_of_64_bits_has_a_gradient(x64: bool) -> None:
    x = torch.rand(1, 2, 16, 8)
    scale = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    with jax.enable_x64(x64):
        torch_npu.npu_fusion_attention(x, x, x, **BNSD, scale=scale).attention_out.square().sum().backward()
    twin = scale.detach().clone().float().requires_grad_()
    out = torch.nn.functional.softmax(twin * x @ x.transpose(-1, -2), -1) @ x
    out.square().sum().backward()
    torch.testing.assert_close(scale.grad.float(), twin.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("keep_prob", ["most", None, [0.5]])
def test_a_share_to_keep_is_a_number(keep_prob: Any) -> None:
    x = torch.ones(1, 2, 16, 8)
    with pytest.raises(ParamInvalidError, match=r"keep_prob=.*must be a number"):
        torch_npu.npu_fusion_attention(x, x, x, **BNSD, keep_prob=keep_prob)
