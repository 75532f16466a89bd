//! Says why nothing was watched although somebody asked for it: a misspelt operator must not look like a clean result.

use msmemscope_config::{SettingsChange, Watch, WatchTarget};
use msmemscope_import::Recording;

use crate::scopes::Scopes;

/// What a recording was to watch, if anything.
pub fn wanted(recording: &Recording) -> Option<Watch> {
    match recording {
        Recording::Trace { trace, .. } => Scopes::of(trace.definitions(), &SettingsChange::default()).settings.watch,
        Recording::Process(_) => None,
    }
}

/// Why nothing was watched, as part of a sentence.
pub fn reason(watch: &Watch) -> String {
    match &watch.target {
        WatchTarget::Operators { start: Some(start), output_index, .. } => {
            let output = output_index.map_or_else(|| "output".to_owned(), |index| format!("output {index}"));
            format!("operator '{start}' had no {output} on an NPU that could be watched")
        }
        WatchTarget::Operators { start: None, end, .. } => {
            format!("'{end}' only ends watching, and Python named no block")
        }
        WatchTarget::Automatic { .. } => "no operator of PyTorch was seen on an NPU".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operator_is_named() {
        let operators = |start: Option<&str>, output_index| Watch {
            target: WatchTarget::Operators { start: start.map(str::to_owned), output_index, end: "sigmoid_".into() },
            full_content: false,
        };
        let reasons =
            [("nosuch", None), ("topk", Some(7))].map(|(start, index)| reason(&operators(Some(start), index)));
        let expected = ["operator 'nosuch' had no output", "operator 'topk' had no output 7"];
        assert_eq!(reasons, expected.map(|start| format!("{start} on an NPU that could be watched")));
        assert_eq!(reason(&operators(None, None)), "'sigmoid_' only ends watching, and Python named no block");
    }
}
