//! Recurrent layers: long short-term memory (LSTM) and gated recurrent units (GRU), one or several layers, in one or
//! two directions. Forward passes keep a [`Trace`], from which backward passes compute gradients.

use crate::tensor::Tensor;

/// Which cell a layer is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell {
    /// Gates in the order input, forget, candidate, output; the memory is the cell state.
    Lstm,
    /// Gates in the order reset, update, candidate; the memory is the hidden part of the candidate.
    Gru,
}

impl Cell {
    fn gates(self) -> usize {
        match self {
            Self::Lstm => 4,
            Self::Gru => 3,
        }
    }
}

/// What a forward pass computed, for every time step, sequence and (gate and) hidden element.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// Values of the gates behind their activation functions, the gates of one sequence behind each other.
    pub gates: Vec<f64>,
    /// What the cell calls its memory.
    pub memory: Vec<f64>,
    /// Hidden states, which are the output.
    pub hidden: Vec<f64>,
}

impl Trace {
    /// From the values of every gate; `size` is the number of hidden elements.
    #[must_use]
    pub fn new(gates: &[Vec<f64>], size: usize, memory: Vec<f64>, hidden: Vec<f64>) -> Self {
        let part =
            |line: usize| gates.iter().flat_map(move |gate| gate[line * size..(line + 1) * size].iter().copied());
        Self { gates: (0..hidden.len() / size.max(1)).flat_map(part).collect(), memory, hidden }
    }

    /// The values of one of this many gates.
    #[must_use]
    pub fn gate(&self, gate: usize, gates: usize, size: usize) -> Vec<f64> {
        self.gates.chunks(size.max(1)).skip(gate).step_by(gates).flatten().copied().collect()
    }
}

/// A state of all sequences; a GRU has no memory in it.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// Hidden elements of every sequence.
    pub hidden: Vec<f64>,
    /// Memory of every sequence.
    pub memory: Vec<f64>,
}

/// Gradients of one layer in one direction.
#[derive(Clone, Debug)]
pub struct Gradients {
    /// For the input.
    pub input: Vec<f64>,
    /// For the weights of the input and of the hidden state, and for their biases.
    pub weights: [Vec<f64>; 4],
    /// For the first state.
    pub start: State,
}

/// What a layer is applied to.
#[derive(Clone, Copy, Debug)]
pub struct Pass<'a> {
    /// Time steps x sequences x elements.
    pub input: &'a [f64],
    /// Number of sequences.
    pub batch: usize,
    /// The first state.
    pub start: &'a State,
    /// Whether time steps are taken from the last to the first.
    pub backwards: bool,
}

/// One layer in one direction.
#[derive(Clone, Debug)]
pub struct Layer {
    cell: Cell,
    input_size: usize,
    hidden_size: usize,
    /// Gates times hidden elements x input elements.
    input_weight: Vec<f64>,
    /// Gates times hidden elements x hidden elements.
    hidden_weight: Vec<f64>,
    biases: [Vec<f64>; 2],
}

fn sigmoid(value: f64) -> f64 {
    1.0 / (1.0 + (-value).exp())
}

/// `bias + values x weight`, where `weight` has one row per result.
fn affine(values: &[f64], weight: &[f64], bias: &[f64]) -> Vec<f64> {
    let size = weight.len() / bias.len().max(1);
    let row = |values: &[f64]| {
        let sum = |weights: &[f64]| values.iter().zip(weights).map(|(value, weight)| value * weight).sum::<f64>();
        weight.chunks(size.max(1)).zip(bias).map(|(weights, bias)| sum(weights) + bias).collect::<Vec<_>>()
    };
    values.chunks(size.max(1)).flat_map(row).collect()
}

/// Adds `gradients x weight` to `target`: the gradient of the values of [`affine`].
fn add_backwards(target: &mut [f64], gradients: &[f64], weight: &[f64], gates: usize) {
    let size = weight.len() / gates.max(1);
    for (target, gradients) in target.chunks_mut(size.max(1)).zip(gradients.chunks(gates.max(1))) {
        for (gradient, weights) in gradients.iter().zip(weight.chunks(size.max(1))) {
            target.iter_mut().zip(weights).for_each(|(sum, weight)| *sum += gradient * weight);
        }
    }
}

