//! What facts refer to: strings, stacks, code objects, modules, and facts about the process.

use std::borrow::Cow;
use std::collections::HashMap;

use msmemscope_event::{
    CodeId, Fact, ModuleId, ProcessInfoKey, PythonFrame, Record, RecordingState, StackId, StringId,
};

/// A native module that was mapped for some time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// Its id.
    pub id: ModuleId,
    /// Lowest mapped address.
    pub start_address: u64,
    /// End of the mapping.
    pub end_address: u64,
    /// What to subtract from a run-time address to get an address of the file.
    pub load_bias: u64,
    /// Path.
    pub path: StringId,
    /// Build id, empty if the file has none.
    pub build_id: Vec<u8>,
    /// When the recorder first saw it.
    pub seen_monotonic_ns: u64,
    /// When the recorder noticed it had gone.
    pub gone_monotonic_ns: Option<u64>,
}

/// A Python code object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PythonCode {
    /// Qualified name.
    pub name: StringId,
    /// Source file.
    pub file: StringId,
    /// First line.
    pub first_line: u32,
    /// `major << 8 | minor` of the interpreter.
    pub python_version: u32,
    /// The interpreter's line table.
    pub line_table: Vec<u8>,
}

/// Settings of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedSettings<'a> {
    /// As the recorder was given them.
    pub text: &'a [u8],
    /// Whether recording was on while they were in force.
    pub was_used: bool,
}

/// A native stack and when it was defined, which says which modules its addresses lie in.
#[derive(Debug)]
struct NativeStack {
    frames: Box<[u64]>,
    defined_monotonic_ns: u64,
}

/// All definitions of one trace.
#[derive(Debug, Default)]
pub struct Definitions {
    strings: HashMap<u32, Box<[u8]>>,
    native_stacks: HashMap<u32, NativeStack>,
    python_stacks: HashMap<u32, Box<[PythonFrame]>>,
    codes: HashMap<u32, PythonCode>,
    modules: Vec<Module>,
    /// Where in `modules` the latest one of an id is.
    latest_modules: HashMap<u32, usize>,
    process_information: HashMap<ProcessInfoKey, Vec<u8>>,
    /// Settings, and when they came into force.
    settings: Vec<(u64, Vec<u8>)>,
    /// When recording was switched on or off.
    states: Vec<(u64, RecordingState)>,
    device_map: Option<Vec<u8>>,
}

impl Definitions {
    /// Takes in a record if it defines something.
    pub fn learn(&mut self, record: &Record<'_>) {
        match record.fact {
            Fact::DefineString { id, text } => {
                self.strings.insert(id.0, text.into());
            }
            Fact::DefineNativeStack { id, frames } => {
                let frames = frames.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
                self.native_stacks.insert(id.0, NativeStack { frames, defined_monotonic_ns: record.monotonic_ns });
            }
            Fact::DefinePythonStack { id, frames } => {
                let half = |bytes: &[u8]| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                let frame = |bytes: &[u8; 8]| PythonFrame {
                    code: CodeId(half(&bytes[..4])),
                    instruction_offset: half(&bytes[4..]),
                };
                self.python_stacks.insert(id.0, frames.as_chunks::<8>().0.iter().map(frame).collect());
            }
            Fact::DefineCode { id, name, file, first_line, python_version, line_table } => {
                let code = PythonCode { name, file, first_line, python_version, line_table: line_table.to_vec() };
                self.codes.insert(id.0, code);
            }
            Fact::DefineModule { id, start_address, end_address, load_bias, path, build_id } => {
                self.latest_modules.insert(id.0, self.modules.len());
                self.modules.push(Module {
                    id,
                    start_address,
                    end_address,
                    load_bias,
                    path,
                    build_id: build_id.to_vec(),
                    seen_monotonic_ns: record.monotonic_ns,
                    gone_monotonic_ns: None,
                });
            }
            Fact::ModuleGone { id } => {
                let module = self.latest_modules.get(&id.0).and_then(|&index| self.modules.get_mut(index));
                if let Some(module) = module {
                    module.gone_monotonic_ns = Some(record.monotonic_ns);
                }
            }
            Fact::DeviceMap { text } => self.device_map = Some(text.to_vec()),
            Fact::ProcessInfo { key: ProcessInfoKey::Settings, text } => {
                self.settings.push((record.monotonic_ns, text.to_vec()));
            }
            Fact::ProcessInfo { key, text } => {
                self.process_information.insert(key, text.to_vec());
            }
            Fact::Recording { state } => self.states.push((record.monotonic_ns, state)),
            _ => {}
        }
    }

    /// The bytes of a string; nothing if it was never defined.
    pub fn string_bytes(&self, id: StringId) -> Option<&[u8]> {
        self.strings.get(&id.0).map(|text| &text[..])
    }

