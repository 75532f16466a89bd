//! Operators that move elements: selection, scattering, sorting, joining.

use crate::elementwise::copy;
use crate::reduction::{groups, last_moved_back};
use crate::tensor::{Scalar, Tensor, Value, dense_strides};
use std::cmp::Ordering;

/// How scattered elements meet what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meeting {
    /// The new one wins.
    Replace,
    /// Sum.
    Add,
    /// Product.
    Multiply,
    /// The larger one.
    Largest,
    /// The smaller one.
    Smallest,
}

impl Meeting {
    /// The numbering of the scatter operators.
    #[must_use]
    pub fn from_number(number: i64) -> Self {
        match number {
            1 => Self::Add,
            2 => Self::Multiply,
            3 => Self::Largest,
            4 => Self::Smallest,
            _ => Self::Replace,
        }
    }

    fn combine<V: Value>(self, old: V, new: V) -> V {
        match self {
            Self::Replace => new,
            Self::Add => old.plus(new),
            Self::Multiply => old.times(new),
            Self::Largest => better(old, new, Ordering::Greater),
            Self::Smallest => better(old, new, Ordering::Less),
        }
    }
}

/// The larger (`Greater`) or smaller (`Less`) of two; what is not a number goes first.
fn better<V: Value>(old: V, new: V, wanted: Ordering) -> V {
    if new.is_nan() || (!old.is_nan() && new.order(old) == wanted) { new } else { old }
}

/// An index as callers give it, where negative ones count from the end.
fn wrap(index: i64, size: usize) -> usize {
    let wrapped = if index < 0 { index + size as i64 } else { index };
    assert!((0..size as i64).contains(&wrapped), "index {index} is out of range for size {size}");
    wrapped as usize
}

/// Calls `visit(row-major number in shape, coordinates)` for every element of a shape.
fn for_each_place(shape: &[usize], mut visit: impl FnMut(usize, &[usize])) {
    let mut place = vec![0; shape.len()];
    for number in 0..shape.iter().product() {
        visit(number, &place);
        for dimension in (0..shape.len()).rev() {
            place[dimension] += 1;
            if place[dimension] < shape[dimension] {
                break;
            }
            place[dimension] = 0;
        }
    }
}

/// Row-major number of a place.
fn number_of(place: impl Iterator<Item = usize>, shape: &[usize]) -> usize {
    place.zip(shape).fold(0, |number, (coordinate, size)| number * size + coordinate)
}

/// `output[..., i, ...] = input[..., index[..., i, ...], ...]` along a dimension.
pub fn gather(input: &Tensor, dimension: i64, index: &Tensor, output: &Tensor) {
    let (dimension, indices) = (input.dimension(dimension), index.read::<i64>());
    let pick = |number: usize, place: &[usize]| {
        let mut place = place.to_vec();
        if let Some(coordinate) = place.get_mut(dimension) {
            *coordinate = wrap(indices[number], input.shape[dimension]);
        }
        number_of(place.into_iter(), &input.shape)
    };
    let mut numbers = vec![0; indices.len()];
    for_each_place(&index.shape, |number, place| numbers[number] = pick(number, place));
    write_picked(input, &numbers, output);
}

/// Writes the elements of `input` with these row-major numbers.
pub fn write_picked(input: &Tensor, numbers: &[usize], output: &Tensor) {
    if input.is_float() {
        let values = input.read::<f64>();
        output.write(&numbers.iter().map(|number| values[*number]).collect::<Vec<_>>());
    } else {
        let values = input.read::<i64>();
        output.write(&numbers.iter().map(|number| values[*number]).collect::<Vec<_>>());
    }
}

/// `output = input`, then `output[..., index[..., i, ...], ...]` meets `source[..., i, ...]` along a dimension.
pub fn scatter(input: &Tensor, dimension: i64, index: &Tensor, source: &Source<'_>, meeting: Meeting, output: &Tensor) {
    if input.is_float() {
        scatter_values::<f64>(input, dimension, index, source, meeting, output);
    } else {
        scatter_values::<i64>(input, dimension, index, source, meeting, output);
    }
}

/// What is scattered.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// The elements of a tensor, which may be larger than the index.
    Tensor(&'a Tensor),
    /// The same number everywhere.
    Number(Scalar),
}

impl Source<'_> {
    /// The value for a place of the index.
    fn values<V: Value>(self) -> impl Fn(&[usize]) -> V {
        let (values, shape) = match self {
            Self::Tensor(tensor) => (tensor.read::<V>(), tensor.shape.clone()),
            Self::Number(number) => (vec![number.value()], Vec::new()),
        };
        move |place| values[number_of(place.iter().copied(), &shape)]
    }
}

