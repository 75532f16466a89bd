//! What a question is, and the registry of all of them.
//!
//! A question is a module with a type that implements [`Question`], and one row in `questions!`. From the rows come the
//! fields of [`Questions`] and [`Answers`], the pass that feeds all questions at once, and [`QUESTIONS`], which the
//! command line, the Python package and the reports go through. Nothing is called through a pointer: one pass sees
//! every event of a recording.

use std::path::Path;

use msmemscope_config::{AnalysisSet, EventSet};
use msmemscope_event::Place;
use msmemscope_timeline::{Summary, TimelineEvent};
use serde::Serialize;

use crate::curve::{CurveReport, Curves};
use crate::decompose::{Decomposition, OwnerQuestion, OwnerReport};
use crate::fluctuation::{Fluctuation, PoolFluctuation};
use crate::fragmentation::{Fragmentation, FragmentationReport};
use crate::inefficient::{Inefficient, InefficientReport, InefficientSettings};
use crate::kernels::{KernelReport, Kernels};
use crate::leaks::{LeakReport, Leaks};
use crate::marks::{MarkLeakReport, MarkLeaks, MarkSettings};
use crate::moment::{MomentQuestion, MomentReport, Moments};
use crate::names::Names;
use crate::notes::Notes;
use crate::out_of_memory::{OutOfMemory, OutOfMemoryReport};
use crate::owners::{Owners, OwnersOfAll};
use crate::phases::{Phase, Phases};
use crate::situation::{BlockChange, Situation, StepChange};
use crate::standing::{Standing, StandingReport};
use crate::step_source::StepsFrom;
use crate::step_use::{PoolSteps, StepUses};
use crate::unseen::UnseenPool;
use crate::watch::{WatchReport, Watches};

/// What is known about a recording before its first event.
pub struct About<'a> {
    /// Where its files are, if they are anywhere.
    pub directory: Option<&'a Path>,
    /// Whether every allocation that the driver refused is in it.
    pub knows_all_refusals: bool,
    /// Whether it is a snapshot of another tool, which knows no steps.
    pub is_snapshot: bool,
}

/// What a question may look at while events come.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// What holds at the current event.
    pub situation: &'a Situation,
    /// Names of what is known by number.
    pub names: &'a dyn Names,
    /// What is held over steps, for whom a leak may be the reason of something else.
    pub leaks: Option<&'a Leaks>,
}

/// What is known when all events have come.
pub struct End<'a> {
    /// Peaks and totals of all pools.
    pub summary: &'a Summary,
    /// What rows of the blocks should say.
    pub notes: Notes,
}

/// A question about a recording, fed with its events. Its memory is bounded by live blocks.
pub trait Question: Sized {
    /// What it finds out: numbers and enums.
    type Finding;

    /// The analysis, as users name it, that brings this question along at the end of a run.
    const ANALYSIS: AnalysisSet = AnalysisSet::NONE;
    /// Events without which there is nothing to find.
    const NEEDS: EventSet = EventSet::MEMORY;
    /// Whether it belongs to "everything".
    const IS_USUAL: bool = true;
    /// Whether people ask it, and not only what writes files.
    const IS_FOR_PEOPLE: bool = true;

    /// Asks it with its usual settings; false if it needs to be told something first.
    fn ask(questions: &mut Questions) -> bool;

