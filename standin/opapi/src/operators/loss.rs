//! Loss functions and their gradients. Reductions: 0 none, 1 mean, 2 sum.

use crate::macros::operators;
use crate::operators::activation::sigmoid;
use standin_compute::Tensor;
use standin_compute::elementwise::Operand;

const MEAN: i64 = 1;
const SUM: i64 = 2;

/// Losses of all elements, reduced as asked.
fn reduced(losses: Vec<f64>, reduction: i64, output: &Tensor) {
    let sum: f64 = losses.iter().sum();
    match reduction {
        MEAN => output.write(&[sum / losses.len() as f64]),
        SUM => output.write(&[sum]),
        _ => output.write(&losses),
    }
}

/// `loss(input, target)` for every element.
fn pointwise(input: &Tensor, target: &Tensor, reduction: i64, output: &Tensor, loss: impl Fn(f64, f64) -> f64) {
    let pairs = input.read::<f64>().into_iter().zip(target.read_as::<f64>(&input.shape));
    reduced(pairs.map(|(input, target)| loss(input, target)).collect(), reduction, output);
}

/// Gradient for the input from `slope(input, target)`.
fn pointwise_backward(
    gradient: &Tensor,
    [input, target]: [&Tensor; 2],
    reduction: i64,
    output: &Tensor,
    slope: impl Fn(f64, f64) -> f64,
) {
    let shape = &output.shape;
    let scale = if reduction == MEAN { 1.0 / output.len() as f64 } else { 1.0 };
    let gradients = gradient.read_as::<f64>(shape);
    let pairs = input.read_as::<f64>(shape).into_iter().zip(target.read_as::<f64>(shape));
    let values = pairs.zip(gradients).map(|((input, target), gradient)| gradient * slope(input, target) * scale);
    output.write(&values.collect::<Vec<_>>());
}

fn sign(value: f64) -> f64 {
    if value == 0.0 { 0.0 } else { value.signum() }
}

fn smooth(difference: f64, width: f64) -> f64 {
    let magnitude = difference.abs();
    if magnitude < width { 0.5 * magnitude * magnitude / width } else { magnitude - 0.5 * width }
}

fn smooth_slope(difference: f64, width: f64) -> f64 {
    if difference.abs() < width { difference / width } else { sign(difference) }
}

/// Binary cross entropy with the logarithm cut at -100, as frameworks do.
fn cross_entropy(probability: f64, target: f64) -> f64 {
    -(target * probability.ln().max(-100.0) + (1.0 - target) * (1.0 - probability).ln().max(-100.0))
}

/// Divergence of a logarithm of a likelihood from a target, which may be a logarithm too.
fn divergence(input: f64, target: f64, logarithm: bool) -> f64 {
    if logarithm {
        target.exp() * (target - input)
    } else if target > 0.0 {
        target * (target.ln() - input)
    } else {
        0.0
    }
}

/// Classes of a likelihood tensor: batch entries, classes, positions of each entry.
fn classes(input: &Tensor) -> (usize, usize, usize) {
    match input.shape.as_slice() {
        [classes] => (1, *classes, 1),
        [batch, classes, space @ ..] => (*batch, *classes, space.iter().product()),
        [] => (0, 0, 0),
    }
}

struct Likelihood {
    /// For every target: number of the likelihood it selects and its weight, unless ignored.
    selected: Vec<Option<(usize, f64)>>,
    total_weight: f64,
}

impl Likelihood {
    fn new(input: &Tensor, target: &Tensor, weight: Option<&Tensor>, ignored: i64) -> Self {
        let (_, count, space) = classes(input);
        let weights = weight.filter(|weight| !weight.is_empty()).map(Tensor::read::<f64>);
        let (mut total_weight, mut outside) = (0.0, None);
        let select = |(position, target): (usize, i64)| {
            if target == ignored {
                return None;
            }
            let Some(class) = usize::try_from(target).ok().filter(|class| *class < count) else {
                outside.get_or_insert(target);
                return None;
            };
            let weight = weights.as_ref().map_or(1.0, |weights| weights[class]);
            total_weight += weight;
            Some(((position / space * count + class) * space + position % space, weight))
        };
        let selected = target.read::<i64>().into_iter().enumerate().map(select).collect();
        if let Some(class) = outside {
            eprintln!("stand-in device: class {class} is out of range for {count} classes; such targets do not count");
        }
        Self { selected, total_weight }
    }

