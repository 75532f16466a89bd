//! Recurrent layers. Dropout between layers is not applied.

use crate::argument::Absent;
use crate::macros::operators;
use standin_compute::Tensor;
use standin_compute::recurrent::{Cell, Gradients, Network, Trace};

/// Time steps first.
fn time_first(tensor: &Tensor, batch_first: bool) -> Tensor {
    if batch_first { tensor.permuted(&[1, 0, 2]) } else { tensor.clone() }
}

/// Where forward passes leave what backward passes need: one list per gate, memory and hidden states.
struct Kept<'a> {
    gates: Vec<&'a [Tensor]>,
    memory: &'a [Tensor],
    hidden: &'a [Tensor],
}

impl Kept<'_> {
    fn write(&self, traces: &[Trace], size: usize) {
        for (index, trace) in traces.iter().enumerate() {
            for (number, list) in self.gates.iter().enumerate() {
                write_if_asked(list.get(index), &trace.gate(number, self.gates.len(), size));
            }
            write_if_asked(self.memory.get(index), &trace.memory);
            write_if_asked(self.hidden.get(index), &trace.hidden);
        }
    }

    fn read(&self) -> Vec<Trace> {
        let trace = |index: usize| {
            let hidden = &self.hidden[index];
            let gates: Vec<Vec<f64>> = self.gates.iter().map(|list| list[index].read()).collect();
            let size = hidden.shape.last().copied().unwrap_or(1);
            Trace::new(&gates, size, self.memory[index].read(), hidden.read())
        };
        (0..self.hidden.len()).map(trace).collect()
    }
}

/// A list that callers leave out unless they train.
fn list(tensors: &Option<Vec<Tensor>>) -> &[Tensor] {
    tensors.as_deref().unwrap_or_default()
}

/// Writes to a tensor that has room for the values: without training, callers pass empty ones.
fn write_if_asked(target: Option<&Tensor>, values: &[f64]) {
    if let Some(target) = target.filter(|target| target.len() == values.len()) {
        target.write(values);
    }
}

fn forward(
    network: &Network,
    input: &Tensor,
    start: [Option<&Tensor>; 2],
    kept: &Kept,
    output: &Tensor,
    last: [Option<&Tensor>; 2],
) {
    let [Some(hidden), memory] = start else { return };
    let (values, traces) = network.forward(input, hidden, memory);
    output.write(&values);
    let states = network.last_states(&traces, input.shape[1]);
    write_if_asked(last[0], &states.hidden);
    write_if_asked(last[1], &states.memory);
    kept.write(&traces, hidden.shape[hidden.rank() - 1]);
}

/// Writes the gradients of all parameters, of the input and of the first states.
fn write_gradients(
    gradients: &[Gradients],
    has_biases: bool,
    input: &Tensor,
    start: [Option<&Tensor>; 2],
    parameters: &[Tensor],
) {
    input.write(&gradients[0].input);
    let states = |part: fn(&Gradients) -> &Vec<f64>| gradients.iter().flat_map(move |found| part(found).clone());
    write_if_asked(start[0], &states(|found| &found.start.hidden).collect::<Vec<_>>());
    write_if_asked(start[1], &states(|found| &found.start.memory).collect::<Vec<_>>());
    let count = if has_biases { 4 } else { 2 };
    for (found, targets) in gradients.iter().zip(parameters.chunks(count)) {
        targets.iter().zip(&found.weights).for_each(|(target, values)| target.write(values));
    }
}

/// A gradient of the output, all zeros where there is none.
fn output_gradient(gradient: Option<&Tensor>, hidden: &[Tensor], directions: usize, batch_first: bool) -> Vec<f64> {
    match gradient.filter(|gradient| !gradient.is_empty()) {
        Some(gradient) => time_first(gradient, batch_first).read(),
        None => vec![0.0; hidden[0].len() * directions],
    }
}

/// A gradient that is there only if it has elements.
fn given(gradient: Option<&Tensor>) -> Option<&Tensor> {
    gradient.filter(|gradient| !gradient.is_empty())
}

/// A state of one layer with a dimension for layers and directions in front.
fn with_layers(state: &Tensor) -> Tensor {
    if state.rank() == 3 {
        return state.clone();
    }
    state.view([&[1], &state.shape[..]].concat(), [&[0], &state.strides[..]].concat())
}

