"""Several cards in one program: copies of every kind, and training across them."""

import pytest
import torch
from programs import IS_OLD

#: torch_npu before 2.6 refuses copies between cards that change the type.
CHANGE_TYPE = {"cast", "into_other_type"}

COPIES = {
    "dense": lambda x, to: x.to(to),
    "strided": lambda x, to: x[:, ::2].to(to),
    "offset": lambda x, to: x[1:, 1::2].to(to),
    "expanded": lambda x, to: x[:, :1].expand(4, 3).to(to),
    "transposed": lambda x, to: x.t().to(to),
    "permuted": lambda x, to: x.reshape(2, 2, 6).permute(2, 0, 1).to(to),
    "cast": lambda x, to: x.to(to, torch.float16),
    "into_transposed": lambda x, to: torch.zeros(6, 4, device=to).t().copy_(x),
    "into_strided": lambda x, to: torch.zeros(4, 12, device=to)[:, ::2].copy_(x),
    "into_other_type": lambda x, to: torch.zeros(4, 6, device=to, dtype=torch.int32).copy_(x),
    "repeated_into": lambda x, to: torch.zeros(3, 4, 6, device=to).copy_(x),
}


@pytest.mark.parametrize(("source", "target"), [("npu:0", "npu:1"), ("npu:1", "npu:0")])
@pytest.mark.parametrize("name", [name for name in COPIES if not (IS_OLD and name in CHANGE_TYPE)])
def test_copies_between_cards(name, source, target):
    values = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    expected = COPIES[name](values, "cpu")
    actual = COPIES[name](values.to(source), target)
    assert actual.device == torch.device(target)
    assert torch.equal(actual.cpu(), expected)


def test_gradients_cross_cards():
    weight = torch.randn(10, device="npu:1", requires_grad=True)
    for _ in range(100):
        weight.grad = None
        (weight.to("npu:0") * 2).sum().backward()
        assert weight.grad.sum().item() == 20
