//! Fused optimiser steps and gradient scaling.

use crate::macros::operators;
use standin_compute::Tensor;

/// Settings of a fused step of Adam or AdamW.
struct Adam {
    rate: f64,
    beta1: f64,
    beta2: f64,
    decay: f64,
    /// Whether weights decay by themselves (AdamW) or through the gradient.
    decoupled: bool,
    epsilon: f64,
    amsgrad: bool,
    maximize: bool,
}

impl Adam {
    /// One step; `step` is its number, from 1.
    fn apply(&self, [weight, first, second]: [&Tensor; 3], largest: Option<&Tensor>, gradient: &Tensor, step: f64) {
        let sign = if self.maximize { -1.0 } else { 1.0 };
        let (mut weights, mut firsts, mut seconds) = (weight.read::<f64>(), first.read::<f64>(), second.read::<f64>());
        let mut largests = largest.filter(|_| self.amsgrad).map(Tensor::read::<f64>);
        let (coupled, decoupled) = if self.decoupled { (0.0, self.decay) } else { (self.decay, 0.0) };
        let correction1 = 1.0 - self.beta1.powf(step);
        let correction2 = 1.0 - self.beta2.powf(step);
        for (index, gradient) in gradient.read::<f64>().into_iter().enumerate() {
            let gradient = sign * gradient + coupled * weights[index];
            firsts[index] = self.beta1 * firsts[index] + (1.0 - self.beta1) * gradient;
            seconds[index] = self.beta2 * seconds[index] + (1.0 - self.beta2) * gradient * gradient;
            let spread = match &mut largests {
                Some(largests) => {
                    largests[index] = largests[index].max(seconds[index]);
                    largests[index]
                }
                None => seconds[index],
            };
            let denominator = (spread / correction2).sqrt() + self.epsilon;
            let decayed = weights[index] * (1.0 - self.rate * decoupled);
            weights[index] = decayed - self.rate * firsts[index] / correction1 / denominator;
        }
        weight.write(&weights);
        first.write(&firsts);
        second.write(&seconds);
        if let (Some(target), Some(values)) = (largest, largests) {
            target.write(&values);
        }
    }
}

impl Adam {
    /// One step for every tensor of the lists, unless a gradient was not finite.
    fn apply_all(
        &self,
        [weights, firsts, seconds, gradients]: [&[Tensor]; 4],
        largests: Option<&[Tensor]>,
        steps: &[Tensor],
        [scale, found]: [Option<Tensor>; 2],
    ) {
        if found.is_some_and(|found| found.read::<f64>()[0] != 0.0) {
            return;
        }
        for index in 0..weights.len() {
            if let Some(scale) = &scale {
                let scale = scale.read::<f64>()[0];
                let values = gradients[index].read::<f64>();
                gradients[index].write(&values.into_iter().map(|value| value / scale).collect::<Vec<_>>());
            }
            let largest = largests.and_then(|largests| largests.get(index));
            let state = [&weights[index], &firsts[index], &seconds[index]];
            self.apply(state, largest, &gradients[index], steps[index].read::<f64>()[0]);
        }
    }
}

/// Settings of a fused step of stochastic gradient descent.
struct Descent {
    rate: f64,
    momentum: f64,
    dampening: f64,
    decay: f64,
    nesterov: bool,
    maximize: bool,
    is_first_step: bool,
}

impl Descent {
    fn apply(&self, weight: &Tensor, gradient: &Tensor, velocity: Option<&Tensor>, scale: f64) {
        let sign = if self.maximize { -1.0 } else { 1.0 };
        let mut weights = weight.read::<f64>();
        let mut velocities = velocity.map(Tensor::read::<f64>);
        for (index, gradient) in gradient.read::<f64>().into_iter().enumerate() {
            let mut change = sign * gradient / scale + self.decay * weights[index];
            if let Some(velocities) = &mut velocities {
                let kept = self.momentum * velocities[index] + (1.0 - self.dampening) * change;
                velocities[index] = if self.is_first_step { change } else { kept };
                change = if self.nesterov { change + self.momentum * velocities[index] } else { velocities[index] };
            }
            weights[index] -= self.rate * change;
        }
        weight.write(&weights);
        if let (Some(target), Some(values)) = (velocity, velocities) {
            target.write(&values);
        }
    }
}