    fn forward(&self, input: &Tensor, reduction: i64, output: &Tensor, total: &Tensor) {
        let values = input.read::<f64>();
        let losses: Vec<f64> =
            self.selected.iter().map(|entry| entry.map_or(0.0, |(number, weight)| -weight * values[number])).collect();
        let sum: f64 = losses.iter().sum();
        match reduction {
            MEAN => output.write(&[sum / self.total_weight]),
            SUM => output.write(&[sum]),
            _ => output.write(&losses),
        }
        total.write(&[self.total_weight]);
    }

    fn backward(&self, gradient: &Tensor, reduction: i64, output: &Tensor) {
        let gradients = gradient.read_as::<f64>(&[self.selected.len()]);
        let scale = if reduction == MEAN { 1.0 / self.total_weight } else { 1.0 };
        let mut values = vec![0.0; output.len()];
        for (entry, gradient) in self.selected.iter().zip(gradients) {
            if let Some((number, weight)) = entry {
                values[*number] = -weight * gradient * scale;
            }
        }
        output.write(&values);
    }
}

/// A gradient with as many elements as there are targets, or one for all.
fn flat(gradient: &Tensor, reduction: i64) -> Tensor {
    if reduction == MEAN || reduction == SUM {
        gradient.view(vec![], vec![])
    } else {
        let strides = standin_compute::dense_strides(&gradient.shape);
        assert_eq!(strides, gradient.strides, "the gradient of a loss without reduction is dense");
        gradient.view(vec![gradient.len()], vec![1])
    }
}

/// A weight for every element, one where it is missing.
fn weights(weight: Option<Tensor>, shape: &[usize]) -> Vec<f64> {
    weight.map_or_else(|| vec![1.0; shape.iter().product()], |weight| Operand::from(weight).read(shape))
}

