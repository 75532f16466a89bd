//! Fused attention and its gradient, for the layouts in which every batch entry has the same length.

use crate::macros::operators;
use standin_compute::Tensor;
use standin_compute::matrix::product_strided;
use standin_compute::reduction::softmax;

/// What the fused operators have in common.
struct Attention {
    scale: f64,
    keep: f64,
    heads: usize,
    layout: String,
    sparse_mode: i64,
    mask: Option<Tensor>,
    bias: Option<Tensor>,
    drop_mask: Option<Tensor>,
}

/// Lengths of one call.
struct Sizes {
    batch: usize,
    heads: usize,
    key_heads: usize,
    queries: usize,
    keys: usize,
    width: usize,
    value_width: usize,
}

/// Attention weights of one head: after softmax, and with dropout applied.
struct Weights {
    plain: Vec<f64>,
    dropped: Vec<f32>,
}

impl Attention {
    /// A tensor as (batch, heads, sequence, width).
    fn by_head(&self, tensor: &Tensor, heads: usize) -> Tensor {
        let split = |order: [usize; 3]| {
            let width = tensor.shape[2] / heads;
            let (shape, strides) = (&tensor.shape, &tensor.strides);
            tensor
                .view(
                    vec![shape[order[0]], shape[order[1]], heads, width],
                    vec![strides[order[0]], strides[order[1]], strides[2] * width as isize, strides[2]],
                )
                .permuted(&[0, 2, 1, 3])
        };
        match self.layout.as_str() {
            "BSH" => split([0, 1, 2]),
            "SBH" => split([1, 0, 2]),
            "BSND" => tensor.permuted(&[0, 2, 1, 3]),
            _ => tensor.clone(),
        }
    }

    /// Number of heads of keys and values.
    fn key_heads(&self, query: &Tensor, key: &Tensor) -> usize {
        match self.layout.as_str() {
            "BSH" | "SBH" => key.shape[2] / (query.shape[2] / self.heads),
            "BSND" => key.shape[2],
            _ => key.shape[1],
        }
    }

    fn sizes(&self, query: &Tensor, key: &Tensor, value: &Tensor) -> Sizes {
        Sizes {
            batch: query.shape[0],
            heads: query.shape[1],
            key_heads: key.shape[1],
            queries: query.shape[2],
            keys: key.shape[2],
            width: query.shape[3],
            value_width: value.shape[3],
        }
    }

    /// Whether a query may not see a key by the sparse mode alone: 2 is causal from the upper left corner, 3 from the
    /// lower right one.
    fn is_hidden(&self, sizes: &Sizes, query: usize, key: usize) -> bool {
        match self.sparse_mode {
            2 => key > query,
            3 => key + sizes.queries > query + sizes.keys,
            _ => false,
        }
    }

    /// Elements of an optional (batch, heads, queries, keys) tensor for one head.
    fn of_head(&self, tensor: Option<&Tensor>, sizes: &Sizes, batch: usize, head: usize) -> Option<Vec<f64>> {
        let tensor = tensor?;
        let strides = tensor.broadcast_strides(&[sizes.batch, sizes.heads, sizes.queries, sizes.keys]);
        let all = tensor.view(vec![sizes.batch, sizes.heads, sizes.queries, sizes.keys], strides);
        Some(all.narrowed(0, batch, 1).narrowed(1, head, 1).read())
    }