fn scatter_values<V: Value>(
    input: &Tensor,
    dimension: i64,
    index: &Tensor,
    source: &Source<'_>,
    meeting: Meeting,
    output: &Tensor,
) {
    let (mut values, source) = (input.read::<V>(), source.values::<V>());
    let (dimension, indices) = (input.dimension(dimension), index.read::<i64>());
    for_each_place(&index.shape, |number, place| {
        let mut target = place.to_vec();
        if let Some(coordinate) = target.get_mut(dimension) {
            *coordinate = wrap(indices[number], input.shape[dimension]);
        }
        let target = number_of(target.into_iter(), &input.shape);
        values[target] = meeting.combine(values[target], source(place));
    });
    output.write(&values);
}

/// `output` = the slices of `input` with these indices, along a dimension.
pub fn index_select(input: &Tensor, dimension: i64, index: &Tensor, output: &Tensor) {
    let (input, output) = (input.with_dimensions(), output.with_dimensions());
    let dimension = input.dimension(dimension);
    for (place, index) in index.read::<i64>().into_iter().enumerate() {
        let slice = input.narrowed(dimension, wrap(index, input.shape[dimension]), 1);
        copy(&slice, &output.narrowed(dimension, place, 1));
    }
}

/// `output` = rows of `table` with these indices.
pub fn embedding(table: &Tensor, index: &Tensor, output: &Tensor) {
    let width = table.shape[1];
    let values = table.read::<f64>();
    let mut rows = Vec::with_capacity(output.len());
    for index in index.read::<i64>() {
        let row = wrap(index, table.shape[0]);
        rows.extend_from_slice(&values[row * width..(row + 1) * width]);
    }
    output.write(&rows);
}

/// Gradient of [`embedding`] for the table; rows with the index `padding` get none.
pub fn embedding_backward(gradient: &Tensor, index: &Tensor, padding: i64, by_frequency: bool, output: &Tensor) {
    let width = output.shape[1];
    let (gradients, indices) = (gradient.read::<f64>(), index.read::<i64>());
    let mut sums = vec![0.0; output.len()];
    let mut counts = vec![0.0; output.shape[0]];
    for (row, index) in gradients.chunks(width.max(1)).zip(&indices) {
        if *index == padding {
            continue;
        }
        let target = wrap(*index, output.shape[0]);
        counts[target] += 1.0;
        sums[target * width..(target + 1) * width].iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
    }
    if by_frequency {
        for (row, count) in sums.chunks_mut(width.max(1)).zip(&counts) {
            row.iter_mut().for_each(|value| *value /= f64::max(*count, 1.0));
        }
    }
    output.write(&sums);
}

/// Row-major numbers that indexing with tensors (or whole dimensions, where there is none) selects, and the shape of
/// the selection. Indices that stand together keep their place, others come first.
fn advanced(input: &Tensor, indices: &[Option<Tensor>]) -> (Vec<usize>, Vec<usize>) {
    let given: Vec<usize> = (0..indices.len()).filter(|dimension| indices[*dimension].is_some()).collect();
    let together = given.windows(2).all(|pair| pair[1] == pair[0] + 1);
    let mut common: Vec<usize> = Vec::new();
    for tensor in indices.iter().flatten() {
        let rank = common.len().max(tensor.rank());
        let pad = |shape: &[usize]| [vec![1; rank - shape.len()], shape.to_vec()].concat();
        let (left, right) = (pad(&common), pad(&tensor.shape));
        common = left.iter().zip(&right).map(|(left, right)| if *left == 1 { *right } else { *left }).collect();
    }
    let before = if together { given.first().copied().unwrap_or(0) } else { 0 };
    let free: Vec<usize> = (0..input.rank()).filter(|dimension| !given.contains(dimension)).collect();
    let mut shape: Vec<usize> = free[..before].iter().map(|dimension| input.shape[*dimension]).collect();
    shape.extend(&common);
    shape.extend(free[before..].iter().map(|dimension| input.shape[*dimension]));
    let read: Vec<Vec<i64>> = indices.iter().flatten().map(|tensor| tensor.read_as(&common)).collect();
    let strides = dense_strides(&input.shape);
    let mut numbers = vec![0; shape.iter().product()];
    for_each_place(&shape, |number, place| {
        let chosen = number_of(place[before..before + common.len()].iter().copied(), &common);
        let mut target = 0;
        for (list, dimension) in read.iter().zip(&given) {
            target += wrap(list[chosen], input.shape[*dimension]) * strides[*dimension] as usize;
        }
        let rest = place[..before].iter().chain(&place[before + common.len()..]);
        for (coordinate, dimension) in rest.zip(&free) {
            target += coordinate * strides[*dimension] as usize;
        }
        numbers[number] = target;
    });
    (numbers, shape)
}

