"""Every family of operators gives what the CPU gives, on strided tensors and in all types that frameworks use."""

import os
import re
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from comparison import check
from programs import IS_OLD

FLOATS = [torch.float32, torch.float16, torch.bfloat16]


def normal(*shape, dtype=torch.float32, grad=False):
    return torch.randn(*shape).to(dtype).requires_grad_(grad)


UNARY = {
    "abs": torch.abs,
    "neg": torch.neg,
    "exp": torch.exp,
    "sqrt": lambda x: x.abs().sqrt(),
    "tanh": torch.tanh,
    "rsqrt": lambda x: (x.abs() + 0.1).rsqrt(),
    "log": lambda x: (x.abs() + 0.1).log(),
    "sin": torch.sin,
    "cos": torch.cos,
    "sigmoid": torch.sigmoid,
    "relu": F.relu,
    "gelu": F.gelu,
    "silu": F.silu,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "round": torch.round,
    "sign": torch.sign,
    "reciprocal": lambda x: (x + 10).reciprocal(),
    "erf": torch.erf,
    "softplus": F.softplus,
    "leaky_relu": F.leaky_relu,
    "elu": F.elu,
    "hardswish": F.hardswish,
    "mish": F.mish,
    "clamp": lambda x: x.clamp(-0.5, 0.5),
    "pow": lambda x: x.pow(2),
    "square": torch.square,
    "isfinite": torch.isfinite,
    "logical_not": torch.logical_not,
    "log1p": lambda x: x.abs().log1p(),
    "hardtanh": F.hardtanh,
    "logsigmoid": F.logsigmoid,
    "isnan": torch.isnan,
    "trunc": torch.trunc,
    "hardsigmoid": F.hardsigmoid,
    "expm1": torch.expm1,
    "atan": torch.atan,
    "celu": F.celu,
    "selu": F.selu,
    "softshrink": F.softshrink,
    "hardshrink": F.hardshrink,
    "softsign": F.softsign,
    "relu6": F.relu6,
    "threshold": lambda x: F.threshold(x, 0.1, 2),
    "xlogy": lambda x: torch.xlogy(x, x.abs() + 1),
    "log2": lambda x: (x.abs() + 0.1).log2(),
    "asin": lambda x: (x * 0.2).asin(),
    "sinh": torch.sinh,
    "nan_to_num": torch.nan_to_num,
    "in_place": lambda x: x.clone().add_(1).mul_(2).sub_(0.5).div_(3),
    "to_float32": lambda x: x.float(),
    "to_float16": lambda x: x.half(),
    "to_bfloat16": lambda x: x.bfloat16(),
    "to_integer": lambda x: x.to(torch.int32),
    "to_boolean": lambda x: x.bool(),
}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", UNARY)
def test_unary(name, dtype):
    check(UNARY[name], normal(5, 7, dtype=dtype))
    check(UNARY[name], normal(6, 5, dtype=dtype).t()[::2])
    check(UNARY[name], normal(5, 1, dtype=dtype).expand(5, 3))
    check(UNARY[name], normal(1, dtype=dtype)[0])
    check(UNARY[name], normal(0, 3, dtype=dtype))


DIFFERENTIABLE = [
    "exp",
    "tanh",
    "sigmoid",
    "relu",
    "gelu",
    "silu",
    "softplus",
    "leaky_relu",
    "elu",
    "hardswish",
    "mish",
    "hardtanh",
    "logsigmoid",
    "hardsigmoid",
    "clamp",
    "pow",
    "celu",
    "selu",
    "softshrink",
    "hardshrink",
    "softsign",
    "relu6",
    "threshold",
    "log",
    "sqrt",
]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_unary_gradient(name, dtype):
    check(UNARY[name], normal(4, 6, dtype=dtype, grad=True), backward=True)
    check(UNARY[name], normal(6, 4, dtype=dtype).t().detach().requires_grad_(), backward=True)


