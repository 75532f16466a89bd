//! Moments of a running job that the user wants to know of at once, and what is to be done then. The launcher watches for
//! them; the job knows nothing of it.

/// A moment worth knowing of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Trigger {
    /// The driver refuses memory, or a framework runs out of it.
    OutOfMemory,
    /// Memory in use grows faster than this.
    Growth(GrowthRate),
    /// More memory is in use than ever before, or than this many bytes.
    Peak(Option<u64>),
    /// Somebody sends SIGUSR2 to the launcher.
    Signal,
    /// The job ends.
    End,
}

/// So many bytes in a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GrowthRate {
    /// Bytes.
    pub bytes: u64,
    /// Seconds in which they are reached.
    pub seconds: u64,
}

impl GrowthRate {
    /// What a leak is if nobody says.
    pub const DEFAULT: GrowthRate = GrowthRate { bytes: 1 << 30, seconds: 3600 };
}

impl Trigger {
    /// What holds for a flight recorder if nobody says.
    pub const DEFAULT: [Trigger; 2] = [Trigger::OutOfMemory, Trigger::Signal];

    /// The words of all kinds.
    pub const WORDS: [&str; 5] = ["oom", "growth", "peak", "signal", "end"];

    /// The word for its kind.
    pub fn word(self) -> &'static str {
        match self {
            Trigger::OutOfMemory => "oom",
            Trigger::Growth(_) => "growth",
            Trigger::Peak(_) => "peak",
            Trigger::Signal => "signal",
            Trigger::End => "end",
        }
    }
}

/// A command that is to be run at a moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reaction {
    /// When.
    pub trigger: Trigger,
    /// What, for the shell.
    pub command: String,
}
