"""Operators at the edges: nothing selected, limits that are not exact, what is not a number, large whole numbers."""

import pytest
import torch
import torch.nn.functional as F
from comparison import check, flatten

FLOATS = [torch.float32, torch.float16, torch.bfloat16]
NAN, INF = float("nan"), float("inf")


def assigned(target, index, value):
    target = target.clone()
    target[index] = value
    return target


def nowhere(tensor):
    return torch.zeros(0, dtype=torch.long, device=tensor.device)


NOTHING_SELECTED = {
    "index": lambda x: x[nowhere(x)],
    "second_index": lambda x: x[:, nowhere(x)],
    "two_indices": lambda x: x[nowhere(x), nowhere(x)],
    "index_and_one": lambda x: x[nowhere(x), torch.ones(1, dtype=torch.long, device=x.device)],
    "index_of_two_dimensions": lambda x: x[nowhere(x).reshape(0, 3)],
    "mask": lambda x: x[x > 1000],
    "mask_of_rows": lambda x: x[x[:, 0] > 1000],
    "assign": lambda x: assigned(x, nowhere(x), 9.0),
    "assign_second": lambda x: assigned(x, (slice(None), nowhere(x)), 9.0),
    "assign_two": lambda x: assigned(x, (nowhere(x), nowhere(x)), 9.0),
    "assign_mask": lambda x: assigned(x, x > 1000, 9.0),
    "assign_nonzero": lambda x: assigned(x, torch.isnan(x).nonzero(as_tuple=True), 0.0),
    "accumulate": lambda x: x.clone().index_put_((nowhere(x),), x[:0], accumulate=True),
    "something": lambda x: assigned(x, (slice(None), torch.ones(2, dtype=torch.long, device=x.device)), 9.0),
}


@pytest.mark.parametrize("name", NOTHING_SELECTED)
def test_nothing_selected(name, capfd):
    check(NOTHING_SELECTED[name], torch.randn(3, 4))
    torch.npu.synchronize()
    assert "stand-in device" not in capfd.readouterr().err


COMPARED = {
    "eq": lambda x: x == 0.1,
    "ne": lambda x: x != 0.1,
    "lt": lambda x: x < 0.1,
    "le": lambda x: x <= 0.1,
    "gt": lambda x: x > 0.1,
    "ge": lambda x: x >= 0.1,
    "wider_tensor": lambda x: x == torch.tensor(0.1, dtype=torch.float32, device=x.device),
    "wider_tensor_left": lambda x: torch.tensor(0.1, dtype=torch.float32, device=x.device) < x,
    "threshold": lambda x: F.threshold(x, 0.1, 7.0),
    "hardshrink": lambda x: F.hardshrink(x, 0.1),
    "softshrink": lambda x: F.softshrink(x, 0.1),
    "fmod": lambda x: torch.fmod(x, 0.1),
    "remainder": lambda x: torch.remainder(x, 0.1),
    "floor_divide": lambda x: torch.div(x, 0.1, rounding_mode="floor"),
    "divide_towards_zero": lambda x: torch.div(x, 0.1, rounding_mode="trunc"),
    "floor_division": lambda x: x // 0.1,
}
LIMITED = {
    "clamp": lambda x: x.clamp(0.1, 0.3),
    "hardtanh": lambda x: F.hardtanh(x, 0.1, 0.3),
    "threshold": lambda x: F.threshold(x, 0.1, 7.0),
    "hardshrink": lambda x: F.hardshrink(x, 0.1),
    "softshrink": lambda x: F.softshrink(x, 0.1),
}
AROUND_A_TENTH = [0.1, 0.3, -0.1, 0.09, 0.11, 1.0, 0.0, 0.7]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", COMPARED)
def test_numbers_are_rounded_to_the_type_of_the_tensor(name, dtype):
    check(COMPARED[name], torch.tensor(AROUND_A_TENTH, dtype=dtype))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", LIMITED)
def test_gradients_at_a_limit(name, dtype):
    check(LIMITED[name], torch.tensor(AROUND_A_TENTH, dtype=dtype).requires_grad_(), backward=True)


def test_whole_numbers_meet_fractions_in_single_precision():
    check(lambda x: x == 16777216.5, torch.tensor([16777216, 16777217, 5]))
    check(lambda x, y: x == y, torch.tensor([16777217, 1]), torch.tensor([16777216.0, 1.0]))


NOT_A_NUMBER = {
    "largest_norm": lambda x: torch.linalg.vector_norm(x, INF, dim=1),
    "smallest_norm": lambda x: torch.linalg.vector_norm(x, -INF, dim=1),
    "foreach_norm": lambda x: torch._foreach_norm([x, x[1]], INF),
    "logsumexp": lambda x: torch.logsumexp(x, 1),
    "cummax": lambda x: list(torch.cummax(x, 1)),
    "cummin": lambda x: list(torch.cummin(x, 1)),
    "kthvalue": lambda x: [torch.kthvalue(x, k, 1).values for k in (1, 3, 4)],
    "median": lambda x: torch.median(x, 1).values,
    "nanmedian": lambda x: torch.nanmedian(x, 1).values,
    "sort": lambda x: torch.sort(x, 1).values,
    "max": lambda x: x.max(1).values,
    "amin": lambda x: x.amin(1),
    "sign": torch.sign,
}


