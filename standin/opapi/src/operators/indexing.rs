//! Selection, scattering, sorting and joining.

use crate::macros::operators;
use crate::operators::arithmetic::add;
use standin_compute::elementwise::{Operand, copy};
use standin_compute::indexing::{
    Meeting, Source, concatenate, embedding, embedding_backward, gather, index, index_put, index_select, scatter, sort,
};
use standin_compute::{Scalar, Tensor, Value};

/// Tensors joined along a new dimension.
fn stack(tensors: &[Tensor], dimension: i64, output: &Tensor) {
    let dimension = output.dimension(dimension);
    for (place, tensor) in tensors.iter().enumerate() {
        let mut target = output.narrowed(dimension, place, 1);
        target.shape.remove(dimension);
        target.strides.remove(dimension);
        copy(tensor, &target);
    }
}

/// Every tensor cut into `count` pieces along a dimension, the last filled up with zeros; then the first pieces of all
/// tensors behind each other, the second ones, and so on.
fn chunk_and_concatenate(tensors: &[Tensor], dimension: i64, count: i64, output: &Tensor) {
    let count = count.max(1) as usize;
    let row_length = output.shape.last().copied().unwrap_or(0);
    let mut values = vec![0.0; output.len()];
    let mut column = 0;
    for tensor in tensors {
        let dimension = tensor.dimension(dimension);
        let outer: usize = tensor.shape[..dimension].iter().product();
        let inner: usize = tensor.shape[dimension + 1..].iter().product();
        let piece = tensor.shape[dimension].div_ceil(count) * inner;
        let own = tensor.read::<f64>();
        let own_length = tensor.shape[dimension] * inner;
        for (row, target) in values.chunks_exact_mut(row_length.max(1)).enumerate().take(outer * count) {
            let start = (row % count * piece).min(own_length);
            let end = (start + piece).min(own_length);
            let whole = row / count * own_length;
            target[column..column + end - start].copy_from_slice(&own[whole + start..whole + end]);
        }
        column += piece;
    }
    output.write(&values);
}

/// `input` with the slices of these indices added to it.
fn index_add(input: &Tensor, dimension: i64, index: &Tensor, source: &Tensor, factor: Scalar, output: &Tensor) {
    copy(input, output);
    let (output, source) = (output.with_dimensions(), source.with_dimensions());
    let dimension = output.dimension(dimension);
    for (place, index) in index.read::<i64>().into_iter().enumerate() {
        let target = output.narrowed(dimension, index as usize, 1);
        add(&target.clone().into(), &source.narrowed(dimension, place, 1).into(), factor, &target);
    }
}

/// `output` with the slices of these indices set to one value.
fn index_fill(output: &Tensor, dimension: i64, indices: &[i64], value: Scalar) {
    let output = output.with_dimensions();
    let dimension = output.dimension(dimension);
    for index in indices {
        let index = if *index < 0 { *index + output.shape[dimension] as i64 } else { *index };
        output.narrowed(dimension, index as usize, 1).fill(value);
    }
}

/// `output` with the slices of these indices replaced by those of `source`.
fn index_copy(output: &Tensor, dimension: i64, indices: &Tensor, source: &Tensor) {
    let (output, source) = (output.with_dimensions(), source.with_dimensions());
    let dimension = output.dimension(dimension);
    for (place, index) in indices.read::<i64>().into_iter().enumerate() {
        copy(&source.narrowed(dimension, place, 1), &output.narrowed(dimension, index as usize, 1));
    }
}

/// How often every number occurs, or the sum of its weights.
fn count_numbers(input: &Tensor, weights: Option<&Tensor>, output: &Tensor) {
    let mut sums = vec![0.0; output.len()];
    let weights = weights.filter(|weights| !weights.is_empty()).map(Tensor::read::<f64>);
    for (place, number) in input.read::<i64>().into_iter().enumerate() {
        sums[number as usize] += weights.as_ref().map_or(1.0, |weights| weights[place]);
    }
    output.write(&sums);
}

/// Where numbers would have to be inserted into lines that are sorted already, or whose order is given.
fn find_places(sorted: &Tensor, numbers: &Operand, behind_equals: bool, order: Option<&Tensor>, output: &Tensor) {
    if sorted.is_float() || numbers.is_float() {
        find_values::<f64>(sorted, &numbers.read(&output.shape), behind_equals, order, output);
    } else {
        find_values::<i64>(sorted, &numbers.read(&output.shape), behind_equals, order, output);
    }
}

