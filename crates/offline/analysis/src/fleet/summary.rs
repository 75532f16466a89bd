//! What one process says of itself in a few kilobytes: `summary.json` beside its recording.
//!
//! The fields are documented in `docs/fleet.md`. A reader takes every summary of its own version and ignores fields it
//! does not know; a change that such a reader would misunderstand gets a new version.

use msmemscope_event::{Device, Pool, ProcessInfoKey};
use msmemscope_trace::{Completeness, Definitions};
use serde::{Deserialize, Serialize};

use super::groups::Division;
use crate::leaks::LeakGroup;
use crate::question::Answers;

/// Name of the file inside the directory of a process.
pub const SUMMARY_NAME: &str = "summary.json";
/// What the file says it is.
pub const FORMAT: &str = "msmemscope-summary";
/// The version that this program writes and reads.
pub const VERSION: u32 = 1;

/// The kind of call sites whose blocks were still there when the job was done with its devices.
pub(crate) const AFTER_FINALIZE: &str = "after_finalize";

/// Call sites kept of each kind and pool.
const MOST_SITES: usize = 20;
/// Owners kept of each pool.
const MOST_OWNERS: usize = 30;
/// Pieces of a curve.
const MOST_PIECES: usize = 128;

/// What became of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordingState {
    /// It ended in the normal way.
    #[default]
    Finished,
    /// It was killed, crashed or left with `_exit`.
    CutOff,
    /// It was still running when the summary was written, or when its recording was copied.
    Running,
}

/// The file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Always [`FORMAT`].
    pub format: String,
    /// See [`VERSION`].
    pub version: u32,
    /// Version of the program that wrote it.
    pub program_version: String,
    /// What became of the process.
    pub state: RecordingState,
    /// Who it was.
    pub identity: Identity,
    /// Events of the process.
    pub events: u64,
    /// Steps begun.
    pub steps: u64,
    /// Every pool on every device.
    pub pools: Vec<PoolNumbers>,
    /// Call sites that hold more and more, the largest first.
    pub leaks: Vec<SiteNumbers>,
    /// Call sites that held most at the peak of their pool.
    pub call_sites_at_peak: Vec<SiteNumbers>,
    /// Whether memory ran out.
    pub out_of_memory: Option<RanOut>,
    /// Events that were lost, as far as they were counted.
    pub lost_events: u64,
    /// What is missing, in words.
    pub losses: Vec<String>,
}

/// Who a process was.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Identity {
    /// Id of the job, if a launcher gave it one.
    pub job: Option<String>,
    /// Number among all processes of the job.
    pub rank: Option<u32>,
    /// Number among those of its machine.
    pub local_rank: Option<u32>,
    /// Processes of the job.
    pub world_size: Option<u32>,
    /// How the job is divided.
    #[serde(default)]
    pub division: Division,
    /// Name of its machine.
    pub host: String,
    /// Its number there.
    pub process_id: u32,
    /// What it was called as.
    pub command: String,
    /// First event, nanoseconds since 1970.
    pub start_ns: u64,
    /// Last event.
    pub end_ns: u64,
}

/// One pool on one device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PoolNumbers {
    /// Number of the NPU, or `cpu`.
    pub device: String,
    /// As in the column `Event Type` of dump files.
    pub pool: String,
    /// Most bytes in use.
    pub peak_bytes: u64,
    /// When that was.
    pub peak_ns: u64,
    /// In which step, zero if none.
    pub peak_step: u64,
    /// Bytes in use at the end.
    pub end_bytes: u64,
    /// Most bytes that the pool held.
    pub reserved_bytes: u64,
    /// Blocks allocated.
    pub allocations: u64,
    /// Blocks freed.
    pub frees: u64,
    /// Average growth per step in the second half of the steps.
    pub growth_bytes_per_step: Option<f64>,
    /// Owners at the peak, the largest first.
    pub owners_at_peak: Vec<OwnerNumbers>,
    /// Memory step by step.
    pub step_use: StepColumns,
    /// Most bytes in use in equally long pieces of time from the start of the process to its end.
    pub curve: Vec<u64>,
}

/// Bytes of one owner.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OwnerNumbers {
    /// The owner, levels joined by `@`.
    pub owner: String,
    /// Bytes.
    pub bytes: u64,
    /// Blocks.
    pub blocks: u64,
}