/// Adds the gradients of weight and bias of [`affine`].
fn add_weight_gradients(weight: &mut [f64], bias: &mut [f64], gradients: &[f64], values: &[f64]) {
    let (gates, size) = (bias.len().max(1), (weight.len() / bias.len().max(1)).max(1));
    for (gradients, values) in gradients.chunks(gates).zip(values.chunks(size)) {
        for ((row, bias), gradient) in weight.chunks_mut(size).zip(&mut *bias).zip(gradients) {
            *bias += gradient;
            row.iter_mut().zip(values).for_each(|(sum, value)| *sum += gradient * value);
        }
    }
}

impl Layer {
    /// From the weights of input and hidden state (one row per gate and hidden element) and their biases.
    #[must_use]
    pub fn new(cell: Cell, input_weight: &Tensor, hidden_weight: &Tensor, biases: [Option<&Tensor>; 2]) -> Self {
        let rows = input_weight.shape[0];
        Self {
            cell,
            input_size: input_weight.shape[1],
            hidden_size: rows / cell.gates(),
            input_weight: input_weight.read(),
            hidden_weight: hidden_weight.read(),
            biases: biases.map(|bias| bias.map_or_else(|| vec![0.0; rows], Tensor::read)),
        }
    }

    /// Time steps in the order in which they are computed.
    fn order(&self, pass: &Pass) -> Vec<usize> {
        let steps = pass.input.len() / (pass.batch * self.input_size).max(1);
        if pass.backwards { (0..steps).rev().collect() } else { (0..steps).collect() }
    }

    /// All time steps.
    #[must_use]
    pub fn forward(&self, pass: &Pass) -> Trace {
        let (order, batch) = (self.order(pass), pass.batch);
        let (width, gates) = (batch * self.hidden_size, batch * self.hidden_size * self.cell.gates());
        let mut trace = Trace {
            gates: vec![0.0; order.len() * gates],
            memory: vec![0.0; order.len() * width],
            hidden: vec![0.0; order.len() * width],
        };
        let mut state = pass.start.clone();
        for time in order {
            let values = &pass.input[time * batch * self.input_size..(time + 1) * batch * self.input_size];
            let from_input = affine(values, &self.input_weight, &self.biases[0]);
            let from_hidden = affine(&state.hidden, &self.hidden_weight, &self.biases[1]);
            let gates = &mut trace.gates[time * gates..(time + 1) * gates];
            let memory = &mut trace.memory[time * width..(time + 1) * width];
            self.step(&from_input, &from_hidden, &mut state, gates, memory);
            trace.hidden[time * width..(time + 1) * width].copy_from_slice(&state.hidden);
        }
        trace
    }

    /// One time step: changes the state and notes gates and memory.
    fn step(&self, from_input: &[f64], from_hidden: &[f64], state: &mut State, gates: &mut [f64], memory: &mut [f64]) {
        let size = self.hidden_size;
        for (index, memory) in memory.iter_mut().enumerate() {
            let first = index / size * size * self.cell.gates() + index % size;
            let sum = |gate: usize| from_input[first + gate * size] + from_hidden[first + gate * size];
            match self.cell {
                Cell::Lstm => {
                    let values = [sigmoid(sum(0)), sigmoid(sum(1)), sum(2).tanh(), sigmoid(sum(3))];
                    state.memory[index] = values[1] * state.memory[index] + values[0] * values[2];
                    state.hidden[index] = values[3] * state.memory[index].tanh();
                    *memory = state.memory[index];
                    values.iter().enumerate().for_each(|(gate, value)| gates[first + gate * size] = *value);
                }
                Cell::Gru => {
                    let (reset, update) = (sigmoid(sum(0)), sigmoid(sum(1)));
                    let hidden_part = from_hidden[first + 2 * size];
                    let candidate = (from_input[first + 2 * size] + reset * hidden_part).tanh();
                    state.hidden[index] = (1.0 - update) * candidate + update * state.hidden[index];
                    *memory = hidden_part;
                    let values = [reset, update, candidate];
                    values.iter().enumerate().for_each(|(gate, value)| gates[first + gate * size] = *value);
                }
            }
        }
    }