/// `output = input[indices]`.
pub fn index(input: &Tensor, indices: &[Option<Tensor>], output: &Tensor) {
    let (numbers, _) = advanced(input, indices);
    write_picked(input, &numbers, output);
}

/// `target[indices] = values`, or adds them.
pub fn index_put(target: &Tensor, indices: &[Option<Tensor>], values: &Tensor, accumulate: bool) {
    let (numbers, shape) = advanced(target, indices);
    if target.is_float() {
        put(target, &numbers, &values.read_as::<f64>(&shape), |old, new| if accumulate { old + new } else { new });
    } else {
        put(target, &numbers, &values.read_as::<i64>(&shape), |old, new| if accumulate { old + new } else { new });
    }
}

fn put<V: Value>(target: &Tensor, numbers: &[usize], values: &[V], combine: impl Fn(V, V) -> V) {
    let mut elements = target.read::<V>();
    for (number, value) in numbers.iter().zip(values) {
        elements[*number] = combine(elements[*number], *value);
    }
    target.write(&elements);
}

/// `output` = the tensors behind each other along a dimension.
pub fn concatenate(tensors: &[Tensor], dimension: i64, output: &Tensor) {
    let dimension = output.dimension(dimension);
    let mut start = 0;
    for tensor in tensors.iter().filter(|tensor| tensor.shape != [0]) {
        let length = tensor.shape[dimension];
        copy(tensor, &output.narrowed(dimension, start, length));
        start += length;
    }
}

/// The first `count` elements along a dimension in sorted order, and where they came from.
pub fn sort(input: &Tensor, dimension: i64, descending: bool, count: usize, values: &Tensor, positions: &Tensor) {
    if input.is_float() {
        sort_values::<f64>(input, dimension, descending, count, values, positions);
    } else {
        sort_values::<i64>(input, dimension, descending, count, values, positions);
    }
}

fn sort_values<V: Value>(
    input: &Tensor,
    dimension: i64,
    descending: bool,
    count: usize,
    values: &Tensor,
    positions: &Tensor,
) {
    let (elements, length) = groups::<V>(input, &[dimension]);
    let (mut sorted, mut places) = (Vec::new(), Vec::new());
    for line in elements.chunks(length.max(1)) {
        let mut order_of_line: Vec<usize> = (0..line.len()).collect();
        order_of_line.sort_by(|left, right| {
            let ascending = line[*left].order(line[*right]);
            if descending { ascending.reverse() } else { ascending }
        });
        for place in order_of_line.into_iter().take(count) {
            sorted.push(line[place]);
            places.push(place as i64);
        }
    }
    last_moved_back(values, dimension).write(&sorted);
    last_moved_back(positions, dimension).write(&places);
}

/// Coordinates of all elements that are not zero.
#[must_use]
pub fn nonzero(input: &Tensor) -> Vec<Vec<i64>> {
    let values = input.read::<f64>();
    let mut found = Vec::new();
    for_each_place(&input.shape, |number, place| {
        if values[number] != 0.0 {
            found.push(place.iter().map(|coordinate| *coordinate as i64).collect());
        }
    });
    found
}

/// The lower or upper triangle of every matrix.
pub fn triangle(input: &Tensor, diagonal: i64, upper: bool, output: &Tensor) {
    let row_dimension = input.rank() - 2;
    // Row by row: masks of attention have millions of elements.
    for row in 0..input.shape[row_dimension] {
        let (source, target) = (input.narrowed(row_dimension, row, 1), output.narrowed(row_dimension, row, 1));
        let is_dropped = |column: usize| {
            let distance = column as i64 - row as i64;
            (upper && distance < diagonal) || (!upper && distance > diagonal)
        };
        if input.is_float() {
            keep_columns::<f64>(&source, &target, is_dropped);
        } else {
            keep_columns::<i64>(&source, &target, is_dropped);
        }
    }
}

fn keep_columns<V: Value>(source: &Tensor, target: &Tensor, is_dropped: impl Fn(usize) -> bool) {
    let columns = source.shape[source.rank() - 1];
    let mut values = source.read::<V>();
    for (number, value) in values.iter_mut().enumerate() {
        if is_dropped(number % columns) {
            *value = V::default();
        }
    }
    target.write(&values);
}

