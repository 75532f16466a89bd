//! How findings get names: texts, frames and owners of a recording.

use std::cell::OnceCell;

use msmemscope_event::{ProcessInfoKey, PythonFrame, StackId, StringId};
use msmemscope_import::Recording;
use msmemscope_symbols::{Symbols, UNKNOWN_OUTER_FRAMES, line_of_instruction};
use msmemscope_timeline::{FactSource, TimelineEvent};
use msmemscope_trace::Definitions;
use rustc_hash::FxHashSet;
use serde::Serialize;

use crate::allocator_lines::{allocator_lines, stacks_of_allocations};
use crate::installation::{Installation, Origin};
use crate::situation::{LiveBlock, Situation};

/// What dump files write where outer frames could not be found.
const UNKNOWN_OUTER_FRAMES_TEXT: &str = "<outer frames unknown>";

/// What stands for the line where no call stack was recorded.
pub const NO_STACK: &str = "no call stack recorded";

/// One frame of a call stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Frame {
    /// Function.
    pub function: String,
    /// Source file or library; empty if not known.
    pub file: String,
    /// Line, zero if not known.
    pub line: u32,
    /// Whose code it is.
    #[serde(skip)]
    pub origin: Origin,
}

impl Frame {
    /// `file:line function` as far as known.
    pub fn describe(&self) -> String {
        match (self.file.is_empty(), self.line) {
            (true, _) => self.function.clone(),
            (false, 0) => format!("{} {}", self.file, self.function),
            (false, line) => format!("{}:{line} {}", self.file, self.function),
        }
    }
}

/// Gives things their names.
pub trait Names {
    /// An interned text.
    fn text(&self, id: StringId) -> String;

    /// Frames of a Python stack, innermost first.
    fn python_frames(&self, stack: StackId) -> Vec<Frame>;

    /// Whether a Python stack goes on further out than was recorded.
    fn python_stack_is_cut(&self, _stack: StackId) -> bool {
        false
    }

    /// Frames of a native stack, innermost first. The time is that of an event with this stack.
    fn native_frames(&self, stack: StackId, timestamp_ns: u64) -> Vec<Frame>;

    /// Whether a native frame of the program is one through which everything in it allocates.
    fn is_allocator(&self, _frame: &Frame) -> bool {
        false
    }

    /// Strings of the recording, for who has to put names together.
    fn definitions(&self) -> Option<&Definitions>;

    /// Number of the owner that the file states for an allocation; zero if it states none.
    fn stated_owner_id(&self, allocation_id: u64) -> u32;

    /// The owner with a number.
    fn stated_owner(&self, owner_id: u32) -> Option<String>;

    /// What the source calls an allocation: the `ID` of its row in a dump, else its number.
    fn row_id(&self, allocation_id: u64) -> u64;

    /// Variables that tell the framework how to allocate, `NAME=value` each on a line.
    fn allocator_settings(&self) -> Option<String> {
        None
    }
}

/// Names of one recording. Symbols are looked up when they are asked for, not before.
pub struct RecordingNames<'a> {
    recording: &'a Recording,
    symbols: Symbols<'a>,
    installation: Installation,
    /// Made when a stack without Python is named.
    allocator_lines: OnceCell<FxHashSet<Frame>>,
}

impl<'a> RecordingNames<'a> {
    /// Names of a recording.
    pub fn new(recording: &'a Recording) -> Self {
        let symbols = Symbols::new(recording.definitions(), recording.wall_offset_ns());
        let installation = Installation::of(recording.definitions());
        Self { recording, symbols, installation, allocator_lines: OnceCell::new() }
    }

    fn find_allocator_lines(&self) -> FxHashSet<Frame> {
        let of_program = |stack: StackId| -> Vec<Frame> {
            let frames = self.native_frames(stack, self.time_of_stack(stack));
            frames.into_iter().filter(|frame| frame.origin == Origin::Program).collect()
        };
        let stacks = stacks_of_allocations(self.recording);
        allocator_lines(&stacks.into_iter().map(of_program).collect::<Vec<_>>())
    }