fn find_values<V: Value>(sorted: &Tensor, numbers: &[V], behind_equals: bool, order: Option<&Tensor>, output: &Tensor) {
    let length = sorted.shape.last().copied().unwrap_or(1);
    let values = sorted.read::<V>();
    let order = order.map(Tensor::read::<i64>);
    let per_line = if sorted.rank() == 1 { numbers.len() } else { numbers.len() / (values.len() / length).max(1) };
    let find = |(place, number): (usize, &V)| {
        let start = if sorted.rank() == 1 { 0 } else { place / per_line.max(1) * length };
        let at =
            |index: usize| order.as_ref().map_or(values[start + index], |o| values[start + o[start + index] as usize]);
        let is_before = |index: &usize| {
            let found = at(*index).order(*number);
            found.is_lt() || (behind_equals && found.is_eq())
        };
        (0..length).collect::<Vec<_>>().partition_point(is_before) as i64
    };
    output.write(&numbers.iter().enumerate().map(find).collect::<Vec<_>>());
}

/// `output` = 1 where the position along a dimension equals the index, else 0 (or other values given).
fn one_hot(index: &Tensor, on: &Tensor, off: &Tensor, axis: i64, output: &Tensor) {
    let axis = output.dimension(axis);
    copy(off, output);
    let (on, indices) = (on.read::<f64>()[0], index.read::<i64>());
    let mut order: Vec<usize> = (0..output.rank()).filter(|dimension| *dimension != axis).collect();
    order.push(axis);
    let depth = output.shape[axis];
    let target = output.permuted(&order);
    let mut values = target.read::<f64>();
    for (place, index) in indices.into_iter().enumerate() {
        if let Some(index) = usize::try_from(index).ok().filter(|index| *index < depth) {
            values[place * depth + index] = on;
        }
    }
    target.write(&values);
}

fn masked_scatter(target: &Tensor, mask: &Tensor, source: &Tensor) {
    if target.is_float() {
        masked_scatter_values::<f64>(target, mask, source);
    } else {
        masked_scatter_values::<i64>(target, mask, source);
    }
}

fn masked_scatter_values<V: Value>(target: &Tensor, mask: &Tensor, source: &Tensor) {
    let mask: Vec<i64> = mask.read_as(&target.shape);
    let mut next = source.read::<V>().into_iter();
    let old = target.read::<V>();
    let values = old.into_iter().zip(mask).map(|(old, mask)| if mask != 0 { next.next().unwrap_or(old) } else { old });
    target.write(&values.collect::<Vec<_>>());
}