/// Memory step by step, as columns of equal length.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepColumns {
    /// Numbers of the steps; the last one where an entry stands for several.
    pub step: Vec<u64>,
    /// When each ended.
    pub ended_ns: Vec<u64>,
    /// Most bytes in use.
    pub peak_bytes: Vec<u64>,
    /// Bytes in use at the end.
    pub end_bytes: Vec<u64>,
}

/// Blocks of one call site.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SiteNumbers {
    /// `leak`, `possible_leak`, `after_finalize` or `peak`.
    pub kind: String,
    /// Device.
    pub device: String,
    /// Pool.
    pub pool: String,
    /// The line of code, or the best there is.
    pub line: String,
    /// The operator, if one ran.
    pub operator: String,
    /// Bytes.
    pub bytes: u64,
    /// Blocks.
    pub blocks: u64,
    /// Growth; zero at the peak.
    pub bytes_per_step: u64,
    /// Who holds them, if the job has looked.
    pub held_by: String,
}

/// That memory ran out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RanOut {
    /// How often the driver refused.
    pub failures: u64,
    /// How often a framework refused because of a limit.
    pub limit_failures: u64,
    /// Whether the job got over it.
    pub recovered: bool,
    /// When it first did.
    pub first_ns: u64,
    /// The failure that mattered: device, step, bytes asked for and where.
    pub device: String,
    /// Its step, zero if none.
    pub step: u64,
    /// Bytes asked for.
    pub requested_bytes: u64,
    /// The line that asked.
    pub line: String,
}

/// What the answers of one process say, besides what is asked of them here.
pub struct Told<'a> {
    /// The answers: leaks, owners, moments at the peak, curve, step use and out of memory.
    pub answers: &'a Answers,
    /// Names and identity.
    pub definitions: &'a Definitions,
    /// How complete the recording is.
    pub completeness: &'a Completeness,
    /// What is missing, in words.
    pub losses: Vec<String>,
    /// Whether the process still runs.
    pub is_running: bool,
}

impl Summary {
    /// Of one process.
    pub fn of(told: Told<'_>) -> Self {
        let Told { answers, definitions, completeness, losses, is_running } = told;
        let summary = &answers.summary;
        let place = definitions.place();
        let words = definitions.process_information(ProcessInfoKey::CommandLine).unwrap_or_default();
        let words: Vec<_> = words.split(|&byte| byte == 0).map(String::from_utf8_lossy).collect();
        let text = |key| definitions.process_information(key).map(|text| String::from_utf8_lossy(text).into_owned());
        let identity = Identity {
            job: text(ProcessInfoKey::Job).filter(|job| !job.is_empty()),
            rank: place.rank,
            local_rank: place.local_rank,
            world_size: place.world_size,
            division: Division::of_command(words.iter().map(|word| word.as_ref())),
            host: text(ProcessInfoKey::HostName).unwrap_or_default(),
            process_id: summary.process_id,
            command: words.join(" ").trim().to_owned(),
            start_ns: summary.first_timestamp_ns,
            end_ns: summary.last_timestamp_ns,
        };
        // What a flight recorder held at a moment was copied while the process ran.
        let state = match (is_running || completeness.is_moment, completeness.closed) {
            (true, _) => RecordingState::Running,
            (false, true) => RecordingState::Finished,
            (false, false) => RecordingState::CutOff,
        };
        let lost = completeness.losses.iter().filter(|(reason, _)| reason.loses_events());
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            program_version: env!("CARGO_PKG_VERSION").to_owned(),
            state,
            identity,
            events: summary.events_shown,
            steps: summary.steps,
            pools: pools(answers),
            leaks: leaks(answers),
            call_sites_at_peak: call_sites_at_peak(answers),
            out_of_memory: ran_out(answers),
            lost_events: lost.map(|(_, count)| count).sum(),
            losses,
        }
    }
}

