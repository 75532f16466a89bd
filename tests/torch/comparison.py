"""Compares what the device computes with what the CPU computes."""

import torch

TOLERANCE = {
    torch.float32: (2e-5, 2e-6),
    torch.float16: (2e-3, 2e-3),
    torch.bfloat16: (2e-2, 2e-2),
}


def move(value, device):
    """Tensors, also inside lists and tuples, on another device."""
    if isinstance(value, torch.Tensor):
        return value.detach().to(device).requires_grad_(value.requires_grad)
    if isinstance(value, (list, tuple)):
        return type(value)(move(item, device) for item in value)
    return value


def flatten(value):
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in flatten(item)]
    return [value]


def assert_close(device_value, cpu_value):
    """Both values agree within the tolerance of their type."""
    for on_device, on_cpu in zip(flatten(device_value), flatten(cpu_value), strict=True):
        if not isinstance(on_cpu, torch.Tensor):
            assert on_device == on_cpu
            continue
        on_device = on_device.cpu()
        assert on_device.shape == on_cpu.shape
        relative, absolute = TOLERANCE.get(on_cpu.dtype, (0, 0))
        torch.testing.assert_close(on_device, on_cpu, rtol=relative, atol=absolute, equal_nan=True, check_dtype=False)


def check(function, *arguments, backward=False):
    """`function` gives the same on both devices, and so do its gradients if asked for."""
    on_cpu, on_device = move(arguments, "cpu"), move(arguments, "npu")
    expected, actual = function(*on_cpu), function(*on_device)
    assert_close(actual, expected)
    if backward:
        seed = torch.randn_like(expected)
        expected.backward(seed)
        actual.backward(seed.to("npu"))
        for cpu_leaf, device_leaf in zip(flatten(on_cpu), flatten(on_device), strict=True):
            if isinstance(cpu_leaf, torch.Tensor) and cpu_leaf.requires_grad:
                assert_close(device_leaf.grad, cpu_leaf.grad)
