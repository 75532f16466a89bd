//! What the user changed, option by option, and how each value is read.
//!
//! The command line and the Python `config()` both come through here, so a value means the same in both.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use msmemscope_settings::{
    AnalysisSet, CallStacks, CollectMode, ColorChoice, DataFormats, DeviceSelection, EventSet, LevelSet, LogLevel,
    Reaction, ReportStyle, Settings, Trigger, Watch, printable, quoted,
};

use crate::error::ValueError;
use crate::link::link;
use crate::note::Note;
use crate::suggest::nearest;
use crate::table::{OptionId, OptionSpec};
use crate::trigger::{parse_reaction, parse_trigger};
use crate::value::{list_items, number, path_items, size_bytes};
use crate::watch::parse_watch;

/// The word that turns a whole list off.
const NONE: &str = "none";
/// Longest path accepted, in characters.
const LONGEST_PATH_CHARACTERS: usize = 4096;
/// Most steps that can be chosen.
const MOST_STEPS: usize = 5;
/// Words of options that turn something on or off.
const SWITCH_WORDS: &[(bool, &str)] = &[(true, "on"), (false, "off")];
/// Smallest flight recorder: a few threads must have room in it, and what is alive.
const SMALLEST_FLIGHT_RECORDER_BYTES: u64 = 8 << 20;
/// Smallest recording that can hold anything.
const SMALLEST_TRACE_BYTES: u64 = 1 << 20;

/// Settings the user gave; `None` where nothing was said.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
#[allow(missing_docs, reason = "each field changes the field of Settings with its name")]
pub struct SettingsChange {
    pub level: Option<LevelSet>,
    /// Events as asked for, before linking.
    pub events: Option<EventSet>,
    pub steps: Option<Vec<u32>>,
    pub call_stacks: Option<CallStacks>,
    pub collect_mode: Option<CollectMode>,
    pub devices: Option<DeviceSelection>,
    /// Analyses as asked for, before linking.
    pub analysis: Option<AnalysisSet>,
    pub oom_block_count: Option<u16>,
    pub report: Option<ReportStyle>,
    /// `Some(None)` turns watching off.
    pub watch: Option<Option<Watch>>,
    pub data_formats: Option<DataFormats>,
    pub output: Option<PathBuf>,
    pub log_level: Option<LogLevel>,
    pub color: Option<ColorChoice>,
    pub max_trace_size_bytes: Option<u64>,
    /// `Some(None)` keeps everything.
    pub flight_recorder_bytes: Option<Option<u64>>,
    pub triggers: Option<Vec<Trigger>>,
    /// Commands given one by one.
    pub reactions: Vec<Reaction>,
    pub holders: Option<bool>,
    /// Remarks about the values.
    pub notes: Vec<Note>,
}

impl SettingsChange {
    /// `base` with these changes, linked, and everything the user should be told about them.
    pub fn apply_to(&self, base: &Settings) -> (Settings, Vec<Note>) {
        let mut notes = self.notes.clone();
        let mut settings = base.clone();
        if self.events.is_some() || self.analysis.is_some() {
            let linked = link(self.events, self.analysis, base);
            settings.events = linked.events;
            settings.analysis = linked.analysis;
            notes.extend(linked.note);
        }
        /// Copies each given field over the one in the settings.
        macro_rules! copy_given {
            ($($field:ident),+) => {
                $(if let Some(value) = &self.$field { settings.$field = value.clone(); })+
            };
        }
        copy_given!(level, steps, call_stacks, collect_mode, devices, oom_block_count, report, data_formats, output);
        copy_given!(log_level, color, holders, flight_recorder_bytes, triggers);
        if let Some(watch) = &self.watch {
            settings.watch.clone_from(watch);
        }
        if let Some(size) = self.max_trace_size_bytes {
            settings.max_trace_size_bytes = Some(size);
        }
        settings.reactions.extend_from_slice(&self.reactions);
        (settings, notes)
    }