    /// The text of a string for people; invalid bytes are replaced.
    pub fn string(&self, id: StringId) -> Cow<'_, str> {
        match self.string_bytes(id) {
            Some(bytes) => String::from_utf8_lossy(bytes),
            None if id.is_some() => Cow::Owned(format!("<string {} is missing>", id.0)),
            None => Cow::Borrowed(""),
        }
    }

    /// Ids of all strings that `wanted` picks, in id order.
    pub fn string_ids_where(&self, wanted: impl Fn(&[u8]) -> bool) -> Vec<StringId> {
        let mut ids: Vec<StringId> =
            self.strings.iter().filter(|(_, text)| wanted(text)).map(|(id, _)| StringId(*id)).collect();
        ids.sort_unstable();
        ids
    }

    /// Return addresses of a native stack, innermost first.
    pub fn native_stack(&self, id: StackId) -> Option<&[u64]> {
        self.native_stacks.get(&id.0).map(|stack| &stack.frames[..])
    }

    /// Return addresses of a native stack, innermost first, and when it was defined. A stack through a
    /// library that was loaded anew is defined anew, so this time says which modules are meant.
    pub fn native_stack_with_time(&self, id: StackId) -> Option<(&[u64], u64)> {
        self.native_stacks.get(&id.0).map(|stack| (&stack.frames[..], stack.defined_monotonic_ns))
    }

    /// Frames of a Python stack, innermost first.
    pub fn python_stack(&self, id: StackId) -> Option<&[PythonFrame]> {
        self.python_stacks.get(&id.0).map(|frames| &frames[..])
    }

    /// A Python code object.
    pub fn code(&self, id: CodeId) -> Option<&PythonCode> {
        self.codes.get(&id.0)
    }

    /// All modules in the order the recorder saw them.
    pub fn modules(&self) -> &[Module] {
        &self.modules
    }

    /// The module that was mapped at an address at some time.
    pub fn module_at(&self, address: u64, monotonic_ns: u64) -> Option<&Module> {
        let covers = |module: &&Module| (module.start_address..module.end_address).contains(&address);
        let alive = |module: &&Module| module.gone_monotonic_ns.is_none_or(|gone| monotonic_ns <= gone);
        self.modules
            .iter()
            .filter(covers)
            .filter(alive)
            .rfind(|module| module.seen_monotonic_ns <= monotonic_ns)
            .or_else(|| self.modules.iter().filter(covers).find(alive))
    }

    /// The settings of the process, in the order in which they came into force.
    pub fn settings(&self) -> Vec<RecordedSettings<'_>> {
        let mut settings: Vec<_> = self.settings.iter().map(|(begin_ns, text)| (*begin_ns, &text[..])).collect();
        settings.sort_by_key(|(begin_ns, _)| *begin_ns);
        let mut states = self.states.clone();
        states.sort_by_key(|(time_ns, _)| *time_ns);
        let ends = settings.iter().skip(1).map(|(begin_ns, _)| *begin_ns).chain([u64::MAX]).collect::<Vec<_>>();
        let recorded = settings.iter().zip(ends).map(|(&(begin_ns, text), end_ns)| {
            let first = states.partition_point(|(time_ns, _)| *time_ns < begin_ns);
            let behind = states.partition_point(|(time_ns, _)| *time_ns < end_ns);
            let was_used = states[first.saturating_sub(1)..behind.max(first)]
                .iter()
                .any(|(_, state)| *state == RecordingState::On);
            RecordedSettings { text, was_used }
        });
        recorded.collect()
    }

    /// A text about the process. Settings have a function of their own.
    pub fn process_information(&self, key: ProcessInfoKey) -> Option<&[u8]> {
        self.process_information.get(&key).map(|text| &text[..])
    }

    /// Text of `ASCEND_RT_VISIBLE_DEVICES`, if it was set.
    pub fn device_map(&self) -> Option<&[u8]> {
        self.device_map.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_used_if_recording_is_on_while_they_are_in_force() {
        let mut definitions = Definitions::default();
        let mut learn = |monotonic_ns, fact| {
            let (native_stack, python_stack) = (StackId::NONE, StackId::NONE);
            definitions.learn(&Record { monotonic_ns, thread_id: 1, native_stack, python_stack, fact });
        };
        let settings = |text: &'static [u8]| Fact::ProcessInfo { key: ProcessInfoKey::Settings, text };
        let state = |state| Fact::Recording { state };
        // In the order of chunks, which is not that of time.
        learn(70, settings(b"while on"));
        learn(90, settings(b"last"));
        learn(10, settings(b"first"));
        learn(10, state(RecordingState::Shadow));
        learn(20, settings(b"second"));
        learn(30, state(RecordingState::On));
        learn(40, state(RecordingState::Shadow));
        learn(50, settings(b"third"));
        learn(60, state(RecordingState::On));
        learn(80, state(RecordingState::Off));
        let found: Vec<_> = definitions.settings().iter().map(|known| (known.text, known.was_used)).collect();
        let expected: [(&[u8], bool); 5] =
            [(b"first", false), (b"second", true), (b"third", true), (b"while on", true), (b"last", false)];
        assert_eq!(found, expected);
    }
}
