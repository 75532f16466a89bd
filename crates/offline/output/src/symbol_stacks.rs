//! Call stacks with names: the usual way to print them.

use msmemscope_event::StackId;
use msmemscope_symbols::{ModuleState, Symbols};
use msmemscope_trace::Trace;

use crate::stacks::StackFormatter;

/// Prints the stacks of a recording with the names of functions, files and lines.
pub struct SymbolStacks<'a> {
    symbols: Symbols<'a>,
    native: bool,
    python_depth: Option<u16>,
}

impl<'a> SymbolStacks<'a> {
    /// For a recording; kinds of stacks that are not wanted stay empty. Allocations may have more Python
    /// frames than the user wants to see.
    pub fn new(trace: &'a Trace, native: bool, python_depth: Option<u16>) -> Self {
        Self { symbols: Symbols::new(trace.definitions(), trace.wall_offset_ns()), native, python_depth }
    }

    /// What people should know about the names printed so far.
    pub fn notes(&self) -> Vec<String> {
        let describe = |(path, state)| match state {
            ModuleState::Changed => {
                format!("{path} has changed since the recording: its frames have offsets instead of names")
            }
            _ => format!("{path} is not there any more: its frames have offsets instead of names"),
        };
        self.symbols.doubtful_modules().into_iter().map(describe).collect()
    }
}

impl StackFormatter for SymbolStacks<'_> {
    fn native(&self, stack: StackId, _timestamp_ns: u64, out: &mut String) {
        if self.native {
            self.symbols.print_native(stack, out);
        }
    }

    fn python(&self, stack: StackId, _timestamp_ns: u64, out: &mut String) {
        if let Some(depth) = self.python_depth {
            let start = out.len();
            self.symbols.print_python(stack, out);
            keep_lines(out, start, usize::from(depth));
        }
    }
}

/// Cuts what follows `start` after its first `count` lines.
fn keep_lines(text: &mut String, start: usize, count: usize) {
    let kept_bytes: usize = text[start..].split_inclusive('\n').take(count).map(str::len).sum();
    text.truncate(start + kept_bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_wanted_lines_stay() {
        let kept = |count| {
            let mut text = "before\na\nb\nc\n".to_owned();
            keep_lines(&mut text, "before\n".len(), count);
            text
        };
        assert_eq!(kept(0), "before\n");
        assert_eq!(kept(2), "before\na\nb\n");
        assert_eq!(kept(9), "before\na\nb\nc\n");
    }
}
