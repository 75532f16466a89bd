//! Operators whose output size depends on the data. Callers read the size from the output's description right after the
//! launch, so these operators are waited for.

use crate::argument::Resizable;
use crate::macros::sized_operators;
use standin_compute::Tensor;
use standin_compute::indexing::nonzero;

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

/// Values without repetition in ascending order, where each came from, and how often each occurs.
fn unique(input: &Tensor, values: &Resizable, inverse: &Tensor, counts: &Resizable) {
    let elements = input.read::<f64>();
    let mut distinct = elements.clone();
    distinct.sort_by(f64::total_cmp);
    distinct.dedup();
    let place = |value: &f64| distinct.partition_point(|other| other.total_cmp(value).is_lt());
    let places: Vec<usize> = elements.iter().map(place).collect();
    let mut occurrences = vec![0i64; distinct.len()];
    places.iter().for_each(|place| occurrences[*place] += 1);
    values.resized(&[distinct.len()]).write(&distinct);
    if inverse.len() == places.len() {
        inverse.write(&places.iter().map(|place| *place as i64).collect::<Vec<_>>());
    }
    if !counts.is_empty() {
        counts.resized(&[occurrences.len()]).write(&occurrences);
    }
}

sized_operators! {
    aclnnMaskedSelect(input: Tensor, mask: Tensor, output: Resizable) => masked_select(&input, &mask, &output);
    aclnnNonzero(input: Tensor, output: Resizable) => coordinates(&input, &output, false);
    aclnnNonzeroV2(input: Tensor, output: Resizable) => coordinates(&input, &output, true);
    aclnnUnique2(
        input: Tensor, _sorted: bool, _want_inverse: bool, _want_counts: bool, values: Resizable, inverse: Tensor,
        counts: Resizable,
    ) => unique(&input, &values, &inverse, &counts);
}