    /// The question before the first event, if it was asked.
    fn start(questions: &Questions, about: &About<'_>) -> Option<Self>;

    /// A block began or ended with this event.
    #[inline(always)]
    fn block(&mut self, _change: &BlockChange<'_>, _event: &TimelineEvent, _view: View<'_>) {}

    /// A step began or ended.
    #[inline(always)]
    fn step(&mut self, _change: &StepChange, _view: View<'_>) {}

    /// Anything else happened.
    #[inline(always)]
    fn event(&mut self, _event: &TimelineEvent, _view: View<'_>) {}

    /// What was found, if there is anything to say.
    fn finish(self, view: View<'_>, end: &mut End<'_>) -> Option<Self::Finding>;
}

/// A row of the registry.
#[derive(Clone, Copy, Debug)]
pub struct QuestionInfo {
    /// Its name: that of its field in [`Questions`] and [`Answers`].
    pub word: &'static str,
    /// What it is about, in a sentence.
    pub about: &'static str,
    /// See [`Question::ANALYSIS`].
    pub analysis: AnalysisSet,
    /// See [`Question::NEEDS`].
    pub needs: EventSet,
    /// See [`Question::IS_USUAL`].
    pub is_usual: bool,
    /// See [`Question::IS_FOR_PEOPLE`].
    pub is_for_people: bool,
    /// See [`Question::ask`].
    pub ask: fn(&mut Questions) -> bool,
}

/// Makes everything of the rows: `field: state, asked as what, answered by what`. Documentation is what people read as
/// well. The first row helps the others: they can see what it has found so far.
macro_rules! questions {
    (
        #[doc = $first_about:literal] $(#[$first_attribute:meta])*
        $first:ident: $first_state:ty, asked as $first_asked:ty, answered by $first_finding:ty;
        $(
            #[doc = $about:literal] $(#[$attribute:meta])*
            $name:ident: $state:ty, asked as $asked:ty, answered by $finding:ty;
        )+
    ) => {
        /// Which questions to answer.
        #[derive(Clone, Debug, Default)]
        pub struct Questions {
            #[doc = $first_about]
            pub $first: $first_asked,
            $(#[doc = $about] pub $name: $asked,)+
        }

        /// All questions, in the order in which answers are given.
        pub const QUESTIONS: &[QuestionInfo] =
            &[info::<$first_state>(stringify!($first), $first_about), $(info::<$state>(stringify!($name), $about)),+];

        /// All answers about one process.
        #[derive(Debug, Serialize)]
        pub struct Answers {
            /// The process.
            pub process_id: u32,
            /// Its place in the job.
            #[serde(skip)]
            pub place: Place,
            /// Peaks and totals of all pools.
            #[serde(serialize_with = "crate::pool_use::serialize")]
            pub summary: Summary,
            /// What says where steps end, if anything does.
            pub steps_from: Option<StepsFrom>,
            /// Pools that the recording knows nothing of.
            pub unseen_pools: Vec<UnseenPool>,
            #[doc = $first_about]
            $(#[$first_attribute])*
            #[serde(skip_serializing_if = "Option::is_none")]
            pub $first: Option<$first_finding>,
            $(
                #[doc = $about]
                $(#[$attribute])*
                #[serde(skip_serializing_if = "Option::is_none")]
                pub $name: Option<$finding>,
            )+
            /// What rows of the blocks should say.
            #[serde(skip)]
            pub notes: Notes,
        }

        /// All questions of a pass.
        pub(crate) struct Asked {
            $first: Option<$first_state>,
            $($name: Option<$state>,)+
        }

        impl Asked {
            pub(crate) fn new(questions: &Questions, about: &About<'_>) -> Self {
                Self {
                    $first: <$first_state as Question>::start(questions, about),
                    $($name: <$state as Question>::start(questions, about),)+
                }
            }

            /// A block began or ended.
            #[inline]
            pub(crate) fn block(
                &mut self,
                change: &BlockChange<'_>,
                event: &TimelineEvent,
                situation: &Situation,
                names: &dyn Names,
            ) {
                if let Some(question) = &mut self.$first {
                    Question::block(question, change, event, View { situation, names, leaks: None });
                }
                let view = View { situation, names, leaks: self.$first.as_ref() };
                $(
                    if let Some(question) = &mut self.$name {
                        Question::block(question, change, event, view);
                    }
                )+
            }

            /// A step began or ended.
            pub(crate) fn step(&mut self, change: &StepChange, situation: &Situation, names: &dyn Names) {
                if let Some(question) = &mut self.$first {
                    Question::step(question, change, View { situation, names, leaks: None });
                }
                let view = View { situation, names, leaks: self.$first.as_ref() };
                $(
                    if let Some(question) = &mut self.$name {
                        Question::step(question, change, view);
                    }
                )+
            }

            /// Anything else happened.
            #[inline]
            pub(crate) fn event(&mut self, event: &TimelineEvent, situation: &Situation, names: &dyn Names) {
                if let Some(question) = &mut self.$first {
                    Question::event(question, event, View { situation, names, leaks: None });
                }
                let view = View { situation, names, leaks: self.$first.as_ref() };
                $(
                    if let Some(question) = &mut self.$name {
                        Question::event(question, event, view);
                    }
                )+
            }

            /// All answers.
            pub(crate) fn finish(self, situation: &Situation, names: &dyn Names, summary: Summary) -> Answers {
                let view = View { situation, names, leaks: None };
                let mut end = End { summary: &summary, notes: Notes::default() };
                let $first = self.$first.and_then(|question| Question::finish(question, view, &mut end));
                $(let $name = self.$name.and_then(|question| Question::finish(question, view, &mut end));)+
                Answers {
                    process_id: summary.process_id,
                    place: Place::default(),
                    steps_from: None,
                    unseen_pools: Vec::new(),
                    $first,
                    $($name,)+
                    notes: end.notes,
                    summary,
                }
            }
        }
    };
}

questions! {
    /// Leaks over steps.
    leaks: Leaks, asked as bool, answered by LeakReport;
    /// What held memory at the peak and at other moments, by line of code.
    moments: Moments, asked as MomentQuestion, answered by MomentReport;
    /// Memory in use over time.
    curve: Curves, asked as bool, answered by CurveReport;
    /// Memory of every pool, step by step.
    step_use: StepUses, asked as bool, answered by Vec<PoolSteps>;
    /// What stands at ends of steps and should not, though it is no leak.
    standing: Standing, asked as bool, answered by StandingReport;
    /// Fluctuation within steps.
    fluctuation: Fluctuation, asked as bool, answered by Vec<PoolFluctuation>;
    /// Leaks between three marks.
    marks: MarkLeaks, asked as Option<MarkSettings>, answered by MarkLeakReport;
    /// Owners of memory at the peak, at the end, and at the end of a step.
    owners: Decomposition, asked as Option<OwnerQuestion>, answered by OwnerReport;
    /// Inefficient use of memory: too early, too late, idle in between.
    inefficient: Inefficient, asked as Option<InefficientSettings>, answered by InefficientReport;
    /// Out-of-memory failures, with this many blocks listed.
    out_of_memory: OutOfMemory, asked as Option<usize>, answered by OutOfMemoryReport;
    /// Memory before and after phases, where snapshots were taken around them.
    phases: Phases, asked as bool, answered by Vec<Phase>;
    /// Fragmentation of pools.
    fragmentation: Fragmentation, asked as bool, answered by FragmentationReport;
    /// What kernels did with memory, and which operators launched them.
    kernels: Kernels, asked as bool, answered by KernelReport;
    /// Watched blocks and what overwrote them.
    watch: Watches, asked as bool, answered by WatchReport;
    /// The owner of every single block, for rows of files; four bytes per allocation.
    #[serde(skip)]
    owners_of_all: OwnersOfAll, asked as bool, answered by Owners;
}

const fn info<Q: Question>(word: &'static str, about: &'static str) -> QuestionInfo {
    QuestionInfo {
        word,
        about,
        analysis: Q::ANALYSIS,
        needs: Q::NEEDS,
        is_usual: Q::IS_USUAL,
        is_for_people: Q::IS_FOR_PEOPLE,
        ask: Q::ask,
    }
}

impl Questions {
    /// Everything that needs no further input.
    pub fn all() -> Self {
        Self::of(|question| question.is_usual)
    }

    /// What belongs to the analyses that a user chose.
    pub fn of_analyses(chosen: AnalysisSet) -> Self {
        Self::of(|question| !question.analysis.is_empty() && chosen.contains(question.analysis))
    }

    fn of(is_meant: impl Fn(&QuestionInfo) -> bool) -> Self {
        let mut asked = Self::default();
        for question in QUESTIONS.iter().filter(|question| is_meant(question)) {
            (question.ask)(&mut asked);
        }
        asked
    }
}

#[cfg(test)]
mod tests {
    use msmemscope_config::{Settings, SettingsChange, Variant};

    use super::*;

    #[test]
    fn words_are_unique_and_explained() {
        for (index, question) in QUESTIONS.iter().enumerate() {
            assert!(QUESTIONS[..index].iter().all(|other| other.word != question.word), "{}", question.word);
            assert!(question.about.trim().ends_with('.'), "{}", question.word);
        }
    }

    #[test]
    fn an_analysis_brings_the_events_that_its_questions_need() {
        let defaults = Settings::defaults(Variant::Msmemscope);
        for question in QUESTIONS.iter().filter(|question| !question.analysis.is_empty()) {
            let change = SettingsChange { analysis: Some(question.analysis), ..SettingsChange::default() };
            let (settings, _) = change.apply_to(&defaults);
            assert!(settings.events.collected.contains(question.needs), "{}", question.word);
        }
    }

    #[test]
    fn everything_is_what_can_be_asked_without_a_word_more() {
        let all = Questions::all();
        assert!(all.leaks && all.standing && all.fluctuation && all.fragmentation && all.watch);
        assert!(all.owners.is_some() && all.inefficient.is_some() && all.out_of_memory.is_some());
        assert!(!all.moments.is_empty() && all.marks.is_none() && !all.owners_of_all && !all.curve);
    }
}
