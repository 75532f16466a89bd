//! Bags of table rows, elements by their number, repetition, and counting.

use crate::macros::operators;
use standin_compute::elementwise::copy;
use standin_compute::indexing::{Meeting, Source, scatter, write_picked};
use standin_compute::reduction::{groups, last_moved_back, norm};
use standin_compute::{Scalar, Tensor, Value};
use std::cmp::Ordering;

/// How the rows of a bag become one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BagMode {
    Sum,
    Mean,
    Largest,
}

/// Settings of an embedding bag.
struct Bags<'a> {
    mode: BagMode,
    /// Rows with this index do not count.
    padding: i64,
    /// Factors of the rows, in the order of the indices.
    weights: Option<&'a Tensor>,
    /// Whether the last offset is the end of the last bag.
    ends_with_offset: bool,
}

impl Bags<'_> {
    /// Outputs: combined rows, the bag of every index, the rows that count in every bag, and where largest elements
    /// came from.
    fn combine(&self, table: &Tensor, indices: &Tensor, offsets: &Tensor, outputs: [&Tensor; 4]) {
        let (width, rows, indices) = (table.shape[1], table.read::<f64>(), indices.read::<i64>());
        let mut bounds: Vec<usize> = offsets.read::<i64>().into_iter().map(|offset| offset as usize).collect();
        if !self.ends_with_offset {
            bounds.push(indices.len());
        }
        let weights = self.weights.filter(|weights| !weights.is_empty()).map(Tensor::read::<f64>);
        let (mut combined, mut sizes, mut sources) = (Vec::new(), Vec::new(), Vec::new());
        for bag in bounds.windows(2) {
            let counted: Vec<usize> = (bag[0]..bag[1]).filter(|place| indices[*place] != self.padding).collect();
            let element = |place: usize, column: usize| {
                rows[indices[place] as usize * width + column] * weights.as_ref().map_or(1.0, |weights| weights[place])
            };
            for column in 0..width {
                let values = counted.iter().map(|place| (element(*place, column), indices[*place]));
                let best = |best: (f64, i64), next: (f64, i64)| if next.0 > best.0 { next } else { best };
                let (value, source) = match self.mode {
                    BagMode::Largest => values.reduce(best).unwrap_or((0.0, 0)),
                    BagMode::Sum => (values.map(|(value, _)| value).sum(), 0),
                    BagMode::Mean => (values.map(|(value, _)| value).sum::<f64>() / counted.len().max(1) as f64, 0),
                };
                combined.push(value);
                sources.push(source);
            }
            sizes.push(counted.len() as i64);
        }
        let bag_of = |place: usize| bounds.partition_point(|bound| *bound <= place) as i64 - 1;
        let [output, bags, bag_sizes, best] = outputs;
        output.write(&combined);
        write_where_asked(bags, &(0..indices.len()).map(bag_of).collect::<Vec<_>>());
        write_where_asked(bag_sizes, &sizes);
        write_where_asked(best, &sources);
    }
}

/// Writes to a tensor that has room for exactly these values.
fn write_where_asked(target: &Tensor, values: &[i64]) {
    if target.len() == values.len() {
        target.write(values);
    }
}

/// Numbers of elements, where negative ones count from the end.
fn element_numbers(index: &Tensor, count: usize) -> Vec<usize> {
    let wrap = |number: i64| (if number < 0 { number + count as i64 } else { number }) as usize;
    index.read::<i64>().into_iter().map(wrap).collect()
}

fn take(input: &Tensor, index: &Tensor, output: &Tensor) {
    write_picked(input, &element_numbers(index, input.len()), output);
}

fn put(target: &Tensor, index: &Tensor, source: &Tensor, accumulate: bool) {
    if target.is_float() {
        put_values::<f64>(target, index, source, accumulate);
    } else {
        put_values::<i64>(target, index, source, accumulate);
    }
}

fn put_values<V: Value>(target: &Tensor, index: &Tensor, source: &Tensor, accumulate: bool) {
    let mut values = target.read::<V>();
    for (number, value) in element_numbers(index, values.len()).into_iter().zip(source.read::<V>()) {
        values[number] = if accumulate { values[number].plus(value) } else { value };
    }
    target.write(&values);
}

/// Which slice every repeated slice comes from; one number of repetitions serves for all.
fn repeated(repeats: &Tensor, count: usize) -> Vec<i64> {
    let repeats = repeats.read::<i64>();
    let times = |place: usize| repeats.get(place).or(repeats.first()).copied().unwrap_or(0) as usize;
    (0..count).flat_map(|place| std::iter::repeat_n(place as i64, times(place))).collect()
}