def test_gates_and_learned_slopes():
    check(lambda x: F.glu(x, dim=1), normal(4, 6, 3, grad=True), backward=True)
    check(F.prelu, normal(4, 6, 3, grad=True), normal(6, grad=True), backward=True)
    check(F.prelu, normal(4, 6, grad=True), normal(1, grad=True), backward=True)


BINARY = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": lambda a, b: a / (b.abs() + 0.5),
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "eq": torch.eq,
    "lt": torch.lt,
    "ge": torch.ge,
    "add_alpha": lambda a, b: torch.add(a, b, alpha=2),
    "atan2": torch.atan2,
    "where": lambda a, b: torch.where(a > 0, a, b),
    "pow": lambda a, b: a.abs().pow(b),
    "lerp": lambda a, b: torch.lerp(a, b, 0.3),
    "addcmul": lambda a, b: torch.addcmul(a, a, b.expand_as(a), value=0.5),
    "addcdiv": lambda a, b: torch.addcdiv(a, a, b.expand_as(a).abs() + 1, value=0.5),
    "logical_and": lambda a, b: torch.logical_and(a > 0, b > 0),
    "masked_fill": lambda a, b: a.masked_fill(a > 0, 7.0),
    "fmod": lambda a, b: torch.fmod(a, b.abs() + 1),
    "remainder": lambda a, b: torch.remainder(a, b.abs() + 1),
}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", BINARY)
def test_binary(name, dtype):
    check(BINARY[name], normal(4, 5, dtype=dtype), normal(4, 5, dtype=dtype))
    check(BINARY[name], normal(3, 4, 5, dtype=dtype), normal(4, 1, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.int8, torch.uint8, torch.int16], ids=str)
