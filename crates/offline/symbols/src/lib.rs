//! Names for recorded stacks, offline: functions, files and lines of native frames, lines of Python
//! frames. Works days later and on another day's files, and says where those have changed.
//!
//! [`Symbols`] prints stacks one frame per line, innermost first:
//!
//! * native: `path(function+0x12) [0x7f0011223344] file:line`, as `backtrace_symbols` does, with file
//!   and line where debug information knows them; `path(+0x1234) [0x...]` without a symbol;
//!   functions inlined at the address come first, marked as such;
//! * Python: `file(line): function`.
#![forbid(unsafe_code)]

mod debug_files;
mod lines;
mod native;
mod python_lines;

use std::fmt::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use msmemscope_event::{PythonFrame, StackId};
use msmemscope_trace::{Definitions, Module, PythonCode};

pub use debug_files::{ModuleState, SYSTEM_DEBUG_DIRECTORY};
pub use native::{Function, Place};
pub use python_lines::line_of_instruction;

use lines::Lines;
use native::NativeSymbols;

/// The frame that stands for "further frames could not be found".
pub const UNKNOWN_OUTER_FRAMES: u64 = 0;

/// Where the package observes accesses, between an operator and its caller, and where it takes snapshots.
const OBSERVER_FILES: [&str; 2] = ["msmemscope/_torch/operators.py", "msmemscope/_snapshot.py"];
/// Files of PyTorch whose functions call the observer.
const OBSERVER_CALLERS: [&str; 2] = ["torch/_dynamo/eval_frame.py", "torch/_compile.py"];
/// The observer calls the operator through at most this many frames.
const DEEPEST_OBSERVER_FRAME: usize = 3;

/// A frame of a native stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NativeFrame {
    /// Return address at run time.
    pub address: u64,
    /// Path of the module; nothing if the address was in none.
    pub module_path: Option<String>,
    /// Address in the module's file.
    pub file_address: u64,
    /// What is there; nothing if the address was in no module.
    pub place: Option<Arc<Place>>,
}

/// Names of everything in the stacks of one recording.
pub struct Symbols<'a> {
    definitions: &'a Definitions,
    wall_offset_ns: i64,
    native: Mutex<NativeSymbols>,
    /// Frames that were printed before, which most frames of new stacks are.
    lines: Mutex<Lines>,
}

impl<'a> Symbols<'a> {
    /// Symbols for a recording whose clock is `wall_offset_ns` behind the wall clock, with debug files
    /// from where the system puts them.
    pub fn new(definitions: &'a Definitions, wall_offset_ns: i64) -> Self {
        Self::with_debug_directories(definitions, wall_offset_ns, vec![PathBuf::from(SYSTEM_DEBUG_DIRECTORY)])
    }

    /// The same with debug files from other directories.
    pub fn with_debug_directories(
        definitions: &'a Definitions,
        wall_offset_ns: i64,
        directories: Vec<PathBuf>,
    ) -> Self {
        let (native, lines) =
            (Mutex::new(NativeSymbols::new(directories)), Mutex::new(Lines::of(definitions.modules())));
        Self { definitions, wall_offset_ns, native, lines }
    }

    /// One frame of a native stack that was defined at a time of the recording's clock.
    pub fn native_frame(&self, return_address: u64, monotonic_ns: u64) -> NativeFrame {
        let Some(module) = self.definitions.module_at(return_address, monotonic_ns) else {
            return NativeFrame {
                address: return_address,
                module_path: None,
                file_address: return_address,
                place: None,
            };
        };
        NativeFrame {
            address: return_address,
            module_path: Some(self.module_path(module)),
            file_address: return_address.wrapping_sub(module.load_bias),
            place: Some(self.native().place(self.definitions, module, return_address, self.wall_offset_ns)),
        }
    }

    /// What is looked up is complete after every step, so a panic elsewhere does no harm.
    fn native(&self) -> MutexGuard<'_, NativeSymbols> {
        self.native.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn module_path(&self, module: &Module) -> String {
        self.definitions.string(module.path).into_owned()
    }