@pytest.mark.parametrize("name", NOT_A_NUMBER)
def test_what_is_not_a_number_is_not_lost(name):
    values = [[1.0, NAN, 3.0, 2.0], [1.0, 2.0, 3.0, 4.0], [NAN, INF, -INF, 0.0], [INF, 1.0, NAN, 2.0]]
    check(NOT_A_NUMBER[name], torch.tensor(values))


def check_exactly(function, *arguments):
    """Both devices give the same bits."""
    expected = function(*arguments)
    actual = function(*(argument.to("npu") for argument in arguments))
    for on_device, on_cpu in zip(flatten(actual), flatten(expected), strict=True):
        assert torch.equal(torch.as_tensor(on_device).cpu(), torch.as_tensor(on_cpu))


LARGE = 2**53
WHOLE = {
    "max": lambda x: [x.max(), x.max(0).values, x.amax(0), list(x.aminmax())],
    "min": lambda x: [x.min(), x.min(0).values, x.amin(0)],
    "sort": lambda x: list(x.sort()),
    "topk": lambda x: list(x.topk(3)),
    "unique": lambda x: torch.unique(x),
    "unique_slices": lambda x: torch.unique(x.reshape(3, 2), dim=0),
    "roll": lambda x: [x.roll(2), x.reshape(2, 3).roll(1, 1)],
    "triangle": lambda x: [x.reshape(2, 3).tril(), x.reshape(2, 3).triu(1)],
    "take": lambda x: x.take(torch.tensor([5, 0, 2], device=x.device)),
    "equal": lambda x: [torch.equal(x, x), torch.equal(x * 0 + LARGE, x * 0 + (LARGE + 1))],
    "clamp": lambda x: [x.clamp(LARGE + 1, LARGE + 5), x.clamp(min=LARGE + 3)],
    "cumsum": lambda x: x.cumsum(0),
    "scatter_add": lambda x: x.scatter_add(0, torch.zeros_like(x), torch.ones_like(x)),
    "index_add": lambda x: x.index_add(0, torch.zeros_like(x), torch.ones_like(x)),
    "cummax": lambda x: list(x.cummax(0)),
    "median": lambda x: [x.median(), x.kthvalue(2).values],
    "searchsorted": lambda x: torch.searchsorted(x.sort().values, x),
    "addcmul": lambda x: torch.addcmul(x, torch.ones_like(x), torch.ones_like(x), value=3),
    "floor": lambda x: [x.floor(), x.ceil(), x.round()],
    "repeat": lambda x: x.repeat_interleave(2),
    "put": lambda x: x.clone().put_(torch.tensor([1], device=x.device), x[:1]),
}


@pytest.mark.parametrize("name", WHOLE)
def test_whole_numbers_are_exact(name):
    check_exactly(WHOLE[name], torch.tensor([3, 1, 7, 0, 5, 1]) + LARGE)


def test_conversion_rounds_to_nearest():
    bits = torch.tensor([0x42D08003, 0x42D08000, 0x42D18000, 0x33000001, 0x477FEFFF], dtype=torch.int32)
    check_exactly(lambda x: x.bfloat16(), bits.view(torch.float32))
    check_exactly(lambda x: x.half(), bits.view(torch.float32))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_uniform_numbers_are_below_the_limit(dtype):
    drawn = torch.rand(200_000, dtype=dtype, device="npu")
    assert drawn.min() >= 0 and drawn.max() < 1
    assert torch.empty(100_000, dtype=dtype, device="npu").exponential_().isfinite().all()
    assert (torch.empty(100, dtype=dtype, device="npu").uniform_(1000, 1000.001) >= 1000).all()


SINGLE_ELEMENT = {
    "flip": lambda x: x.flip(0),
    "index_fill": lambda x: x.index_fill(0, torch.zeros(1, dtype=torch.long, device=x.device), 3.0),
    "index_select": lambda x: x.index_select(0, torch.zeros(1, dtype=torch.long, device=x.device)),
    "index_add": lambda x: x.index_add(0, torch.zeros(1, dtype=torch.long, device=x.device), torch.ones_like(x)),
}


@pytest.mark.parametrize("name", SINGLE_ELEMENT)
def test_tensors_without_dimensions(name):
    check(SINGLE_ELEMENT[name], torch.randn(()).requires_grad_(), backward=True)


def test_nothing_to_compute_with():
    check(torch.median, torch.empty(0))
    query, key = torch.randn(1, 1, 2, 4, requires_grad=True), torch.randn(1, 1, 0, 4, requires_grad=True)
    check(F.scaled_dot_product_attention, query, key, key.clone().detach().requires_grad_(), backward=True)


def test_roots_of_what_is_infinite():
    check(lambda x: [x**0.5, x**-0.5], torch.tensor([-INF, INF, 4.0, -1.0, 0.0]))


def test_targets_out_of_range_are_told(capfd):
    logits = torch.randn(3, 5, device="npu")
    F.cross_entropy(logits, torch.tensor([1, -100, 2], device="npu")).item()
    assert "out of range" not in capfd.readouterr().err
    F.cross_entropy(logits, torch.tensor([1, 7, 9], device="npu")).item()
    assert capfd.readouterr().err.count("class 7 is out of range for 5 classes") == 1


def test_clipping_by_the_largest_gradient_notices_what_is_not_a_number():
    weight = torch.ones(4, device="npu", requires_grad=True)
    weight.grad = torch.tensor([1.0, NAN, 2.0, 3.0], device="npu")
    with pytest.raises(RuntimeError, match="non-finite"):
        torch.nn.utils.clip_grad_norm_([weight], 1.0, norm_type=INF, error_if_nonfinite=True)
