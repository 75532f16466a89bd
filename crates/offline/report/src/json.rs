//! Answers for programs: the findings as they are, with the sentences that belong to them.

use msmemscope_analysis::Answers;
use serde_json::{Value, json};

use crate::verdict::reason;

/// All answers about one process.
pub fn answers(answers: &Answers) -> Value {
    let mut value = json!(answers);
    if let Some(rank) = answers.place.rank {
        value["rank"] = json!(rank);
    }
    let failures = answers.out_of_memory.iter().flat_map(|report| &report.details);
    for (index, failure) in failures.enumerate() {
        let reason = reason(failure);
        let told = &mut value["out_of_memory"]["details"][index];
        told["explanation"] = json!(reason.explanation);
        told["advice"] = json!(reason.advice);
    }
    value
}
