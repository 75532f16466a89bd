//! Random numbers and dropout.

use crate::macros::operators;
use standin_compute::random::Random;
use standin_compute::{DataType, Scalar, Tensor};

/// Fills a tensor with numbers from a generator.
fn fill(target: &Tensor, seed: u64, offset: u64, mut next: impl FnMut(&mut Random) -> f64) {
    let mut random = Random::new(seed, offset);
    target.write(&(0..target.len()).map(|_| next(&mut random)).collect::<Vec<_>>());
}

/// A number from `low` up to, but not including, `high`, also as an element of this type. Where hardly a number of the
/// type lies between the two, `low` has to do.
fn uniform(random: &mut Random, low: f64, high: f64, data_type: DataType) -> f64 {
    const ATTEMPTS: usize = 16;
    let mut drawn = (0..ATTEMPTS).map(|_| data_type.rounded(low + (high - low) * random.unit()));
    drawn.find(|value| *value < high).unwrap_or(low)
}

/// Normal numbers with a mean and a deviation of every element's own.
fn fill_normal(means: &[f64], deviations: &[f64], seed: i64, offset: i64, output: &Tensor) {
    let mut random = Random::new(seed as u64, offset as u64);
    let values = means.iter().zip(deviations).map(|(mean, deviation)| mean + deviation * random.normal());
    output.write(&values.collect::<Vec<_>>());
}

/// 1 with a probability of every element's own, else 0.
fn fill_chances(target: &Tensor, probability: &Tensor, seed: u64, offset: u64) {
    let mut random = Random::new(seed, offset);
    let chances = probability.read_as::<f64>(&target.shape);
    target.write(&chances.into_iter().map(|chance| i64::from(random.unit() < chance)).collect::<Vec<_>>());
}

/// Whole numbers from `low` up to, but not including, `high`.
fn fill_whole(target: &Tensor, low: i64, high: i64, seed: u64, offset: u64) {
    let mut random = Random::new(seed, offset);
    target.write(&(0..target.len()).map(|_| random.between(low, high)).collect::<Vec<_>>());
}

/// One random bit per element: 1 keeps it.
fn drop_mask(count: usize, probability: f64, seed: u64, offset: u64, mask: &Tensor) {
    let mut random = Random::new(seed, offset);
    let mut bytes = vec![0i64; mask.len()];
    for index in 0..count {
        if random.unit() >= probability {
            bytes[index / 8] |= 1 << (index % 8);
        }
    }
    mask.write(&bytes);
}

/// `output = input / (1 - probability)` where the mask keeps an element, else 0.
fn apply_drop_mask(input: &Tensor, mask: &Tensor, probability: f64, output: &Tensor) {
    let bytes = mask.read::<i64>();
    let scale = if probability < 1.0 { 1.0 / (1.0 - probability) } else { 0.0 };
    let kept =
        |(index, value): (usize, f64)| if bytes[index / 8] >> (index % 8) & 1 == 1 { value * scale } else { 0.0 };
    output.write(&input.read::<f64>().into_iter().enumerate().map(kept).collect::<Vec<_>>());
}

/// Numbers of classes drawn by their weights.
fn multinomial(weights: &Tensor, count: usize, replace: bool, seed: u64, offset: u64, output: &Tensor) {
    let mut random = Random::new(seed, offset);
    let classes = weights.shape.last().copied().unwrap_or(1);
    let mut drawn = Vec::with_capacity(output.len());
    for line in weights.read::<f64>().chunks(classes.max(1)) {
        let mut line = line.to_vec();
        for _ in 0..count {
            let mut left = random.unit() * line.iter().sum::<f64>();
            let last = line.iter().rposition(|weight| *weight > 0.0).unwrap_or(0);
            let chosen = line.iter().position(|weight| {
                left -= weight;
                left < 0.0
            });
            let chosen = chosen.unwrap_or(last);
            drawn.push(chosen as i64);
            if !replace {
                line[chosen] = 0.0;
            }
        }
    }
    output.write(&drawn);
}

operators! {
    aclnnInplaceNormal(target: Tensor, mean: f32, deviation: f32, seed: i64, offset: i64) =>
        fill(&target, seed as u64, offset as u64, |random| f64::from(mean) + f64::from(deviation) * random.normal());
    aclnnNormalFloatFloat(mean: f32, deviation: f32, seed: i64, offset: i64, output: Tensor) =>
        fill(&output, seed as u64, offset as u64, |random| f64::from(mean) + f64::from(deviation) * random.normal());
    aclnnInplaceUniform(target: Tensor, low: f64, high: f64, seed: u64, offset: u64) =>
        fill(&target, seed, offset, |random| uniform(random, low, high, target.data_type));
    aclnnInplaceBernoulli(target: Tensor, probability: Scalar, seed: i64, offset: i64) =>
        fill(&target, seed as u64, offset as u64, |random| {
            f64::from(u8::from(random.unit() < probability.float()))
        });
    aclnnInplaceBernoulliTensor(target: Tensor, probability: Tensor, seed: u64, offset: u64) =>
        fill_chances(&target, &probability, seed, offset);
    aclnnNormalTensorTensor(mean: Tensor, deviation: Tensor, seed: i64, offset: i64, output: Tensor) =>
        fill_normal(&mean.read_as(&output.shape), &deviation.read_as(&output.shape), seed, offset, &output);
    aclnnNormalTensorFloat(mean: Tensor, deviation: f32, seed: i64, offset: i64, output: Tensor) =>
        fill_normal(&mean.read_as(&output.shape), &vec![deviation.into(); output.len()], seed, offset, &output);
    aclnnNormalFloatTensor(mean: f32, deviation: Tensor, seed: i64, offset: i64, output: Tensor) =>
        fill_normal(&vec![mean.into(); output.len()], &deviation.read_as(&output.shape), seed, offset, &output);
    aclnnInplaceRandom(target: Tensor, low: i64, high: i64, seed: i64, offset: i64) =>
        fill_whole(&target, low, high, seed as u64, offset as u64);
    aclnnInplaceRandomWithoutFromTo(target: Tensor, seed: i64, offset: i64) =>
        fill_whole(&target, 0, if target.is_float() { 1 << 24 } else { 1 << 7 }, seed as u64, offset as u64);
    aclnnRandperm(_count: i64, seed: i64, offset: i64, output: Tensor) =>
        output.write(&Random::new(seed as u64, offset as u64).permutation(output.len()));
    aclnnMultinomial(weights: Tensor, count: i64, replace: bool, seed: i64, offset: i64, output: Tensor) =>
        multinomial(&weights, count as usize, replace, seed as u64, offset as u64, &output);
    aclnnDropoutGenMask(shape: Vec<i64>, probability: f64, seed: i64, offset: i64, mask: Tensor) =>
        drop_mask(shape.iter().product::<i64>() as usize, probability, seed as u64, offset as u64, &mask);
    aclnnDropoutGenMaskV2(
        shape: Vec<i64>, probability: f64, seed: i64, offset: i64, _data_type: i32, mask: Tensor,
    ) => drop_mask(shape.iter().product::<i64>() as usize, probability, seed as u64, offset as u64, &mask);
    aclnnDropoutDoMask(input: Tensor, mask: Tensor, probability: f64, output: Tensor) =>
        apply_drop_mask(&input, &mask, probability, &output);
}
