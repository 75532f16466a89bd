//! Which operator a user means.
//!
//! PyTorch's operators are recorded as `torch._ops.aten.add.Tensor`. Users also write
//! `aten::add.Tensor`, `aten::add` or `add`; without an overload all of them are meant. Names of other
//! frameworks are paths; what stands before the first slash names the process, so it may be left out.

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
    fn paths_are_compared_as_a_whole() {
        let pattern = OperatorPattern::new("token0/layer0/op0");
        assert!(pattern.matches("0_123/token0/layer0/op0"));
        assert!(pattern.matches("token0/layer0/op0"));
        assert!(!pattern.matches("0_123/token0/layer0/op1"));
        assert!(!OperatorPattern::new("op0").matches("token0/layer0/op0"));
    }
}