    /// Gradients of [`Layer::forward`] from those of its output and of its last state.
    #[must_use]
    pub fn backward(&self, pass: &Pass, trace: &Trace, output_gradient: &[f64], last: State) -> Gradients {
        let Pass { input, batch, start, .. } = *pass;
        let order = self.order(pass);
        let (width, step_width) = (batch * self.hidden_size, batch * self.input_size);
        let gates = width * self.cell.gates();
        let mut gradients = Gradients {
            input: vec![0.0; input.len()],
            weights: [&self.input_weight, &self.hidden_weight, &self.biases[0], &self.biases[1]]
                .map(|weight| vec![0.0; weight.len()]),
            start: last,
        };
        for (place, time) in order.iter().enumerate().rev() {
            let range = time * width..(time + 1) * width;
            let before = place.checked_sub(1).map(|place| order[place] * width..(order[place] + 1) * width);
            let hidden_before = before.clone().map_or(&start.hidden[..], |range| &trace.hidden[range]);
            let memory_before = before.map_or(&start.memory[..], |range| &trace.memory[range]);
            let state = &mut gradients.start;
            state.hidden.iter_mut().zip(&output_gradient[range.clone()]).for_each(|(sum, value)| *sum += value);
            let values = StepValues {
                gates: &trace.gates[time * gates..(time + 1) * gates],
                memory: &trace.memory[range],
                hidden_before,
                memory_before,
            };
            let [for_input, for_hidden] = self.step_back(&values, state);
            let input_range = time * step_width..(time + 1) * step_width;
            let rows = self.hidden_size * self.cell.gates();
            add_backwards(&mut gradients.input[input_range.clone()], &for_input, &self.input_weight, rows);
            add_backwards(&mut state.hidden, &for_hidden, &self.hidden_weight, rows);
            let [input_weight, hidden_weight, input_bias, hidden_bias] = &mut gradients.weights;
            add_weight_gradients(input_weight, input_bias, &for_input, &input[input_range]);
            add_weight_gradients(hidden_weight, hidden_bias, &for_hidden, hidden_before);
        }
        gradients
    }

    /// One time step back: what the gates get from input and hidden state. `state` becomes the gradient of the state
    /// before, without what comes through the gates.
    fn step_back(&self, values: &StepValues, state: &mut State) -> [Vec<f64>; 2] {
        let size = self.hidden_size;
        let mut for_input = vec![0.0; values.gates.len()];
        let mut for_hidden = vec![0.0; values.gates.len()];
        for index in 0..state.hidden.len() {
            let first = index / size * size * self.cell.gates() + index % size;
            let gate = |gate: usize| values.gates[first + gate * size];
            let slope = |value: f64| value * (1.0 - value);
            let hidden = state.hidden[index];
            let (through_input, through_hidden) = match self.cell {
                Cell::Lstm => {
                    let [input, forget, candidate, output] = [gate(0), gate(1), gate(2), gate(3)];
                    let squashed = values.memory[index].tanh();
                    let memory = state.memory[index] + hidden * output * (1.0 - squashed * squashed);
                    state.memory[index] = memory * forget;
                    state.hidden[index] = 0.0;
                    let gates = vec![
                        memory * candidate * slope(input),
                        memory * values.memory_before[index] * slope(forget),
                        memory * input * (1.0 - candidate * candidate),
                        hidden * squashed * slope(output),
                    ];
                    (gates.clone(), gates)
                }
                Cell::Gru => {
                    let [reset, update, candidate] = [gate(0), gate(1), gate(2)];
                    let inner = hidden * (1.0 - update) * (1.0 - candidate * candidate);
                    state.hidden[index] = hidden * update;
                    let resets = inner * values.memory[index] * slope(reset);
                    let updates = hidden * (values.hidden_before[index] - candidate) * slope(update);
                    (vec![resets, updates, inner], vec![resets, updates, inner * reset])
                }
            };
            for (gate, (input, hidden)) in through_input.iter().zip(&through_hidden).enumerate() {
                for_input[first + gate * size] = *input;
                for_hidden[first + gate * size] = *hidden;
            }
        }
        [for_input, for_hidden]
    }
}

/// What a step back needs to know of the step.
struct StepValues<'a> {
    gates: &'a [f64],
    memory: &'a [f64],
    hidden_before: &'a [f64],
    memory_before: &'a [f64],
}