    /// A time at which the stack was there, on the clock of events.
    fn time_of_stack(&self, stack: StackId) -> u64 {
        let defined_ns = self.recording.definitions().native_stack_with_time(stack).map_or(0, |(_, defined)| defined);
        defined_ns.wrapping_add_signed(self.recording.wall_offset_ns())
    }
}

/// Frames of a native stack that a file states as text, one per line: `module(function+0x12) [0x1234] file:line`,
/// with less where less was known. Lines of another kind are kept as they are.
fn stated_frames(text: &str, installation: &Installation) -> Vec<Frame> {
    let frame = |line: &str| {
        stated_frame(line, installation).unwrap_or_else(|| Frame {
            function: line.to_owned(),
            origin: Origin::Framework,
            ..Frame::default()
        })
    };
    text.lines().map(str::trim).filter(|line| *line != UNKNOWN_OUTER_FRAMES_TEXT).map(frame).collect()
}

fn stated_frame(line: &str, installation: &Installation) -> Option<Frame> {
    let (place, rest) = line.rsplit_once(" [0x")?;
    let (module, function) = place.strip_suffix(')')?.split_once('(')?;
    let function = function.strip_suffix(" inlined").unwrap_or(function);
    let function = match function.rsplit_once("+0x") {
        Some((name, _)) if !name.is_empty() => name,
        _ => function,
    };
    let source = rest.split_once("] ").map_or("", |(_, source)| source.split(" <").next().unwrap_or(source));
    let (file, line) = match source.rsplit_once(':').and_then(|(file, line)| Some((file, line.parse().ok()?))) {
        Some((file, line)) => (file, line),
        None => (source, 0),
    };
    let source = Some(file).filter(|file| !file.is_empty());
    let origin = installation.of_native(module, source, function);
    Some(Frame { function: function.to_owned(), file: source.unwrap_or(module).to_owned(), line, origin })
}

impl Names for RecordingNames<'_> {
    fn text(&self, id: StringId) -> String {
        self.recording.definitions().string(id).into_owned()
    }

    fn python_frames(&self, stack: StackId) -> Vec<Frame> {
        let definitions = self.recording.definitions();
        let frames = definitions.python_stack(stack).unwrap_or_default();
        let named = |frame: &PythonFrame| {
            let code = definitions.code(frame.code)?;
            let line =
                line_of_instruction(code.python_version, &code.line_table, code.first_line, frame.instruction_offset);
            let file = definitions.string(code.file).into_owned();
            let origin = self.installation.of_python(&file);
            let function = definitions.string(code.name).into_owned();
            Some(Frame { function, file, line: line.unwrap_or(code.first_line), origin })
        };
        frames.iter().filter_map(named).collect()
    }

    fn python_stack_is_cut(&self, stack: StackId) -> bool {
        self.recording.definitions().python_stack_is_cut(stack)
    }

    fn native_frames(&self, stack: StackId, timestamp_ns: u64) -> Vec<Frame> {
        if let Some(text) = self.recording.stated_stack(stack) {
            return stated_frames(text, &self.installation);
        }
        let monotonic_ns = timestamp_ns.wrapping_sub(self.recording.wall_offset_ns() as u64);
        let addresses = self.recording.definitions().native_stack(stack).unwrap_or_default();
        let mut frames = Vec::new();
        for &address in addresses.iter().filter(|address| **address != UNKNOWN_OUTER_FRAMES) {
            let frame = self.symbols.native_frame(address, monotonic_ns);
            let library = frame.module_path.unwrap_or_default();
            let functions = frame.place.as_ref().map_or(&[][..], |place| &place.functions);
            if functions.is_empty() {
                let origin = self.installation.of_native(&library, None, "");
                frames.push(Frame { function: format!("{address:#x}"), file: library, line: 0, origin });
                continue;
            }
            frames.extend(functions.iter().map(|function| {
                let name = function.name.clone().unwrap_or_else(|| format!("+{:#x}", frame.file_address));
                Frame {
                    origin: self.installation.of_native(&library, function.file.as_deref(), &name),
                    function: name,
                    file: function.file.clone().unwrap_or_else(|| library.clone()),
                    line: function.line.unwrap_or(0),
                }
            }));
        }
        frames
    }

    fn is_allocator(&self, frame: &Frame) -> bool {
        frame.origin.is_program() && self.allocator_lines.get_or_init(|| self.find_allocator_lines()).contains(frame)
    }

    fn definitions(&self) -> Option<&Definitions> {
        Some(self.recording.definitions())
    }

    fn stated_owner_id(&self, allocation_id: u64) -> u32 {
        match self.recording {
            Recording::Trace { .. } => 0,
            Recording::Process(process) => process.owner_id(allocation_id),
        }
    }

    fn stated_owner(&self, owner_id: u32) -> Option<String> {
        match self.recording {
            Recording::Trace { .. } => None,
            Recording::Process(process) => process.owner_text(owner_id).map(str::to_owned),
        }
    }

    fn allocator_settings(&self) -> Option<String> {
        let text = self.recording.definitions().process_information(ProcessInfoKey::AllocatorSettings)?;
        Some(String::from_utf8_lossy(text).into_owned())
    }

    fn row_id(&self, allocation_id: u64) -> u64 {
        match self.recording {
            Recording::Trace { .. } => allocation_id,
            Recording::Process(process) => process.row_id(allocation_id).unwrap_or(allocation_id),
        }
    }
}

