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

use std::collections::{BTreeMap, BTreeSet};
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
    /// Another process of the same rank is there that started when this one had ended.
    EarlierRun,
}

/// What tells jobs apart: the id that a launcher gave, or else how many processes there are, and where they were found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum JobKey {
    Id(String),
    WorldSize(Option<u32>),
}

/// Takes summaries in and gives the report.
#[derive(Debug, Default)]
pub struct Fleet {
    /// Processes with the place they were found in.
    jobs: BTreeMap<JobKey, Vec<(usize, Arc<Member>)>>,
    skipped: Vec<Skipped>,
}

impl Fleet {
    /// Takes a summary. Places tell runs apart that say nothing else of their job.
    pub fn add(&mut self, place: usize, path: PathBuf, summary: Summary) {
        self.add_member(place, Arc::new(Member::of(path, summary)));
    }

    /// Takes what somebody else has kept of a summary.
    pub fn add_member(&mut self, place: usize, member: Arc<Member>) {
        if member.state == RecordingState::Running {
            return self.skip(member.path.clone(), SkipReason::Partial, String::new());
        }
        let key = match &member.job {
            Some(job) => JobKey::Id(job.clone()),
            None => JobKey::WorldSize(member.world_size),
        };
        self.jobs.entry(key).or_default().push((place, member));
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
            let (id, runs) = match key {
                JobKey::Id(id) => (Some(id), vec![members.into_iter().map(|(_, member)| member).collect()]),
                JobKey::WorldSize(_) => (None, runs(members)),
            };
            for members in runs {
                let members = self.latest_of_each_rank(members);
                jobs.push(JobReport::of(id.clone(), members));
            }
        }
        jobs.sort_by_key(|job| std::cmp::Reverse(job.processes));
        self.skipped.sort_by(|left, right| (left.reason, &left.path).cmp(&(right.reason, &right.path)));
        let summaries = jobs.iter().map(|job| job.processes).sum();
        FleetReport { summaries, jobs, skipped: self.skipped }
    }

    /// Every process once: of several copies the one that saw most.
    fn each_once(&mut self, mut members: Vec<(usize, Arc<Member>)>) -> Vec<(usize, Arc<Member>)> {
        fn process(member: &Member) -> (Option<u32>, &str, u32, u64) {
            (member.rank, &member.host, member.process_id, member.start_ns)
        }
        members.sort_by(|(_, left), (_, right)| {
            let by_process = process(left).cmp(&process(right));
            by_process.then(right.end_ns.cmp(&left.end_ns)).then_with(|| left.path.cmp(&right.path))
        });
        let mut kept: Vec<(usize, Arc<Member>)> = Vec::with_capacity(members.len());
        for (place, member) in members {
            match kept.last().filter(|(_, last)| process(last) == process(&member)) {
                Some((_, same)) => {
                    let detail = format!("the same process as {}", same.path.display());
                    self.skip(member.path.clone(), SkipReason::Duplicate, detail);
                }
                None => kept.push((place, member)),
            }
        }
        kept
    }

    /// Of every rank the processes of its last run, the one with most memory first: a rank ran again if its processes
    /// began when all before them had ended. Those that run side by side help each other.
    fn latest_of_each_rank(&mut self, mut members: Vec<Arc<Member>>) -> Vec<Arc<Member>> {
        members.sort_by(|left, right| {
            let key = |member: &Arc<Member>| (member.rank.unwrap_or(u32::MAX), member.start_ns, member.end_ns);
            key(left).cmp(&key(right)).then_with(|| left.path.cmp(&right.path))
        });
        let mut kept: Vec<Arc<Member>> = Vec::with_capacity(members.len());
        for of_rank in members.chunk_by(|left, right| left.rank.is_some() && left.rank == right.rank) {
            let (mut first, mut end_ns) = (0, 0);
            for (index, member) in of_rank.iter().enumerate() {
                if index > 0 && member.start_ns >= end_ns {
                    first = index;
                }
                end_ns = end_ns.max(member.end_ns);
            }
            for earlier in &of_rank[..first] {
                let (rank, later) = (earlier.rank.unwrap_or_default(), of_rank[first].path.display());
                let detail = format!("rank {rank} ran again: {later}");
                self.skip(earlier.path.clone(), SkipReason::EarlierRun, detail);
            }
            let start = kept.len();
            kept.extend_from_slice(&of_rank[first..]);
            kept[start..].sort_by_key(|member| std::cmp::Reverse(member.peak_bytes()));
        }
        kept
    }
}