    fn weights(&self, query: &[f32], key: &[f32], sizes: &Sizes, batch: usize, head: usize) -> Weights {
        let (queries, keys, width) = (sizes.queries, sizes.keys, sizes.width);
        let scores = product_strided(query, (width, 1), key, (1, width), queries, width, keys);
        let explicit = self.mask.as_ref().filter(|_| !matches!(self.sparse_mode, 2 | 3));
        let mask = self.of_head(explicit, sizes, batch, head);
        let bias = self.of_head(self.bias.as_ref(), sizes, batch, head);
        let mut plain: Vec<f64> = scores.into_iter().map(|score| f64::from(score) * self.scale).collect();
        for (index, score) in plain.iter_mut().enumerate() {
            *score += bias.as_ref().map_or(0.0, |bias| bias[index]);
            let masked = mask.as_ref().is_some_and(|mask| mask[index] != 0.0);
            if masked || self.is_hidden(sizes, index / keys, index % keys) {
                *score = f64::NEG_INFINITY;
            }
        }
        for line in plain.chunks_mut(keys.max(1)) {
            if line.iter().all(|score| *score == f64::NEG_INFINITY) {
                line.fill(0.0);
            } else {
                softmax(line, false);
            }
        }
        let bits = self.drop_mask.as_ref().filter(|_| self.keep < 1.0).map(Tensor::read::<i64>);
        let first = (batch * sizes.heads + head) * queries * keys;
        let dropped = plain.iter().enumerate().map(|(index, weight)| match &bits {
            Some(bits) => {
                let bit = first + index;
                if bits[bit / 8] >> (bit % 8) & 1 == 1 { (weight / self.keep) as f32 } else { 0.0 }
            }
            None => *weight as f32,
        });
        let dropped = dropped.collect();
        Weights { plain, dropped }
    }

    fn forward(&self, query: &Tensor, key: &Tensor, value: &Tensor, output: &Tensor) {
        let key_heads = self.key_heads(query, key);
        let (query, output) = (self.by_head(query, self.heads), self.by_head(output, self.heads));
        let (key, value) = (self.by_head(key, key_heads), self.by_head(value, key_heads));
        let sizes = self.sizes(&query, &key, &value);
        for batch in 0..sizes.batch {
            for head in 0..sizes.heads {
                let key_head = head * sizes.key_heads / sizes.heads;
                let keys = of(&key, batch, key_head).read::<f32>();
                let values = of(&value, batch, key_head).read::<f32>();
                let weights = self.weights(&of(&query, batch, head).read::<f32>(), &keys, &sizes, batch, head);
                let (rows, inner, columns) = (sizes.queries, sizes.keys, sizes.value_width);
                let result = product_strided(&weights.dropped, (inner, 1), &values, (columns, 1), rows, inner, columns);
                of(&output, batch, head).write(&result);
            }
        }
    }

    fn backward(&self, [query, key, value]: [&Tensor; 3], gradient: &Tensor, targets: [&Tensor; 3]) {
        let key_heads = self.key_heads(query, key);
        let (query, gradient) = (self.by_head(query, self.heads), self.by_head(gradient, self.heads));
        let (key, value) = (self.by_head(key, key_heads), self.by_head(value, key_heads));
        let to_query = self.by_head(targets[0], self.heads);
        let (to_key, to_value) = (self.by_head(targets[1], key_heads), self.by_head(targets[2], key_heads));
        let sizes = self.sizes(&query, &key, &value);
        let (queries, keys, width, value_width) = (sizes.queries, sizes.keys, sizes.width, sizes.value_width);
        for batch in 0..sizes.batch {
            let mut key_sums = vec![vec![0.0f32; keys * width]; sizes.key_heads];
            let mut value_sums = vec![vec![0.0f32; keys * value_width]; sizes.key_heads];
            for head in 0..sizes.heads {
                let key_head = head * sizes.key_heads / sizes.heads;
                let query_values = of(&query, batch, head).read::<f32>();
                let key_values = of(&key, batch, key_head).read::<f32>();
                let values = of(&value, batch, key_head).read::<f32>();
                let gradients = of(&gradient, batch, head).read::<f32>();
                let weights = self.weights(&query_values, &key_values, &sizes, batch, head);
                let to_values = product_strided(
                    &weights.dropped,
                    (1, keys),
                    &gradients,
                    (value_width, 1),
                    keys,
                    queries,
                    value_width,
                );
                accumulate(&mut value_sums[key_head], &to_values);
                let to_dropped = product_strided(
                    &gradients,
                    (value_width, 1),
                    &values,
                    (1, value_width),
                    queries,
                    value_width,
                    keys,
                );
                let to_scores = self.score_gradients(&weights, &to_dropped, keys);
                let part = product_strided(&to_scores, (keys, 1), &key_values, (width, 1), queries, keys, width);
                of(&to_query, batch, head).write(&part);
                let part = product_strided(&to_scores, (1, keys), &query_values, (width, 1), keys, queries, width);
                accumulate(&mut key_sums[key_head], &part);
            }
            for head in 0..sizes.key_heads {
                of(&to_key, batch, head).write(&key_sums[head]);
                of(&to_value, batch, head).write(&value_sums[head]);
            }
        }
    }