/// Divides gradients by the loss scale and notes whether one of them is not finite.
fn unscale(gradients: &[Tensor], found: &Tensor, inverse_scale: &Tensor) {
    let scale = inverse_scale.read::<f64>()[0];
    let mut finite = true;
    for gradient in gradients {
        let values = gradient.read::<f64>();
        finite &= values.iter().all(|value| value.is_finite());
        gradient.write(&values.into_iter().map(|value| value * scale).collect::<Vec<_>>());
    }
    if !finite {
        found.write(&[1.0]);
    }
}

/// Grows or shrinks the loss scale after a step.
fn update_scale(scale: &Tensor, tracker: &Tensor, found: &Tensor, growth: f64, backoff: f64, interval: i64) {
    if found.read::<f64>()[0] != 0.0 {
        scale.write(&[scale.read::<f64>()[0] * backoff]);
        tracker.write(&[0i64]);
        return;
    }
    let successes = tracker.read::<i64>()[0] + 1;
    if successes == interval {
        let grown = scale.read::<f64>()[0] * growth;
        if (grown as f32).is_finite() {
            scale.write(&[grown]);
        }
        tracker.write(&[0i64]);
    } else {
        tracker.write(&[successes]);
    }
}

operators! {
    aclnnApplyAdamWV2(
        weight: Tensor, first: Tensor, second: Tensor, largest: Option<Tensor>, gradient: Tensor, step: Tensor,
        rate: f32, beta1: f32, beta2: f32, decay: f32, epsilon: f32, amsgrad: bool, maximize: bool,
    ) => {
        let settings = Adam {
            rate: rate.into(), beta1: beta1.into(), beta2: beta2.into(), decay: decay.into(), decoupled: true,
            epsilon: epsilon.into(), amsgrad, maximize,
        };
        settings.apply([&weight, &first, &second], largest.as_ref(), &gradient, step.read::<f64>()[0] + 1.0)
    };
    aclnnFusedAdam(
        weights: Vec<Tensor>, gradients: Vec<Tensor>, firsts: Vec<Tensor>, seconds: Vec<Tensor>,
        largests: Option<Vec<Tensor>>, steps: Vec<Tensor>, scale: Option<Tensor>, found: Option<Tensor>, rate: f64,
        beta1: f64, beta2: f64, decay: f64, epsilon: f64, amsgrad: bool, maximize: bool,
    ) => {
        let settings = Adam { rate, beta1, beta2, decay, decoupled: false, epsilon, amsgrad, maximize };
        settings.apply_all([&weights, &firsts, &seconds, &gradients], largests.as_deref(), &steps, [scale, found])
    };
    aclnnFusedSgd(
        weights: Vec<Tensor>, gradients: Vec<Tensor>, velocities: Vec<Tensor>, scale: Option<Tensor>, decay: f32,
        momentum: f32, rate: f32, dampening: f32, nesterov: bool, maximize: bool, is_first_step: bool,
    ) => {
        let settings = Descent {
            rate: rate.into(), momentum: momentum.into(), dampening: dampening.into(), decay: decay.into(), nesterov,
            maximize, is_first_step,
        };
        let scale = scale.filter(|scale| !scale.is_empty()).map_or(1.0, |scale| scale.read::<f64>()[0]);
        for (index, weight) in weights.iter().enumerate() {
            settings.apply(weight, &gradients[index], velocities.get(index), scale);
        }
    };
    aclnnForeachNonFiniteCheckAndUnscale(gradients: Vec<Tensor>, found: Tensor, inverse_scale: Tensor) =>
        unscale(&gradients, &found, &inverse_scale);
    aclnnAmpUpdateScale(
        scale: Tensor, tracker: Tensor, found: Tensor, growth: f64, backoff: f64, interval: i64, _new_scale: Tensor,
        _new_tracker: Tensor,
    ) => update_scale(&scale, &tracker, &found, growth, backoff, interval);
}