    /// Appends the text of a native stack, one line per frame.
    pub fn print_native(&self, stack: StackId, out: &mut String) {
        let Some((frames, defined_ns)) = self.definitions.native_stack_with_time(stack) else {
            if stack.is_some() {
                let _ = writeln!(out, "<stack {} is missing>", stack.0);
            }
            return;
        };
        let mut lines = self.lines();
        for &address in frames {
            if address == UNKNOWN_OUTER_FRAMES {
                out.push_str("<outer frames unknown>\n");
                continue;
            }
            out.push_str(lines.native(
                address,
                || self.definitions.module_at(address, defined_ns),
                |line| print_native_frame(&self.native_frame(address, defined_ns), line),
            ));
        }
    }

    /// As with symbols, a panic elsewhere leaves nothing half.
    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many of the innermost frames are there only because accesses were being observed: those of
    /// the observer, and of what calls it and is called by it.
    fn observer_frames(&self, frames: &[PythonFrame]) -> usize {
        let is_in = |frame: &PythonFrame, files: &[&str]| {
            self.definitions.code(frame.code).is_some_and(|code| {
                let file = self.definitions.string(code.file);
                files.iter().any(|ending| file.ends_with(ending))
            })
        };
        let innermost = frames.iter().take(DEEPEST_OBSERVER_FRAME);
        let mut numbered = innermost.enumerate();
        let Some(observer) = numbered.rfind(|(_, frame)| is_in(frame, &OBSERVER_FILES)) else {
            return 0;
        };
        let above = &frames[observer.0 + 1..];
        observer.0 + 1 + above.iter().take_while(|frame| is_in(frame, &OBSERVER_CALLERS)).count()
    }

    /// Appends the text of a Python stack, one line per frame. Frames of our own are left out.
    pub fn print_python(&self, stack: StackId, out: &mut String) {
        let Some(frames) = self.definitions.python_stack(stack) else {
            if stack.is_some() {
                let _ = writeln!(out, "<stack {} is missing>", stack.0);
            }
            return;
        };
        let mut lines = self.lines();
        for frame in &frames[self.observer_frames(frames)..] {
            out.push_str(lines.python(*frame, |line| match self.definitions.code(frame.code) {
                Some(code) => self.print_python_frame(code, frame.instruction_offset, line),
                None => {
                    let _ = writeln!(line, "<code object {} is missing>", frame.code.0);
                }
            }));
        }
    }

    fn print_python_frame(&self, code: &PythonCode, instruction_offset: u32, out: &mut String) {
        let line = line_of_instruction(code.python_version, &code.line_table, code.first_line, instruction_offset);
        let (file, name) = (self.definitions.string(code.file), self.definitions.string(code.name));
        let _ = writeln!(out, "{file}({}): {name}", line.unwrap_or(code.first_line));
    }

    /// Modules met so far whose file is not what was recorded, for a note to people.
    pub fn doubtful_modules(&self) -> Vec<(String, ModuleState)> {
        let mut modules: Vec<_> =
            self.native().doubtful_modules().map(|(path, state)| (path.into_owned(), state)).collect();
        modules.sort_by(|left, right| left.0.cmp(&right.0));
        modules
    }
}

/// Appends the lines of one native frame.
fn print_native_frame(frame: &NativeFrame, out: &mut String) {
    let (Some(path), Some(place)) = (&frame.module_path, &frame.place) else {
        let _ = writeln!(out, "[{:#x}]", frame.address);
        return;
    };
    for function in &place.functions {
        out.push_str(path);
        match (&function.name, function.offset_bytes) {
            (Some(name), _) if function.is_inlined => {
                let _ = write!(out, "({name} inlined)");
            }
            (Some(name), Some(offset)) => {
                let _ = write!(out, "({name}+{offset:#x})");
            }
            (Some(name), None) => {
                let _ = write!(out, "({name})");
            }
            (None, _) => {
                let _ = write!(out, "(+{:#x})", frame.file_address);
            }
        }
        let _ = write!(out, " [{:#x}]", frame.address);
        match (&function.file, function.line) {
            (Some(file), Some(line)) => {
                let _ = write!(out, " {file}:{line}");
            }
            (Some(file), None) => {
                let _ = write!(out, " {file}");
            }
            _ => {}
        }
        out.push_str(match place.module_state {
            ModuleState::Same => "",
            ModuleState::Changed => " <module changed since>",
            ModuleState::Missing => " <module missing now>",
        });
        out.push('\n');
    }
}
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_can_be_shared_by_threads() {
        fn shareable<T: Send + Sync>() {}
        shareable::<Symbols<'_>>();
    }
}