/// Where blocks come from: blocks of one site are one finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Site {
    /// A Python stack.
    Python(StackId),
    /// A native stack, where there is no Python stack.
    Native(StackId),
    /// Nothing but the operator, or else the kernel, and the size.
    Bare {
        /// The operator, if one was running.
        operator: StringId,
        /// The kernel launched before, if operators are not known.
        kernel: StringId,
        /// The size.
        size_bytes: u64,
    },
}

impl Site {
    /// The site of a block.
    #[inline]
    pub fn of(block: &LiveBlock) -> Self {
        match Self::from_parts(block.python_stack, block.native_stack, block.operator, block.size_bytes) {
            Site::Bare { operator, size_bytes, .. } if !operator.is_some() => {
                Site::Bare { operator, kernel: block.kernel, size_bytes }
            }
            site => site,
        }
    }

    /// The site told by these.
    #[inline]
    pub fn from_parts(python: StackId, native: StackId, operator: StringId, size_bytes: u64) -> Self {
        if python.is_some() {
            Site::Python(python)
        } else if native.is_some() {
            Site::Native(native)
        } else {
            Site::Bare { operator, kernel: StringId::NONE, size_bytes }
        }
    }
}

/// The calls that led to a block, before they are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Calls {
    /// The thread's own Python stack.
    pub python: StackId,
    /// The Python stack that called for a backward pass, for what autograd's threads allocate.
    pub caller: StackId,
    /// The native stack.
    pub native: StackId,
    /// The operator that ran.
    pub operator: StringId,
}

impl Calls {
    /// Those of a block.
    pub fn of(block: &LiveBlock) -> Self {
        Self {
            python: block.python_stack,
            caller: block.caller_stack,
            native: block.native_stack,
            operator: block.operator,
        }
    }

    /// Those of an event, without its operator.
    pub fn of_event(event: &TimelineEvent, situation: &Situation) -> Self {
        Self {
            python: event.python_stack,
            caller: situation.caller_stack(event),
            native: event.native_stack,
            operator: StringId::NONE,
        }
    }

    /// Whether there is a stack among them.
    pub fn has_stack(&self) -> bool {
        [self.python, self.caller, self.native].into_iter().any(StackId::is_some)
    }

    /// Their names; the time is that of an event with these stacks. Where autograd's own thread has no line of the
    /// program, it is the line that called for the backward pass.
    pub fn named(&self, timestamp_ns: u64, names: &dyn Names) -> SiteText {
        let named = |python| SiteText::of_stacks(python, self.native, self.operator, timestamp_ns, names);
        let own = named(self.python);
        let is_of_autograd = self.caller.is_some() && own.user_frame().is_none();
        if is_of_autograd { named(self.caller) } else { own }
    }
}

