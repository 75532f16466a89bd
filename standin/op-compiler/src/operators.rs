//! The operators that are computed when they are launched by name: those for which torch_npu has no other way.

use crate::operand::Operands;
use standin_compute::distance::slope;
use standin_compute::elementwise::copy;
use standin_compute::recurrent::{Cell, Gradients, Layer, Pass, State, Trace};
use standin_compute::reduction::norm;
use standin_compute::{Tensor, dense_strides};

/// Computes an operator; `None` when an operand is missing.
pub type Computation = fn(&Operands) -> Option<()>;

/// The computation of an operator, if there is one.
pub fn computation(name: &str) -> Option<Computation> {
    Some(match name {
        "AsStrided" => selected,
        "Cast" => converted,
        "Cdist" => distances,
        "CdistGrad" => distance_gradient,
        "DynamicRNN" => recurrent_layer,
        "DynamicRNNGrad" => recurrent_layer_gradient,
        "DynamicRNNV2" => recurrent_cell,
        "DynamicRNNV2Grad" => recurrent_cell_gradient,
        "OnesLike" => ones,
        "Transpose" => transposed,
        "ViewCopy" => copied,
        _ => return None,
    })
}

/// The part of the memory of an input that a shape, strides and an offset select, which are the inputs behind it.
fn part(operands: &Operands, index: usize) -> Option<Tensor> {
    let shape =
        operands.numbers(index + 1)?.into_iter().map(|size| usize::try_from(size).ok()).collect::<Option<_>>()?;
    let strides = operands.numbers(index + 2)?.into_iter().map(|stride| stride as isize).collect();
    let offset = usize::try_from(*operands.numbers(index + 3)?.first()?).ok()?;
    let memory = operands.input(index)?.view(vec![offset + 1], vec![1]);
    Some(memory.narrowed(0, offset, 1).view(shape, strides))
}

/// A strided part of memory, made dense.
fn selected(operands: &Operands) -> Option<()> {
    copy(&part(operands, 0)?, operands.output(0)?);
    Some(())
}

/// One strided part of memory into another.
fn copied(operands: &Operands) -> Option<()> {
    copy(&part(operands, 4)?, &part(operands, 0)?);
    Some(())
}

fn converted(operands: &Operands) -> Option<()> {
    copy(operands.input(0)?, operands.output(0)?);
    Some(())
}

/// Older releases fill new tensors this way.
fn ones(operands: &Operands) -> Option<()> {
    let output = operands.output(0)?;
    output.write(&vec![1.0; output.len()]);
    Some(())
}

fn transposed(operands: &Operands) -> Option<()> {
    let order: Vec<usize> = operands.numbers(1)?.into_iter().map(|dimension| dimension as usize).collect();
    copy(&operands.input(0)?.permuted(&order), operands.output(0)?);
    Some(())
}

/// The order of a distance; callers pass -1 for the largest difference.
fn order(operands: &Operands) -> Option<f64> {
    operands.power.map(|order| if order < 0.0 { f64::INFINITY } else { f64::from(order) })
}

/// Distances of rows, which are repeated to batches x rows x other rows x elements.
fn distances(operands: &Operands) -> Option<()> {
    let (left, right) = (operands.input(0)?.read::<f64>(), operands.input(1)?.read::<f64>());
    let (size, order) = (operands.input(0)?.shape.last().copied()?.max(1), order(operands)?);
    let differences: Vec<f64> = left.iter().zip(&right).map(|(left, right)| left - right).collect();
    operands.output(0)?.write(&differences.chunks(size).map(|row| norm(row, order)).collect::<Vec<_>>());
    Some(())
}

/// Gradient of distances; all operands are repeated to batches x rows x other rows x elements.
fn distance_gradient(operands: &Operands) -> Option<()> {
    let (gradient, left, right, distances) =
        (operands.input(0)?, operands.input(1)?, operands.input(2)?, operands.input(3)?);
    let output = operands.output(0)?;
    let order = order(operands)?;
    let (others, size) = (left.shape[left.rank() - 2].max(1), left.shape[left.rank() - 1].max(1));
    let [gradients, lefts, rights, distances] = [gradient, left, right, distances].map(Tensor::read::<f64>);
    let mut sums = vec![0.0; output.len()];
    for (index, gradient) in gradients.iter().enumerate() {
        let target = index / (others * size) * size + index % size;
        sums[target] += gradient * slope(lefts[index] - rights[index], distances[index], order);
    }
    output.write(&sums);
    Some(())
}

/// Weights with one row per input and hidden element, as the two weights of a layer.
fn weights(weight: &Tensor, inputs: usize) -> [Tensor; 2] {
    let hidden = weight.shape[0] - inputs;
    [weight.narrowed(0, 0, inputs), weight.narrowed(0, inputs, hidden)].map(|part| part.permuted(&[1, 0]))
}

/// A layer or cell: its weights, one row per gate and hidden element, input, and first state.
struct Recurrent<'a> {
    layer: Layer,
    batch: usize,
    hidden_size: usize,
    input: &'a Tensor,
    start: State,
}

