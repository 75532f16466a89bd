//! Whether a Python stack is inside a call of one of PyTorch's modules.
//!
//! Such calls say when they begin, and when they have returned or failed. One that is left by a `KeyboardInterrupt` says
//! nothing: PyTorch tells of ordinary errors only. What is allocated then from a stack without any such call shows it.

use msmemscope_event::{CodeId, PythonFrame, StackId};
use msmemscope_trace::Definitions;
use rustc_hash::FxHashMap;

use crate::names::Names;

/// Through which file all calls of modules go.
const CALLING_FILE: &str = "torch/nn/modules/module.py";

/// What is known of stacks that have been looked at.
#[derive(Debug, Default)]
pub(crate) struct ModuleFrames {
    stacks: FxHashMap<StackId, bool>,
    codes: FxHashMap<CodeId, bool>,
}

impl ModuleFrames {
    /// Whether the stack is known from end to end, and no module is being called in it.
    pub(crate) fn is_outside(&mut self, stack: StackId, names: &dyn Names) -> bool {
        if let Some(known) = self.stacks.get(&stack) {
            return *known;
        }
        let Some(definitions) = names.definitions().filter(|_| stack.is_some()) else { return false };
        let Some(frames) = definitions.python_stack(stack) else { return false };
        let is_whole = !frames.is_empty() && !definitions.python_stack_is_cut(stack);
        let is_outside = is_whole && !frames.iter().any(|frame| self.calls_modules(frame, definitions));
        self.stacks.insert(stack, is_outside);
        is_outside
    }

    fn calls_modules(&mut self, frame: &PythonFrame, definitions: &Definitions) -> bool {
        *self.codes.entry(frame.code).or_insert_with(|| {
            // Where the file is not known it may be any.
            definitions.code(frame.code).is_none_or(|code| definitions.string(code.file).ends_with(CALLING_FILE))
        })
    }
}
