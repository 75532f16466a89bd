//! One pass over a recording that answers several questions at once.

use std::path::Path;

use msmemscope_import::Recording;
use msmemscope_timeline::{
    EventKind, EventSink, StepSource, Summary, TimelineEvent, TimelineSettings, detect_step_source,
};
use serde::Serialize;

use crate::decompose::{Decomposition, OwnerReport};
use crate::fluctuation::{Fluctuation, PoolFluctuation};
use crate::fragmentation::{Fragmentation, FragmentationReport};
use crate::inefficient::{Inefficient, InefficientReport, InefficientSettings};
use crate::leaks::{LeakReport, Leaks};
use crate::marks::{MarkLeakReport, MarkLeaks, MarkSettings};
use crate::moment::{Moment, MomentReport, Moments};
use crate::names::{Names, RecordingNames};
use crate::notes::Notes;
use crate::out_of_memory::{OutOfMemory, OutOfMemoryReport};
use crate::owners::{Owners, OwnersOfAll};
use crate::situation::{BlockChange, Situation, StepChange};
use crate::unseen::{UnseenPool, unseen_pools};
use crate::watch::{WatchReport, Watches};

/// Which questions to answer.
#[derive(Clone, Debug, Default)]
pub struct Questions {
    /// Leaks over steps.
    pub leaks: bool,
    /// Fluctuation within steps.
    pub fluctuation: bool,
    /// Leaks between three marks.
    pub marks: Option<MarkSettings>,
    /// Owners of memory at the peak, at the end, and at the end of this step.
    pub owners: Option<OwnerQuestion>,
    /// Inefficient use.
    pub inefficient: Option<InefficientSettings>,
    /// Out-of-memory failures, with this many blocks listed.
    pub out_of_memory: Option<usize>,
    /// Fragmentation of pools.
    pub fragmentation: bool,
    /// The owner of every single block, for rows of files; four bytes per allocation.
    pub owners_of_all: bool,
    /// Watched blocks.
    pub watch: bool,
    /// What holds memory at these moments, by line of code.
    pub moments: Vec<Moment>,
}

/// What to say about owners.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnerQuestion {
    /// Also at the end of this step.
    pub step: Option<u64>,
}

impl Questions {
    /// Everything that needs no further input.
    pub fn all() -> Self {
        Self {
            leaks: true,
            fluctuation: true,
            marks: None,
            owners: Some(OwnerQuestion::default()),
            inefficient: Some(InefficientSettings::default()),
            out_of_memory: Some(crate::out_of_memory::DEFAULT_LISTED_BLOCKS),
            fragmentation: true,
            owners_of_all: false,
            watch: true,
            moments: vec![Moment::Peak],
        }
    }
}

/// All answers about one process.
#[derive(Debug, Serialize)]
pub struct Answers {
    /// The process.
    pub process_id: u32,
    /// Peaks and totals of all pools.
    #[serde(serialize_with = "crate::pool_use::serialize")]
    pub summary: Summary,
    /// Pools that the recording knows nothing of.
    pub unseen_pools: Vec<UnseenPool>,
    /// What held memory at the peak and at other moments, by line of code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moments: Option<MomentReport>,
    /// Leaks over steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leaks: Option<LeakReport>,
    /// Fluctuation within steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fluctuation: Option<Vec<PoolFluctuation>>,
    /// Leaks between three marks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub marks: Option<MarkLeakReport>,
    /// Owners of memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owners: Option<OwnerReport>,
    /// Inefficient use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inefficient: Option<InefficientReport>,
    /// Out-of-memory failures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub out_of_memory: Option<OutOfMemoryReport>,
    /// Fragmentation of pools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fragmentation: Option<FragmentationReport>,
    /// Watched blocks, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watch: Option<WatchReport>,
    /// What rows of the blocks should say.
    #[serde(skip)]
    pub notes: Notes,
    /// Owners of all blocks, if they were asked for.
    #[serde(skip)]
    pub block_owners: Option<Owners>,
}