fn pools(answers: &Answers) -> Vec<PoolNumbers> {
    let numbers = |pool: &msmemscope_timeline::PoolSummary| {
        let (device, kind) = (pool.device, pool.pool);
        let is_same = |(other_device, other_pool): (Device, Pool)| (other_device, other_pool) == (device, kind);
        let owners = answers.owners.iter().flat_map(|report| &report.pools);
        let owners = owners.clone().find(|owners| is_same((owners.device, owners.pool)));
        let growth = answers.leaks.iter().flat_map(|report| &report.growth);
        let growth = growth.clone().find(|growth| is_same((growth.device, growth.pool)));
        let curve = answers.curve.iter().flat_map(|report| &report.pools);
        let curve = curve.clone().find(|curve| is_same((curve.device, curve.pool)));
        let steps = answers.step_use.iter().flatten().find(|steps| is_same((steps.device, steps.pool)));
        let steps = steps.map_or(&[][..], |steps| &steps.steps);
        PoolNumbers {
            device: device.to_string(),
            pool: kind.event_type().to_owned(),
            peak_bytes: pool.peak_used_bytes,
            peak_ns: pool.peak_timestamp_ns,
            peak_step: owners.map_or(0, |owners| owners.peak_step),
            end_bytes: pool.end_used_bytes,
            reserved_bytes: pool.peak_total_bytes,
            allocations: pool.allocations,
            frees: pool.frees,
            growth_bytes_per_step: growth.and_then(|growth| growth.bytes_per_step()),
            owners_at_peak: owners.map_or(Vec::new(), |owners| {
                let named = owners.at_peak.iter().take(MOST_OWNERS);
                named
                    .map(|owner| OwnerNumbers { owner: owner.owner.clone(), bytes: owner.bytes, blocks: owner.blocks })
                    .collect()
            }),
            step_use: StepColumns {
                step: steps.iter().map(|step| step.step).collect(),
                ended_ns: steps.iter().map(|step| step.ended_ns).collect(),
                peak_bytes: steps.iter().map(|step| step.peak_bytes).collect(),
                end_bytes: steps.iter().map(|step| step.end_bytes).collect(),
            },
            curve: curve.map_or(Vec::new(), |curve| thinned(&curve.most_bytes)),
        }
    };
    answers.summary.pools.iter().map(numbers).collect()
}

/// A curve of fewer pieces.
fn thinned(most_bytes: &[u64]) -> Vec<u64> {
    let pieces = most_bytes.len().min(MOST_PIECES);
    let piece = |index: usize| &most_bytes[index * most_bytes.len() / pieces..(index + 1) * most_bytes.len() / pieces];
    (0..pieces).map(|index| piece(index).iter().copied().max().unwrap_or(0)).collect()
}

fn leaks(answers: &Answers) -> Vec<SiteNumbers> {
    let Some(report) = &answers.leaks else { return Vec::new() };
    let kinds =
        [("leak", &report.leaks), (AFTER_FINALIZE, &report.after_finalize), ("possible_leak", &report.possible_leaks)];
    let site = |kind: &str, group: &LeakGroup| SiteNumbers {
        kind: kind.to_owned(),
        device: group.device.to_string(),
        pool: group.pool.event_type().to_owned(),
        line: group.site.line.clone(),
        operator: group.site.operator.clone(),
        bytes: group.bytes,
        blocks: group.count,
        bytes_per_step: group.bytes_per_step,
        held_by: group.held_by.first().map_or(String::new(), |held| held.path.clone()),
    };
    kinds.iter().flat_map(|(kind, groups)| groups.iter().take(MOST_SITES).map(|group| site(kind, group))).collect()
}

fn call_sites_at_peak(answers: &Answers) -> Vec<SiteNumbers> {
    let pools = answers.moments.iter().flat_map(|report| &report.pools);
    let sites = pools.flat_map(|pool| {
        pool.lines.iter().take(MOST_SITES).map(|line| SiteNumbers {
            kind: "peak".to_owned(),
            device: pool.device.to_string(),
            pool: pool.pool.event_type().to_owned(),
            line: line.site.line.clone(),
            operator: line.operators.first().cloned().unwrap_or_default(),
            bytes: line.bytes,
            blocks: line.blocks,
            bytes_per_step: 0,
            held_by: line.held_by.first().map_or(String::new(), |held| held.path.clone()),
        })
    });
    sites.collect()
}

fn ran_out(answers: &Answers) -> Option<RanOut> {
    let report = answers.out_of_memory.as_ref().filter(|report| report.has_failures())?;
    let decisive = report.decisive();
    Some(RanOut {
        failures: report.failures,
        limit_failures: report.limit_failures,
        recovered: !report.is_alarming(),
        first_ns: report.details.iter().map(|failure| failure.timestamp_ns).min().unwrap_or(0),
        device: decisive.map_or(String::new(), |failure| failure.device.to_string()),
        step: decisive.map_or(0, |failure| failure.step),
        requested_bytes: decisive.map_or(0, |failure| failure.requested_bytes),
        line: decisive.map_or(String::new(), |failure| failure.site.line.clone()),
    })
}