    /// Gradient of the scores before scaling, from that of the weights after dropout.
    fn score_gradients(&self, weights: &Weights, to_dropped: &[f32], keys: usize) -> Vec<f32> {
        let mut result = Vec::with_capacity(to_dropped.len());
        let length = keys.max(1);
        let lines = weights.plain.chunks(length).zip(weights.dropped.chunks(length)).zip(to_dropped.chunks(length));
        for ((plain, dropped), gradient) in lines {
            let to_plain: Vec<f64> = (0..keys)
                .map(|key| {
                    let factor = if self.keep >= 1.0 {
                        1.0
                    } else if dropped[key] != 0.0 {
                        1.0 / self.keep
                    } else {
                        0.0
                    };
                    f64::from(gradient[key]) * factor
                })
                .collect();
            let sum: f64 = plain.iter().zip(&to_plain).map(|(weight, gradient)| weight * gradient).sum();
            let line = plain.iter().zip(&to_plain);
            result.extend(line.map(|(weight, gradient)| (weight * (gradient - sum) * self.scale) as f32));
        }
        result
    }
}

/// The (sequence, width) part of one head.
fn of(tensor: &Tensor, batch: usize, head: usize) -> Tensor {
    tensor.narrowed(0, batch, 1).narrowed(1, head, 1)
}

fn accumulate(sums: &mut [f32], part: &[f32]) {
    sums.iter_mut().zip(part).for_each(|(sum, value)| *sum += value);
}

operators! {
    aclnnFlashAttentionScore(
        query: Tensor, key: Tensor, value: Tensor, bias: Option<Tensor>, drop_mask: Option<Tensor>,
        _padding: Option<Tensor>, mask: Option<Tensor>, _prefix: Option<Vec<i64>>, scale: f64, keep: f64,
        _before: i64, _after: i64, heads: i64, layout: String, _precision: i64, sparse_mode: i64,
        _largest: Option<Tensor>, _sums: Option<Tensor>, _softmax: Option<Tensor>, output: Tensor,
    ) => {
        let attention = Attention { scale, keep, heads: heads as usize, layout, sparse_mode, mask, bias, drop_mask };
        attention.forward(&query, &key, &value, &output)
    };
    aclnnFlashAttentionScoreGrad(
        query: Tensor, key: Tensor, value: Tensor, gradient: Tensor, bias: Option<Tensor>,
        drop_mask: Option<Tensor>, _padding: Option<Tensor>, mask: Option<Tensor>, _largest: Option<Tensor>,
        _sums: Option<Tensor>, _softmax: Option<Tensor>, _output: Option<Tensor>, _prefix: Option<Vec<i64>>,
        scale: f64, keep: f64, _before: i64, _after: i64, heads: i64, layout: String, _precision: i64,
        sparse_mode: i64, to_query: Tensor, to_key: Tensor, to_value: Tensor, _to_bias: Option<Tensor>,
    ) => {
        let attention = Attention { scale, keep, heads: heads as usize, layout, sparse_mode, mask, bias, drop_mask };
        attention.backward([&query, &key, &value], &gradient, [&to_query, &to_key, &to_value])
    };
}
