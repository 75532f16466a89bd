//! Recordings in the formats of other tools, one module per format.
//!
//! * [`folded`], [`speedscope`], [`pprof`], [`firefox_profiler`]: memory by call stack, of one moment or all together; they share [`sites`].
//! * [`kernels`]: every launch of a kernel, with the memory that belongs to it.
//! * [`perfetto`]: what happened, in time; streamed.
//! * `parquet`: a dataset for SQL engines, of any number of recordings; with the feature of that name.
//! * [`torch_snapshot`]: the state at the end and the way there, as PyTorch writes it.
//!
//! [`Format`] is the list of them. [`protobuf`] and [`pickle`] write the encodings that some need.
#![forbid(unsafe_code)]

mod firefox_profiler;
mod folded;
mod kernels;
#[cfg(feature = "parquet")]
pub mod parquet;
mod perfetto;
mod pickle;
mod pprof;
mod protobuf;
mod sites;
mod speedscope;
mod torch_snapshot;

use std::io::{self, Write};

use msmemscope_import::Recording;
use msmemscope_timeline::{TimelineSettings, detect_step_source};

/// A format of another tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One line per stack, for flame graph programs.
    Folded,
    /// JSON of speedscope.
    Speedscope,
    /// Protobuf of pprof, compressed.
    Pprof,
    /// JSON of the Firefox Profiler.
    FirefoxProfiler,
    /// Protobuf of Perfetto.
    Perfetto,
    /// Pickle of PyTorch's memory snapshots.
    TorchSnapshot,
    /// A table of all launches of kernels, as csv.
    Kernels,
}

impl Format {
    /// All formats.
    pub const ALL: [Self; 7] = [
        Self::Perfetto,
        Self::Folded,
        Self::Speedscope,
        Self::Pprof,
        Self::FirefoxProfiler,
        Self::TorchSnapshot,
        Self::Kernels,
    ];

    /// The word users write.
    pub fn word(self) -> &'static str {
        match self {
            Self::Folded => "folded",
            Self::Speedscope => "speedscope",
            Self::Pprof => "pprof",
            Self::FirefoxProfiler => "firefox-profiler",
            Self::Perfetto => "perfetto",
            Self::TorchSnapshot => "torch-snapshot",
            Self::Kernels => "kernels",
        }
    }

    /// The format with a name.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.word() == word)
    }

    /// What a file is called if nobody gave it a name.
    pub fn file_name(self) -> &'static str {
        match self {
            Self::Folded => "memory.folded",
            Self::Speedscope => "memory.speedscope.json",
            Self::Pprof => "memory.pb.gz",
            Self::FirefoxProfiler => "memory.firefox-profile.json",
            Self::Perfetto => "memory.perfetto-trace",
            Self::TorchSnapshot => "memory_snapshot.pickle",
            Self::Kernels => "kernels.csv",
        }
    }

    /// What opens it.
    pub fn opened_by(self) -> &'static str {
        match self {
            Self::Folded => "flamegraph.pl, inferno-flamegraph, or https://speedscope.app",
            Self::Speedscope => "https://speedscope.app, or 'npx speedscope' without a connection",
            Self::Pprof => "'go tool pprof -http=: <file>', Grafana Pyroscope, or https://ui.perfetto.dev",
            Self::FirefoxProfiler => "https://profiler.firefox.com, or 'samply load <file>'",
            Self::Perfetto => "https://ui.perfetto.dev",
            Self::Kernels => "spreadsheets, or pandas.read_csv",
            Self::TorchSnapshot => "https://pytorch.org/memory_viz, or torch.cuda._memory_viz",
        }
    }

    /// What it needs and not every recording has, with how to get it.
    pub fn needs(self) -> &'static str {
        match self {
            Self::Kernels => "launches of kernels: record with --level=op,kernel",
            Self::TorchSnapshot => "memory of a device",
            _ => "memory",
        }
    }

    /// Whether one file can hold several processes.
    pub fn holds_several_processes(self) -> bool {
        self != Self::TorchSnapshot
    }

    /// Whether it shows one kind of memory only, which must be chosen.
    pub fn shows_one_kind(self) -> bool {
        self == Self::Folded
    }
}

/// Which memory a call stack is charged with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemoryKind {
    /// What was in use when the pool used most.
    #[default]
    Peak,
    /// What was never freed.
    Alive,
    /// All that was ever allocated.
    Allocated,
}

impl MemoryKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Peak, Self::Alive, Self::Allocated];

    /// The word users write.
    pub fn word(self) -> &'static str {
        match self {
            Self::Peak => "peak",
            Self::Alive => "alive",
            Self::Allocated => "allocated",
        }
    }

    /// In the title of a profile.
    pub(crate) fn phrase(self) -> &'static str {
        match self {
            Self::Peak => "at the peak",
            Self::Alive => "never freed",
            Self::Allocated => "allocated in all",
        }
    }

    /// The kind with a name; what was never freed is also known as leaked.
    pub fn from_word(word: &str) -> Option<Self> {
        match word {
            "leaked" => Some(Self::Alive),
            word => Self::ALL.into_iter().find(|kind| kind.word() == word),
        }
    }
}

/// Takes facts done and all facts, from time to time.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);

/// Writes recordings in a format. Where the format shows one kind of memory only, `kind` says which. Returns whether the
/// recordings have what the format [needs](Format::needs); a file without it is whole, but shows nothing.
pub fn export(
    recordings: &[Recording],
    format: Format,
    kind: MemoryKind,
    out: &mut dyn Write,
    progress: Progress<'_>,
) -> io::Result<bool> {
    match format {
        // What happened can be looked at without any memory, too.
        Format::Perfetto => return perfetto::write(recordings, out, progress).map(|()| true),
        Format::TorchSnapshot => return torch_snapshot::write(recordings, out, progress),
        Format::Kernels => return kernels::write(recordings, out, progress),
        Format::Folded | Format::Speedscope | Format::Pprof | Format::FirefoxProfiler => {}
    }
    let sites = sites::collect(recordings, progress);
    match format {
        Format::Folded => folded::write(&sites, kind, out),
        Format::Speedscope => speedscope::write(&sites, out),
        Format::Pprof => pprof::write(&sites, out),
        _ => firefox_profiler::write(&sites, out),
    }?;
    Ok(!sites.pools.is_empty())
}

/// Everything that was recorded, with steps from wherever they are known. What is alive at the end stays alive.
fn everything(recording: &Recording) -> TimelineSettings {
    TimelineSettings { process_ended: false, step_source: detect_step_source(recording), ..TimelineSettings::default() }
}
