//! The hand-over from the launcher to the recorder inside the job: one environment value.
//!
//! The value is `1;key=value;...`: a version, then keys in any order, every value percent-encoded where
//! it is not plain. It is plain ASCII whatever the paths are. A reader ignores keys it does not know and
//! takes defaults for those it misses, so launcher and recorder of neighbouring releases understand each
//! other; it refuses another version and values it cannot read, because recording something else than
//! was asked for would be worse than recording nothing.

use std::ffi::OsString;
use std::fmt::{self, Write as _};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::quoting::quoted;
use crate::sets::{AnalysisSet, EventSet, LevelSet};
use crate::settings::{CollectMode, LogLevel, ReportStyle, Settings, Variant, Watch, WatchTarget, word_of};

/// Name of the environment variable.
pub const RECORDING_VARIABLE: &str = "MSMEMSCOPE_RECORDING";

/// Version of the value; raised only if older readers would misunderstand it.
const VERSION: &str = "1";

/// Everything the recorder needs to know: the settings and the facts of this launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    /// The settings; `output` is absolute.
    pub settings: Settings,
    /// Common to all processes of the run.
    pub run_id: u64,
    /// Wall clock minus monotonic clock at launch, the same for all processes of the run.
    pub wall_clock_offset_ns: i64,
    /// Whether a launcher waits for the job and finishes its recordings.
    pub is_supervised: bool,
    /// The program that finishes a recording nobody supervises.
    pub finisher: Option<PathBuf>,
    /// The directory from which the job can import the Python package.
    pub python_package: Option<PathBuf>,
}

/// Why an environment value cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HandoverError {
    /// Written by a release that this one does not understand.
    Version {
        /// The version found.
        found: String,
    },
    /// A part that is no `key=value`, or a value that cannot be read.
    Malformed {
        /// The key or part.
        key: String,
        /// The value, encoded as found.
        value: String,
    },
    /// A key that must be there is not.
    Missing {
        /// The key.
        key: &'static str,
    },
}

impl fmt::Display for HandoverError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{RECORDING_VARIABLE}: ")?;
        match self {
            HandoverError::Version { found } => {
                write!(formatter, "version {} instead of {VERSION}", quoted(found))
            }
            HandoverError::Malformed { key, value } => {
                write!(formatter, "{} has the unreadable value {}", quoted(key), quoted(value))
            }
            HandoverError::Missing { key } => write!(formatter, "'{key}' is missing"),
        }
    }
}

impl std::error::Error for HandoverError {}

impl Recording {
    /// The value of [`RECORDING_VARIABLE`].
    pub fn to_environment(&self) -> String {
        let settings = &self.settings;
        let mut writer = Writer { text: VERSION.to_string() };
        writer.path("output", &settings.output);
        writer.plain("run", format_args!("{:x}", self.run_id));
        writer.plain("clock", self.wall_clock_offset_ns);
        writer.plain("supervised", u8::from(self.is_supervised));
        writer.plain("variant", settings.variant.program_name());
        settings.write_to(&mut writer);
        if let Some(watch) = &settings.watch {
            writer.watch(watch);
        }
        if let Some(finisher) = &self.finisher {
            writer.path("finisher", finisher);
        }
        if let Some(package) = &self.python_package {
            writer.path("package", package);
        }
        writer.text
    }

    /// Reads a value that [`Recording::to_environment`] wrote.
    pub fn from_environment(value: &str) -> Result<Recording, HandoverError> {
        let mut parts = value.split(';');
        let version = parts.next().unwrap_or_default();
        if version != VERSION {
            return Err(HandoverError::Version { found: version.to_string() });
        }
        let mut pairs = Vec::new();
        for part in parts {
            let malformed = || HandoverError::Malformed { key: part.to_string(), value: String::new() };
            pairs.push(part.split_once('=').ok_or_else(malformed)?);
        }
        let reader = Reader { pairs };
        let variant = reader.word(
            "variant",
            &Variant::ALL.map(|variant| (variant, variant.program_name())),
            Variant::default(),
        )?;
        let mut settings = Settings::defaults(variant);
        settings.output = reader.path("output")?.ok_or(HandoverError::Missing { key: "output" })?;
        settings.read_from(&reader)?;
        settings.watch = reader.watch()?;
        Ok(Recording {
            settings,
            run_id: reader.run_id("run")?,
            wall_clock_offset_ns: reader.number("clock")?.unwrap_or_default(),
            is_supervised: reader.flag("supervised", false)?,
            finisher: reader.path("finisher")?,
            python_package: reader.path("package")?,
        })
    }
}

