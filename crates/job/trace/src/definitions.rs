//! What facts refer to: strings, stacks, code objects, modules, and facts about the process.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::OnceLock;

use msmemscope_event::{
    CodeId, Fact, ModuleId, Place, ProcessInfoKey, PythonFrame, Record, RecordingState, StackId, StringId,
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
    /// When they came into force.
    pub begin_monotonic_ns: u64,
    /// Whether recording was on while they were in force.
    pub was_used: bool,
}

/// A native stack and when it was defined, which says which modules its addresses lie in.
#[derive(Debug)]
struct NativeStack {
    frames: Box<[u64]>,
    defined_monotonic_ns: u64,
}

/// A Python stack, as far as it was recorded.
#[derive(Debug)]
struct PythonStack {
    frames: Box<[PythonFrame]>,
    is_cut: bool,
}

/// Modules in the order of their addresses.
#[derive(Debug, Default)]
struct ModuleRanges {
    /// Begin and end of each module, the furthest end of it and all before it, and its place among the modules.
    ranges: Vec<(u64, u64, u64, usize)>,
}

/// Modules that were at one address, one after the other: the latest of them are looked at. More have been seen only in
/// traces made to take long to read.
const MOST_MODULES_AT_AN_ADDRESS: usize = 1024;

impl ModuleRanges {
    fn of(modules: &[Module]) -> ModuleRanges {
        let ranges = modules.iter().enumerate();
        let ranges = ranges.map(|(index, module)| (module.start_address, module.end_address, 0, index));
        let mut ranges: Vec<(u64, u64, u64, usize)> = ranges.collect();
        ranges.sort_unstable_by_key(|(start, _, _, index)| (*start, *index));
        let mut furthest = 0;
        for (_, end, furthest_end, _) in &mut ranges {
            furthest = furthest.max(*end);
            *furthest_end = furthest;
        }
        ModuleRanges { ranges }
    }

    /// Places of the modules that an address lies in, the latest of the same begin first.
    fn covering(&self, address: u64) -> impl Iterator<Item = usize> + '_ {
        let behind = self.ranges.partition_point(|(start, ..)| *start <= address);
        self.ranges[..behind]
            .iter()
            .rev()
            .take(MOST_MODULES_AT_AN_ADDRESS)
            .take_while(move |(_, _, furthest_end, _)| address < *furthest_end)
            .filter(move |(_, end, ..)| address < *end)
            .map(|(.., index)| *index)
    }
}