/// Layers on top of each other, each in one or two directions.
#[derive(Clone, Debug)]
pub struct Network {
    layers: Vec<Layer>,
    directions: usize,
}

impl Network {
    /// From the parameters in the order of frameworks: for every layer and direction weight of the input, weight of
    /// the hidden state and, if there are any, the two biases.
    #[must_use]
    pub fn new(cell: Cell, parameters: &[Tensor], has_biases: bool, bidirectional: bool) -> Self {
        let layer = |tensors: &[Tensor]| Layer::new(cell, &tensors[0], &tensors[1], [tensors.get(2), tensors.get(3)]);
        let layers = parameters.chunks(if has_biases { 4 } else { 2 }).map(layer).collect();
        Self { layers, directions: if bidirectional { 2 } else { 1 } }
    }

    /// States of every layer and direction, from tensors that have them in their first dimension.
    fn states(&self, hidden: &Tensor, memory: Option<&Tensor>) -> Vec<State> {
        let part = |tensor: &Tensor, number: usize| tensor.narrowed(0, number, 1).read();
        let state = |number| State {
            hidden: part(hidden, number),
            memory: memory.map_or_else(Vec::new, |memory| part(memory, number)),
        };
        (0..self.layers.len()).map(state).collect()
    }

    /// Hidden states of the directions of one layer, joined: the layer's output.
    fn output(&self, traces: &[Trace]) -> Vec<f64> {
        let size = self.layers[0].hidden_size.max(1);
        let lines = traces.iter().map(|trace| trace.hidden.chunks(size).collect::<Vec<_>>()).collect::<Vec<_>>();
        (0..lines[0].len()).flat_map(|line| lines.iter().flat_map(move |lines| lines[line].iter().copied())).collect()
    }

    /// Output of the last layer and the traces of all. `input` is time steps x sequences x elements.
    #[must_use]
    pub fn forward(&self, input: &Tensor, hidden: &Tensor, memory: Option<&Tensor>) -> (Vec<f64>, Vec<Trace>) {
        let (batch, starts) = (input.shape[1], self.states(hidden, memory));
        let (mut values, mut traces) = (input.read::<f64>(), Vec::<Trace>::new());
        for number in (0..self.layers.len()).step_by(self.directions) {
            for direction in 0..self.directions {
                let index = number + direction;
                let pass = Pass { input: &values, batch, start: &starts[index], backwards: direction == 1 };
                traces.push(self.layers[index].forward(&pass));
            }
            values = self.output(&traces[number..]);
        }
        (values, traces)
    }

    /// The last states of all layers and directions behind each other, of hidden elements and of memory.
    #[must_use]
    pub fn last_states(&self, traces: &[Trace], batch: usize) -> State {
        let width = batch * self.layers[0].hidden_size;
        let last = |values: &[f64], number: usize| {
            let backwards = number % self.directions == 1;
            (if backwards { &values[..width] } else { &values[values.len() - width..] }).to_vec()
        };
        let all = |values: fn(&Trace) -> &[f64]| {
            traces.iter().enumerate().flat_map(|(number, trace)| last(values(trace), number)).collect()
        };
        State { hidden: all(|trace| &trace.hidden), memory: all(|trace| &trace.memory) }
    }

    /// Gradients of all layers and directions, the first one's `input` being that of the network's input.
    #[must_use]
    pub fn backward(
        &self,
        input: &Tensor,
        [hidden, memory]: [Option<&Tensor>; 2],
        traces: &[Trace],
        output_gradient: &[f64],
        last: [Option<&Tensor>; 2],
    ) -> Vec<Gradients> {
        let (batch, width) = (input.shape[1], input.shape[1] * self.layers[0].hidden_size);
        let starts = hidden.map_or_else(Vec::new, |hidden| self.states(hidden, memory));
        let mut all: Vec<Option<Gradients>> = vec![None; self.layers.len()];
        let mut output_gradient = output_gradient.to_vec();
        for number in (0..self.layers.len()).step_by(self.directions).rev() {
            let values = match number.checked_sub(self.directions) {
                Some(below) => self.output(&traces[below..number]),
                None => input.read(),
            };
            let mut below = vec![0.0; values.len()];
            for direction in 0..self.directions {
                let index = number + direction;
                let [hidden, memory] = last.map(|tensor| {
                    tensor.map_or_else(|| vec![0.0; width], |tensor| tensor.narrowed(0, index, 1).read())
                });
                let gradient = self.part_of(&output_gradient, direction);
                let pass = Pass { input: &values, batch, start: &starts[index], backwards: direction == 1 };
                let last = State { hidden, memory };
                let found = self.layers[index].backward(&pass, &traces[index], &gradient, last);
                below.iter_mut().zip(&found.input).for_each(|(sum, value)| *sum += value);
                all[index] = Some(found);
            }
            output_gradient.clone_from(&below);
            if let Some(first) = &mut all[number] {
                first.input = below;
            }
        }
        all.into_iter().flatten().collect()
    }

