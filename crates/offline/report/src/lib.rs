//! Everything people read: findings as text, tables, sentences, units, colours and pages.
//!
//! Findings are data with numbers and enums (`msmemscope-analysis`); here they become words. One module per report,
//! on top of a few that all of them share:
//!
//! * [`units`]: numbers, bytes and times; [`layout`]: lines that fit; [`table`]: tables; [`colour`]: emphasis on
//!   terminals; [`shell`]: paths that can be pasted.
//! * [`causes`]: what is wrong, one entry per cause; [`headline`]: the answer in one to three sentences; [`curve`]: memory over time in a few lines.
//! * [`answers`]: all reports on one process, put together from [`mod@leaks`], [`mod@moments`], [`findings`],
//!   [`mod@watch`], [`mod@comparison`].
//! * [`verdict`]: why memory ran out and what to do; [`rules`]: what became of rules for automatic tests;
//!   [`annotations`]: the same beside the code, for GitHub and GitLab.
//! * [`live`]: a job while it runs.
//! * [`ranks`]: what several ranks have in common; [`fleet`]: what thousands of them say together.
//! * [`escaping`]: names inside pages and issue trackers; [`redaction`]: results without paths and names of people.
//! * [`summary`]: what became of a recorded process; [`json`]: the answers for programs.
#![forbid(unsafe_code)]

pub mod annotations;
pub mod answers;
pub mod causes;
pub mod colour;
pub mod comparison;
pub mod comparison_page;
pub mod comparison_rows;
pub mod curve;
pub mod escaping;
pub mod findings;
pub mod fleet;
pub mod headline;
mod holders;
pub mod json;
pub mod kernels;
pub mod layout;
pub mod leaks;
pub mod live;
pub mod moments;
pub mod phases;
pub mod ranks;
pub mod redaction;
pub mod replay;
pub mod rules;
pub mod shell;
mod standing;
pub mod summary;
pub mod table;
mod tree;
pub mod units;
pub mod verdict;
pub mod watch;

pub use comparison::comparison;
pub use comparison_page::write_html;
pub use comparison_rows::write_csv;
pub use findings::{fragmentation, inefficient, out_of_memory, owners};
pub use kernels::kernels;
pub use leaks::{Style, fluctuation, leaks, marks};
pub use moments::moments;
pub use watch::watch;

use msmemscope_analysis::Answers;

/// The words of a question, if it was answered.
pub type Renderer = fn(&Answers, Style) -> Option<String>;

/// The words of each question by its name in [`msmemscope_analysis::QUESTIONS`], in the order in which people read them.
pub const RENDERERS: &[(&str, Renderer)] = &[
    ("curve", |answers, _| answers.curve.as_ref().map(curve::curves)),
    ("out_of_memory", |answers, _| answers.out_of_memory.as_ref().map(out_of_memory)),
    ("watch", |answers, _| answers.watch.as_ref().map(watch)),
    ("leaks", |answers, style| answers.leaks.as_ref().map(|report| leaks(report, &answers.unseen_pools, style))),
    ("standing", |answers, _| answers::advice(answers)),
    ("moments", |answers, _| answers.moments.as_ref().map(moments)),
    ("marks", |answers, _| answers.marks.as_ref().map(marks)),
    ("phases", |answers, _| answers.phases.as_deref().map(phases::phases)),
    ("owners", |answers, _| answers.owners.as_ref().map(owners)),
    ("inefficient", |answers, _| answers.inefficient.as_ref().map(inefficient)),
    ("kernels", |answers, _| answers.kernels.as_ref().map(kernels)),
    ("fragmentation", |answers, _| answers.fragmentation.as_ref().map(fragmentation)),
    ("fluctuation", |answers, style| answers.fluctuation.as_ref().map(|pools| fluctuation(pools, style))),
];

#[cfg(test)]
mod tests {
    use msmemscope_analysis::QUESTIONS;

    use super::*;

    #[test]
    fn every_question_of_people_has_its_words() {
        let mut asked: Vec<&str> =
            QUESTIONS.iter().filter(|question| question.is_for_people).map(|question| question.word).collect();
        let mut told: Vec<&str> = RENDERERS.iter().map(|(word, _)| *word).collect();
        asked.sort_unstable();
        told.sort_unstable();
        assert_eq!(asked, told);
    }
}
