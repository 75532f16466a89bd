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
            let output = output_index.map_or_else(|| "an output".to_owned(), |index| format!("output {index}"));
            format!("operator '{start}' never ran with {output} on an NPU")
        }
        WatchTarget::Operators { start: None, end, .. } => {
            format!("'{end}' only ends watching, and Python named no block")
        }
        WatchTarget::Automatic { .. } => "no operator was seen on an NPU".to_owned(),
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
        assert_eq!(reason(&operators(Some("nosuch"), None)), "operator 'nosuch' never ran with an output on an NPU");
        assert_eq!(reason(&operators(Some("topk"), Some(7))), "operator 'topk' never ran with output 7 on an NPU");
        assert_eq!(reason(&operators(None, None)), "'sigmoid_' only ends watching, and Python named no block");
    }
}
