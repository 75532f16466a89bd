//! One pass over a recording that answers several questions at once.

use msmemscope_import::Recording;
use msmemscope_timeline::{
    EventKind, EventSink, FactSource, StepSource, Summary, TimelineEvent, TimelineSettings, detect_step_source,
};

use crate::names::{Names, RecordingNames};
use crate::out_of_memory::OutOfMemoryReport;
use crate::question::{About, Answers, Asked, Questions};
use crate::remedy;
use crate::situation::{BlockChange, Situation};
use crate::step_source::StepsFrom;
use crate::unseen::unseen_pools;

/// The state of a pass.
pub struct Pass<'a> {
    names: &'a dyn Names,
    situation: Situation,
    asked: Asked,
}

impl<'a> Pass<'a> {
    /// A pass before its first event.
    pub fn new(
        questions: &Questions,
        about: &About<'_>,
        mut situation: Situation,
        names: &'a dyn Names,
        step_source: Option<StepSource>,
    ) -> Self {
        if let Some(first_number) = step_source.and_then(StepSource::first_number) {
            situation.begin_with_step(first_number);
        }
        Self { names, situation, asked: Asked::new(questions, about) }
    }

    /// All answers. Call after the last event.
    pub fn finish(self, summary: Summary) -> Answers {
        self.asked.finish(&self.situation, self.names, summary)
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
                    let change = BlockChange::Begins(&live, block);
                    self.asked.block(&change, &event, &self.situation, self.names);
                }
            }
            EventKind::Free(block) => {
                if let Some(live) = ended {
                    let change = BlockChange::Ends(&live, block);
                    self.asked.block(&change, &event, &self.situation, self.names);
                }
            }
            _ => self.asked.event(&event, &self.situation, self.names),
        }
        if let Some(change) = step {
            self.asked.step(&change, &self.situation, self.names);
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
    let (directory, is_snapshot) = (recording.directory(), recording.is_snapshot());
    let about = About { directory, knows_all_refusals, is_snapshot };
    let mut pass = Pass::new(questions, &about, Situation::of(recording), &names, settings.step_source);
    let summary = msmemscope_timeline::run_ahead(recording, &settings, &mut pass, progress);
    let unseen_pools = unseen_pools(recording, &summary);
    let steps_from = settings.step_source.map(StepsFrom::from);
    let place = recording.definitions().place();
    let mut answers = Answers { place, steps_from, unseen_pools, ..pass.finish(summary) };
    if let Some(failure) = answers.out_of_memory.as_mut().and_then(OutOfMemoryReport::decisive_mut) {
        failure.remedy = remedy::find(recording, failure);
    }
    answers
}
