//! Normalisation and its gradients.

use crate::macros::operators;
use standin_compute::Tensor;
use standin_compute::normalization::{BatchNorm, GroupNorm, LayerNorm};

fn layer(shape: &[i64], epsilon: f64) -> LayerNorm {
    LayerNorm { length: shape.iter().product::<i64>() as usize, epsilon, centered: true }
}

/// The variant without mean, over as many last elements as the weight has.
fn root_mean_square(weight: &Tensor, epsilon: f64) -> LayerNorm {
    LayerNorm { length: weight.len(), epsilon, centered: false }
}

/// Targets that a mask asks for.
fn wanted<'a>(mask: &[bool], targets: [&'a Option<Tensor>; 3]) -> [Option<&'a Tensor>; 3] {
    std::array::from_fn(|index| targets[index].as_ref().filter(|_| mask.get(index).copied().unwrap_or(true)))
}

operators! {
    aclnnLayerNorm(
        input: Tensor, shape: Vec<i64>, weight: Option<Tensor>, bias: Option<Tensor>, epsilon: f64, output: Tensor,
        means: Option<Tensor>, deviations: Option<Tensor>,
    ) => layer(&shape, epsilon).forward(
        &input, [weight.as_ref(), bias.as_ref()], &output, [means.as_ref(), deviations.as_ref()],
    );
    aclnnFastLayerNorm(
        input: Tensor, shape: Vec<i64>, weight: Option<Tensor>, bias: Option<Tensor>, epsilon: f64, output: Tensor,
        means: Option<Tensor>, deviations: Option<Tensor>,
    ) => layer(&shape, epsilon).forward(
        &input, [weight.as_ref(), bias.as_ref()], &output, [means.as_ref(), deviations.as_ref()],
    );
    aclnnLayerNormBackward(
        gradient: Tensor, input: Tensor, shape: Vec<i64>, means: Tensor, deviations: Tensor, weight: Option<Tensor>,
        _bias: Option<Tensor>, mask: Vec<bool>, to_input: Option<Tensor>, to_weight: Option<Tensor>,
        to_bias: Option<Tensor>,
    ) => layer(&shape, 0.0).backward(
        &gradient, &input, [Some(&means), Some(&deviations)], weight.as_ref(),
        wanted(&mask, [&to_input, &to_weight, &to_bias]),
    );
    aclnnRmsNorm(input: Tensor, weight: Tensor, epsilon: f64, output: Tensor, deviations: Option<Tensor>) =>
        root_mean_square(&weight, epsilon).forward(&input, [Some(&weight), None], &output, [None, deviations.as_ref()]);
    aclnnRmsNormGrad(
        gradient: Tensor, input: Tensor, deviations: Tensor, weight: Tensor, to_input: Tensor, to_weight: Tensor,
    ) => root_mean_square(&weight, 0.0).backward(
        &gradient, &input, [None, Some(&deviations)], Some(&weight), [Some(&to_input), Some(&to_weight), None],
    );
    aclnnBatchNorm(
        input: Tensor, weight: Option<Tensor>, bias: Option<Tensor>, running_mean: Option<Tensor>,
        running_variance: Option<Tensor>, training: bool, momentum: f64, epsilon: f64, output: Tensor,
        means: Option<Tensor>, deviations: Option<Tensor>,
    ) => BatchNorm { training, momentum, epsilon }.forward(
        &input, [weight.as_ref(), bias.as_ref()], [running_mean.as_ref(), running_variance.as_ref()], &output,
        [means.as_ref(), deviations.as_ref()],
    );
    aclnnBatchNormBackward(
        gradient: Tensor, input: Tensor, weight: Option<Tensor>, running_mean: Option<Tensor>,
        running_variance: Option<Tensor>, means: Option<Tensor>, deviations: Option<Tensor>, training: bool,
        epsilon: f64, mask: Vec<bool>, to_input: Option<Tensor>, to_weight: Option<Tensor>, to_bias: Option<Tensor>,
    ) => BatchNorm { training, momentum: 0.0, epsilon }.backward(
        &gradient, &input, weight.as_ref(), [running_mean.as_ref(), running_variance.as_ref()],
        [means.as_ref(), deviations.as_ref()], wanted(&mask, [&to_input, &to_weight, &to_bias]),
    );
    aclnnGroupNorm(
        input: Tensor, weight: Option<Tensor>, bias: Option<Tensor>, _batch: i64, channels: i64, _space: i64,
        groups: i64, epsilon: f64, output: Tensor, means: Option<Tensor>, deviations: Option<Tensor>,
    ) => GroupNorm { groups: groups as usize, channels: channels as usize, epsilon }.forward(
        &input, [weight.as_ref(), bias.as_ref()], &output, [means.as_ref(), deviations.as_ref()],
    );
    aclnnGroupNormBackward(
        gradient: Tensor, input: Tensor, means: Tensor, deviations: Tensor, weight: Option<Tensor>, _batch: i64,
        channels: i64, _space: i64, groups: i64, mask: Vec<bool>, to_input: Option<Tensor>, to_weight: Option<Tensor>,
        to_bias: Option<Tensor>,
    ) => GroupNorm { groups: groups as usize, channels: channels as usize, epsilon: 0.0 }.backward(
        &gradient, &input, [&means, &deviations], weight.as_ref(), wanted(&mask, [&to_input, &to_weight, &to_bias]),
    );
}