/// A value of a setting that goes into the job.
pub(crate) trait Handed: Sized {
    fn write(&self, key: &str, writer: &mut Writer);

    /// The value of a key, or else what it was.
    fn read(&self, key: &str, reader: &Reader<'_>) -> Result<Self, HandoverError>;
}

/// Numbers are written as they are.
macro_rules! hand_numbers {
    ($($kind:ty),+) => {
        $(
            impl Handed for $kind {
                fn write(&self, key: &str, writer: &mut Writer) {
                    writer.plain(key, self);
                }

                fn read(&self, key: &str, reader: &Reader<'_>) -> Result<Self, HandoverError> {
                    Ok(reader.number(key)?.unwrap_or(*self))
                }
            }

            impl Handed for Option<$kind> {
                fn write(&self, key: &str, writer: &mut Writer) {
                    writer.optional(key, *self);
                }

                fn read(&self, key: &str, reader: &Reader<'_>) -> Result<Self, HandoverError> {
                    reader.number(key)
                }
            }
        )+
    };
}

hand_numbers!(u16, u32, u64);

/// Sets are written as their bits.
macro_rules! hand_sets {
    ($($kind:ty),+) => {
        $(
            impl Handed for $kind {
                fn write(&self, key: &str, writer: &mut Writer) {
                    writer.plain(key, self.bits());
                }

                fn read(&self, key: &str, reader: &Reader<'_>) -> Result<Self, HandoverError> {
                    Ok(Self::from_bits(reader.number::<u8>(key)?.unwrap_or(self.bits())))
                }
            }
        )+
    };
}

hand_sets!(AnalysisSet, EventSet, LevelSet);

/// Choices are written as the words users type.
macro_rules! hand_words {
    ($($kind:ty),+) => {
        $(
            impl Handed for $kind {
                fn write(&self, key: &str, writer: &mut Writer) {
                    writer.plain(key, word_of(*self, Self::WORDS));
                }

                fn read(&self, key: &str, reader: &Reader<'_>) -> Result<Self, HandoverError> {
                    reader.word(key, Self::WORDS, *self)
                }
            }
        )+
    };
}

hand_words!(CollectMode, LogLevel, ReportStyle);

impl Handed for bool {
    fn write(&self, key: &str, writer: &mut Writer) {
        writer.plain(key, u8::from(*self));
    }

    fn read(&self, key: &str, reader: &Reader<'_>) -> Result<Self, HandoverError> {
        reader.flag(key, *self)
    }
}

/// Steps; none are not written.
impl Handed for Vec<u32> {
    fn write(&self, key: &str, writer: &mut Writer) {
        if !self.is_empty() {
            let steps: Vec<String> = self.iter().map(u32::to_string).collect();
            writer.plain(key, steps.join("."));
        }
    }

    fn read(&self, key: &str, reader: &Reader<'_>) -> Result<Self, HandoverError> {
        reader.steps(key)
    }
}

pub(crate) struct Writer {
    text: String,
}

impl Writer {
    /// Writes a value that needs no encoding.
    fn plain(&mut self, key: &str, value: impl fmt::Display) {
        // Writing to a String cannot fail.
        let _ = write!(self.text, ";{key}={value}");
    }

    fn optional(&mut self, key: &str, value: Option<impl fmt::Display>) {
        if let Some(value) = value {
            self.plain(key, value);
        }
    }

    fn bytes(&mut self, key: &str, bytes: &[u8]) {
        let _ = write!(self.text, ";{key}=");
        for byte in bytes {
            if byte.is_ascii_alphanumeric() || b"/._-:,".contains(byte) {
                self.text.push(char::from(*byte));
            } else {
                let _ = write!(self.text, "%{byte:02X}");
            }
        }
    }

    fn path(&mut self, key: &str, path: &Path) {
        self.bytes(key, path.as_os_str().as_bytes());
    }

