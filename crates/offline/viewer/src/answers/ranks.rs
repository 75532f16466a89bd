//! `ranks`: all processes beside each other, job by job, as `msmemscope fleet` puts them together. What is known of a
//! process comes from its summary, or from its recording where that has been read.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use msmemscope_analysis::fleet::job::{JobReport, Member, Outlier};
use msmemscope_analysis::fleet::outliers::{Difference, Measure};
use msmemscope_analysis::fleet::{Fleet, SkipReason};
use msmemscope_report::fleet::{heading, outlier_sentence, sentences};
use msmemscope_report::units::counted;
use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::{Value, json};

use crate::entry::locked;
use crate::session::Opened;

/// The comparison, kept as long as nothing else is known: of thousands of ranks it takes a moment.
#[derive(Default)]
pub(crate) struct Ranks {
    latest: Mutex<Option<(Vec<Arc<Member>>, Value)>>,
}

impl Ranks {
    pub(super) fn answer(&self, opened: &Opened) -> Value {
        let progress = opened.progress();
        let known: Vec<(usize, Arc<Member>)> = opened
            .entries
            .iter()
            .enumerate()
            .filter_map(|(number, entry)| Some((number, entry.member(number)?)))
            .collect();
        let mut latest = locked(&self.latest);
        let is_same = |members: &Vec<Arc<Member>>| {
            members.len() == known.len() && members.iter().zip(&known).all(|(one, (_, other))| Arc::ptr_eq(one, other))
        };
        let mut answer = match &*latest {
            Some((members, answer)) if is_same(members) => answer.clone(),
            _ => {
                let answer = compare(&known, &opened.places);
                *latest = Some((known.into_iter().map(|(_, member)| member).collect(), answer.clone()));
                answer
            }
        };
        answer["complete"] = json!(progress.is_complete);
        answer["fraction"] = json!(progress.fraction);
        answer
    }
}

/// Jobs in their order, of each its rows; earlier runs of the same ranks are jobs of their own.
fn compare(known: &[(usize, Arc<Member>)], places: &[PathBuf]) -> Value {
    let numbers: FxHashMap<&Path, usize> = known.iter().map(|(number, member)| (member.path(), *number)).collect();
    let (mut jobs, mut rows, mut copies) = (Vec::new(), Vec::new(), 0u64);
    let mut left: Vec<&Arc<Member>> = known.iter().map(|(_, member)| member).collect();
    while !left.is_empty() {
        let mut fleet = Fleet::default();
        let place = |member: &Member| places.iter().position(|place| member.path().starts_with(place));
        left.iter().for_each(|member| fleet.add_member(place(member).unwrap_or(0), Arc::clone(member)));
        let report = fleet.finish();
        for job in &report.jobs {
            let number = jobs.len();
            jobs.push(json!({
                "heading": heading(job),
                "command": job.command,
                "sentences": sentences(job, "the table names them all"),
            }));
            rows.extend(job.matrix.iter().enumerate().map(|(place, _)| row(number, job, place, &numbers)));
        }
        copies += report.skipped.iter().filter(|one| one.reason == SkipReason::Duplicate).count() as u64;
        let earlier = report.skipped.iter().filter(|one| one.reason == SkipReason::EarlierRun);
        let earlier: FxHashSet<&Path> = earlier.map(|one| one.path.as_path()).collect();
        left.retain(|member| earlier.contains(member.path()));
    }
    let notice =
        (copies > 0).then(|| format!("{} left out here: copies of the same processes.", counted(copies, "recording")));
    json!({ "jobs": jobs, "rows": rows, "notice": notice })
}

fn row(number: usize, job: &JobReport, place: usize, numbers: &FxHashMap<&Path, usize>) -> Value {
    let row = &job.matrix[place];
    let outlier = job.outliers.iter().find(|outlier| outlier.row == place);
    json!({
        "r": numbers.get(row.path.as_path()),
        "job": number,
        "rank": row.rank,
        "helper": row.is_helper,
        "host": (!row.host.is_empty()).then_some(&row.host),
        "process_id": row.process_id,
        "device": row.device,
        "pool": row.pool,
        "peak_bytes": row.peak_bytes,
        "unused_bytes": row.unused_bytes,
        "end_bytes": row.end_bytes,
        "bytes_per_step": row.growth_bytes_per_step,
        "leaked_bytes": row.leaked_bytes,
        "allocations": row.allocations,
        "out_of_memory": row.ran_out,
        "steps": row.steps,
        "stage": row.stage,
        "outlier": outlier.map_or(Vec::new(), |outlier| outlier.differences.iter().map(difference).collect()),
        "sentence": outlier.map(|outlier: &Outlier| outlier_sentence(job, outlier)),
    })
}

fn difference(difference: &Difference) -> Value {
    let figure = match difference.measure {
        Measure::Growth => "bytes_per_step",
        Measure::Peak => "peak_bytes",
        Measure::End => "end_bytes",
        Measure::Unused => "unused_bytes",
        Measure::Allocations => "allocations",
        Measure::Steps => "steps",
    };
    // Beside a median of zero everything is infinitely many times as much, which JSON cannot say.
    let times = difference.value / difference.median;
    json!({ "figure": figure, "times_median": times.is_finite().then_some(times) })
}
