//! The typed, validated result of parsing: what to record, what to write and where.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::handover::{Handed as _, HandoverError, Reader, Writer};
use crate::sets::{AnalysisSet, EventSet, LevelSet};
use crate::trigger::{Reaction, Trigger};

/// Events taken down and events shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EventSelection {
    /// Events the recorder takes down.
    pub collected: EventSet,
    /// Events that appear in output files, a subset of the collected ones.
    pub written: EventSet,
}

/// The name under which the program runs, with the file names that belong to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Variant {
    /// The current name.
    #[default]
    Msmemscope,
    /// The earlier name, kept for existing scripts and readers.
    Msleaks,
}

impl Variant {
    /// Both names.
    pub const ALL: [Variant; 2] = [Variant::Msmemscope, Variant::Msleaks];

    /// The variant that a program started as `argument_zero` stands for.
    pub fn from_program_name(argument_zero: &OsStr) -> Variant {
        let name = Path::new(argument_zero).file_name().unwrap_or(argument_zero);
        let is_older = name.to_string_lossy().starts_with("msleaks");
        if is_older { Variant::Msleaks } else { Variant::Msmemscope }
    }

    /// The program name users type; also the Python module name, the prefix of messages
    /// (`[msmemscope] ...`) and of the directory of each process.
    pub const fn program_name(self) -> &'static str {
        match self {
            Variant::Msmemscope => "msmemscope",
            Variant::Msleaks => "msleaks",
        }
    }

    /// The output directory used when the user names none.
    pub const fn default_output_directory(self) -> &'static str {
        match self {
            Variant::Msmemscope => "memscopeDumpResults",
            Variant::Msleaks => "leaksDumpResults",
        }
    }

    /// How leaks are reported when the user does not say.
    pub const fn default_report(self) -> ReportStyle {
        match self {
            Variant::Msmemscope => ReportStyle::Full,
            Variant::Msleaks => ReportStyle::Classic,
        }
    }

    /// The start of dump file names (`<prefix>_<timestamp>.csv`) and the table name in `.db` files.
    pub const fn dump_name(self) -> &'static str {
        match self {
            Variant::Msmemscope => "memscope_dump",
            Variant::Msleaks => "leaks_dump",
        }
    }
}

/// When recording begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum CollectMode {
    /// With the program.
    #[default]
    Immediate,
    /// When the program calls `start()`.
    Deferred,
}

impl CollectMode {
    /// Every mode with the word users write for it.
    pub const WORDS: &'static [(CollectMode, &'static str)] =
        &[(CollectMode::Immediate, "immediate"), (CollectMode::Deferred, "deferred")];
}

/// How much the tool says about its own work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum LogLevel {
    /// Everything.
    Debug,
    /// Progress and results.
    Info,
    /// Only what the user should know.
    #[default]
    Warn,
    /// Only failures.
    Error,
}

impl LogLevel {
    /// Every accepted word with its level; the first word of a level is the one shown.
    pub const WORDS: &'static [(LogLevel, &'static str)] = &[
        (LogLevel::Debug, "debug"),
        (LogLevel::Info, "info"),
        (LogLevel::Warn, "warn"),
        (LogLevel::Warn, "warning"),
        (LogLevel::Error, "error"),
    ];
}

/// Whether what people read has colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum ColorChoice {
    /// Where they are shown.
    #[default]
    Auto,
    /// Wherever it goes.
    Always,
    /// Nowhere.
    Never,
}

impl ColorChoice {
    /// Every choice with the word users write for it.
    pub const WORDS: &'static [(ColorChoice, &'static str)] =
        &[(ColorChoice::Auto, "auto"), (ColorChoice::Always, "always"), (ColorChoice::Never, "never")];
}

/// How leaks are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum ReportStyle {
    /// With call sites, growth and what to do.
    #[default]
    Full,
    /// Only the lines that earlier versions printed, in their words.
    Classic,
}

impl ReportStyle {
    /// Every style with the word users write for it.
    pub const WORDS: &'static [(ReportStyle, &'static str)] =
        &[(ReportStyle::Full, "full"), (ReportStyle::Classic, "classic")];
}

