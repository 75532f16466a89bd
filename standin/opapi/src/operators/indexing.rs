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
