//! What became of the attempt to read Python stacks, for programs and for people.

use std::fmt;

/// Version of the interpreter in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PythonVersion {
    /// 3.
    pub major: u8,
    /// 9 and later.
    pub minor: u8,
}

impl PythonVersion {
    /// The oldest supported one.
    pub const OLDEST: Self = Self { major: 3, minor: 9 };

    /// `major << 8 | minor`, as code definitions carry it.
    pub fn code(self) -> u32 {
        u32::from(self.major) << 8 | u32::from(self.minor)
    }

    /// Reads the start of a version text such as `3.11.7 (main, ...)`.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let mut numbers = text.split(|byte| !byte.is_ascii_digit());
        let mut number = || std::str::from_utf8(numbers.next()?).ok()?.parse().ok();
        Some(Self { major: number()?, minor: number()? })
    }
}

impl fmt::Display for PythonVersion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.major, self.minor)
    }
}

/// Result of looking for an interpreter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attachment {
    /// Stacks can be captured.
    Attached,
    /// There is no initialised interpreter; worth trying again when libraries were loaded.
    NotYet,
    /// There is one that cannot be read; trying again is no use.
    Refused(Refusal),
}

/// Why an interpreter is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Older than [`PythonVersion::OLDEST`], or not understood.
    TooOld,
    /// Built without the global lock: threads may free what others' frames refer to.
    FreeThreaded,
    /// An unknown version without the functions of the fallback.
    Unknown,
    /// No memory for the tables.
    NoMemory,
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Refusal::TooOld => "this Python is older than 3.9",
            Refusal::FreeThreaded => "free-threaded builds of Python are not supported",
            Refusal::Unknown => "this version of Python is not known",
            Refusal::NoMemory => "no memory for the table of stacks",
        })
    }
}

/// Why stacks are taken through the interpreter's functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FallbackReason {
    /// Nobody knows the structures of this version.
    UnknownVersion,
    /// The build puts additional fields into every object.
    TracedReferences,
    /// The self-check found other frames.
    FramesDiffer,
    /// The self-check found other names, files or lines.
    CodeDiffers,
}

impl fmt::Display for FallbackReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            FallbackReason::UnknownVersion => "the frames of this version are not known",
            FallbackReason::TracedReferences => "this build traces references",
            FallbackReason::FramesDiffer => "the self-check found other frames",
            FallbackReason::CodeDiffers => "the self-check found other code objects",
        })
    }
}

/// How Python stacks are taken at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// No interpreter was found yet.
    NotAttached,
    /// From the frames; the self-check waits for a thread that holds the interpreter's lock.
    WalkingUnchecked(PythonVersion),
    /// From the frames; the self-check passed.
    Walking(PythonVersion),
    /// Through the interpreter's functions, in threads that hold its lock.
    Fallback(PythonVersion, FallbackReason),
    /// Not at all.
    Off(PythonVersion, FallbackReason),
}

impl fmt::Display for Status {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Status::NotAttached => write!(formatter, "no Python interpreter found"),
            Status::WalkingUnchecked(version) => {
                write!(formatter, "Python {version}: stacks are read from the frames, not self-checked yet")
            }
            Status::Walking(version) => {
                write!(formatter, "Python {version}: stacks are read from the frames, self-check passed")
            }
            Status::Fallback(version, reason) => write!(
                formatter,
                "Python {version}: {reason}; stacks are taken only in threads that hold the interpreter's lock"
            ),
            Status::Off(version, reason) => write!(formatter, "Python {version}: {reason}; no Python stacks"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_the_interpreters_text() {
        let parse = |text: &str| PythonVersion::parse(text.as_bytes());
        assert_eq!(parse("3.11.7 (main, Jan  1 2024)"), Some(PythonVersion { major: 3, minor: 11 }));
        assert_eq!(parse("3.15.0a2+ (heads/main)"), Some(PythonVersion { major: 3, minor: 15 }));
        assert_eq!(parse("3"), None);
        assert_eq!(parse(""), None);
        assert_eq!(parse("x.y"), None);
        assert!(PythonVersion { major: 3, minor: 8 } < PythonVersion::OLDEST);
        assert_eq!(PythonVersion { major: 3, minor: 11 }.code(), 0x30b);
    }

    #[test]
    fn every_status_is_one_line_for_people() {
        let version = PythonVersion { major: 3, minor: 16 };
        let text = Status::Fallback(version, FallbackReason::UnknownVersion).to_string();
        assert!(text.starts_with("Python 3.16: the frames of this version are not known; "), "{text}");
        assert!(!text.contains('\n'));
    }
}
