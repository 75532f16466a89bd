//! Selection, scattering, sorting and joining.

use crate::macros::operators;
use standin_compute::elementwise::copy;
use standin_compute::indexing::{
    Meeting, concatenate, embedding, embedding_backward, gather, index, index_put, index_select, scatter, sort,
    source_of,
};
use standin_compute::{Scalar, Tensor};

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

/// `input` with the slices of these indices added to it.
fn index_add(input: &Tensor, dimension: i64, index: &Tensor, source: &Tensor, factor: f64, output: &Tensor) {
    let dimension = input.dimension(dimension);
    copy(input, output);
    for (place, index) in index.read::<i64>().into_iter().enumerate() {
        let target = output.narrowed(dimension, index as usize, 1);
        let part = source.narrowed(dimension, place, 1).read::<f64>();
        let sums = target.read::<f64>().into_iter().zip(part).map(|(old, new)| old + factor * new);
        target.write(&sums.collect::<Vec<_>>());
    }
}

/// `output` with the slices of these indices set to one value.
fn index_fill(output: &Tensor, dimension: i64, indices: &[i64], value: Scalar) {
    let dimension = output.dimension(dimension);
    for index in indices {
        let index = if *index < 0 { *index + output.shape[dimension] as i64 } else { *index };
        output.narrowed(dimension, index as usize, 1).fill(value);
    }
}

/// `output` with the slices of these indices replaced by those of `source`.
fn index_copy(output: &Tensor, dimension: i64, indices: &Tensor, source: &Tensor) {
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
fn find_places(sorted: &Tensor, numbers: &[f64], behind_equals: bool, order: Option<&Tensor>, output: &Tensor) {
    let length = sorted.shape.last().copied().unwrap_or(1);
    let values = sorted.read::<f64>();
    let order = order.map(Tensor::read::<i64>);
    let per_line = if sorted.rank() == 1 { numbers.len() } else { numbers.len() / (values.len() / length).max(1) };
    let find = |(place, number): (usize, &f64)| {
        let start = if sorted.rank() == 1 { 0 } else { place / per_line.max(1) * length };
        let at =
            |index: usize| order.as_ref().map_or(values[start + index], |o| values[start + o[start + index] as usize]);
        let is_before = |index: &usize| if behind_equals { at(*index) <= *number } else { at(*index) < *number };
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
    let mask: Vec<i64> = mask.read_as(&target.shape);
    let mut next = source.read::<f64>().into_iter();
    let old = target.read::<f64>();
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
        index(&input, &defined(&indices), &output);
    aclnnIndexPutImpl(
        target: Tensor, indices: Vec<Option<Tensor>>, values: Tensor, accumulate: bool, _unsafe: bool,
    ) => index_put(&target, &defined(&indices), &values, accumulate);
    aclnnIndexAdd(
        input: Tensor, dimension: i64, indices: Tensor, source: Tensor, factor: Scalar, output: Tensor,
    ) => index_add(&input, dimension, &indices, &source, factor.float(), &output);
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
    ) => find_places(&sorted, &numbers.read::<f64>(), behind_equals, order.as_ref(), &output);
    aclnnSearchSorteds(
        sorted: Tensor, number: Scalar, _narrow: bool, behind_equals: bool, order: Option<Tensor>, output: Tensor,
    ) => find_places(&sorted, &[number.float()], behind_equals, order.as_ref(), &output);
    aclnnScatter(
        input: Tensor, dimension: i64, indices: Tensor, source: Tensor, meeting: i64, output: Tensor,
    ) => scatter(&input, dimension, &indices, source_of(&source), Meeting::from_number(meeting), &output);
    aclnnInplaceScatter(target: Tensor, dimension: i64, indices: Tensor, source: Tensor, meeting: i64) =>
        scatter(&target.clone(), dimension, &indices, source_of(&source), Meeting::from_number(meeting), &target);
    aclnnScatterValue(
        input: Tensor, dimension: i64, indices: Tensor, value: Scalar, meeting: i64, output: Tensor,
    ) => scatter(&input, dimension, &indices, |_| value.float(), Meeting::from_number(meeting), &output);
    aclnnInplaceScatterValue(target: Tensor, dimension: i64, indices: Tensor, value: Scalar, meeting: i64) =>
        scatter(&target.clone(), dimension, &indices, |_| value.float(), Meeting::from_number(meeting), &target);
    aclnnScatterAdd(input: Tensor, dimension: i64, indices: Tensor, source: Tensor, output: Tensor) =>
        scatter(&input, dimension, &indices, source_of(&source), Meeting::Add, &output);
    aclnnInplaceMaskedScatter(target: Tensor, mask: Tensor, source: Tensor) =>
        masked_scatter(&target, &mask, &source);
    aclnnCat(tensors: Vec<Tensor>, dimension: i64, output: Tensor) => concatenate(&tensors, dimension, &output);
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

/// Index lists in which an empty tensor means a whole dimension.
fn defined(indices: &[Option<Tensor>]) -> Vec<Option<Tensor>> {
    indices.iter().map(|index| index.clone().filter(|index| index.shape != [0])).collect()
}