/// `output` = `input` with every element read from the place that `source` says.
pub fn rearrange(input: &Tensor, output: &Tensor, source: impl Fn(&mut [usize])) {
    let mut numbers = vec![0; output.len()];
    for_each_place(&output.shape, |number, place| {
        let mut place = place.to_vec();
        source(&mut place);
        numbers[number] = number_of(place[place.len() - input.rank()..].iter().copied(), &input.shape);
    });
    write_picked(input, &numbers, output);
}

/// `output` = `input` with constant elements around; `padding` starts with the last dimension.
pub fn pad(input: &Tensor, padding: &[i64], value: crate::Scalar, output: &Tensor) {
    output.fill(value);
    let (mut source, mut target) = (input.clone(), output.clone());
    for (pair, dimension) in padding.chunks(2).zip((0..input.rank()).rev()) {
        let (before, after) = (pair[0], pair.get(1).copied().unwrap_or(0));
        let cut_front = before.min(0).unsigned_abs() as usize;
        let cut_back = after.min(0).unsigned_abs() as usize;
        let length = source.shape[dimension].saturating_sub(cut_front + cut_back);
        source = source.narrowed(dimension, cut_front, length);
        target = target.narrowed(dimension, before.max(0) as usize, length);
    }
    copy(&source, &target);
}

#[cfg(test)]
mod tests {
    use super::{Meeting, Source, concatenate, gather, index, index_put, scatter, sort, triangle};
    use crate::tensor::Tensor;

    #[test]
    fn gather_and_scatter_are_inverse() {
        let mut input = [10.0, 20.0, 30.0, 40.0, 50.0, 60.0];
        let mut places = [2.0, 0.0, 1.0, 1.0];
        let tensor = Tensor::dense(&mut input, &[2, 3]);
        let index_tensor = Tensor::dense(&mut places, &[2, 2]);
        let mut output = [0.0; 4];
        gather(&tensor, 1, &index_tensor, &Tensor::dense(&mut output, &[2, 2]));
        assert_eq!(output, [30.0, 10.0, 50.0, 50.0]);
        let mut sums = [0.0; 6];
        let target = Tensor::dense(&mut sums, &[2, 3]);
        let source = Tensor::dense(&mut output, &[2, 2]);
        scatter(&target.clone(), 1, &index_tensor, &Source::Tensor(&source), Meeting::Add, &target);
        assert_eq!(sums, [10.0, 0.0, 30.0, 0.0, 100.0, 0.0]);
    }

    #[test]
    fn indexing_with_tensors() {
        let mut input: Vec<f32> = (0..12).map(|value| value as f32).collect();
        let tensor = Tensor::dense(&mut input, &[2, 3, 2]);
        let mut columns = [2.0, -3.0];
        let columns = Tensor::dense(&mut columns, &[2]);
        let mut output = [0.0; 8];
        index(&tensor, &[None, Some(columns.clone())], &Tensor::dense(&mut output, &[2, 2, 2]));
        assert_eq!(output, [4.0, 5.0, 0.0, 1.0, 10.0, 11.0, 6.0, 7.0]);
        index_put(
            &tensor,
            &[Some(Tensor::dense(&mut [1.0], &[1])), Some(columns)],
            &Tensor::dense(&mut [100.0], &[]),
            true,
        );
        assert_eq!(input[6..], [106.0, 107.0, 8.0, 9.0, 110.0, 111.0]);
    }

    #[test]
    fn sorting_keeps_equal_elements_in_order() {
        let mut input = [3.0, 1.0, 3.0, f32::NAN, 2.0, 1.0];
        let (mut values, mut places) = ([0.0; 4], [0.0; 4]);
        let tensor = Tensor::dense(&mut input, &[2, 3]);
        sort(&tensor, -1, true, 2, &Tensor::dense(&mut values, &[2, 2]), &Tensor::dense(&mut places, &[2, 2]));
        assert_eq!(places, [0.0, 2.0, 0.0, 1.0]);
        assert!(values[2].is_nan());
    }

    #[test]
    fn joining_and_triangles() {
        let (mut output, mut ones, mut twos) = ([0.0; 9], [1.0; 6], [2.0; 3]);
        let parts = [Tensor::dense(&mut ones, &[3, 2]), Tensor::dense(&mut twos, &[3, 1])];
        let target = Tensor::dense(&mut output, &[3, 3]);
        concatenate(&parts, 1, &target);
        triangle(&target.clone(), 0, false, &target);
        assert_eq!(output, [1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0, 2.0]);
    }
}