/// The state of a pass.
pub struct Pass<'a> {
    names: &'a dyn Names,
    situation: Situation,
    leaks: Option<Leaks>,
    fluctuation: Option<Fluctuation>,
    marks: Option<MarkLeaks>,
    owners: Option<Decomposition>,
    inefficient: Option<Inefficient>,
    out_of_memory: Option<OutOfMemory>,
    fragmentation: Option<Fragmentation>,
    owners_of_all: Option<OwnersOfAll>,
    watch: Option<Watches>,
    moments: Option<Moments>,
}

impl<'a> Pass<'a> {
    /// A pass before its first event.
    pub fn new(
        questions: &Questions,
        mut situation: Situation,
        names: &'a dyn Names,
        step_source: Option<StepSource>,
        knows_all_refusals: bool,
    ) -> Self {
        if let Some(first_number) = step_source.and_then(StepSource::first_number) {
            situation.begin_with_step(first_number);
        }
        Self {
            names,
            situation,
            // The reason of an out-of-memory failure may be a leak.
            leaks: (questions.leaks || questions.out_of_memory.is_some()).then(Leaks::default),
            fluctuation: questions.fluctuation.then(Fluctuation::default),
            marks: questions.marks.clone().map(MarkLeaks::new),
            owners: questions.owners.map(|question| Decomposition::new(question.step)),
            inefficient: questions.inefficient.clone().map(Inefficient::new),
            out_of_memory: questions.out_of_memory.map(|listed| OutOfMemory::new(listed, knows_all_refusals)),
            fragmentation: questions.fragmentation.then(Fragmentation::default),
            owners_of_all: questions.owners_of_all.then(OwnersOfAll::default),
            watch: None,
            moments: (!questions.moments.is_empty()).then(|| Moments::new(questions.moments.clone())),
        }
    }

    #[inline]
    fn block(&mut self, change: &BlockChange<'_>, event: &TimelineEvent) {
        if let Some(leaks) = &mut self.leaks {
            leaks.block(change, &self.situation);
        }
        if let Some(fluctuation) = &mut self.fluctuation {
            fluctuation.block(change, &self.situation);
        }
        if let Some(marks) = &mut self.marks {
            marks.block(change);
        }
        if let Some(owners) = &mut self.owners {
            owners.block(change);
        }
        if let Some(inefficient) = &mut self.inefficient {
            inefficient.block(change, event);
        }
        if let Some(out_of_memory) = &mut self.out_of_memory {
            out_of_memory.block(change, event);
        }
        if let Some(fragmentation) = &mut self.fragmentation {
            fragmentation.block(change, &self.situation);
        }
        if let Some(moments) = &mut self.moments {
            moments.block(change, &self.situation);
        }
        if let (Some(watch), BlockChange::Ends(live, _)) = (&mut self.watch, change) {
            watch.ended(live, event.timestamp_ns);
        }
    }

    fn step(&mut self, change: &StepChange) {
        if let Some(leaks) = &mut self.leaks {
            leaks.step(change, &self.situation);
        }
        if let Some(fluctuation) = &mut self.fluctuation {
            fluctuation.step(change, &self.situation);
        }
        if let Some(owners) = &mut self.owners {
            owners.step(change, &self.situation);
        }
        if let Some(fragmentation) = &mut self.fragmentation {
            fragmentation.step(change, &self.situation);
        }
        if let Some(moments) = &mut self.moments {
            moments.step(change, &self.situation);
        }
    }

