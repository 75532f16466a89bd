//! Call stacks with names: the usual way to print them.

use msmemscope_event::StackId;
use msmemscope_symbols::{ModuleState, Symbols};
use msmemscope_trace::Trace;

use crate::stacks::StackFormatter;

/// Prints the stacks of a recording with the names of functions, files and lines.
pub struct SymbolStacks<'a> {
    symbols: Symbols<'a>,
    native: bool,
    python: bool,
}

impl<'a> SymbolStacks<'a> {
    /// For a recording; kinds of stacks that are not wanted stay empty.
    pub fn new(trace: &'a Trace, native: bool, python: bool) -> Self {
        Self { symbols: Symbols::new(trace.definitions(), trace.wall_offset_ns()), native, python }
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
        if self.python {
            self.symbols.print_python(stack, out);
        }
    }
}