/// A site with its names, for reports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SiteText {
    /// The line of user code, or the best there is.
    pub line: String,
    /// The operator that ran, if one did.
    pub operator: String,
    /// Where that is in its graph, for libraries whose operators are parts of graphs.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub operator_place: String,
    /// The kernel that was launched last before, if kernels were recorded.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kernel: String,
    /// Who owns the blocks.
    pub owner: String,
    /// Python frames, innermost first.
    pub python: Vec<Frame>,
    /// Native frames, innermost first.
    pub native: Vec<Frame>,
    /// Whether the Python stack goes on further out than was recorded.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub outer_frames_missing: bool,
}

/// The innermost frame that is the user's own code: of the program, where it says who allocates if that can be
/// had, or else of an installed package that is no framework.
pub fn user_frame(frames: &[Frame]) -> Option<&Frame> {
    let innermost = |origin| frames.iter().find(|frame| frame.origin == origin);
    [Origin::Program, Origin::Allocator, Origin::Package].into_iter().find_map(innermost)
}

/// The frames worth showing, innermost first: the user's own, or all but this tool's and the interpreter's if
/// there are none.
pub fn telling_frames(frames: &[Frame]) -> Vec<&Frame> {
    let of = |origins: &[Origin]| frames.iter().filter(|frame| origins.contains(&frame.origin)).collect::<Vec<_>>();
    let own = of(&[Origin::Program, Origin::Allocator]);
    match own.is_empty() {
        true => of(&[Origin::Package, Origin::Framework]),
        false => own,
    }
}

/// The innermost frame of a framework. Those of the interpreter and of the system say nothing.
fn library_frame(frames: &[Frame]) -> Option<&Frame> {
    frames.iter().find(|frame| frame.origin == Origin::Framework)
}

/// The function of the interpreter that runs Python code: what is inside it was called by that code.
fn is_evaluation(frame: &Frame) -> bool {
    frame.function.starts_with("_PyEval_EvalFrame")
}

/// The interpreter's way from Python code to native code.
fn is_interpreter(frame: &Frame) -> bool {
    frame.function.starts_with("_Py") || frame.function.starts_with("Py") || frame.file.contains("libpython")
}

impl SiteText {
    /// Whether anything is known about the place.
    pub fn is_known(&self) -> bool {
        !self.python.is_empty() || !self.native.is_empty() || !self.operator.is_empty()
    }

    /// Python and native frames in one, outermost first, and whether each is Python's: behind the innermost Python frame
    /// comes what native code did on its behalf.
    pub fn whole_stack(&self) -> Vec<(&Frame, bool)> {
        let mut stack: Vec<(&Frame, bool)> = self.python.iter().rev().map(|frame| (frame, true)).collect();
        let inner: Vec<&Frame> = match stack.is_empty() {
            true => self.native.iter().collect(),
            false => {
                let of_code = self.native.iter().take_while(|frame| !is_evaluation(frame));
                of_code.filter(|frame| !is_interpreter(frame)).collect()
            }
        };
        stack.extend(inner.into_iter().rev().map(|frame| (frame, false)));
        stack
    }

    /// Names of the site of a block.
    pub fn of(block: &LiveBlock, situation: &Situation, names: &dyn Names) -> Self {
        let owner = situation.owner_text(block.owner, names).unwrap_or_default();
        let site = Calls::of(block).named(block.timestamp_ns, names);
        let kernel = if block.kernel.is_some() { names.text(block.kernel) } else { String::new() };
        let is_all_there_is = !kernel.is_empty() && site.frame().is_none() && site.operator.is_empty();
        let line = if is_all_there_is { format!("after kernel {kernel}") } else { site.line };
        let operator_place = situation.operator_place(block).to_owned();
        Self { owner, kernel, line, operator_place, ..site }
    }

