//! Processes of which there is a summary: shown among all ranks without opening their recordings.
//!
//! Of a few ranks everything is read at once, as that is what whoever opens them wants to see. Of many ranks, their
//! summaries say which one to look at, and a recording is opened when somebody asks about it. Where only summaries were
//! copied together, they are all there is.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use msmemscope_analysis::fleet::job::Member;
use msmemscope_analysis::fleet::summary::{PoolNumbers, RecordingState, Summary};
use msmemscope_analysis::fleet::{SkipReason, Skipped};
use msmemscope_report::fleet::skipped;
use msmemscope_results::fleet::visit;

use crate::entry::{Identity, name_and_path};

/// What is kept of a summary.
#[derive(Debug)]
pub(crate) struct Summarised {
    pub(crate) identity: Identity,
    /// What all ranks are compared by.
    pub(crate) member: Arc<Member>,
    /// All pools, without their curves, owners and steps.
    pub(crate) pools: Vec<PoolNumbers>,
    pub(crate) events: u64,
    pub(crate) steps: u64,
    /// What the recording lacks, in sentences.
    pub(crate) losses: Vec<String>,
}

impl Summarised {
    fn of(path: PathBuf, summary: Summary) -> Self {
        let (name, directory) = name_and_path(path.parent().unwrap_or(&path));
        let known = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let identity = &summary.identity;
        let without_columns = |pool: &PoolNumbers| PoolNumbers {
            device: pool.device.clone(),
            pool: pool.pool.clone(),
            owners_at_peak: Vec::new(),
            step_use: Default::default(),
            curve: Vec::new(),
            ..*pool
        };
        Self {
            identity: Identity {
                name,
                path: directory,
                is_dump: false,
                process_id: identity.process_id,
                rank: identity.rank,
                world_size: identity.world_size,
                host: known(&identity.host),
                command: known(&identity.command),
                first_ns: identity.start_ns,
                last_ns: identity.end_ns.max(identity.start_ns),
            },
            pools: summary.pools.iter().map(without_columns).collect(),
            events: summary.events,
            steps: summary.steps,
            losses: summary.losses.clone(),
            member: Arc::new(Member::of(path, summary)),
        }
    }
}

/// Summaries by the directory of their process.
#[derive(Default)]
pub(crate) struct Summaries {
    pub(crate) usable: BTreeMap<PathBuf, Summarised>,
    unusable: Vec<Skipped>,
}

impl Summaries {
    /// Those below some paths.
    pub(crate) fn below(paths: &[PathBuf]) -> Self {
        let mut summaries = Self::default();
        visit(paths, |path, looked_at| match looked_at {
            Ok(summary) if summary.state == RecordingState::Running => {
                summaries.unusable.push(Skipped { path, reason: SkipReason::Partial, detail: String::new() });
            }
            Ok(summary) => {
                let directory = path.parent().unwrap_or(&path).to_owned();
                summaries.usable.insert(directory, Summarised::of(path, *summary));
            }
            // Its recording is read instead.
            Err((SkipReason::NoSummary, _)) => {}
            Err((reason, detail)) => summaries.unusable.push(Skipped { path, reason, detail }),
        });
        summaries.unusable.sort_by(|left, right| left.path.cmp(&right.path));
        summaries
    }

    /// Whether there is any below a directory, also one of no use.
    pub(crate) fn has_any_below(&self, directory: &Path) -> bool {
        let mut all = self.usable.keys().chain(self.unusable.iter().map(|one| &one.path));
        all.any(|path| path.starts_with(directory))
    }

    /// What cannot be shown for want of a usable summary and of the recording itself, in one line.
    pub(crate) fn notice(&self, has_recording: impl Fn(&Path) -> bool) -> Option<String> {
        let is_lost = |one: &&Skipped| one.path.parent().is_none_or(|directory| !has_recording(directory));
        let lost: Vec<Skipped> = self.unusable.iter().filter(is_lost).cloned().collect();
        let text = skipped(&lost);
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        (!lines.is_empty()).then(|| lines.join("; "))
    }
}
