//! How findings get names: texts, frames and owners of a recording.

use msmemscope_event::{ProcessInfoKey, PythonFrame, StackId, StringId};
use msmemscope_import::Recording;
use msmemscope_symbols::{Symbols, line_of_instruction};
use msmemscope_timeline::FactSource;
use msmemscope_trace::Definitions;
use serde::Serialize;

use crate::situation::{LiveBlock, Situation};

/// One frame of a call stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Frame {
    /// Function.
    pub function: String,
    /// Source file or library; empty if not known.
    pub file: String,
    /// Line, zero if not known.
    pub line: u32,
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

    /// Frames of a native stack, innermost first. The time is that of an event with this stack.
    fn native_frames(&self, stack: StackId, timestamp_ns: u64) -> Vec<Frame>;

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
}

impl<'a> RecordingNames<'a> {
    /// Names of a recording.
    pub fn new(recording: &'a Recording) -> Self {
        let symbols = Symbols::new(recording.definitions(), recording.wall_offset_ns());
        Self { recording, symbols }
    }
}

/// Lines of a stack whose frames the file states as text.
fn stated_frames(text: &str) -> Vec<Frame> {
    text.lines().map(|line| Frame { function: line.trim().to_owned(), ..Frame::default() }).collect()
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
            Some(Frame {
                function: definitions.string(code.name).into_owned(),
                file: definitions.string(code.file).into_owned(),
                line: line.unwrap_or(code.first_line),
            })
        };
        frames.iter().filter_map(named).collect()
    }

    fn native_frames(&self, stack: StackId, timestamp_ns: u64) -> Vec<Frame> {
        if let Some(text) = self.recording.stated_stack(stack) {
            return stated_frames(text);
        }
        let monotonic_ns = timestamp_ns.wrapping_sub(self.recording.wall_offset_ns() as u64);
        let addresses = self.recording.definitions().native_stack(stack).unwrap_or_default();
        let mut frames = Vec::new();
        for &address in addresses {
            let frame = self.symbols.native_frame(address, monotonic_ns);
            let library = frame.module_path.unwrap_or_default();
            let functions = frame.place.as_ref().map_or(&[][..], |place| &place.functions);
            if functions.is_empty() {
                frames.push(Frame { function: format!("{address:#x}"), file: library, line: 0 });
                continue;
            }
            frames.extend(functions.iter().map(|function| Frame {
                function: function.name.clone().unwrap_or_else(|| format!("+{:#x}", frame.file_address)),
                file: function.file.clone().unwrap_or_else(|| library.clone()),
                line: function.line.unwrap_or(0),
            }));
        }
        frames
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
    /// Nothing but the operator and the size.
    Bare {
        /// The operator, if one was running.
        operator: StringId,
        /// The size.
        size_bytes: u64,
    },
}

impl Site {
    /// The site of a block.
    #[inline]
    pub fn of(block: &LiveBlock) -> Self {
        Self::from_parts(block.python_stack, block.native_stack, block.operator, block.size_bytes)
    }

    /// The site told by these.
    #[inline]
    pub fn from_parts(python: StackId, native: StackId, operator: StringId, size_bytes: u64) -> Self {
        if python.is_some() {
            Site::Python(python)
        } else if native.is_some() {
            Site::Native(native)
        } else {
            Site::Bare { operator, size_bytes }
        }
    }
}

/// A site with its names, for reports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SiteText {
    /// The line of user code, or the best there is.
    pub line: String,
    /// The operator that ran, if one did.
    pub operator: String,
    /// Who owns the blocks.
    pub owner: String,
    /// Python frames, innermost first.
    pub python: Vec<Frame>,
    /// Native frames, innermost first.
    pub native: Vec<Frame>,
}

/// Paths that hold frameworks rather than the user's program.
const LIBRARY_MARKS: [&str; 17] = [
    "site-packages/",
    "dist-packages/",
    "/lib/python",
    "/msmemscope/",
    "<frozen",
    "<string>",
    "ms_tools_ext",
    "libascendcl",
    "libacl_rt",
    "libruntime",
    "libascend_hal",
    "libtorch",
    "libc10",
    "/standin/",
    "/rustc/",
    "libc-start",
    "libc_start",
];

/// Where every program begins.
const ENTRY_FUNCTION: &str = "_start";

/// Installed packages: a program that runs entirely from there has its lines there.
const PACKAGES: &str = "-packages/";

/// Packages that allocate for everybody, and this tool's own.
const FRAMEWORK_MARKS: [&str; 5] =
    ["-packages/torch/", "-packages/torch_npu/", "-packages/mindspore/", OWN_MARK, "<frozen"];