/// Slices along a dimension, each as often as told.
fn repeat_slices(input: &Tensor, repeats: &Tensor, dimension: i64, output: &Tensor) {
    let dimension = input.dimension(dimension);
    for (place, source) in repeated(repeats, input.shape[dimension]).into_iter().enumerate() {
        copy(&input.narrowed(dimension, source as usize, 1), &output.narrowed(dimension, place, 1));
    }
}

fn repeat_elements(input: &Tensor, repeats: &Tensor, output: &Tensor) {
    let sources = repeated(repeats, input.len());
    write_picked(input, &sources.into_iter().map(|place| place as usize).collect::<Vec<_>>(), output);
}

/// Gradients of repeated slices, added up.
fn add_repeated(gradient: &Tensor, repeats: &Tensor, dimension: i64, output: &Tensor) {
    let dimension = output.dimension(dimension);
    output.fill(Scalar::Float(0.0));
    for (place, source) in repeated(repeats, output.shape[dimension]).into_iter().enumerate() {
        let target = output.narrowed(dimension, source as usize, 1);
        let sums = target.read::<f64>().into_iter().zip(gradient.narrowed(dimension, place, 1).read::<f64>());
        target.write(&sums.map(|(old, new)| old + new).collect::<Vec<_>>());
    }
}

/// How many elements fall into each of the equal parts of a range; the last part has both its ends. A range without
/// size stands for that of the elements.
fn histogram(input: &Tensor, low: f64, high: f64, output: &Tensor) {
    let (values, parts) = (input.read::<f64>(), output.len());
    let smallest = values.iter().copied().fold(f64::INFINITY, f64::min);
    let largest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let (low, high) = if low == high && !values.is_empty() { (smallest, largest) } else { (low, high) };
    let (low, high) = if low == high { (low - 1.0, high + 1.0) } else { (low, high) };
    let mut counts = vec![0i64; parts];
    for value in values.into_iter().filter(|value| (low..=high).contains(value)) {
        let part = ((value - low) / (high - low) * parts as f64) as usize;
        counts[part.min(parts - 1)] += 1;
    }
    output.write(&counts);
}

/// The largest (`Greater`) or smallest (`Less`) element so far along a dimension and its position; of equal ones the last.
fn best_so_far(input: &Tensor, dimension: i64, values: &Tensor, positions: &Tensor, wanted: Ordering) {
    if input.is_float() {
        best_values_so_far::<f64>(input, dimension, values, positions, wanted);
    } else {
        best_values_so_far::<i64>(input, dimension, values, positions, wanted);
    }
}

fn best_values_so_far<V: Value>(input: &Tensor, dimension: i64, values: &Tensor, positions: &Tensor, wanted: Ordering) {
    let (mut elements, length) = groups::<V>(input, &[dimension]);
    let mut places = vec![0i64; elements.len()];
    for (line, places) in elements.chunks_mut(length.max(1)).zip(places.chunks_mut(length.max(1))) {
        for index in 1..line.len() {
            places[index] = index as i64;
            let (best, new) = (line[index - 1], line[index]);
            if !new.is_nan() && (best.is_nan() || best.order(new) == wanted) {
                line[index] = best;
                places[index] = places[index - 1];
            }
        }
    }
    last_moved_back(values, dimension).write(&elements);
    last_moved_back(positions, dimension).write(&places);
}

fn fill_diagonal(target: &Tensor, value: Scalar, wrap: bool) {
    let (rows, columns) = (target.shape[0], target.shape[target.rank() - 1]);
    let step: usize = (0..target.rank()).rev().map(|from| target.shape[from + 1..].iter().product::<usize>()).sum();
    let end = if wrap || target.rank() > 2 { target.len() } else { columns.min(rows) * (columns + 1) };
    if target.is_float() {
        fill_places::<f64>(target, value, end, step);
    } else {
        fill_places::<i64>(target, value, end, step);
    }
}

fn fill_places<V: Value>(target: &Tensor, value: Scalar, end: usize, step: usize) {
    let mut values = target.read::<V>();
    values.iter_mut().take(end).step_by(step.max(1)).for_each(|element| *element = value.value());
    target.write(&values);
}

/// Slices along a dimension, those with a larger norm than allowed made shorter.
fn shortened(input: &Tensor, order: f64, dimension: usize, longest: f64, chosen: &[usize], output: &Tensor) {
    for place in chosen {
        let values = input.narrowed(dimension, *place, 1).read::<f64>();
        let length = norm(&values, order);
        let factor = if length > longest { longest / (length + 1e-7) } else { 1.0 };
        let shorter: Vec<f64> = values.iter().map(|value| value * factor).collect();
        output.narrowed(dimension, *place, 1).write(&shorter);
    }
}

fn shorten_all(input: &Tensor, order: f64, dimension: i64, longest: f64, output: &Tensor) {
    let dimension = input.dimension(dimension);
    let all: Vec<usize> = (0..input.shape[dimension]).collect();
    shortened(input, order, dimension, longest, &all, output);
}