/// The word for a meaning; the first one if it has several.
pub fn word_of<Meaning: PartialEq>(meaning: Meaning, words: &[(Meaning, &'static str)]) -> &'static str {
    words.iter().find(|(each, _)| *each == meaning).map_or("", |(_, word)| word)
}

/// Devices whose events are recorded in full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeviceSelection {
    /// All NPUs.
    pub all_npus: bool,
    /// The chosen NPUs, bit n for device n; meaningful only if not all are chosen.
    pub npu_slots: u32,
    /// Host memory of CPU tensors.
    pub cpu: bool,
}

impl DeviceSelection {
    /// No device at all; a valid selection has at least one.
    pub const NONE: DeviceSelection = DeviceSelection { all_npus: false, npu_slots: 0, cpu: false };

    /// Whether events of NPU `device_id` are chosen. Devices beyond 31 need all NPUs to be chosen.
    pub fn includes_npu(&self, device_id: u32) -> bool {
        self.all_npus || (device_id < 32 && self.npu_slots & (1 << device_id) != 0)
    }
}

impl Default for DeviceSelection {
    fn default() -> Self {
        DeviceSelection { all_npus: true, ..DeviceSelection::NONE }
    }
}

/// Depths of the call stacks written out; `None` where the user asked for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct CallStacks {
    /// Frames of native code.
    pub native_depth: Option<u16>,
    /// Frames of Python code.
    pub python_depth: Option<u16>,
    /// Whether frees have no stack of native code.
    pub native_at_allocations_only: bool,
    /// Whether frees have no stack of Python code.
    pub python_at_allocations_only: bool,
}

/// Output file formats; a valid selection has at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DataFormats {
    /// Comma separated text.
    pub csv: bool,
    /// SQLite.
    pub db: bool,
}

impl Default for DataFormats {
    fn default() -> Self {
        DataFormats { csv: true, db: false }
    }
}

/// Which memory blocks are compared around operators.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum WatchTarget {
    /// Outputs of one operator, until another has ended.
    Operators {
        /// The operator whose outputs are watched; `None` if only blocks named in Python are.
        start: Option<String>,
        /// Index of the one output to watch; all if `None`.
        output_index: Option<u32>,
        /// The operator at whose end watching ends.
        end: String,
    },
    /// All live blocks, within a budget.
    Automatic {
        /// Upper limit of bytes read around one operator; `None` leaves it to the recorder.
        size_limit_bytes: Option<u64>,
        /// Only blocks that have this label; all if `None`.
        owner: Option<String>,
    },
}

/// The `--watch` setting.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Watch {
    /// The blocks.
    pub target: WatchTarget,
    /// Whether contents are written, not only their checksums.
    pub full_content: bool,
}

/// Everything a user can set for a recording.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// The name under which the program runs.
    pub variant: Variant,
    /// Levels of launches recorded and compared.
    pub level: LevelSet,
    /// Events collected and events written.
    pub events: EventSelection,
    /// Steps whose rows are written, ascending; empty means all.
    pub steps: Vec<u32>,
    /// Stacks written out.
    pub call_stacks: CallStacks,
    /// Python frames recorded with every allocation of a Python thread, whether written out or not.
    pub python_frames: u16,
    /// When recording begins.
    pub collect_mode: CollectMode,
    /// Devices recorded in full.
    pub devices: DeviceSelection,
    /// Analyses run at the end.
    pub analysis: AnalysisSet,
    /// How many blocks an out-of-memory report lists.
    pub oom_block_count: u16,
    /// How leaks are reported.
    pub report: ReportStyle,
    /// Memory block monitoring.
    pub watch: Option<Watch>,
    /// Output file formats.
    pub data_formats: DataFormats,
    /// Output directory as the user gave it; see [`Settings::absolute_output`].
    pub output: PathBuf,
    /// Verbosity.
    pub log_level: LogLevel,
    /// Whether reports of the launcher have colours; the job has no use for it.
    pub color: ColorChoice,
    /// Whether the Python half looks for who holds device memory.
    pub holders: bool,
    /// Limit of the recorded data per run; `None` lets the recorder derive one from the free disk space.
    pub max_trace_size_bytes: Option<u64>,
    /// Size of the recorded data of a flight recorder, which keeps everything only of the newest time; `None` if
    /// everything is to be kept.
    pub flight_recorder_bytes: Option<u64>,
    /// When the launcher writes out what a flight recorder holds; the job has no use for it.
    pub triggers: Vec<Trigger>,
    /// Commands that the launcher runs at such moments, with or without a flight recorder.
    pub reactions: Vec<Reaction>,
}

impl Settings {
    /// Python frames recorded by default. A level of modules costs PyTorch four frames, and the script is outside of them.
    pub const DEFAULT_PYTHON_FRAMES: u16 = 256;
    /// Blocks listed in an out-of-memory report by default.
    pub const DEFAULT_OOM_BLOCK_COUNT: u16 = 10;
    /// Depth of a call stack asked for without one.
    pub const DEFAULT_STACK_DEPTH: u16 = 50;
    /// Size of a flight recorder asked for without one.
    pub const DEFAULT_FLIGHT_RECORDER_BYTES: u64 = 256 << 20;