/// All definitions of one trace.
#[derive(Debug, Default)]
pub struct Definitions {
    strings: HashMap<u32, Box<[u8]>>,
    native_stacks: HashMap<u32, NativeStack>,
    python_stacks: HashMap<u32, PythonStack>,
    codes: HashMap<u32, PythonCode>,
    modules: Vec<Module>,
    /// Where in `modules` the latest one of an id is.
    latest_modules: HashMap<u32, usize>,
    /// Finds modules by address; made when it is first needed.
    module_ranges: OnceLock<ModuleRanges>,
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
                let mut frames: Vec<PythonFrame> = frames.as_chunks::<8>().0.iter().map(frame).collect();
                let is_cut = frames.pop_if(|frame| *frame == PythonFrame::NOT_RECORDED_FURTHER).is_some();
                self.python_stacks.insert(id.0, PythonStack { frames: frames.into(), is_cut });
            }
            Fact::DefineCode { id, name, file, first_line, python_version, line_table } => {
                let code = PythonCode { name, file, first_line, python_version, line_table: line_table.to_vec() };
                self.codes.insert(id.0, code);
            }
            Fact::DefineModule { id, start_address, end_address, load_bias, path, build_id } => {
                self.latest_modules.insert(id.0, self.modules.len());
                self.module_ranges = OnceLock::new();
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
        self.python_stacks.get(&id.0).map(|stack| &stack.frames[..])
    }

    /// Whether a Python stack goes on further out than was recorded.
    pub fn python_stack_is_cut(&self, id: StackId) -> bool {
        self.python_stacks.get(&id.0).is_some_and(|stack| stack.is_cut)
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
        let ranges = self.module_ranges.get_or_init(|| ModuleRanges::of(&self.modules));
        let seen_ns = |index: &usize| (self.modules[*index].seen_monotonic_ns, *index);
        let is_alive = |index: &usize| self.modules[*index].gone_monotonic_ns.is_none_or(|gone| monotonic_ns <= gone);
        let alive = || ranges.covering(address).filter(is_alive);
        let latest = alive().filter(|index| seen_ns(index).0 <= monotonic_ns).max_by_key(seen_ns);
        latest.or_else(|| alive().min_by_key(seen_ns)).map(|index| &self.modules[index])
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
            RecordedSettings { text, begin_monotonic_ns: begin_ns, was_used }
        });
        recorded.collect()
    }

    /// A text about the process. Settings have a function of their own.
    pub fn process_information(&self, key: ProcessInfoKey) -> Option<&[u8]> {
        self.process_information.get(&key).map(|text| &text[..])
    }

    /// The place of the process in its job, as far as it is known.
    pub fn place(&self) -> Place {
        self.process_information(ProcessInfoKey::Place).map_or(Place::default(), Place::read)
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
    fn a_stack_that_goes_on_further_out_says_so_and_shows_only_its_frames() {
        let mut definitions = Definitions::default();
        let mut define = |id, words: &[u32]| {
            let frames: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let fact = Fact::DefinePythonStack { id: StackId(id), frames: &frames };
            let (native_stack, python_stack) = (StackId::NONE, StackId::NONE);
            definitions.learn(&Record { monotonic_ns: 1, thread_id: 1, native_stack, python_stack, fact });
        };
        define(1, &[3, 6, 4, 0]);
        define(2, &[3, 6, 4, 0, 0, 0]);
        assert_eq!(definitions.python_stack(StackId(1)), definitions.python_stack(StackId(2)));
        assert_eq!(definitions.python_stack(StackId(2)).map(<[_]>::len), Some(2));
        let is_cut = [1, 2, 3].map(|id| definitions.python_stack_is_cut(StackId(id)));
        assert_eq!(is_cut, [false, true, false]);
    }

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

    #[test]
    fn modules_are_found_by_address_and_time() {
        let mut definitions = Definitions::default();
        let mut learn = |monotonic_ns, fact| {
            let (native_stack, python_stack) = (StackId::NONE, StackId::NONE);
            definitions.learn(&Record { monotonic_ns, thread_id: 1, native_stack, python_stack, fact });
        };
        let module = |id, start_address, end_address| Fact::DefineModule {
            id: ModuleId(id),
            start_address,
            end_address,
            load_bias: 0,
            path: StringId::NONE,
            build_id: b"",
        };
        learn(10, module(1, 0x9000, 0xa000));
        learn(10, module(2, 0x1000, 0x2000));
        // Two plugins in turn at one place, the second larger; a third that was seen late.
        learn(20, module(3, 0x4000, 0x5000));
        learn(30, Fact::ModuleGone { id: ModuleId(3) });
        learn(40, module(4, 0x4000, 0x7000));
        learn(60, Fact::ModuleGone { id: ModuleId(4) });
        learn(90, module(5, 0x3000, 0x7000));
        let at = |address, time| definitions.module_at(address, time).map(|module| module.id.0);
        assert_eq!([at(0x1000, 50), at(0x1fff, 50), at(0x2000, 50), at(0xfff, 50)], [Some(2), Some(2), None, None]);
        assert_eq!([at(0x9800, 5), at(0xa000, 50)], [Some(1), None], "also from before it was seen");
        assert_eq!([at(0x4800, 25), at(0x4800, 50), at(0x4800, 95)], [Some(3), Some(4), Some(5)]);
        assert_eq!([at(0x6800, 25), at(0x6800, 70)], [Some(4), Some(5)], "the first that came there");
        assert_eq!(at(0x3800, 50), Some(5));
    }
}