impl<'a> Recurrent<'a> {
    fn new(input: &'a Tensor, weights: &[Tensor; 2], bias: Option<&Tensor>, start: [&Tensor; 2]) -> Self {
        Self {
            layer: Layer::new(Cell::Lstm, &weights[0], &weights[1], [bias, None]),
            batch: input.shape[input.rank() - 2],
            hidden_size: weights[1].shape[1],
            input,
            start: State { hidden: start[0].read(), memory: start[1].read() },
        }
    }

    fn pass<'p>(&'p self, input: &'p [f64]) -> Pass<'p> {
        Pass { input, batch: self.batch, start: &self.start, backwards: false }
    }

    /// Outputs are hidden states (twice), memories, and the gates in the order input, candidate, forget, output. Gates
    /// are written densely whatever layout the caller chose for them: only gradients read them.
    fn forward(&self, operands: &Operands) -> Option<()> {
        let trace = self.layer.forward(&self.pass(&self.input.read::<f64>()));
        operands.output(0)?.write(&trace.hidden);
        operands.output(1)?.write(&trace.hidden);
        operands.output(2)?.write(&trace.memory);
        for (index, gate) in [0, 2, 1, 3].into_iter().enumerate() {
            self.dense(operands.output(3 + index)?).write(&trace.gate(gate, 4, self.hidden_size));
        }
        Some(())
    }

    /// The start of the memory of an operand as steps x sequences x hidden elements.
    fn dense(&self, tensor: &Tensor) -> Tensor {
        let steps = self.input.len() / (self.batch * self.input.shape[self.input.rank() - 1]).max(1);
        let shape = vec![steps, self.batch, self.hidden_size];
        let strides = dense_strides(&shape);
        tensor.view(shape, strides)
    }

    /// Gradients from hidden states, memories, three gradients and the four gates, which begin at input 6.
    fn backward(&self, operands: &Operands) -> Option<Gradients> {
        let read = |index: usize| operands.input(index).map(|tensor| self.dense(tensor).read::<f64>());
        let gates = [read(11)?, read(13)?, read(12)?, read(14)?];
        let trace = Trace::new(&gates, self.hidden_size, read(7)?, read(6)?);
        let last = State { hidden: operands.input(9)?.read(), memory: operands.input(10)?.read() };
        let gradient = operands.input(8)?.read::<f64>();
        let input = self.input.read::<f64>();
        Some(self.layer.backward(&self.pass(&input), &trace, &gradient, last))
    }
}

/// Weights for input and hidden elements in one tensor. Sequences of different lengths are not computed.
fn recurrent_layer(operands: &Operands) -> Option<()> {
    if operands.input(3).is_some() {
        return None;
    }
    let (input, weight) = (operands.input(0)?, operands.input(1)?);
    let weights = weights(weight, input.shape[input.rank() - 1]);
    let start = [operands.input(4)?, operands.input(5)?];
    Recurrent::new(input, &weights, operands.input(2), start).forward(operands)
}

fn recurrent_layer_gradient(operands: &Operands) -> Option<()> {
    let (input, weight) = (operands.input(0)?, operands.input(1)?);
    let inputs = input.shape[input.rank() - 1];
    let start = [operands.input(4)?, operands.input(5)?];
    let found = Recurrent::new(input, &weights(weight, inputs), operands.input(2), start).backward(operands)?;
    let [for_input, for_hidden] = weights(operands.output(0)?, inputs);
    for_input.write(&found.weights[0]);
    for_hidden.write(&found.weights[1]);
    operands.output(1)?.write(&found.weights[2]);
    operands.output(2)?.write(&found.input);
    operands.output(3)?.write(&found.start.hidden);
    operands.output(4)?.write(&found.start.memory);
    Some(())
}

/// Weights for input and hidden elements in two tensors.
fn recurrent_cell(operands: &Operands) -> Option<()> {
    let weights = [operands.input(1)?.permuted(&[1, 0]), operands.input(2)?.permuted(&[1, 0])];
    let start = [operands.input(5)?, operands.input(6)?];
    Recurrent::new(operands.input(0)?, &weights, operands.input(3), start).forward(operands)
}

fn recurrent_cell_gradient(operands: &Operands) -> Option<()> {
    let weights = [operands.input(1)?.permuted(&[1, 0]), operands.input(2)?.permuted(&[1, 0])];
    let start = [operands.input(4)?, operands.input(5)?];
    let found = Recurrent::new(operands.input(0)?, &weights, None, start).backward(operands)?;
    operands.output(0)?.permuted(&[1, 0]).write(&found.weights[0]);
    operands.output(1)?.permuted(&[1, 0]).write(&found.weights[1]);
    operands.output(2)?.write(&found.weights[2]);
    operands.output(3)?.write(&found.input);
    operands.output(4)?.write(&found.start.hidden);
    operands.output(5)?.write(&found.start.memory);
    Some(())
}
