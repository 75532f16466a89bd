//! Operators whose output size depends on the data. Callers read the size from the output's description right after the
//! launch, so these operators are waited for.

use crate::argument::Resizable;
use crate::macros::sized_operators;
use standin_compute::elementwise::copy;
use standin_compute::indexing::nonzero;
use standin_compute::{Tensor, Value};
use std::cmp::Ordering;

/// Elements of `input` where `mask` is set, in the broadcast shape of both.
fn masked_select(input: &Tensor, mask: &Tensor, output: &Resizable) {
    let shape = if input.rank() >= mask.rank() && input.len() >= mask.len() { &input.shape } else { &mask.shape };
    let chosen: Vec<i64> = mask.read_as(shape);
    if input.is_float() {
        let values = input.read_as::<f64>(shape).into_iter().zip(chosen).filter(|(_, chosen)| *chosen != 0);
        let values: Vec<f64> = values.map(|(value, _)| value).collect();
        output.resized(&[values.len()]).write(&values);
    } else {
        let values = input.read_as::<i64>(shape).into_iter().zip(chosen).filter(|(_, chosen)| *chosen != 0);
        let values: Vec<i64> = values.map(|(value, _)| value).collect();
        output.resized(&[values.len()]).write(&values);
    }
}

/// One row of coordinates per element that is not zero, or one column.
fn coordinates(input: &Tensor, output: &Resizable, by_dimension: bool) {
    let found = nonzero(input);
    let target = output.resized(&if by_dimension { [input.rank(), found.len()] } else { [found.len(), input.rank()] });
    let target = if by_dimension { target.permuted(&[1, 0]) } else { target };
    target.write(&found.concat());
}

fn order_of_lines<V: Value>(left: &[V], right: &[V]) -> Ordering {
    let different = left.iter().zip(right).map(|(left, right)| left.order(*right)).find(|found| found.is_ne());
    different.unwrap_or(Ordering::Equal)
}

/// Numbers of equal things: for every thing the number of the first one like it, in the order of first ones.
struct Classes {
    /// One of each class.
    representatives: Vec<usize>,
    /// The class of everything.
    classes: Vec<i64>,
}

impl Classes {
    /// Classes of `count` things whose order is known; only neighbours can be equal if they are not to be sorted.
    fn new(count: usize, sort: bool, order: impl Fn(usize, usize) -> Ordering) -> Self {
        let mut places: Vec<usize> = (0..count).collect();
        if sort {
            places.sort_by(|left, right| order(*left, *right));
        }
        let (mut representatives, mut classes) = (Vec::new(), vec![0; count]);
        for place in places {
            if representatives.last().is_none_or(|last| order(*last, place).is_ne()) {
                representatives.push(place);
            }
            classes[place] = representatives.len() as i64 - 1;
        }
        Self { representatives, classes }
    }

    /// Writes the class of everything and the sizes of the classes, where asked for.
    fn write(&self, inverse: &Tensor, counts: &Resizable) {
        if inverse.len() == self.classes.len() {
            inverse.write(&self.classes);
        }
        if !counts.is_empty() {
            let mut sizes = vec![0i64; self.representatives.len()];
            self.classes.iter().for_each(|class| sizes[*class as usize] += 1);
            counts.resized(&[sizes.len()]).write(&sizes);
        }
    }
}

/// Values without repetition (sorted, or only without repeated neighbours), where each came from, and how often each
/// occurs.
fn unique(input: &Tensor, sort: bool, values: &Resizable, inverse: &Tensor, counts: &Resizable) {
    if input.is_float() {
        unique_values::<f64>(input, sort, values, inverse, counts);
    } else {
        unique_values::<i64>(input, sort, values, inverse, counts);
    }
}

fn unique_values<V: Value>(input: &Tensor, sort: bool, values: &Resizable, inverse: &Tensor, counts: &Resizable) {
    let elements = input.read::<V>();
    let classes = Classes::new(elements.len(), sort, |left, right| elements[left].order(elements[right]));
    let distinct: Vec<V> = classes.representatives.iter().map(|place| elements[*place]).collect();
    values.resized(&[distinct.len()]).write(&distinct);
    classes.write(inverse, counts);
}

/// The same for slices along a dimension.
fn unique_slices(input: &Tensor, sort: bool, dimension: i64, values: &Resizable, inverse: &Tensor, counts: &Resizable) {
    let dimension = input.dimension(dimension);
    let count = input.shape[dimension];
    let slice = |place: usize| input.narrowed(dimension, place, 1);
    let classes = if input.is_float() {
        let slices: Vec<Vec<f64>> = (0..count).map(|place| slice(place).read()).collect();
        Classes::new(count, sort, |left, right| order_of_lines(&slices[left], &slices[right]))
    } else {
        let slices: Vec<Vec<i64>> = (0..count).map(|place| slice(place).read()).collect();
        Classes::new(count, sort, |left, right| order_of_lines(&slices[left], &slices[right]))
    };
    let mut shape = input.shape.clone();
    shape[dimension] = classes.representatives.len();
    let target = values.resized(&shape);
    for (place, representative) in classes.representatives.iter().enumerate() {
        copy(&slice(*representative), &target.narrowed(dimension, place, 1));
    }
    classes.write(inverse, counts);
}

/// What torch_npu passes for no dimension.
const NO_DIMENSION: i64 = 1000;

sized_operators! {
    aclnnMaskedSelect(input: Tensor, mask: Tensor, output: Resizable) => masked_select(&input, &mask, &output);
    aclnnNonzero(input: Tensor, output: Resizable) => coordinates(&input, &output, false);
    aclnnNonzeroV2(input: Tensor, output: Resizable) => coordinates(&input, &output, true);
    aclnnUnique2(
        input: Tensor, _sorted: bool, _want_inverse: bool, _want_counts: bool, values: Resizable, inverse: Tensor,
        counts: Resizable,
    ) => unique(&input, true, &values, &inverse, &counts);
    aclnnUniqueConsecutive(
        input: Tensor, _want_inverse: bool, _want_counts: bool, dimension: i64, values: Resizable, inverse: Tensor,
        counts: Resizable,
    ) => match dimension {
        NO_DIMENSION => unique(&input, false, &values, &inverse, &counts),
        _ => unique_slices(&input, false, dimension, &values, &inverse, &counts),
    };
    aclnnUniqueDim(
        input: Tensor, _sorted: bool, _want_inverse: bool, dimension: i64, values: Resizable, inverse: Tensor,
        counts: Resizable,
    ) => unique_slices(&input, true, dimension, &values, &inverse, &counts);
}