    /// One direction's part of something that has the shape of a layer's output.
    fn part_of(&self, output: &[f64], direction: usize) -> Vec<f64> {
        let size = self.layers[0].hidden_size.max(1);
        output.chunks(size).skip(direction).step_by(self.directions).flatten().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Cell, Layer, Network, Pass, State};
    use crate::tensor::Tensor;

    fn numbers(count: usize) -> Vec<f32> {
        (0..count).map(|index| ((index * 7 + 3) % 11) as f32 / 11.0 - 0.4).collect()
    }

    fn layer(cell: Cell, gates: usize) -> Layer {
        let (mut input, mut hidden, mut bias) = (numbers(gates * 2 * 3), numbers(gates * 2 * 2), numbers(gates * 2));
        let bias = Tensor::dense(&mut bias, &[gates * 2]);
        Layer::new(
            cell,
            &Tensor::dense(&mut input, &[gates * 2, 3]),
            &Tensor::dense(&mut hidden, &[gates * 2, 2]),
            [Some(&bias), Some(&bias)],
        )
    }

    fn start() -> State {
        State { hidden: vec![0.1, -0.2], memory: vec![0.3, 0.4] }
    }

    /// Gradients agree with differences of the sum of all outputs.
    #[test]
    fn gradients_are_those_of_the_forward_pass() {
        for (cell, gates) in [(Cell::Lstm, 4), (Cell::Gru, 3)] {
            for backwards in [false, true] {
                let layer = layer(cell, gates);
                let input: Vec<f64> = numbers(12).into_iter().map(f64::from).collect();
                let start = start();
                let pass = Pass { input: &input, batch: 1, start: &start, backwards };
                let sum = |input: &[f64]| layer.forward(&Pass { input, ..pass }).hidden.iter().sum::<f64>();
                let last = State { hidden: vec![0.0; 2], memory: vec![0.0; 2] };
                let found = layer.backward(&pass, &layer.forward(&pass), &[1.0; 8], last);
                for index in 0..input.len() {
                    let (mut more, mut less) = (input.clone(), input.clone());
                    more[index] += 1e-6;
                    less[index] -= 1e-6;
                    let slope = (sum(&more) - sum(&less)) / 2e-6;
                    assert!((found.input[index] - slope).abs() < 1e-8, "{cell:?} {index}: {slope}");
                }
            }
        }
    }

    #[test]
    fn two_directions_are_joined_and_end_at_both_ends() {
        let mut weights = [numbers(12), numbers(8), numbers(12), numbers(8)];
        let shapes = [[6, 2], [6, 2], [6, 2], [6, 2]];
        weights.iter_mut().for_each(|weight| weight.resize(12, 0.25));
        let parameters: Vec<Tensor> =
            weights.iter_mut().zip(&shapes).map(|(weight, shape)| Tensor::dense(weight, shape)).collect();
        let network = Network::new(Cell::Gru, &parameters, false, true);
        let (mut input, mut hidden) = (numbers(6), vec![0.0; 4]);
        let input = Tensor::dense(&mut input, &[3, 1, 2]);
        let (output, traces) = network.forward(&input, &Tensor::dense(&mut hidden, &[2, 1, 2]), None);
        assert_eq!(output.len(), 12);
        assert_eq!(output[..2], traces[0].hidden[..2]);
        assert_eq!(output[2..4], traces[1].hidden[..2]);
        let last = network.last_states(&traces, 1);
        assert_eq!(last.hidden, [&traces[0].hidden[4..], &traces[1].hidden[..2]].concat());
    }
}