def test_whole_numbers(dtype):
    left, right = torch.randint(1, 10, (4, 5)).to(dtype), torch.randint(1, 10, (4, 5)).to(dtype)
    check(torch.add, left, right)
    check(torch.mul, left, right)
    check(lambda a, b: a // b, left, right)
    check(lambda a, b: a % b, left, right)
    check(torch.gt, left, right)
    check(torch.sum, left)
    check(lambda a: a.to(torch.float32), left)
    check(lambda a, b: torch.cat([a, b]).sort(dim=1), left, right)
    check(lambda a, b: torch.where(a > b, a, b).cumsum(dim=0), left, right)
    check(torch.bitwise_xor, left.t(), right.t())
    check(lambda a: a[torch.tensor([2, 0], device=a.device), ::2], left)
    check(lambda a: a.clamp(2, 5), left[::2, 1::2])


@pytest.mark.skipif(IS_OLD, reason="torch_npu before 2.6 launches shifts by name, which the device does not compute")
def test_shifts():
    check(lambda a: a << 2, torch.arange(-5, 5))
    check(lambda a: a >> 1, torch.arange(-5, 5, dtype=torch.int32))
    check(lambda a, b: a << b, torch.arange(5), torch.arange(5))


def test_large_whole_numbers_stay_exact():
    check(lambda a: a + 1, torch.tensor([2**53, 2**62 - 1, -(2**60)]))


def test_booleans():
    left, right = torch.rand(10) > 0.5, torch.rand(10) > 0.5
    for function in (torch.logical_or, torch.logical_xor, torch.bitwise_and, torch.bitwise_or, torch.eq):
        check(function, left, right)
    check(torch.logical_not, left)
    check(lambda a: ~a, left)
    check(torch.any, left)
    check(torch.all, left)
    check(lambda a: a.sum(), left)


REDUCTIONS = {
    "sum": torch.sum,
    "sum_dim": lambda x: x.sum(dim=(0, 2)),
    "mean": torch.mean,
    "mean_dim": lambda x: x.mean(dim=1, keepdim=True),
    "max": torch.max,
    "min": torch.min,
    "max_dim": lambda x: x.max(dim=1),
    "min_dim": lambda x: x.min(dim=-1),
    "argmax": lambda x: x.argmax(dim=2),
    "amax": lambda x: x.amax(dim=(1, 2)),
    "std": torch.std,
    "var": lambda x: x.var(dim=1, unbiased=False),
    "norm": lambda x: torch.linalg.vector_norm(x),
    "norm1": lambda x: x.norm(p=1, dim=1),
    "prod": lambda x: x.prod(dim=1),
    "logsumexp": lambda x: x.logsumexp(dim=1),
    "cumsum": lambda x: x.cumsum(dim=1),
    "softmax": lambda x: x.softmax(dim=-1),
    "softmax_first": lambda x: x.softmax(dim=0),
    "log_softmax": lambda x: x.log_softmax(dim=1),
    "var_mean": lambda x: torch.var_mean(x, dim=1),
    "argmin": lambda x: x.argmin(),
    "median": lambda x: x.median(dim=1),
    "kth": lambda x: x.kthvalue(2, dim=1),
    "extremes": lambda x: torch.aminmax(x),
    "extremes_dim": lambda x: torch.aminmax(x, dim=1),
    "normalize": lambda x: F.normalize(x, dim=1),
    "cumprod": lambda x: x.cumprod(dim=1),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    "name", ["sum", "sum_dim", "mean", "mean_dim", "max_dim", "norm", "softmax", "log_softmax", "var"]
)
def test_reduction_in_low_precision(name, dtype):
    check(REDUCTIONS[name], normal(3, 4, 5, dtype=dtype))
    check(REDUCTIONS[name], normal(5, 4, 3, dtype=dtype).permute(2, 1, 0))


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reduction(name):
    check(REDUCTIONS[name], normal(3, 4, 5))
    check(REDUCTIONS[name], normal(5, 4, 3).permute(2, 1, 0))


@pytest.mark.parametrize(
    "name", ["sum_dim", "mean_dim", "softmax", "log_softmax", "var", "norm", "cumsum", "logsumexp"]
)
def test_reduction_gradient(name):
    check(REDUCTIONS[name], normal(3, 4, 5, grad=True), backward=True)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_matrix_products(dtype):
    check(torch.mm, normal(5, 6, dtype=dtype), normal(6, 4, dtype=dtype))
    check(torch.mm, normal(6, 5, dtype=dtype).t(), normal(4, 6, dtype=dtype).t())
    check(torch.bmm, normal(3, 5, 6, dtype=dtype), normal(3, 6, 4, dtype=dtype))
    check(torch.matmul, normal(2, 3, 5, 6, dtype=dtype), normal(3, 6, 4, dtype=dtype))
    check(torch.matmul, normal(5, 6, dtype=dtype), normal(6, dtype=dtype))
    check(torch.addmm, normal(4, dtype=dtype), normal(5, 6, dtype=dtype), normal(6, 4, dtype=dtype))
    check(torch.baddbmm, normal(3, 5, 4, dtype=dtype), normal(3, 5, 6, dtype=dtype), normal(3, 6, 4, dtype=dtype))
    check(torch.dot, normal(7, dtype=dtype), normal(7, dtype=dtype))
    check(torch.addr, normal(5, 6, dtype=dtype), normal(5, dtype=dtype), normal(6, dtype=dtype))
    check(
        lambda a, b: torch.einsum("bhqd,bhkd->bhqk", a, b),
        normal(2, 3, 4, 5, dtype=dtype),
        normal(2, 3, 6, 5, dtype=dtype),
    )


def test_linear_gradient():
    check(F.linear, normal(4, 8, 6, grad=True), normal(5, 6, grad=True), normal(5, grad=True), backward=True)


CONVOLUTIONS = [
    dict(stride=1, padding=1),
    dict(stride=2, padding=0),
    dict(stride=1, padding=2, dilation=2),
    dict(stride=1, padding=1, groups=2),
]


@pytest.mark.parametrize("options", CONVOLUTIONS, ids=str)
def test_convolution(options):
    groups = options.get("groups", 1)
    weight = normal(6, 4 // groups, 3, 3, grad=True)
    check(
        lambda x, w, b: F.conv2d(x, w, b, **options),
        normal(2, 4, 9, 8, grad=True),
        weight,
        normal(6, grad=True),
        backward=True,
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_convolution_in_low_precision(dtype):
    """The CPU rounds in between, the device does not: the result is that of float32, rounded once."""
    batch, weight, seed = (normal(*shape, dtype=dtype) for shape in ((2, 4, 9, 8), (6, 4, 3, 3), (2, 6, 9, 8)))
    results = {}
    for device, kind in (("cpu", torch.float32), ("npu", dtype)):
        x, w = (value.to(device, kind).detach().requires_grad_() for value in (batch, weight))
        y = F.conv2d(x, w, padding=1)
        y.backward(seed.to(device, kind))
        results[device] = [value.detach().cpu().to(dtype) for value in (y, x.grad, w.grad)]
    for actual, expected in zip(results["npu"], results["cpu"], strict=True):
        torch.testing.assert_close(actual, expected)


def test_other_convolutions():
    check(lambda x, w: F.conv1d(x, w, padding=1), normal(2, 4, 9, grad=True), normal(6, 4, 3, grad=True), backward=True)
    check(
        lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1, output_padding=1),
        normal(2, 4, 5, 5, grad=True),
        normal(4, 3, 3, 3, grad=True),
        backward=True,
    )


POOLS = {
    "max": lambda x: F.max_pool2d(x, 2),
    "max_overlapping": lambda x: F.max_pool2d(x, 3, stride=2, padding=1),
    "average": lambda x: F.avg_pool2d(x, 2),
    "average_padded": lambda x: F.avg_pool2d(x, 3, stride=2, padding=1),
    "average_uncounted": lambda x: F.avg_pool2d(x, 3, stride=2, padding=1, count_include_pad=False),
    "adaptive": lambda x: F.adaptive_avg_pool2d(x, (3, 2)),
    "global": lambda x: F.adaptive_avg_pool2d(x, 1),
    "unfold": lambda x: F.unfold(x, 3, padding=1, stride=2),
    "fold": lambda x: F.fold(F.unfold(x, 2), (8, 9), 2),
    "enlarge": lambda x: F.interpolate(x, scale_factor=2),
    "enlarge_odd": lambda x: F.interpolate(x, size=(13, 20)),
    "shrink": lambda x: F.interpolate(x, scale_factor=0.5),
    "bilinear": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "bilinear_corners": lambda x: F.interpolate(x, size=(5, 12), mode="bilinear", align_corners=True),
    "reflect": lambda x: F.pad(x, (1, 2, 3, 0), mode="reflect"),
    "replicate": lambda x: F.pad(x, (1, 2, 3, 0), mode="replicate"),
    "reflect_line": lambda x: F.pad(x[0], (2, 1), mode="reflect"),
    "bicubic": lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"),
    "bicubic_corners": lambda x: F.interpolate(x, size=(5, 12), mode="bicubic", align_corners=True),
    "enlarge_line": lambda x: F.interpolate(x[0], scale_factor=2),
    "response": lambda x: F.local_response_norm(x, 2),
    "linear_line": lambda x: F.interpolate(x[0], scale_factor=2, mode="linear"),
    "max_volume": lambda x: F.max_pool3d(x, 2),
    "average_volume": lambda x: F.avg_pool3d(x, 2, stride=1, padding=1),
    "average_volume_uncounted": lambda x: F.avg_pool3d(x, 2, padding=1, count_include_pad=False),
}


@pytest.mark.parametrize("name", POOLS)
def test_pooling(name):
    check(POOLS[name], normal(2, 3, 8, 9, grad=True), backward=True)


def test_channel_shuffle():
    # Older releases of torch have no derivative of it on the CPU.
    check(lambda x: F.channel_shuffle(x, 3), normal(1, 6, 8, 9))


@pytest.mark.skipif(
    IS_OLD, reason="torch_npu before 2.6 launches its gradient by name, which the device does not compute"
)
def test_largest_of_adaptive_parts():
    check(lambda x: F.adaptive_max_pool2d(x, (3, 2)), normal(2, 3, 8, 9, grad=True), backward=True)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_layer_norm(dtype):
    check(
        lambda x, w, b: F.layer_norm(x, (6,), w, b),
        normal(4, 5, 6, dtype=dtype),
        normal(6, dtype=dtype),
        normal(6, dtype=dtype),
    )


def test_normalization_gradients():
    check(
        lambda x, w, b: F.layer_norm(x, (6,), w, b),
        normal(4, 5, 6, grad=True),
        normal(6, grad=True),
        normal(6, grad=True),
        backward=True,
    )
    check(
        lambda x, w, b: F.group_norm(x, 2, w, b),
        normal(3, 4, 5, 5, grad=True),
        normal(4, grad=True),
        normal(4, grad=True),
        backward=True,
    )
    check(
        lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
        normal(3, 4, 5, 5, grad=True),
        normal(4, grad=True),
        normal(4, grad=True),
        backward=True,
    )


def test_batch_norm_keeps_statistics():
    cpu, device = torch.nn.BatchNorm2d(4), torch.nn.BatchNorm2d(4).npu()
    for _ in range(3):
        batch = normal(3, 4, 5, 5)
        cpu(batch), device(batch.npu())
    torch.testing.assert_close(device.running_mean.cpu(), cpu.running_mean)
    torch.testing.assert_close(device.running_var.cpu(), cpu.running_var)
    cpu.eval(), device.eval()
    batch = normal(3, 4, 5, 5)
    torch.testing.assert_close(device(batch.npu()).cpu(), cpu(batch))


LOSSES = {
    "mse": F.mse_loss,
    "l1": F.l1_loss,
    "smooth_l1": F.smooth_l1_loss,
    "mse_sum": lambda x, y: F.mse_loss(x, y, reduction="sum"),
    "bce_logits": lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid()),
    "bce": lambda x, y: F.binary_cross_entropy(x.sigmoid(), y.sigmoid()),
    "huber": F.huber_loss,
    "divergence": lambda x, y: F.kl_div(x.log_softmax(-1), y.softmax(-1), reduction="batchmean"),
    "divergence_logarithm": lambda x, y: F.kl_div(x, y, reduction="mean", log_target=True),
    "soft_margin": lambda x, y: F.soft_margin_loss(x, y.sign()),
    "poisson": lambda x, y: F.poisson_nll_loss(x, y.abs()),
}


@pytest.mark.parametrize("name", LOSSES)
def test_loss(name):
    check(LOSSES[name], normal(4, 5, grad=True), normal(4, 5), backward=True)


@pytest.mark.parametrize(
    "options",
    [{}, dict(reduction="sum"), dict(reduction="none"), dict(ignore_index=2), dict(label_smoothing=0.1)],
    ids=str,
)
def test_cross_entropy(options):
    target = torch.randint(0, 5, (6,))
    check(lambda x, y: F.cross_entropy(x, y, **options), normal(6, 5, grad=True), target, backward=True)
    weight = torch.rand(5)
    check(
        lambda x, y, w: F.cross_entropy(x, y, weight=w, **options),
        normal(6, 5, grad=True),
        target,
        weight,
        backward=True,
    )


def test_indexing():
    x, rows = normal(5, 6, 4), torch.tensor([3, 0, 3])
    check(lambda x, i: x[i], x, rows)
    check(lambda x, i: x[:, i], x, rows)
    check(lambda x, i: x[i, torch.tensor([1, 2, 5], device=x.device)], x, rows)
    check(lambda x: x[1:4, ::2, -1], x)
    check(lambda x: x[x > 0], x)
    check(lambda x, i: x.index_select(1, i), x, rows)
    check(lambda x: torch.gather(x, 1, x.argsort(dim=1)), x)
    check(lambda x: torch.nonzero(x > 0.5), x)
    check(lambda x: torch.masked_select(x, x > 0), x)
    check(lambda x: F.one_hot(x, 5), torch.tensor([1, 4, 0]))
    check(lambda x: torch.unique(x), torch.tensor([3, 1, 3, 2, 1]))

    def put(x, i):
        x = x.clone()
        x[i] = 0
        x[:, 1] = 5
        return x.index_add(0, i, torch.ones(3, 6, 4, device=x.device))

    check(put, x, rows)
    check(lambda x: x.index_copy(0, torch.tensor([2, 4], device=x.device), x[:2] + 1), x)
    check(lambda x, i: x.index_fill(1, i, 3.0), x, rows)
    check(lambda x: torch.bincount(x, minlength=8), torch.tensor([1, 2, 2, 5]))
    check(
        lambda x: torch.searchsorted(x, torch.tensor([0.3, 0.4, 0.5], device=x.device)), torch.tensor([0.1, 0.4, 0.6])
    )
    check(lambda x: torch.bucketize(x, torch.tensor([0.3, 0.5], device=x.device), right=True), torch.tensor([0.1, 0.5]))
    check(
        lambda x, i: torch.zeros(5, 4, device=x.device).scatter(0, i, x),
        normal(2, 4),
        torch.tensor([[0, 1, 2, 3], [4, 3, 2, 1]]),
    )
    check(
        lambda x, i: torch.zeros(5, 4, device=x.device).scatter_add(0, i, x),
        normal(2, 4),
        torch.tensor([[0, 0, 2, 3], [0, 3, 2, 1]]),
    )


def test_indexing_gradient():
    index = torch.tensor([3, 0, 3])
    check(lambda x, i: x[i], normal(5, 4, grad=True), index, backward=True)
    check(lambda x, i: F.embedding(i, x), normal(5, 4, grad=True), index, backward=True)


def test_bags():
    table, indices = normal(10, 4, grad=True), torch.tensor([[1, 2, 4], [5, 2, 3]])
    for mode in ("sum", "mean", "max"):
        check(lambda t, i, mode=mode: F.embedding_bag(i, t, mode=mode), table, indices, backward=True)
        check(lambda t, i, mode=mode: F.embedding_bag(i, t, mode=mode, padding_idx=2), table, indices, backward=True)
    flat, offsets = torch.tensor([1, 2, 4, 5, 4, 3]), torch.tensor([0, 4])
    check(lambda t, i, o: F.embedding_bag(i, t, o, mode="mean"), table, flat, offsets, backward=True)
    weights = torch.rand(2, 3)
    check(
        lambda t, i, w: F.embedding_bag(i, t, mode="sum", per_sample_weights=w), table, indices, weights, backward=True
    )
    check(lambda t, i: F.embedding(i, t.clone(), max_norm=1.0), normal(10, 4), flat)


def test_elements_by_number():
    x, places = normal(3, 4, 5), torch.tensor([1, 50, -1])
    check(lambda x, i: torch.take(x, i), x, places)
    check(lambda x, i: x.clone().put_(i, x.flatten()[:3]), x, places)
    check(lambda x, i: x.clone().put_(i, x.flatten()[:3], accumulate=True), x, places)
    check(lambda x: torch.zeros_like(x).scatter_reduce(0, torch.zeros_like(x).long(), x, "sum"), x)
    check(lambda x: torch.unique_consecutive(x.round().flatten(), return_inverse=True, return_counts=True), x)
    check(lambda x: torch.unique(x.round(), return_inverse=True, return_counts=True), x)
    check(
        lambda x: torch.unique(x, dim=0, return_inverse=True, return_counts=True),
        torch.tensor([[1, 2], [0, 1], [1, 2]]),
    )
    check(lambda x: torch.unique_consecutive(x, dim=0), torch.tensor([[1, 2], [1, 2], [0, 1]]))
    check(lambda x: x[0].clone().fill_diagonal_(3.0), x)
    check(lambda x, n: x[0].repeat_interleave(n, dim=0), x, torch.tensor([1, 2, 0, 1]))
    check(
        lambda x, n: x[0].repeat_interleave(n, dim=0),
        normal(3, 4, 5, grad=True),
        torch.tensor([1, 2, 0, 1]),
        backward=True,
    )
    check(lambda x: torch.histc(x, 10, -2, 2), x)
    check(lambda x: torch.histc(x, 7), x)
    check(lambda x: torch.cummax(x, 1), x)
    check(lambda x: torch.cummin(x, 2), x)
    check(lambda x: x.nanmedian(), torch.tensor([3.0, float("nan"), 1.0, 2.0, 5.0]))
    check(lambda x: x.renorm(2, 0, 1.0), x)


DISTANCES = [0.0, 1.0, 1.5, 2.0, 3.0, float("inf")]


@pytest.mark.parametrize("order", DISTANCES)
def test_distances(order):
    check(
        lambda x, y: torch.cdist(x, y, p=order), normal(2, 4, 3, grad=True), normal(2, 5, 3, grad=True), backward=True
    )


@pytest.mark.skipif(IS_OLD, reason="torch_npu before 2.6 launches them by name, which the device does not compute")
def test_geometry():
    x = normal(3, 4, 5)
    square = x[0, :, :4] @ x[0, :, :4].t() + torch.eye(4)
    check(lambda x: F.pdist(x[0]), x)
    check(lambda x: torch.linalg.cross(x[..., :3], x[..., 1:4], dim=-1), x)
    check(lambda x: torch.trace(x[0]), x)
    check(torch.linalg.cholesky, square)
    check(lambda x: torch.linalg.cholesky(x, upper=True), square)
    check(lambda x: torch.linalg.solve_triangular(x.tril(), x, upper=False), square)
    check(lambda x: torch.linalg.solve_triangular(x.triu(), x, upper=True, unitriangular=True), square)
    check(lambda x: F.affine_grid(x, (2, 3, 4, 5), align_corners=False), normal(2, 2, 3, grad=True), backward=True)
    check(lambda x: F.affine_grid(x, (2, 3, 4, 5), align_corners=True), normal(2, 2, 3))
    for mode in ("reduced", "complete"):
        factors = torch.linalg.qr(x.npu(), mode=mode)
        torch.testing.assert_close((factors.Q @ factors.R).cpu(), x)
        across = (factors.Q.transpose(1, 2) @ factors.Q).cpu()
        torch.testing.assert_close(across, torch.eye(across.shape[1]).expand_as(across))
        assert torch.equal(factors.R.cpu(), factors.R.cpu().triu())


def test_shaping():
    x = normal(3, 4, 5)
    check(lambda x: torch.cat([x, x[:1]], dim=0), x)
    check(lambda x: torch.stack([x, x], dim=1), x)
    check(lambda x: x.permute(2, 0, 1).contiguous(), x)
    check(lambda x: x.reshape(12, 5).t().contiguous(), x)
    check(lambda x: x.repeat(2, 1, 3), x)
    check(lambda x: x.flip(1), x)
    check(lambda x: x.roll(2, 1), x)
    check(lambda x: x.tril(), x)
    check(lambda x: x.triu(1), x)
    check(lambda x: F.pad(x, (1, 2, 0, 1)), x)
    check(lambda x: x.sort(dim=1), x)
    check(lambda x: x.topk(2, dim=2), x)
    check(lambda x: x.split(2, dim=2), x)
    check(lambda x: x.expand(2, 3, 4, 5).contiguous(), x)
    check(lambda x: x.repeat_interleave(2, dim=1), x)


def test_creation():
    check(lambda x: torch.arange(10, device=x.device), normal(1))
    check(lambda x: torch.arange(0, 1, 0.125, device=x.device), normal(1))
    check(lambda x: torch.linspace(0, 1, 5, device=x.device), normal(1))
    if not IS_OLD:  # launched by name, which the device does not compute
        check(lambda x: torch.logspace(0, 1, 5, device=x.device), normal(1))
    check(lambda x: torch.eye(4, device=x.device), normal(1))
    check(lambda x: torch.full((2, 3), 7, device=x.device), normal(1))
    check(lambda x: torch.zeros_like(x) + torch.ones_like(x), normal(3))


def test_random_numbers_have_their_distribution():
    uniform = torch.rand(20000, device="npu").cpu()
    assert uniform.min() >= 0 and uniform.max() < 1
    assert abs(uniform.mean() - 0.5) < 0.02
    gauss = torch.randn(20000, device="npu").cpu()
    assert abs(gauss.mean()) < 0.05 and abs(gauss.std() - 1) < 0.05
    assert sorted(torch.randperm(50, device="npu").cpu().tolist()) == list(range(50))
    whole = torch.randint(3, 9, (1000,), device="npu").cpu()
    assert set(whole.tolist()) == {3, 4, 5, 6, 7, 8}
    torch.manual_seed(7)
    first = torch.rand(5, device="npu").cpu()
    torch.manual_seed(7)
    assert torch.equal(first, torch.rand(5, device="npu").cpu())


def test_random_numbers_of_every_element():
    chances = torch.tensor([0.0, 1.0, 0.5], device="npu").repeat_interleave(3000)
    drawn = torch.bernoulli(chances).cpu().reshape(3, 3000).mean(1)
    assert drawn[0] == 0 and drawn[1] == 1 and abs(drawn[2] - 0.5) < 0.05
    means = torch.tensor([-5.0, 5.0], device="npu").repeat_interleave(5000)
    for gauss in (torch.normal(means, torch.ones_like(means)), torch.normal(means, 1.0)):
        found = gauss.cpu().reshape(2, 5000).mean(1)
        torch.testing.assert_close(found, torch.tensor([-5.0, 5.0]), atol=0.1, rtol=0)


def test_dropout_keeps_its_share_and_its_mask():
    x = torch.ones(100, 100, device="npu", requires_grad=True)
    y = F.dropout(x, 0.25)
    kept = (y != 0).float().mean().item()
    assert abs(kept - 0.75) < 0.03
    assert torch.allclose(y[y != 0].cpu(), torch.tensor(1 / 0.75))
    y.sum().backward()
    assert torch.equal((x.grad != 0).cpu(), (y != 0).cpu())
    assert torch.equal(F.dropout(x, 0.25, training=False).cpu(), x.detach().cpu())


@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal):
    shapes = [normal(2, 4, 16, 8, grad=True) for _ in range(3)]
    check(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal), *shapes, backward=True)


def test_attention_with_mask():
    mask = torch.rand(2, 1, 16, 16) > 0.3
    mask[..., 0] = True
    shapes = [normal(2, 4, 16, 8, grad=True) for _ in range(3)]
    check(lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m), *shapes, mask, backward=True)


UNKNOWN_OPERATOR = """
import torch, torch_npu
torch.linalg.svdvals(torch.ones(3, 3, device="npu"))
torch.linalg.svdvals(torch.ones(3, 3, device="npu"))
torch.npu.synchronize()
"""


@pytest.mark.parametrize("setting, status, lines", [("warn", 0, 1), ("quiet", 0, 0), ("error", 1, 1)])
def test_an_unknown_operator_does_nothing_and_says_so_once(setting, status, lines):
    environment = {**os.environ, "STANDIN_UNKNOWN_OPERATORS": setting}
    run = subprocess.run([sys.executable, "-c", UNKNOWN_OPERATOR], env=environment, capture_output=True, text=True)
    assert (run.returncode != 0) == (status != 0), run.stderr
    assert len(re.findall("operator (aclnn)?Svd is not computed", run.stderr)) == lines
