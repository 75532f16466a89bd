//! Which operator a user means.
//!
//! PyTorch's operators are recorded as `torch._ops.aten.add.Tensor`. Users also write
//! `aten::add.Tensor`, `aten::add` or `add`; without an overload all of them are meant. Names of other
//! frameworks are paths; what stands before the first slash names the process, so it may be left out.
//!
//! Kernels are called `Add_<32 digits>_8`: the kind of operator, the hash of its binary and the key of its tiling, with
//! an end such as `_mix_aic` for some. Users may leave out all that comes behind the kind, or behind the hash.

/// What a user wrote, ready for comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorPattern {
    written: String,
    plain: String,
}

fn plain(name: &str) -> String {
    name.strip_prefix("torch._ops.").unwrap_or(name).replace("::", ".")
}

impl OperatorPattern {
    /// A pattern for what the user wrote.
    pub fn new(written: &str) -> Self {
        Self { written: written.to_owned(), plain: plain(written) }
    }

    /// Whether the user names an operator by its path, as libraries do that have operators inside of operators.
    pub fn is_path(&self) -> bool {
        self.written.contains('/')
    }

    /// Whether the user means this operator.
    pub fn matches(&self, operator: &str) -> bool {
        if operator == self.written || operator.split_once('/').is_some_and(|(_, path)| path == self.written) {
            return true;
        }
        if operator.contains('/') {
            return false;
        }
        let plain = plain(operator);
        let without_namespace = |name: &str| name.split_once('.').is_some_and(|(_, rest)| rest == self.plain);
        let without_overload = plain.rsplit_once('.').map_or("", |(base, _)| base);
        plain == self.plain
            || without_namespace(&plain)
            || without_overload == self.plain
            || without_namespace(without_overload)
    }

    /// Whether the user means this kernel.
    pub fn matches_kernel(&self, kernel: &str) -> bool {
        const HASH_DIGITS: usize = 32;
        let is_hash = |part: &str| part.len() == HASH_DIGITS && part.bytes().all(|digit| digit.is_ascii_hexdigit());
        let hash = kernel.split('_').find(|part| is_hash(part));
        let place = hash.and_then(|hash| Some((kernel.find(hash)?, hash.len())));
        kernel == self.written
            || place.is_some_and(|(start, length)| {
                kernel[..start].trim_end_matches('_') == self.written || kernel[..start + length] == self.written
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_usual_spelling_is_understood() {
        let operator = "torch._ops.aten.add.Tensor";
        for written in [
            "torch._ops.aten.add.Tensor",
            "torch._ops.aten.add",
            "aten::add.Tensor",
            "aten.add.Tensor",
            "add.Tensor",
            "aten::add",
            "add",
        ] {
            assert!(OperatorPattern::new(written).matches(operator), "{written}");
        }
        for written in ["aten", "Tensor", "aten::add.Scalar", "add_", "dd", ""] {
            assert!(!OperatorPattern::new(written).matches(operator), "{written}");
        }
    }

    #[test]
    fn kernels_are_meant_by_kind_binary_or_full_name() {
        let kernel = "MatMulV2_0123456789abcdef0123456789abcdef_21_mix_aic";
        for written in [kernel, "MatMulV2", "MatMulV2_0123456789abcdef0123456789abcdef"] {
            assert!(OperatorPattern::new(written).matches_kernel(kernel), "{written}");
        }
        for written in ["MatMul", "MatMulV2_", "matmulv2", "21", "", "MatMulV2_0123456789abcdef0123456789abcdef_2"] {
            assert!(!OperatorPattern::new(written).matches_kernel(kernel), "{written}");
        }
        assert!(OperatorPattern::new("Cast").matches_kernel("Cast"));
        assert!(!OperatorPattern::new("Cast").matches_kernel("Cast_8"));
    }

    #[test]
    fn paths_are_compared_as_a_whole() {
        let pattern = OperatorPattern::new("token0/layer0/op0");
        assert!(pattern.matches("0_123/token0/layer0/op0"));
        assert!(pattern.matches("token0/layer0/op0"));
        assert!(!pattern.matches("0_123/token0/layer0/op1"));
        assert!(!OperatorPattern::new("op0").matches("token0/layer0/op0"));
    }
}
