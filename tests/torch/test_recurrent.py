"""Recurrent layers: outputs, states and gradients as on the CPU."""

import copy

import pytest
import torch
from comparison import assert_close
from programs import IS_OLD
from torch import nn

needs_newer = pytest.mark.skipif(IS_OLD, reason="torch_npu before 2.6 launches them by name in a card's own layout")

SHAPES = {
    "plain": {},
    "batch_first": dict(batch_first=True),
    "two_layers": dict(num_layers=2),
    "both_directions": dict(bidirectional=True),
    "no_biases": dict(num_layers=2, bias=False),
    "all": dict(num_layers=2, bidirectional=True, batch_first=True),
}


def leaves(value):
    return [leaf for item in value for leaf in leaves(item)] if isinstance(value, tuple) else [value]


def compare(layer, batch, state=()):
    """Runs and trains a layer on both devices."""
    results = {}
    for device in ("cpu", "npu"):
        module = copy.deepcopy(layer).to(device)
        inputs = [value.detach().to(device).requires_grad_() for value in (batch, *state)]
        given = inputs[1:] and (tuple(inputs[1:]) if len(inputs) > 2 else inputs[1],)
        outputs = leaves(module(inputs[0], *given))
        sum((output.float() * (index + 1)).square().sum() for index, output in enumerate(outputs)).backward()
        with torch.no_grad():
            calm = leaves(copy.deepcopy(module).eval()(inputs[0], *given))
        gradients = [value.grad for value in (*inputs, *module.parameters())]
        results[device] = [*(output.detach() for output in outputs), *calm, *gradients]
    assert_close(results["npu"], results["cpu"])


@pytest.mark.parametrize("name", SHAPES)
def test_lstm(name):
    compare(nn.LSTM(6, 8, **SHAPES[name]), torch.randn(4, 5, 6))


@needs_newer
@pytest.mark.parametrize("name", SHAPES)
def test_gru(name):
    compare(nn.GRU(6, 8, **SHAPES[name]), torch.randn(4, 5, 6))


@pytest.mark.parametrize("name", SHAPES)
def test_simple_recurrence(name):
    compare(nn.RNN(6, 8, **SHAPES[name]), torch.randn(4, 5, 6))


def test_states_are_taken_and_given():
    compare(nn.LSTM(6, 8, 2), torch.randn(4, 5, 6), (torch.randn(2, 5, 8), torch.randn(2, 5, 8)))
    if not IS_OLD:
        compare(nn.GRU(6, 8, 2), torch.randn(4, 5, 6), (torch.randn(2, 5, 8),))


without_cell = pytest.mark.skipif(IS_OLD, reason="torch_npu before 2.6 has no cell of its own for it")


@pytest.mark.parametrize("cell", [nn.RNNCell, pytest.param(nn.GRUCell, marks=without_cell), nn.LSTMCell])
def test_cells(cell):
    compare(cell(6, 8), torch.randn(5, 6))


@needs_newer
@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU])
def test_half_precision(layer):
    """Inside, the device does not round: outputs are those of float32, rounded once."""
    module, batch = layer(6, 8).half(), torch.randn(4, 5, 6).half()
    expected = copy.deepcopy(module).float()(batch.float())[0]
    actual = module.npu()(batch.npu())[0]
    torch.testing.assert_close(actual.detach().cpu(), expected.detach().half(), rtol=2e-3, atol=2e-3)