    /// Takes `value` for `spec`, which the user called `name`.
    pub(crate) fn set(&mut self, spec: &'static OptionSpec, name: &str, value: &OsStr) -> Result<(), ValueError> {
        let reader = ValueReader { spec, name, value };
        if spec.id == OptionId::Output {
            self.output = Some(reader.directory()?);
            return Ok(());
        }
        let text = reader.text()?;
        match spec.id {
            OptionId::Level => self.level = Some(reader.levels(text)?),
            OptionId::Events => {
                let words = || EventSet::words().chain([NONE]);
                let events =
                    Members::read(text, |item| EventSet::from_word(item).ok_or_else(|| reader.unknown(item, words())))?;
                self.remark(Note::NoneMixed { name: name.to_string() }, events.is_mixed());
                self.events = Some(events.chosen(EventSet::union));
            }
            OptionId::Analysis => {
                let mut block_count = None;
                let analyses = Members::read(text, |item| reader.analysis(item, &mut block_count))?;
                self.remark(Note::NoneMixed { name: name.to_string() }, analyses.is_mixed());
                self.analysis = Some(analyses.chosen(AnalysisSet::union));
                self.oom_block_count = block_count;
            }
            OptionId::Steps => self.steps = Some(reader.steps(text)?),
            OptionId::CallStack => self.call_stacks = Some(reader.call_stacks(text)?),
            OptionId::CollectMode => {
                self.collect_mode = Some(reader.word(text, CollectMode::WORDS)?);
            }
            OptionId::LogLevel => self.log_level = Some(reader.word(text, LogLevel::WORDS)?),
            OptionId::Color => self.color = Some(reader.word(text, ColorChoice::WORDS)?),
            OptionId::Report => self.report = Some(reader.word(text, ReportStyle::WORDS)?),
            OptionId::Device => {
                let (devices, is_covered) = reader.devices(text)?;
                self.remark(Note::SingleDevicesCovered { name: name.to_string() }, is_covered);
                self.devices = Some(devices);
            }
            OptionId::DataFormat => self.data_formats = Some(reader.data_formats(text)?),
            OptionId::MaxTraceSize => {
                let size = size_bytes(text).filter(|bytes| *bytes >= SMALLEST_TRACE_BYTES);
                self.max_trace_size_bytes = Some(size.ok_or_else(|| reader.error(None))?);
            }
            OptionId::FlightRecorder => self.flight_recorder_bytes = Some(reader.flight_recorder(text)?),
            OptionId::Trigger => {
                let read = |item: &str| parse_trigger(item).map_err(|problem| reader.error(Some(problem)));
                let triggers = Members::read(text, |item| read(item).map(|trigger| vec![trigger]))?;
                self.remark(Note::NoneMixed { name: name.to_string() }, triggers.is_mixed());
                self.triggers = Some(triggers.chosen(|all, one| [all, one].concat()));
            }
            OptionId::On => {
                let reaction = parse_reaction(text).map_err(|problem| reader.error(Some(problem)))?;
                self.reactions.push(reaction);
            }
            OptionId::Holders => self.holders = Some(reader.word(text, SWITCH_WORDS)?),
            OptionId::Watch => {
                let watch = parse_watch(text).map_err(|problem| reader.error(Some(problem)))?;
                self.watch = Some(Some(watch));
            }
            OptionId::Help
            | OptionId::Version
            | OptionId::Verbose
            | OptionId::Quiet
            | OptionId::Compare
            | OptionId::Input
            | OptionId::Output
            | OptionId::LoadApiEnvironment
            | OptionId::UnloadApiEnvironment => {
                unreachable!("{:?} is no setting; its caller acts on it", spec.id)
            }
        }
        Ok(())
    }

    /// Keeps `note` if it applies to the value just taken; one for an earlier value is dropped.
    fn remark(&mut self, note: Note, applies: bool) {
        self.notes.retain(|earlier| *earlier != note);
        if applies {
            self.notes.push(note);
        }
    }
}

/// The two paths of `--input`.
pub(crate) fn read_input(spec: &'static OptionSpec, name: &str, value: &OsStr) -> Result<[PathBuf; 2], ValueError> {
    let reader = ValueReader { spec, name, value };
    let paths = path_items(value.as_bytes());
    let [base, other] = paths[..] else {
        return Err(reader.error(Some(format!("it names {} instead of 2 paths", paths.len()))));
    };
    let path = |bytes: &[u8]| PathBuf::from(OsString::from_vec(bytes.to_vec()));
    let paths = [path(base), path(other)];
    for path in &paths {
        reader.check_path_length(path.as_os_str())?;
    }
    Ok(paths)
}

