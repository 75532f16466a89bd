//! Convolutions and pooling.

use crate::macros::operators;
use standin_compute::Tensor;
use standin_compute::convolution::{Window, backward, forward};
use standin_compute::pooling::{
    Divisor, adaptive_average_pool, adaptive_average_pool_backward, adaptive_max_pool, average_pool,
    average_pool_backward, columns_to_windows, max_pool, max_pool_backward, max_pool_with_mask,
    max_pool_with_mask_backward, windows_to_columns,
};

/// The windows of a convolution, from its weight.
fn convolution_window(weight: &Tensor, stride: &[i64], padding: &[i64], dilation: &[i64]) -> Window {
    Window::new(&weight.shape[2..], stride, padding, dilation)
}

/// The windows of pooling over two dimensions.
fn pooling_window(kernel: &[i64], stride: &[i64], padding: &[i64], dilation: &[i64]) -> Window {
    window_of(2, kernel, stride, padding, dilation)
}

/// The windows of pooling over three dimensions.
fn volume_window(kernel: &[i64], stride: &[i64], padding: &[i64], dilation: &[i64]) -> Window {
    window_of(3, kernel, stride, padding, dilation)
}

fn window_of(dimensions: usize, kernel: &[i64], stride: &[i64], padding: &[i64], dilation: &[i64]) -> Window {
    let sizes: Vec<usize> = (0..dimensions).map(|index| *kernel.get(index).unwrap_or(&kernel[0]) as usize).collect();
    Window::new(&sizes, if stride.is_empty() { kernel } else { stride }, padding, dilation)
}

/// How many windows cover the last two dimensions.
fn window_counts(window: &Window, tensor: &Tensor) -> [usize; 2] {
    let counts = window.count(&tensor.shape[tensor.rank() - 2..]);
    [counts[0], counts[1]]
}