operators! {
    aclnnLSTM(
        input: Tensor, parameters: Vec<Tensor>, start: Vec<Tensor>, _batch_sizes: Absent, has_biases: bool,
        _layers: i64, _dropout: f64, _train: bool, bidirectional: bool, batch_first: bool, output: Tensor,
        last_hidden: Tensor, last_memory: Tensor, inputs: Option<Vec<Tensor>>, candidates: Option<Vec<Tensor>>,
        forgets: Option<Vec<Tensor>>, outputs: Option<Vec<Tensor>>, hidden: Vec<Tensor>, memory: Vec<Tensor>,
        _squashed: Option<Vec<Tensor>>,
    ) => {
        let network = Network::new(Cell::Lstm, &parameters, has_biases, bidirectional);
        let gates = [&inputs, &forgets, &candidates, &outputs].map(list).to_vec();
        let kept = Kept { gates, memory: &memory, hidden: &hidden };
        forward(
            &network, &time_first(&input, batch_first), [start.first(), start.get(1)], &kept,
            &time_first(&output, batch_first), [Some(&last_hidden), Some(&last_memory)],
        )
    };
    aclnnLstmBackward(
        input: Tensor, start: Vec<Tensor>, parameters: Vec<Tensor>, gradient: Option<Tensor>,
        hidden_gradient: Option<Tensor>, memory_gradient: Option<Tensor>, inputs: Vec<Tensor>,
        candidates: Vec<Tensor>, forgets: Vec<Tensor>, outputs: Vec<Tensor>, hidden: Vec<Tensor>,
        memory: Vec<Tensor>, _squashed: Vec<Tensor>, _batch_sizes: Absent, has_biases: bool, _layers: i64,
        _dropout: f64, _train: bool, bidirectional: bool, batch_first: bool, _mask: Option<Vec<bool>>,
        input_gradient: Tensor, first_hidden: Tensor, first_memory: Tensor, parameter_gradients: Vec<Tensor>,
    ) => {
        let network = Network::new(Cell::Lstm, &parameters, has_biases, bidirectional);
        let kept = Kept { gates: vec![&inputs, &forgets, &candidates, &outputs], memory: &memory, hidden: &hidden };
        let output = output_gradient(gradient.as_ref(), &hidden, if bidirectional { 2 } else { 1 }, batch_first);
        let found = network.backward(
            &time_first(&input, batch_first), [start.first(), start.get(1)], &kept.read(), &output,
            [given(hidden_gradient.as_ref()), given(memory_gradient.as_ref())],
        );
        write_gradients(
            &found, has_biases, &time_first(&input_gradient, batch_first),
            [Some(&first_hidden), Some(&first_memory)], &parameter_gradients,
        )
    };
    aclnnGRU(
        input: Tensor, parameters: Vec<Tensor>, start: Tensor, _batch_sizes: Absent, has_biases: bool, _layers: i64,
        _dropout: f64, _train: bool, bidirectional: bool, batch_first: bool, output: Tensor, last: Tensor,
        resets: Option<Vec<Tensor>>, updates: Option<Vec<Tensor>>, candidates: Option<Vec<Tensor>>,
        hidden_parts: Option<Vec<Tensor>>, hidden: Option<Vec<Tensor>>,
    ) => {
        let network = Network::new(Cell::Gru, &parameters, has_biases, bidirectional);
        let gates = [&resets, &updates, &candidates].map(list).to_vec();
        let kept = Kept { gates, memory: list(&hidden_parts), hidden: list(&hidden) };
        forward(
            &network, &time_first(&input, batch_first), [Some(&with_layers(&start)), None], &kept,
            &time_first(&output, batch_first), [Some(&last), None],
        )
    };
    aclnnGRUBackward(
        input: Tensor, parameters: Vec<Tensor>, start: Tensor, gradient: Option<Tensor>,
        hidden_gradient: Option<Tensor>, resets: Vec<Tensor>, updates: Vec<Tensor>, candidates: Vec<Tensor>,
        hidden_parts: Vec<Tensor>, hidden: Vec<Tensor>, _batch_sizes: Absent, has_biases: bool, _layers: i64,
        bidirectional: bool, batch_first: bool, input_gradient: Tensor, first: Tensor,
        parameter_gradients: Vec<Tensor>,
    ) => {
        let network = Network::new(Cell::Gru, &parameters, has_biases, bidirectional);
        let kept = Kept { gates: vec![&resets, &updates, &candidates], memory: &hidden_parts, hidden: &hidden };
        let output = output_gradient(gradient.as_ref(), &hidden, if bidirectional { 2 } else { 1 }, batch_first);
        let found = network.backward(
            &time_first(&input, batch_first), [Some(&with_layers(&start)), None], &kept.read(), &output,
            [given(hidden_gradient.as_ref()), None],
        );
        write_gradients(
            &found, has_biases, &time_first(&input_gradient, batch_first), [Some(&first), None],
            &parameter_gradients,
        )
    };
}