/// The members a list names, and whether it also names `none`.
struct Members<Member> {
    items: Vec<Member>,
    has_none: bool,
}

impl<Member: Default> Members<Member> {
    /// Reads a list that may also be empty.
    fn read(text: &str, mut read: impl FnMut(&str) -> Result<Member, ValueError>) -> Result<Self, ValueError> {
        let mut members = Members { items: Vec::new(), has_none: false };
        for item in list_items(text) {
            if item == NONE {
                members.has_none = true;
            } else {
                members.items.push(read(item)?);
            }
        }
        Ok(members)
    }

    /// Whether `none` stands beside other members.
    fn is_mixed(&self) -> bool {
        self.has_none && !self.items.is_empty()
    }

    /// All members together; nothing if `none` is among them.
    fn chosen(self, union: fn(Member, Member) -> Member) -> Member {
        if self.has_none {
            return Member::default();
        }
        self.items.into_iter().fold(Member::default(), union)
    }
}

/// Reads one value and knows whom to blame if it is wrong.
#[derive(Clone, Copy)]
struct ValueReader<'a> {
    spec: &'static OptionSpec,
    name: &'a str,
    value: &'a OsStr,
}

impl<'a> ValueReader<'a> {
    fn error(&self, problem: Option<String>) -> ValueError {
        ValueError {
            name: self.name.to_string(),
            value: printable(self.value),
            problem,
            allowed: self.spec.allowed,
            suggestion: None,
        }
    }

    /// An item that is no known word; names it unless it is the whole value.
    fn unknown(&self, item: &str, words: impl IntoIterator<Item = &'static str>) -> ValueError {
        let problem = (self.value != OsStr::new(item)).then(|| format!("{} is unknown", quoted(item)));
        ValueError { suggestion: nearest(item, words), ..self.error(problem) }
    }