/// Rows of a table, each once however often it is named.
fn shorten_rows(table: &Tensor, indices: &Tensor, longest: f64, order: f64) {
    let mut rows: Vec<usize> = indices.read::<i64>().into_iter().map(|row| row as usize).collect();
    rows.sort_unstable();
    rows.dedup();
    shortened(table, order, 0, longest, &rows, table);
}

/// Groups of channels, interleaved.
fn shuffle_channels(input: &Tensor, groups: usize, output: &Tensor) {
    let per_group = input.shape[1] / groups.max(1);
    for channel in 0..input.shape[1] {
        let source = channel % groups * per_group + channel / groups;
        copy(&input.narrowed(1, source, 1), &output.narrowed(1, channel, 1));
    }
}

operators! {
    aclnnEmbeddingBag(
        table: Tensor, indices: Tensor, offsets: Tensor, _by_frequency: bool, mode: i64, _sparse: bool,
        weights: Option<Tensor>, ends_with_offset: bool, padding: i64, output: Tensor, bags: Tensor,
        bag_sizes: Tensor, best: Tensor,
    ) => {
        let mode = match mode {
            0 => BagMode::Sum,
            1 => BagMode::Mean,
            _ => BagMode::Largest,
        };
        let settings = Bags { mode, padding, weights: weights.as_ref(), ends_with_offset };
        settings.combine(&table, &indices, &offsets, [&output, &bags, &bag_sizes, &best])
    };
    aclnnEmbeddingRenorm(table: Tensor, indices: Tensor, longest: f64, order: f64) =>
        shorten_rows(&table, &indices, longest, order);
    aclnnRenorm(input: Tensor, order: Scalar, dimension: i64, longest: Scalar, output: Tensor) =>
        shorten_all(&input, order.float(), dimension, longest.float(), &output);
    aclnnInplaceRenorm(target: Tensor, order: Scalar, dimension: i64, longest: Scalar) =>
        shorten_all(&target.clone(), order.float(), dimension, longest.float(), &target);
    aclnnTake(input: Tensor, index: Tensor, output: Tensor) => take(&input, &index, &output);
    aclnnInplacePut(target: Tensor, index: Tensor, source: Tensor, accumulate: bool) =>
        put(&target, &index, &source, accumulate);
    aclnnScatterReduce(
        input: Tensor, dimension: i64, index: Tensor, source: Tensor, reduction: i64, _include_self: bool,
        output: Tensor,
    ) => scatter(&input, dimension, &index, &Source::Tensor(&source), Meeting::from_number(reduction), &output);
    aclnnInplaceScatterReduce(
        target: Tensor, dimension: i64, index: Tensor, source: Tensor, reduction: i64, _include_self: bool,
    ) => scatter(&target, dimension, &index, &Source::Tensor(&source), Meeting::from_number(reduction), &target);
    aclnnRepeatInterleave(input: Tensor, repeats: Tensor, _size: i64, output: Tensor) =>
        repeat_elements(&input, &repeats, &output);
    aclnnRepeatInterleaveInt(input: Tensor, count: i64, _size: i64, output: Tensor) => {
        let repeated = (0..input.len()).flat_map(|place| std::iter::repeat_n(place, count as usize));
        write_picked(&input, &repeated.collect::<Vec<_>>(), &output)
    };
    aclnnRepeatInterleaveWithDim(input: Tensor, repeats: Tensor, dimension: i64, _size: i64, output: Tensor) =>
        repeat_slices(&input, &repeats, dimension, &output);
    aclnnRepeatInterleaveTensor(repeats: Tensor, _size: i64, output: Tensor) =>
        output.write(&repeated(&repeats, repeats.len()));
    aclnnRepeatInterleaveGrad(gradient: Tensor, repeats: Tensor, dimension: i64, output: Tensor) =>
        add_repeated(&gradient, &repeats, dimension, &output);
    aclnnHistc(input: Tensor, _parts: i64, low: Scalar, high: Scalar, output: Tensor) =>
        histogram(&input, low.float(), high.float(), &output);
    aclnnCummax(input: Tensor, dimension: i64, values: Tensor, positions: Tensor) =>
        best_so_far(&input, dimension, &values, &positions, Ordering::Greater);
    aclnnCummin(input: Tensor, dimension: i64, values: Tensor, positions: Tensor) =>
        best_so_far(&input, dimension, &values, &positions, Ordering::Less);
    aclnnInplaceFillDiagonal(target: Tensor, value: Scalar, wrap: bool) => fill_diagonal(&target, value, wrap);
    aclnnChannelShuffle(input: Tensor, groups: i64, output: Tensor) =>
        shuffle_channels(&input, groups as usize, &output);
}