    fn other(&mut self, event: &TimelineEvent) {
        match &event.kind {
            EventKind::Operator { .. } | EventKind::Access { .. } => {
                if let Some(inefficient) = &mut self.inefficient {
                    inefficient.event(event, &self.situation, self.names);
                }
            }
            EventKind::Watch(look) => {
                if let Some(watch) = &mut self.watch {
                    watch.look(event, look, &self.situation, self.names);
                }
            }
            EventKind::Mark { message, .. } => {
                if let Some(marks) = &mut self.marks {
                    marks.mark(event, message);
                }
            }
            EventKind::AllocationFailed { .. } | EventKind::CardSample { .. } | EventKind::Snapshot { .. } => {
                if let Some(out_of_memory) = &mut self.out_of_memory {
                    out_of_memory.event(event, &self.situation, self.leaks.as_ref(), self.names);
                }
            }
            _ => {}
        }
    }

    /// All answers. Call after the last event.
    pub fn finish(self, questions: &Questions, summary: Summary) -> Answers {
        let names = self.names;
        let situation = &self.situation;
        let mut notes = Notes::default();
        let leaks = self.leaks.filter(|_| questions.leaks).map(|leaks| leaks.finish(summary.steps, situation, names));
        let inefficient = self.inefficient.map(|inefficient| inefficient.finish(situation, names, &mut notes));
        let out_of_memory = self.out_of_memory.map(OutOfMemory::finish);
        for failure in out_of_memory.iter().flat_map(|report| &report.details) {
            notes.add_failure(failure);
        }
        let block_owners = self.owners_of_all.map(|mut owners| {
            situation.live_blocks().for_each(|block| owners.add(block));
            owners.finish(|owner| situation.owner_text(owner, names))
        });
        Answers {
            process_id: summary.process_id,
            unseen_pools: Vec::new(),
            moments: self.moments.map(|moments| moments.finish(situation, names)),
            leaks,
            fluctuation: self.fluctuation.map(Fluctuation::finish),
            marks: self.marks.map(|marks| marks.finish(situation, names)),
            owners: self.owners.map(|owners| owners.finish(situation, names)),
            inefficient,
            out_of_memory,
            fragmentation: self.fragmentation.map(|fragmentation| fragmentation.finish(situation)),
            watch: self.watch.map(Watches::finish).filter(|report| !report.is_empty()),
            notes,
            block_owners,
            summary,
        }
    }
}

impl EventSink for Pass<'_> {
    #[inline]
    fn take(&mut self, event: TimelineEvent) {
        let (ended, step) = self.situation.update(&event, self.names);
        match &event.kind {
            EventKind::Malloc(block) => {
                // Copied out because the analyses may look at the situation as well.
                if let Some(live) = self.situation.block(block.slot).copied() {
                    self.block(&BlockChange::Begins(&live, block), &event);
                }
            }
            EventKind::Free(block) => {
                if let Some(live) = ended {
                    self.block(&BlockChange::Ends(&live, block), &event);
                    if let Some(owners) = &mut self.owners_of_all {
                        owners.add(&live);
                    }
                }
            }
            _ => self.other(&event),
        }
        if let Some(change) = step {
            self.step(&change);
        }
    }
}

/// Makes one pass over a recording.
pub fn analyze(recording: &Recording, questions: &Questions, progress: &mut dyn FnMut(u64, u64)) -> Answers {
    let names = RecordingNames::new(recording);
    // Blocks alive at the end must stay alive: a closing free would hide them.
    let settings = TimelineSettings {
        process_ended: false,
        step_source: detect_step_source(recording),
        ..TimelineSettings::default()
    };
    // Rows of dump files name what the driver refused only if that was asked for.
    let knows_all_refusals = match recording {
        Recording::Trace { trace, .. } => trace.completeness().is_complete(),
        Recording::Process(_) => false,
    };
    let mut pass = Pass::new(questions, Situation::of(recording), &names, settings.step_source, knows_all_refusals);
    if questions.watch {
        pass.watch = Some(Watches::new(recording.directory().map(Path::to_owned)));
    }
    let summary = msmemscope_timeline::run(recording, &settings, &mut pass, progress);
    let unseen_pools = unseen_pools(recording, &summary);
    Answers { unseen_pools, ..pass.finish(questions, summary) }
}