    fn text(&self) -> Result<&'a str, ValueError> {
        self.value.to_str().ok_or_else(|| self.error(Some("it is not valid UTF-8".to_string())))
    }

    fn word<Meaning: Copy>(&self, text: &str, words: &[(Meaning, &'static str)]) -> Result<Meaning, ValueError> {
        let found = words.iter().find(|(_, word)| *word == text.trim());
        found.map(|(meaning, _)| *meaning).ok_or_else(|| self.unknown(text.trim(), words.iter().map(|(_, word)| *word)))
    }

    /// The size of a flight recorder, nothing if there is to be none. Without a value it has the usual one.
    fn flight_recorder(&self, text: &str) -> Result<Option<u64>, ValueError> {
        match text.trim() {
            "" | "on" => Ok(Some(Settings::DEFAULT_FLIGHT_RECORDER_BYTES)),
            "off" => Ok(None),
            size => {
                let size = size_bytes(size).filter(|bytes| *bytes >= SMALLEST_FLIGHT_RECORDER_BYTES);
                size.map(Some).ok_or_else(|| self.error(None))
            }
        }
    }

    fn levels(&self, text: &str) -> Result<LevelSet, ValueError> {
        let mut levels = LevelSet::NONE;
        for item in list_items(text) {
            let level = match item {
                "0" => LevelSet::OP,
                "1" => LevelSet::KERNEL,
                _ => LevelSet::from_word(item).ok_or_else(|| self.unknown(item, LevelSet::words()))?,
            };
            levels = levels.union(level);
        }
        Ok(levels)
    }

    fn analysis(&self, item: &str, block_count: &mut Option<u16>) -> Result<AnalysisSet, ValueError> {
        if let Some(count) = item.strip_prefix("oom:") {
            let count = number(count, 1..=1000).map_err(|problem| self.error(Some(problem.describe(count))))?;
            *block_count = Some(count as u16);
            return Ok(AnalysisSet::OOM);
        }
        AnalysisSet::from_word(item).ok_or_else(|| self.unknown(item, AnalysisSet::words().chain([NONE])))
    }

    fn steps(&self, text: &str) -> Result<Vec<u32>, ValueError> {
        let mut steps = Vec::new();
        for item in list_items(text) {
            let step =
                number(item, 1..=u64::from(u32::MAX)).map_err(|problem| self.error(Some(problem.describe(item))))?;
            steps.push(step as u32);
        }
        steps.sort_unstable();
        steps.dedup();
        match steps.len() {
            0 => Err(self.error(Some("it names no step".to_string()))),
            1..=MOST_STEPS => Ok(steps),
            count => Err(self.error(Some(format!("{count} steps are too many")))),
        }
    }

    fn call_stacks(&self, text: &str) -> Result<CallStacks, ValueError> {
        let mut stacks = CallStacks::default();
        for item in list_items(text) {
            let (item, at_allocations_only) = match item.strip_suffix(":alloc") {
                Some(rest) => (rest, true),
                None => (item, false),
            };
            let (kind, depth) = match item.split_once(':') {
                Some((kind, depth)) => {
                    let depth = number(depth, 0..=1000).map_err(|problem| self.error(Some(problem.describe(depth))))?;
                    (kind, depth as u16)
                }
                None => (item, Settings::DEFAULT_STACK_DEPTH),
            };
            match kind {
                "c" => {
                    stacks.native_depth = Some(depth);
                    stacks.native_at_allocations_only = at_allocations_only;
                }
                "python" => {
                    stacks.python_depth = Some(depth);
                    stacks.python_at_allocations_only = at_allocations_only;
                }
                _ => return Err(self.unknown(kind, ["c", "python"])),
            }
        }
        Ok(stacks)
    }

    /// The devices, and whether single NPUs are covered by all of them.
    fn devices(&self, text: &str) -> Result<(DeviceSelection, bool), ValueError> {
        let mut devices = DeviceSelection::NONE;
        for item in list_items(text) {
            match item.split_once(':') {
                Some(("npu", id)) => {
                    let id = device_id(id).map_err(|problem| self.error(Some(problem)))?;
                    devices.npu_slots |= 1 << id;
                }
                None if item == "npu" => devices.all_npus = true,
                None if item == "cpu" => devices.cpu = true,
                None if item.bytes().all(|byte| byte.is_ascii_digit()) => {
                    return Err(self.error(Some(format!("write npu:{item}"))));
                }
                _ => return Err(self.unknown(item, ["npu", "cpu"])),
            }
        }
        if devices == DeviceSelection::NONE {
            return Err(self.error(Some("it names no device".to_string())));
        }
        let is_covered = devices.all_npus && devices.npu_slots != 0;
        if is_covered {
            devices.npu_slots = 0;
        }
        Ok((devices, is_covered))
    }

    fn data_formats(&self, text: &str) -> Result<DataFormats, ValueError> {
        let mut formats = DataFormats { csv: false, db: false };
        for item in list_items(text) {
            match item {
                "csv" => formats.csv = true,
                "db" => formats.db = true,
                _ => return Err(self.unknown(item, ["csv", "db"])),
            }
        }
        if !formats.csv && !formats.db {
            return Err(self.error(Some("it names no format".to_string())));
        }
        Ok(formats)
    }

    fn directory(&self) -> Result<PathBuf, ValueError> {
        if self.value.as_bytes().iter().all(u8::is_ascii_whitespace) {
            return Err(self.error(Some("it is blank".to_string())));
        }
        self.check_path_length(self.value)?;
        Ok(PathBuf::from(self.value))
    }

    fn check_path_length(&self, path: &OsStr) -> Result<(), ValueError> {
        let length = path.to_string_lossy().chars().count();
        if length > LONGEST_PATH_CHARACTERS {
            return Err(self.error(Some(format!("a path of {length} characters is too long"))));
        }
        if path.as_bytes().contains(&0) {
            return Err(self.error(Some("a path cannot contain a NUL byte".to_string())));
        }
        Ok(())
    }
}

/// A device number from 0 to 31, decimal or hexadecimal with `0x`.
fn device_id(text: &str) -> Result<u32, String> {
    let hexadecimal = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let id = match hexadecimal {
        // A sign would be accepted by the conversion.
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            u32::from_str_radix(digits, 16).ok().filter(|id| *id < 32)
        }
        Some(_) => None,
        None => {
            return number(text, 0..=31).map(|id| id as u32).map_err(|problem| problem.describe(text));
        }
    };
    id.ok_or_else(|| format!("{} is no device number from 0 to 31", quoted(text)))
}