operators! {
    aclnnNLLLoss(
        input: Tensor, target: Tensor, weight: Option<Tensor>, reduction: i64, ignored: i64, output: Tensor,
        total: Tensor,
    ) => Likelihood::new(&input, &target, weight.as_ref(), ignored).forward(&input, reduction, &output, &total);
    aclnnNLLLossBackward(
        gradient: Tensor, input: Tensor, target: Tensor, weight: Option<Tensor>, reduction: i64, ignored: i64,
        _total: Tensor, output: Tensor,
    ) => Likelihood::new(&input, &target, weight.as_ref(), ignored)
        .backward(&flat(&gradient, reduction), reduction, &output);
    aclnnNLLLoss2d(
        input: Tensor, target: Tensor, weight: Option<Tensor>, reduction: i64, ignored: i64, output: Tensor,
        total: Tensor,
    ) => Likelihood::new(&input, &target, weight.as_ref(), ignored).forward(&input, reduction, &output, &total);
    aclnnNLLLoss2dBackward(
        gradient: Tensor, input: Tensor, target: Tensor, weight: Option<Tensor>, reduction: i64, ignored: i64,
        _total: Tensor, output: Tensor,
    ) => Likelihood::new(&input, &target, weight.as_ref(), ignored)
        .backward(&flat(&gradient, reduction), reduction, &output);
    aclnnMseLoss(input: Tensor, target: Tensor, reduction: i64, output: Tensor) =>
        pointwise(&input, &target, reduction, &output, |input, target| (input - target).powi(2));
    aclnnMseLossBackward(gradient: Tensor, input: Tensor, target: Tensor, reduction: i64, output: Tensor) =>
        pointwise_backward(&gradient, [&input, &target], reduction, &output, |input, target| 2.0 * (input - target));
    aclnnL1Loss(input: Tensor, target: Tensor, reduction: i64, output: Tensor) =>
        pointwise(&input, &target, reduction, &output, |input, target| (input - target).abs());
    aclnnL1LossBackward(gradient: Tensor, input: Tensor, target: Tensor, reduction: i64, output: Tensor) =>
        pointwise_backward(&gradient, [&input, &target], reduction, &output, |input, target| sign(input - target));
    aclnnSmoothL1Loss(input: Tensor, target: Tensor, reduction: i64, width: f32, output: Tensor) =>
        pointwise(&input, &target, reduction, &output, |input, target| smooth(input - target, width.into()));
    aclnnSmoothL1LossBackward(
        gradient: Tensor, input: Tensor, target: Tensor, reduction: i64, width: f32, output: Tensor,
    ) => pointwise_backward(&gradient, [&input, &target], reduction, &output, |input, target| {
        smooth_slope(input - target, width.into())
    });
    aclnnKlDiv(input: Tensor, target: Tensor, reduction: i64, logarithm: bool, output: Tensor) =>
        pointwise(&input, &target, reduction, &output, |input, target| divergence(input, target, logarithm));
    aclnnKlDivBackward(
        gradient: Tensor, input: Tensor, target: Tensor, reduction: i64, logarithm: bool, output: Tensor,
    ) => pointwise_backward(&gradient, [&input, &target], reduction, &output, |_, target| {
        -(if logarithm { target.exp() } else { target.max(0.0) })
    });
    aclnnKlDivTargetBackward(
        gradient: Tensor, input: Tensor, target: Tensor, reduction: i64, logarithm: bool, output: Tensor,
    ) => pointwise_backward(&gradient, [&input, &target], reduction, &output, |input, target| {
        if logarithm {
            target.exp() * (target + 1.0 - input)
        } else if target > 0.0 {
            target.ln() + 1.0 - input
        } else {
            0.0
        }
    });
    aclnnSoftMarginLoss(input: Tensor, target: Tensor, reduction: i64, output: Tensor) =>
        pointwise(&input, &target, reduction, &output, |input, target| (-target * input).exp().ln_1p());
    aclnnSoftMarginLossBackward(gradient: Tensor, input: Tensor, target: Tensor, reduction: i64, output: Tensor) =>
        pointwise_backward(&gradient, [&input, &target], reduction, &output, |input, target| {
            -target * sigmoid(-target * input)
        });
    aclnnBinaryCrossEntropy(
        input: Tensor, target: Tensor, weight: Option<Tensor>, reduction: i64, output: Tensor,
    ) => {
        let pairs = input.read::<f64>().into_iter().zip(target.read_as::<f64>(&input.shape));
        let weighted = pairs.zip(weights(weight, &input.shape));
        reduced(weighted.map(|((p, t), weight)| weight * cross_entropy(p, t)).collect(), reduction, &output)
    };
    aclnnBinaryCrossEntropyBackward(
        gradient: Tensor, input: Tensor, target: Tensor, weight: Option<Tensor>, reduction: i64, output: Tensor,
    ) => {
        let factors = weights(weight, &output.shape);
        pointwise_backward(&gradient, [&input, &target], reduction, &output, |p, t| {
            (p - t) / (p * (1.0 - p)).max(1e-12)
        });
        let values = output.read::<f64>().into_iter().zip(factors).map(|(value, factor)| value * factor);
        output.write(&values.collect::<Vec<_>>())
    };
    aclnnBinaryCrossEntropyWithLogits(
        input: Tensor, target: Tensor, weight: Option<Tensor>, positive: Option<Tensor>, reduction: i64,
        output: Tensor,
    ) => {
        let shape = input.shape.clone();
        let pairs = input.read::<f64>().into_iter().zip(target.read_as::<f64>(&shape));
        let factors = weights(weight, &shape).into_iter().zip(weights(positive, &shape));
        let losses = pairs.zip(factors).map(|((x, t), (weight, positive))| {
            let softplus = (-x.abs()).exp().ln_1p() + (-x).max(0.0);
            weight * ((1.0 - t) * x + (1.0 + (positive - 1.0) * t) * softplus)
        });
        reduced(losses.collect(), reduction, &output)
    };
    aclnnBinaryCrossEntropyWithLogitsBackward(
        gradient: Tensor, input: Tensor, target: Tensor, weight: Option<Tensor>, positive: Option<Tensor>,
        reduction: i64, output: Tensor,
    ) => {
        let shape = output.shape.clone();
        let scale = if reduction == MEAN { 1.0 / output.len() as f64 } else { 1.0 };
        let (gradients, targets) = (gradient.read_as::<f64>(&shape), target.read_as::<f64>(&shape));
        let (factors, positives) = (weights(weight, &shape), weights(positive, &shape));
        let slope = |(index, x): (usize, f64)| {
            let (t, positive) = (targets[index], positives[index]);
            let slope = (positive * t + 1.0 - t) * sigmoid(x) - positive * t;
            gradients[index] * factors[index] * slope * scale
        };
        output.write(&input.read_as::<f64>(&shape).into_iter().enumerate().map(slope).collect::<Vec<_>>())
    };
}