/// Processes whose job has no id, by run: those from one place, and places that have different ranks, as when every
/// machine has a directory of its own.
fn runs(members: Vec<(usize, Arc<Member>)>) -> Vec<Vec<Arc<Member>>> {
    let mut places: BTreeMap<usize, Vec<Arc<Member>>> = BTreeMap::new();
    members.into_iter().for_each(|(place, member)| places.entry(place).or_default().push(member));
    let mut runs: Vec<(BTreeSet<u32>, Vec<Arc<Member>>)> = Vec::new();
    for members in places.into_values() {
        let ranks: BTreeSet<u32> = members.iter().filter_map(|member| member.rank).collect();
        let is_same_run = |(others, _): &&mut (BTreeSet<u32>, _)| !ranks.is_empty() && others.is_disjoint(&ranks);
        match runs.iter_mut().filter(|(others, _)| !others.is_empty()).find(is_same_run) {
            Some((others, run)) => {
                others.extend(ranks);
                run.extend(members);
            }
            None => runs.push((ranks, members)),
        }
    }
    runs.into_iter().map(|(_, members)| members).collect()
}

#[cfg(test)]
mod tests {
    use super::summary::PoolNumbers;
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
        fleet.add(0, "a".into(), summary(Some(0), 10, None));
        fleet.add(0, "b".into(), summary(Some(0), 10, None));
        fleet.add(0, "c".into(), summary(Some(0), 5, None));
        fleet.add(0, "d".into(), summary(Some(1), 5, None));
        fleet.add(0, "e".into(), summary(None, 5, None));
        fleet.add(0, "f".into(), summary(None, 5, None));
        fleet.add(0, "g".into(), summary(None, 6, None));
        fleet.add(0, "h".into(), Summary { state: RecordingState::Running, ..summary(Some(2), 1, None) });
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
        fleet.add(0, "a".into(), summary(Some(0), 1, None));
        fleet.add(0, "b".into(), summary(Some(1), 9, None));
        fleet.add(0, "c".into(), summary(Some(0), 1, Some("17")));
        fleet.add(0, "d".into(), summary(Some(0), 1, Some("18")));
        let report = fleet.finish();
        let jobs: Vec<_> = report.jobs.iter().map(|job| (job.id.as_deref(), job.processes)).collect();
        assert_eq!(jobs, [(None, 2), (Some("17"), 1), (Some("18"), 1)]);
        assert_eq!(report.jobs[0].missing_ranks, [2, 3]);
    }

    fn run(rank: u32, process_id: u32, times: [u64; 2], peak_bytes: u64) -> Summary {
        let mut summary = summary(Some(rank), times[0], None);
        (summary.identity.process_id, summary.identity.end_ns) = (process_id, times[1]);
        summary.pools = vec![PoolNumbers { device: "0".to_owned(), peak_bytes, ..PoolNumbers::default() }];
        summary
    }

    #[test]
    fn of_one_process_the_copy_that_saw_most_counts() {
        let mut fleet = Fleet::default();
        fleet.add(0, "flight/1".into(), run(0, 7, [10, 20], 1));
        fleet.add(0, "later".into(), run(0, 7, [10, 90], 2));
        let report = fleet.finish();
        assert_eq!(report.jobs[0].matrix[0].peak_bytes, 2);
        assert_eq!((report.skipped.len(), report.skipped[0].reason), (1, SkipReason::Duplicate));
        assert_eq!(report.skipped[0].path, PathBuf::from("flight/1"));
    }

    #[test]
    fn processes_of_a_rank_that_run_side_by_side_help_each_other() {
        let mut fleet = Fleet::default();
        fleet.add(0, "before".into(), run(0, 1, [1, 5], 900));
        fleet.add(0, "helper".into(), run(0, 3, [20, 30], 10));
        fleet.add(0, "late helper".into(), run(0, 4, [60, 70], 20));
        fleet.add(0, "main".into(), run(0, 2, [10, 90], 400));
        fleet.add(0, "other".into(), run(1, 5, [10, 90], 400));
        fleet.add(0, "third".into(), run(2, 6, [10, 90], 400));
        let report = fleet.finish();
        let job = &report.jobs[0];
        let rows: Vec<_> =
            job.matrix.iter().map(|row| (row.rank, row.process_id, row.peak_bytes, row.is_helper)).collect();
        let expected = [
            (Some(0), 2, 400, false),
            (Some(0), 4, 20, true),
            (Some(0), 3, 10, true),
            (Some(1), 5, 400, false),
            (Some(2), 6, 400, false),
        ];
        assert_eq!(rows, expected);
        assert!(job.outliers.is_empty(), "{:?}", job.outliers);
        assert_eq!((job.processes, job.helpers), (5, 2));
        let skipped: Vec<_> = report.skipped.iter().map(|one| (one.path.to_str().unwrap(), one.reason)).collect();
        assert_eq!(skipped, [("before", SkipReason::EarlierRun)]);
    }

    #[test]
    fn places_are_runs_of_their_own_unless_their_ranks_differ() {
        let runs = |places: &[(usize, u32)]| -> Vec<u64> {
            let mut fleet = Fleet::default();
            for &(place, rank) in places {
                fleet.add(place, format!("{place}/{rank}").into(), run(rank, place as u32, [10, 20], 1));
            }
            fleet.finish().jobs.iter().map(|job| job.processes).collect()
        };
        assert_eq!(runs(&[(0, 0), (0, 1), (1, 0), (1, 1)]), [2, 2]);
        assert_eq!(runs(&[(0, 0), (0, 1), (1, 2), (1, 3)]), [4]);
    }
}