    /// The settings of a run without any option.
    pub fn defaults(variant: Variant) -> Settings {
        Settings {
            variant,
            level: LevelSet::OP,
            events: EventSelection { collected: EventSet::DEFAULT, written: EventSet::DEFAULT },
            steps: Vec::new(),
            call_stacks: CallStacks::default(),
            python_frames: Settings::DEFAULT_PYTHON_FRAMES,
            collect_mode: CollectMode::default(),
            devices: DeviceSelection::default(),
            analysis: AnalysisSet::LEAKS,
            oom_block_count: Settings::DEFAULT_OOM_BLOCK_COUNT,
            report: variant.default_report(),
            watch: None,
            data_formats: DataFormats::default(),
            output: PathBuf::from(variant.default_output_directory()),
            log_level: LogLevel::default(),
            color: ColorChoice::default(),
            holders: true,
            max_trace_size_bytes: None,
            flight_recorder_bytes: None,
            triggers: Trigger::DEFAULT.to_vec(),
            reactions: Vec::new(),
        }
    }

    /// The output directory as an absolute path, seen from `current_directory`.
    ///
    /// `..` is kept: folding it would change the meaning where a component is a symbolic link.
    pub fn absolute_output(&self, current_directory: &Path) -> PathBuf {
        current_directory.join(&self.output).components().collect()
    }

    /// Whether rows of step `step_id` are written.
    pub fn includes_step(&self, step_id: u32) -> bool {
        self.steps.is_empty() || self.steps.binary_search(&step_id).is_ok()
    }
}

/// What the job is told of the settings: a row makes the writer and the reader of one. `output`, `variant` and `watch` are
/// handed over apart, because they depend on each other or have several keys.
macro_rules! handed {
    ($($key:literal => $($field:ident).+;)+) => {
        impl Settings {
            pub(crate) fn write_to(&self, writer: &mut Writer) {
                $(self.$($field).+.write($key, writer);)+
            }

            pub(crate) fn read_from(&mut self, reader: &Reader<'_>) -> Result<(), HandoverError> {
                $(self.$($field).+ = self.$($field).+.read($key, reader)?;)+
                Ok(())
            }
        }
    };
}

handed! {
    "mode" => collect_mode;
    "log" => log_level;
    "report" => report;
    "level" => level;
    "collect" => events.collected;
    "write" => events.written;
    "analysis" => analysis;
    "oom" => oom_block_count;
    "all_npus" => devices.all_npus;
    "npus" => devices.npu_slots;
    "cpu" => devices.cpu;
    "csv" => data_formats.csv;
    "db" => data_formats.db;
    "frames" => python_frames;
    "holders" => holders;
    "steps" => steps;
    "c_stack" => call_stacks.native_depth;
    "python_stack" => call_stacks.python_depth;
    "c_alloc" => call_stacks.native_at_allocations_only;
    "python_alloc" => call_stacks.python_at_allocations_only;
    "max_size" => max_trace_size_bytes;
    "flight" => flight_recorder_bytes;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variant_follows_the_program_name() {
        for (name, variant) in [
            ("msmemscope", Variant::Msmemscope),
            ("/usr/bin/msmemscope.bin", Variant::Msmemscope),
            ("./msleaks", Variant::Msleaks),
            ("msleaks.bin", Variant::Msleaks),
            ("", Variant::Msmemscope),
        ] {
            assert_eq!(Variant::from_program_name(OsStr::new(name)), variant, "{name}");
        }
    }

    #[test]
    fn device_selection_knows_its_slots() {
        let two_and_seven = DeviceSelection { npu_slots: 1 << 2 | 1 << 7, ..DeviceSelection::NONE };
        assert!(two_and_seven.includes_npu(7));
        assert!(!two_and_seven.includes_npu(3));
        assert!(!two_and_seven.includes_npu(39));
        assert!(DeviceSelection::default().includes_npu(39));
    }

    #[test]
    fn output_becomes_absolute_without_folding_parents() {
        let mut settings = Settings::defaults(Variant::Msmemscope);
        assert_eq!(settings.absolute_output(Path::new("/job")), Path::new("/job/memscopeDumpResults"));
        settings.output = PathBuf::from("./link/../out/");
        assert_eq!(settings.absolute_output(Path::new("/job")), Path::new("/job/link/../out"));
        settings.output = PathBuf::from("/data/out");
        assert_eq!(settings.absolute_output(Path::new("/job")), Path::new("/data/out"));
    }
}