/// Frames of this tool's Python half, which nobody looks for.
const OWN_MARK: &str = "/msmemscope/";

fn is_from(frame: &Frame, marks: &[&str]) -> bool {
    marks.iter().any(|mark| frame.file.contains(mark))
}

fn is_user(frame: &Frame) -> bool {
    !frame.file.is_empty() && frame.function != ENTRY_FUNCTION && !is_from(frame, &LIBRARY_MARKS)
}

/// The innermost frame that is the user's own code: outside all libraries, or else of an installed
/// package that is no framework.
pub fn user_frame(frames: &[Frame]) -> Option<&Frame> {
    let is_package = |frame: &&Frame| frame.file.contains(PACKAGES) && !is_from(frame, &FRAMEWORK_MARKS);
    frames.iter().find(|frame| is_user(frame)).or_else(|| frames.iter().find(is_package))
}

/// The frames worth showing, innermost first: the user's own, or all but this tool's if there are none.
pub fn telling_frames(frames: &[Frame]) -> Vec<&Frame> {
    let own: Vec<&Frame> = frames.iter().filter(|frame| is_user(frame)).collect();
    match own.is_empty() {
        true => frames.iter().filter(|frame| !is_from(frame, &[OWN_MARK, "<frozen"])).collect(),
        false => own,
    }
}

/// The innermost frame that is not this tool's.
fn library_frame(frames: &[Frame]) -> Option<&Frame> {
    frames.iter().find(|frame| !frame.file.contains(OWN_MARK))
}

impl SiteText {
    /// Whether anything is known about the place.
    pub fn is_known(&self) -> bool {
        !self.python.is_empty() || !self.native.is_empty() || !self.operator.is_empty()
    }

    /// Names of the site of a block.
    pub fn of(block: &LiveBlock, situation: &Situation, names: &dyn Names) -> Self {
        let python = if block.python_stack.is_some() { names.python_frames(block.python_stack) } else { Vec::new() };
        let native = match block.native_stack.is_some() {
            true => names.native_frames(block.native_stack, block.timestamp_ns),
            false => Vec::new(),
        };
        let operator = if block.operator.is_some() { names.text(block.operator) } else { String::new() };
        let owner = situation.owner_text(block.owner, names).unwrap_or_default();
        // An operator says more than the framework's way to it: autograd calls operators from no line at all.
        let line = match user_frame(&python).or_else(|| user_frame(&native)) {
            Some(frame) => frame.describe(),
            None if !operator.is_empty() => format!("operator {operator}"),
            None => library_frame(&python)
                .or_else(|| library_frame(&native))
                .map_or_else(|| "no call stack recorded".to_owned(), Frame::describe),
        };
        Self { line, operator, owner, python, native }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_code_is_preferred_over_libraries() {
        let frame = |file: &str| Frame { function: "f".into(), file: file.into(), line: 3 };
        let frames =
            [frame("/usr/lib/python3.11/site-packages/torch/_ops.py"), frame("/data/train.py"), frame("/data/main.py")];
        assert_eq!(user_frame(&frames).unwrap().file, "/data/train.py");
        assert_eq!(user_frame(&frames[..1]), None);
        assert_eq!(library_frame(&frames[..1]).unwrap().file, frames[0].file);
        assert_eq!(user_frame(&[]), None);
        assert_eq!(frames[1].describe(), "/data/train.py:3 f");
    }

    #[test]
    fn frames_of_frameworks_are_left_out_where_there_are_others() {
        let frame = |file: &str| Frame { function: "f".into(), file: file.into(), line: 1 };
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
        assert_eq!(files(&frames[5..]), [""; 0]);
        assert_eq!(user_frame(&frames[..2]), Some(&frames[1]), "an installed program's line beats the framework's");
        assert_eq!(user_frame(&frames[..1]), None);
    }

    #[test]
    fn the_users_line_is_found_behind_runtime_and_framework() {
        let frame = |file: &str, function: &str| Frame { function: function.into(), file: file.into(), line: 1 };
        let frames = [
            frame("/usr/include/mstx/ms_tools_ext.h", "mstxMemRegionsRegister"),
            frame("/opt/cann/lib64/libascendcl.so", "aclrtMalloc"),
            frame("/venv/lib/python3.11/site-packages/torch/_ops.py", "__call__"),
            frame("/data/train.py", "remember_loss"),
            frame("/data/train.py", "main"),
        ];
        assert_eq!(user_frame(&frames).map(|frame| frame.function.as_str()), Some("remember_loss"));
        assert_eq!(user_frame(&frames[..2]), None);
        assert_eq!(user_frame(&[]), None);
    }
}