operators! {
    aclnnConvolution(
        input: Tensor, weight: Tensor, bias: Option<Tensor>, stride: Vec<i64>, padding: Vec<i64>, dilation: Vec<i64>,
        transposed: bool, _output_padding: Vec<i64>, groups: i64, output: Tensor, _precision: i8,
    ) => {
        let window = convolution_window(&weight, &stride, &padding, &dilation);
        forward(&input, &weight, bias.as_ref(), &window, transposed, groups as usize, &output)
    };
    aclnnConvolutionBackward(
        gradient: Tensor, input: Tensor, weight: Tensor, _bias_sizes: Option<Vec<i64>>, stride: Vec<i64>,
        padding: Vec<i64>, dilation: Vec<i64>, transposed: bool, _output_padding: Vec<i64>, groups: i64,
        mask: Vec<bool>, _precision: i8, to_input: Option<Tensor>, to_weight: Option<Tensor>,
        to_bias: Option<Tensor>,
    ) => {
        let window = convolution_window(&weight, &stride, &padding, &dilation);
        let wanted = |index: usize, target: &Option<Tensor>| target.clone().filter(|_| mask[index]);
        let targets = [wanted(0, &to_input), wanted(1, &to_weight), wanted(2, &to_bias)];
        let targets = [targets[0].as_ref(), targets[1].as_ref(), targets[2].as_ref()];
        backward(&gradient, &input, &weight, &window, transposed, groups as usize, targets)
    };
    aclnnMaxPool2dWithIndices(
        input: Tensor, kernel: Vec<i64>, stride: Vec<i64>, padding: Vec<i64>, dilation: Vec<i64>, _ceiling: bool,
        output: Tensor, positions: Tensor,
    ) => max_pool(&input, &pooling_window(&kernel, &stride, &padding, &dilation), &output, &positions);
    aclnnMaxPool2dWithIndicesBackward(
        gradient: Tensor, _input: Tensor, positions: Tensor, _kernel: Vec<i64>, _stride: Vec<i64>,
        _padding: Vec<i64>, _dilation: Vec<i64>, _ceiling: bool, output: Tensor,
    ) => max_pool_backward(&gradient, &positions, 2, &output);
    aclnnMaxPool2dWithMask(
        input: Tensor, kernel: Vec<i64>, stride: Vec<i64>, padding: Vec<i64>, dilation: Vec<i64>, _ceiling: bool,
        output: Tensor, mask: Tensor,
    ) => max_pool_with_mask(&input, &pooling_window(&kernel, &stride, &padding, &dilation), &output, &mask);
    aclnnMaxPool2dWithMaskBackward(
        gradient: Tensor, _input: Tensor, mask: Tensor, kernel: Vec<i64>, stride: Vec<i64>, padding: Vec<i64>,
        dilation: Vec<i64>, _ceiling: bool, output: Tensor,
    ) => max_pool_with_mask_backward(
        &gradient, &pooling_window(&kernel, &stride, &padding, &dilation), &mask, &output,
    );
    aclnnAvgPool2d(
        input: Tensor, kernel: Vec<i64>, stride: Vec<i64>, padding: Vec<i64>, _ceiling: bool, with_padding: bool,
        fixed: i64, _precision: i8, output: Tensor,
    ) => average_pool(
        &input, &pooling_window(&kernel, &stride, &padding, &[1, 1]), Divisor { with_padding, fixed }, &output,
    );
    aclnnAvgPool2dBackward(
        gradient: Tensor, _input: Tensor, kernel: Vec<i64>, stride: Vec<i64>, padding: Vec<i64>, _ceiling: bool,
        with_padding: bool, fixed: i64, _precision: i8, output: Tensor,
    ) => average_pool_backward(
        &gradient, &pooling_window(&kernel, &stride, &padding, &[1, 1]), Divisor { with_padding, fixed }, &output,
    );
    aclnnMaxPool3dWithArgmax(
        input: Tensor, kernel: Vec<i64>, stride: Vec<i64>, padding: Vec<i64>, dilation: Vec<i64>, _ceiling: bool,
        output: Tensor, positions: Tensor,
    ) => max_pool(&input, &volume_window(&kernel, &stride, &padding, &dilation), &output, &positions);
    aclnnMaxPool3dWithArgmaxBackward(
        gradient: Tensor, _input: Tensor, positions: Tensor, _kernel: Vec<i64>, _stride: Vec<i64>,
        _padding: Vec<i64>, _dilation: Vec<i64>, _ceiling: bool, output: Tensor,
    ) => max_pool_backward(&gradient, &positions, 3, &output);
    aclnnAvgPool3d(
        input: Tensor, kernel: Vec<i64>, stride: Vec<i64>, padding: Vec<i64>, _ceiling: bool, with_padding: bool,
        fixed: i64, output: Tensor,
    ) => average_pool(
        &input, &volume_window(&kernel, &stride, &padding, &[1]), Divisor { with_padding, fixed }, &output,
    );
    aclnnAvgPool3dBackward(
        gradient: Tensor, _input: Tensor, kernel: Vec<i64>, stride: Vec<i64>, padding: Vec<i64>, _ceiling: bool,
        with_padding: bool, fixed: i64, output: Tensor,
    ) => average_pool_backward(
        &gradient, &volume_window(&kernel, &stride, &padding, &[1]), Divisor { with_padding, fixed }, &output,
    );
    aclnnAdaptiveAvgPool2d(input: Tensor, _size: Vec<i64>, output: Tensor) => adaptive_average_pool(&input, &output);
    aclnnAdaptiveAvgPool2dBackward(gradient: Tensor, _input: Tensor, output: Tensor) =>
        adaptive_average_pool_backward(&gradient, &output);
    aclnnAdaptiveMaxPool2d(input: Tensor, _size: Vec<i64>, output: Tensor, positions: Tensor) =>
        adaptive_max_pool(&input, &output, &positions);
    aclnnAdaptiveMaxPool2dBackward(gradient: Tensor, _input: Tensor, positions: Tensor, output: Tensor) =>
        max_pool_backward(&gradient, &positions, 2, &output);
    aclnnIm2col(
        input: Tensor, kernel: Vec<i64>, dilation: Vec<i64>, padding: Vec<i64>, stride: Vec<i64>, output: Tensor,
    ) => {
        let window = pooling_window(&kernel, &stride, &padding, &dilation);
        windows_to_columns(&input, &window, window_counts(&window, &input), &output)
    };
    aclnnIm2colBackward(
        columns: Tensor, _size: Vec<i64>, kernel: Vec<i64>, dilation: Vec<i64>, padding: Vec<i64>, stride: Vec<i64>,
        output: Tensor,
    ) => {
        let window = pooling_window(&kernel, &stride, &padding, &dilation);
        columns_to_windows(&columns, &window, window_counts(&window, &output), &output)
    };
}