    fn watch(&mut self, watch: &Watch) {
        match &watch.target {
            WatchTarget::Operators { start, output_index, end } => {
                if let Some(start) = start {
                    self.bytes("watch_start", start.as_bytes());
                }
                self.optional("watch_output", *output_index);
                self.bytes("watch_end", end.as_bytes());
            }
            // 0 stands for "no limit given"; no valid limit is 0.
            WatchTarget::Automatic { size_limit_bytes, owner } => {
                self.plain("watch_auto", size_limit_bytes.unwrap_or(0));
                if let Some(owner) = owner {
                    self.bytes("watch_owner", owner.as_bytes());
                }
            }
        }
        self.plain("watch_full", u8::from(watch.full_content));
    }
}

pub(crate) struct Reader<'a> {
    pairs: Vec<(&'a str, &'a str)>,
}

impl Reader<'_> {
    /// Converts the value of `key`, if it is there; of several, the last counts.
    fn convert<Value>(
        &self,
        key: &str,
        convert: impl FnOnce(&str) -> Option<Value>,
    ) -> Result<Option<Value>, HandoverError> {
        let Some((_, value)) = self.pairs.iter().rev().find(|(each, _)| *each == key) else {
            return Ok(None);
        };
        match convert(value) {
            Some(converted) => Ok(Some(converted)),
            None => Err(HandoverError::Malformed { key: key.to_string(), value: value.to_string() }),
        }
    }

    fn number<Number: FromStr>(&self, key: &str) -> Result<Option<Number>, HandoverError> {
        self.convert(key, |value| value.parse().ok())
    }

    fn run_id(&self, key: &'static str) -> Result<u64, HandoverError> {
        let run_id = self.convert(key, |value| u64::from_str_radix(value, 16).ok())?;
        run_id.ok_or(HandoverError::Missing { key })
    }

    fn flag(&self, key: &str, default: bool) -> Result<bool, HandoverError> {
        let flag = self.convert(key, |value| match value {
            "0" => Some(false),
            "1" => Some(true),
            _ => None,
        })?;
        Ok(flag.unwrap_or(default))
    }

    fn word<Meaning: Copy>(
        &self,
        key: &str,
        words: &[(Meaning, &'static str)],
        default: Meaning,
    ) -> Result<Meaning, HandoverError> {
        let found =
            self.convert(key, |value| words.iter().find(|(_, word)| *word == value).map(|(meaning, _)| *meaning))?;
        Ok(found.unwrap_or(default))
    }

    fn steps(&self, key: &str) -> Result<Vec<u32>, HandoverError> {
        let steps =
            self.convert(key, |value| value.split('.').map(|step| step.parse().ok()).collect::<Option<Vec<u32>>>())?;
        let mut steps = steps.unwrap_or_default();
        steps.sort_unstable();
        Ok(steps)
    }

    fn path(&self, key: &str) -> Result<Option<PathBuf>, HandoverError> {
        let bytes = self.convert(key, decode)?;
        Ok(bytes.map(|bytes| PathBuf::from(OsString::from_vec(bytes))))
    }

    fn string(&self, key: &str) -> Result<Option<String>, HandoverError> {
        self.convert(key, |value| String::from_utf8(decode(value)?).ok())
    }

    fn watch(&self) -> Result<Option<Watch>, HandoverError> {
        let target = if let Some(end) = self.string("watch_end")? {
            let start = self.string("watch_start")?;
            WatchTarget::Operators { start, output_index: self.number("watch_output")?, end }
        } else if let Some(limit) = self.number::<u64>("watch_auto")? {
            WatchTarget::Automatic {
                size_limit_bytes: (limit > 0).then_some(limit),
                owner: self.string("watch_owner")?,
            }
        } else {
            return Ok(None);
        };
        Ok(Some(Watch { target, full_content: self.flag("watch_full", false)? }))
    }
}

/// The bytes that a percent-encoded text stands for.
fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let [high, low, tail @ ..] = rest else {
            return None;
        };
        let digit = |byte: u8| char::from(byte).to_digit(16);
        bytes.push((digit(*high)? * 16 + digit(*low)?) as u8);
        rest = tail;
    }
    Some(bytes)
}
