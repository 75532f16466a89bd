//! Call stacks with names: the usual way to print them.

use msmemscope_event::StackId;
use msmemscope_symbols::{ModuleState, Symbols};
use msmemscope_trace::Trace;

use crate::stacks::StackFormatter;

/// What is printed of stacks from some time on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShownStacks {
    /// From when on, on the clock of the recording.
    pub begin_monotonic_ns: u64,
    /// Whether native stacks are.
    pub native: bool,
    /// How many frames of Python stacks. Allocations may have more than the user wants to see.
    pub python_depth: Option<u16>,
}

/// Prints the stacks of a recording with the names of functions, files and lines.
pub struct SymbolStacks<'a> {
    symbols: Symbols<'a>,
    wall_offset_ns: i64,
    shown: Vec<ShownStacks>,
}

impl<'a> SymbolStacks<'a> {
    /// For a recording; what is shown may change while it goes on. The first in `shown` holds from its begin on.
    pub fn new(trace: &'a Trace, shown: Vec<ShownStacks>) -> Self {
        let wall_offset_ns = trace.wall_offset_ns();
        Self { symbols: Symbols::new(trace.definitions(), wall_offset_ns), wall_offset_ns, shown }
    }

    fn shown_at(&self, timestamp_ns: u64) -> ShownStacks {
        self.shown.get(self.way(timestamp_ns)).copied().unwrap_or_default()
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
    fn native(&self, stack: StackId, timestamp_ns: u64, out: &mut String) {
        if self.shown_at(timestamp_ns).native {
            self.symbols.print_native(stack, out);
        }
    }

    fn python(&self, stack: StackId, timestamp_ns: u64, out: &mut String) {
        if let Some(depth) = self.shown_at(timestamp_ns).python_depth {
            let start = out.len();
            self.symbols.print_python(stack, out);
            keep_lines(out, start, usize::from(depth));
        }
    }

    fn way(&self, timestamp_ns: u64) -> usize {
        let later = self.shown.get(1..).unwrap_or_default();
        let began =
            |shown: &ShownStacks| shown.begin_monotonic_ns.saturating_add_signed(self.wall_offset_ns) <= timestamp_ns;
        later.partition_point(began)
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
