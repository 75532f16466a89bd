//! Many processes of a job together, from what each of them says of itself.
//!
//! * [`summary`]: what one process says, as `summary.json` beside its recording has it.
//! * [`groups`]: pipeline stages and tensor-parallel groups, as far as the command line of the job tells them.
//! * [`job`]: summaries of one job together: matrix, call sites, hosts, who ran out of memory first.
//! * [`outliers`]: which ranks are different, by robust statistics.
//!
//! A summary is looked at once and only a few numbers of it are kept, so that ten thousand fit into little memory.

pub mod groups;
pub mod job;
pub mod outliers;
pub mod summary;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;

use self::job::{JobReport, Member};
use self::summary::{RecordingState, Summary};

/// All jobs, and what was left out.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FleetReport {
    /// Summaries that count.
    pub summaries: u64,
    /// Jobs, the largest first.
    pub jobs: Vec<JobReport>,
    /// What was left out.
    pub skipped: Vec<Skipped>,
}

/// Something that was left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// Where.
    pub path: PathBuf,
    /// Why, in a word.
    pub reason: SkipReason,
    /// Details; empty if there are none.
    pub detail: String,
}

/// Why something was left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    /// It cannot be read, or is no summary.
    Damaged,
    /// A version of the tool wrote it whose summaries this one does not know.
    OtherVersion,
    /// It was written while the process was still running.
    Partial,
    /// A recording without summary.
    NoSummary,
    /// The same process once more.
    Duplicate,
    /// Another process of the same rank is there that started later.
    EarlierRun,
}

/// What tells jobs apart: the id that a launcher gave, or else how many processes there are.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum JobKey {
    Id(String),
    WorldSize(Option<u32>),
}

/// Takes summaries in and gives the report.
#[derive(Debug, Default)]
pub struct Fleet {
    jobs: BTreeMap<JobKey, Vec<Arc<Member>>>,
    skipped: Vec<Skipped>,
}

impl Fleet {
    /// Takes a summary.
    pub fn add(&mut self, path: PathBuf, summary: Summary) {
        self.add_member(Arc::new(Member::of(path, summary)));
    }

    /// Takes what somebody else has kept of a summary.
    pub fn add_member(&mut self, member: Arc<Member>) {
        if member.state == RecordingState::Running {
            return self.skip(member.path.clone(), SkipReason::Partial, String::new());
        }
        let key = match &member.job {
            Some(job) => JobKey::Id(job.clone()),
            None => JobKey::WorldSize(member.world_size),
        };
        self.jobs.entry(key).or_default().push(member);
    }

    /// Leaves something out.
    pub fn skip(&mut self, path: PathBuf, reason: SkipReason, detail: String) {
        self.skipped.push(Skipped { path, reason, detail });
    }

    /// What all say together.
    pub fn finish(mut self) -> FleetReport {
        let mut jobs = Vec::new();
        for (key, members) in std::mem::take(&mut self.jobs) {
            let members = self.each_once(members);
            let id = match key {
                JobKey::Id(id) => Some(id),
                JobKey::WorldSize(_) => None,
            };
            jobs.push(JobReport::of(id, members));
        }
        jobs.sort_by_key(|job| std::cmp::Reverse(job.processes));
        self.skipped.sort_by(|left, right| (left.reason, &left.path).cmp(&(right.reason, &right.path)));
        let summaries = jobs.iter().map(|job| job.processes).sum();
        FleetReport { summaries, jobs, skipped: self.skipped }
    }

    /// Every process once, and of every rank the process that started last.
    fn each_once(&mut self, mut members: Vec<Arc<Member>>) -> Vec<Arc<Member>> {
        members.sort_by(|left, right| {
            let key = |member: &Arc<Member>| (member.rank.unwrap_or(u32::MAX), std::cmp::Reverse(member.start_ns));
            key(left).cmp(&key(right)).then_with(|| left.path.cmp(&right.path))
        });
        let mut kept: Vec<Arc<Member>> = Vec::with_capacity(members.len());
        for member in members {
            let is_same = |other: &Arc<Member>| {
                (&other.host, other.process_id, other.start_ns) == (&member.host, member.process_id, member.start_ns)
            };
            // Those of one rank follow each other, and so do those without one that started at the same time.
            let same = kept.iter().rev().take_while(|other| other.rank == member.rank).find(|other| is_same(other));
            let later = kept.last().filter(|other| member.rank.is_some() && other.rank == member.rank);
            match (same, later) {
                (Some(same), _) => {
                    let detail = format!("the same process as {}", same.path.display());
                    self.skip(member.path.clone(), SkipReason::Duplicate, detail);
                }
                (None, Some(later)) => {
                    let detail = format!("rank {} ran again: {}", later.rank.unwrap_or_default(), later.path.display());
                    self.skip(member.path.clone(), SkipReason::EarlierRun, detail);
                }
                (None, None) => kept.push(member),
            }
        }
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(rank: Option<u32>, start_ns: u64, job: Option<&str>) -> Summary {
        let mut summary = Summary::default();
        summary.identity.rank = rank;
        summary.identity.world_size = Some(4);
        summary.identity.start_ns = start_ns;
        summary.identity.process_id = 7;
        summary.identity.job = job.map(str::to_owned);
        summary
    }

    #[test]
    fn every_process_counts_once_and_the_last_run_of_a_rank() {
        let mut fleet = Fleet::default();
        fleet.add("a".into(), summary(Some(0), 10, None));
        fleet.add("b".into(), summary(Some(0), 10, None));
        fleet.add("c".into(), summary(Some(0), 5, None));
        fleet.add("d".into(), summary(Some(1), 5, None));
        fleet.add("e".into(), summary(None, 5, None));
        fleet.add("f".into(), summary(None, 5, None));
        fleet.add("g".into(), summary(None, 6, None));
        fleet.add("h".into(), Summary { state: RecordingState::Running, ..summary(Some(2), 1, None) });
        let report = fleet.finish();
        assert_eq!((report.summaries, report.jobs.len()), (4, 1));
        let skipped: Vec<_> = report.skipped.iter().map(|one| (one.path.to_str().unwrap(), one.reason)).collect();
        let expected = [
            ("h", SkipReason::Partial),
            ("b", SkipReason::Duplicate),
            ("f", SkipReason::Duplicate),
            ("c", SkipReason::EarlierRun),
        ];
        assert_eq!(skipped, expected);
    }

    #[test]
    fn world_size_makes_a_job_unless_an_id_says_otherwise() {
        let mut fleet = Fleet::default();
        fleet.add("a".into(), summary(Some(0), 1, None));
        fleet.add("b".into(), summary(Some(1), 9, None));
        fleet.add("c".into(), summary(Some(0), 1, Some("17")));
        fleet.add("d".into(), summary(Some(0), 1, Some("18")));
        let report = fleet.finish();
        let jobs: Vec<_> = report.jobs.iter().map(|job| (job.id.as_deref(), job.processes)).collect();
        assert_eq!(jobs, [(None, 2), (Some("17"), 1), (Some("18"), 1)]);
        assert_eq!(report.jobs[0].missing_ranks, [2, 3]);
    }
}