    /// Names of a site told by stacks and operator, of no owner. The time is that of an event with these stacks.
    pub fn of_stacks(
        python: StackId,
        native: StackId,
        operator: StringId,
        timestamp_ns: u64,
        names: &dyn Names,
    ) -> Self {
        let outer_frames_missing = names.python_stack_is_cut(python);
        let python = if python.is_some() { names.python_frames(python) } else { Vec::new() };
        let mut native = if native.is_some() { names.native_frames(native, timestamp_ns) } else { Vec::new() };
        // Lines of Python say who allocates; without them a program's own allocator would be named for everything.
        if python.is_empty() {
            native
                .iter_mut()
                .filter(|frame| names.is_allocator(frame))
                .for_each(|frame| frame.origin = Origin::Allocator);
        }
        let operator = if operator.is_some() { names.text(operator) } else { String::new() };
        // An operator says more than the framework's way to it: autograd calls operators from no line at all.
        let line = match user_frame(&python).or_else(|| user_frame(&native)) {
            Some(frame) => frame.describe(),
            None if !operator.is_empty() => format!("operator {operator}"),
            None => match library_frame(&python).or_else(|| library_frame(&native)) {
                Some(frame) => frame.describe(),
                None if python.is_empty() && native.is_empty() => NO_STACK.to_owned(),
                None => "no line of the program in the call stack".to_owned(),
            },
        };
        Self { line, operator, python, native, outer_frames_missing, ..Self::default() }
    }

    fn user_frame(&self) -> Option<&Frame> {
        user_frame(&self.python).or_else(|| user_frame(&self.native))
    }

    /// The frame that the line names, if it names one.
    pub fn frame(&self) -> Option<&Frame> {
        self.user_frame().or_else(|| match self.operator.is_empty() {
            true => library_frame(&self.python).or_else(|| library_frame(&self.native)),
            false => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(function: &str, file: &str, line: u32) -> Frame {
        let origin = Installation::default().of_python(file);
        Frame { function: function.into(), file: file.into(), line, origin }
    }

    #[test]
    fn user_code_is_preferred_over_libraries() {
        let frame = |file: &str| named("f", file, 3);
        let frames =
            [frame("/usr/lib/python3.11/site-packages/torch/_ops.py"), frame("/data/train.py"), frame("/data/main.py")];
        assert_eq!(user_frame(&frames).unwrap().file, "/data/train.py");
        assert_eq!(user_frame(&frames[..1]), None);
        assert_eq!(library_frame(&frames[..1]).unwrap().file, frames[0].file);
        assert_eq!(user_frame(&[]), None);
        assert_eq!(frames[1].describe(), "/data/train.py:3 f");
    }

    #[test]
    fn frames_stated_as_text_are_understood() {
        let text = "/data/train(step+0x1f) [0x401234] /data/train.c:71\n/data/train(help inlined) [0x401234] \
                    /data/help.c:3 <module changed since>\n/usr/lib/libc.so.6(+0x29d90) [0x7f00]\n\
                    <outer frames unknown>\nsomething else\n";
        let frames = stated_frames(text, &Installation::default());
        let said: Vec<String> = frames.iter().map(Frame::describe).collect();
        assert_eq!(
            said,
            ["/data/train.c:71 step", "/data/help.c:3 help", "/usr/lib/libc.so.6 +0x29d90", "something else"]
        );
        let origins: Vec<Origin> = frames.iter().map(|frame| frame.origin).collect();
        assert_eq!(origins, [Origin::Program, Origin::Program, Origin::System, Origin::Framework]);
    }

    #[test]
    fn frames_of_frameworks_are_left_out_where_there_are_others() {
        let frame = |file: &str| named("f", file, 1);
        let frames = [
            frame("/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py"),
            frame("/venv/lib/python3.11/site-packages/megatron/layers.py"),
            frame("/data/model.py"),
            frame("/venv/lib/python3.11/site-packages/torch/utils/checkpoint.py"),
            frame("/data/train.py"),
            frame("<frozen runpy>"),
        ];
        let files = |frames: &[Frame]| -> Vec<String> {
            telling_frames(frames).iter().map(|frame| frame.file.clone()).collect()
        };
        assert_eq!(files(&frames), ["/data/model.py", "/data/train.py"]);
        assert_eq!(files(&frames[..2]), [frames[0].file.as_str(), frames[1].file.as_str()]);
        assert_eq!(files(&frames[5..]), [""; 0], "the interpreter's own frames tell nothing");
        assert_eq!(user_frame(&frames[..2]), Some(&frames[1]), "an installed program's line beats the framework's");
        assert_eq!(user_frame(&frames[..1]), None);
    }
}