operators! {
    aclnnEmbedding(table: Tensor, indices: Tensor, output: Tensor) => embedding(&table, &indices, &output);
    aclnnEmbeddingDenseBackward(
        gradient: Tensor, indices: Tensor, _rows: u64, padding: i64, by_frequency: bool, output: Tensor,
    ) => embedding_backward(&gradient, &indices, padding, by_frequency, &output);
    aclnnIndexSelect(input: Tensor, dimension: i64, indices: Tensor, output: Tensor) =>
        index_select(&input, dimension, &indices, &output);
    aclnnGather(input: Tensor, dimension: i64, indices: Tensor, output: Tensor) =>
        gather(&input, dimension, &indices, &output);
    aclnnIndex(input: Tensor, indices: Vec<Option<Tensor>>, output: Tensor) =>
        if let Some(indices) = defined(&indices).filter(|_| !output.is_empty()) { index(&input, &indices, &output) };
    aclnnIndexPutImpl(
        target: Tensor, indices: Vec<Option<Tensor>>, values: Tensor, accumulate: bool, _unsafe: bool,
    ) => if let Some(indices) = defined(&indices) { index_put(&target, &indices, &values, accumulate) };
    aclnnIndexAdd(
        input: Tensor, dimension: i64, indices: Tensor, source: Tensor, factor: Scalar, output: Tensor,
    ) => index_add(&input, dimension, &indices, &source, factor, &output);
    aclnnIndexCopy(input: Tensor, dimension: i64, indices: Tensor, source: Tensor, output: Tensor) => {
        copy(&input, &output);
        index_copy(&output, dimension, &indices, &source)
    };
    aclnnInplaceIndexCopy(target: Tensor, dimension: i64, indices: Tensor, source: Tensor) =>
        index_copy(&target, dimension, &indices, &source);
    aclnnIndexFill(input: Tensor, dimension: i64, indices: Tensor, value: Scalar, output: Tensor) => {
        copy(&input, &output);
        index_fill(&output, dimension, &indices.read::<i64>(), value)
    };
    aclnnInplaceIndexFill(target: Tensor, dimension: i64, indices: Tensor, value: Scalar) =>
        index_fill(&target, dimension, &indices.read::<i64>(), value);
    aclnnIndexFillTensor(input: Tensor, dimension: i64, indices: Vec<i64>, value: Scalar, output: Tensor) => {
        copy(&input, &output);
        index_fill(&output, dimension, &indices, value)
    };
    aclnnInplaceIndexFillTensor(target: Tensor, dimension: i64, indices: Vec<i64>, value: Scalar) =>
        index_fill(&target, dimension, &indices, value);
    aclnnBincount(input: Tensor, weights: Option<Tensor>, _shortest: i64, output: Tensor) =>
        count_numbers(&input, weights.as_ref(), &output);
    aclnnSearchSorted(
        sorted: Tensor, numbers: Tensor, _narrow: bool, behind_equals: bool, order: Option<Tensor>, output: Tensor,
    ) => find_places(&sorted, &numbers.into(), behind_equals, order.as_ref(), &output);
    aclnnSearchSorteds(
        sorted: Tensor, number: Scalar, _narrow: bool, behind_equals: bool, order: Option<Tensor>, output: Tensor,
    ) => find_places(&sorted, &number.into(), behind_equals, order.as_ref(), &output);
    aclnnScatter(
        input: Tensor, dimension: i64, indices: Tensor, source: Tensor, meeting: i64, output: Tensor,
    ) => scatter(&input, dimension, &indices, &Source::Tensor(&source), Meeting::from_number(meeting), &output);
    aclnnInplaceScatter(target: Tensor, dimension: i64, indices: Tensor, source: Tensor, meeting: i64) =>
        scatter(&target.clone(), dimension, &indices, &Source::Tensor(&source), Meeting::from_number(meeting), &target);
    aclnnScatterValue(
        input: Tensor, dimension: i64, indices: Tensor, value: Scalar, meeting: i64, output: Tensor,
    ) => scatter(&input, dimension, &indices, &Source::Number(value), Meeting::from_number(meeting), &output);
    aclnnInplaceScatterValue(target: Tensor, dimension: i64, indices: Tensor, value: Scalar, meeting: i64) =>
        scatter(&target.clone(), dimension, &indices, &Source::Number(value), Meeting::from_number(meeting), &target);
    aclnnScatterAdd(input: Tensor, dimension: i64, indices: Tensor, source: Tensor, output: Tensor) =>
        scatter(&input, dimension, &indices, &Source::Tensor(&source), Meeting::Add, &output);
    aclnnInplaceMaskedScatter(target: Tensor, mask: Tensor, source: Tensor) =>
        masked_scatter(&target, &mask, &source);
    aclnnCat(tensors: Vec<Tensor>, dimension: i64, output: Tensor) => concatenate(&tensors, dimension, &output);
    aclnnChunkCat(tensors: Vec<Tensor>, dimension: i64, count: i64, output: Tensor) =>
        chunk_and_concatenate(&tensors, dimension, count, &output);
    aclnnStack(tensors: Vec<Tensor>, dimension: i64, output: Tensor) => stack(&tensors, dimension, &output);
    aclnnSort(
        input: Tensor, _stable: bool, dimension: i64, descending: bool, values: Tensor, positions: Tensor,
    ) => sort(&input, dimension, descending, usize::MAX, &values, &positions);
    aclnnTopk(
        input: Tensor, count: i64, dimension: i64, largest: bool, _sorted: bool, values: Tensor, positions: Tensor,
    ) => sort(&input, dimension, largest, count as usize, &values, &positions);
    aclnnTopkV2(
        input: Tensor, count: i64, dimension: i64, largest: bool, _sorted: bool, _policy: i32, values: Tensor,
        positions: Tensor,
    ) => sort(&input, dimension, largest, count as usize, &values, &positions);
    aclnnOneHot(indices: Tensor, _depth: i64, on: Tensor, off: Tensor, axis: i64, output: Tensor) =>
        one_hot(&indices, &on, &off, axis, &output);
}

/// Index lists in which an empty tensor means a whole dimension; `None` when they select nothing. Callers repeat indices
/// to a common shape, so where one of them selects nothing, all are empty.
fn defined(indices: &[Option<Tensor>]) -> Option<Vec<Option<Tensor>>> {
    let selects_something = indices.iter().flatten().any(|index| !index.is_empty());
    selects_something.then(|| indices.iter().map(|index| index.clone().filter(|index| !index.is_empty())).collect())
}
