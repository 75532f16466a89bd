//! Which questions belong to the analyses that a user chose.

use msmemscope_analysis::moment::MomentQuestion;
use msmemscope_analysis::{Answers, OwnerQuestion, Questions};
use msmemscope_config::AnalysisSet;

/// Blocks listed when memory ran out and nobody asked for more.
const FEW_BLOCKS: usize = 0;

/// Questions that belong to the analyses a user chose. Whether memory ran out is always looked at, and so are watched
/// blocks.
pub fn questions(chosen: AnalysisSet, listed_blocks: usize) -> Questions {
    let listed_blocks = if chosen.contains(AnalysisSet::OOM) { listed_blocks } else { FEW_BLOCKS };
    Questions { out_of_memory: Some(listed_blocks), watch: true, ..Questions::of_analyses(chosen) }
}

/// Whether the answers belong into rows of blocks as well, so that they must be known before writing.
pub fn says_something_about_rows(questions: &Questions) -> bool {
    questions.owners.is_some() || questions.inefficient.is_some()
}

/// The questions whose answers a summary is made of, besides those of the user.
pub fn with_summary(asked: &Questions) -> Questions {
    let mut asked = asked.clone();
    if asked.moments.is_empty() {
        asked.moments = MomentQuestion::at_peak();
    }
    asked.leaks = true;
    asked.curve = true;
    asked.step_use = true;
    asked.owners = asked.owners.or(Some(OwnerQuestion::default()));
    asked.out_of_memory = asked.out_of_memory.or(Some(FEW_BLOCKS));
    asked
}

/// What the user asked for, of answers that were asked for a summary as well.
pub fn without_summary(answers: Answers, asked: &Questions) -> Answers {
    Answers {
        leaks: answers.leaks.filter(|_| asked.leaks),
        moments: answers.moments.filter(|_| !asked.moments.is_empty()),
        curve: answers.curve.filter(|_| asked.curve),
        step_use: answers.step_use.filter(|_| asked.step_use),
        owners: answers.owners.filter(|_| asked.owners.is_some()),
        out_of_memory: answers.out_of_memory.filter(|_| asked.out_of_memory.is_some()),
        ..answers
    }
}
