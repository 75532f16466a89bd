//! All answers about one process as one text.

use msmemscope_analysis::Answers;
use msmemscope_analysis::leaks::LeakReport;
use msmemscope_analysis::moment::MomentReport;
use msmemscope_analysis::out_of_memory::OutOfMemoryReport;

use crate::headline::headline;
use crate::layout::push_wrapped;
use crate::leaks::Style;
use crate::standing;
use crate::{RENDERERS, Renderer};

/// The answers as text: first what matters in a few sentences, then the evidence. An out-of-memory report comes only
/// if memory ran out, unless `all` is wanted.
pub fn render(answers: &Answers, all: bool, style: Style) -> String {
    let mut parts = Vec::new();
    if style == Style::Full {
        let mut text = String::new();
        headline(answers).iter().for_each(|sentence| push_wrapped(&mut text, sentence, ""));
        parts.push(text);
    }
    let ran_out = answers.out_of_memory.as_ref().is_some_and(OutOfMemoryReport::is_alarming);
    let was_refused = answers.out_of_memory.as_ref().is_some_and(OutOfMemoryReport::has_failures);
    // That nothing is known about leaks is no news to somebody whose memory ran out.
    let has_news = |report: &LeakReport| !ran_out || report.steps > 0 || report.suspects().next().is_some();
    // Without suspects the rest about leaks is no more than detail, and what stands at ends of steps comes first.
    let has_suspects = answers.leaks.as_ref().is_some_and(|report| report.suspects().next().is_some());
    let is_shown = |word: &str| match word {
        "curve" | "standing" | "kernels" => style == Style::Full,
        "out_of_memory" => all || was_refused,
        "leaks" => answers.leaks.as_ref().is_some_and(has_news),
        // What was held when memory ran out is the peak, and has been shown.
        "moments" => style == Style::Full && !(ran_out && answers.moments.as_ref().is_some_and(only_peak)),
        _ => true,
    };
    let words_of = |word: &str, renderer: Renderer| renderer(answers, style).filter(|_| is_shown(word));
    let mut waiting = None;
    for &(word, renderer) in RENDERERS {
        let words = words_of(word, renderer);
        match word {
            "leaks" if !has_suspects => waiting = words,
            _ => parts.extend(words),
        }
        if word == "standing" {
            parts.extend(waiting.take());
        }
    }
    joined(parts.into_iter())
}

/// Parts of a report with an empty line between them.
fn joined(parts: impl Iterator<Item = String>) -> String {
    let parts = parts.map(|part| part.trim_end().to_owned()).filter(|part| !part.is_empty());
    parts.map(|part| format!("{part}\n")).collect::<Vec<_>>().join("\n")
}

/// What to do about what stands at ends of steps.
pub(crate) fn advice(answers: &Answers) -> Option<String> {
    answers.standing.as_ref()?;
    let mut text = String::new();
    for line in standing::causes(answers).iter().flat_map(|cause| &cause.advice) {
        if text.is_empty() {
            text.push_str("What to do:\n");
        }
        push_wrapped(&mut text, line, "  ");
    }
    Some(text)
}

/// Whether nothing but the peak was asked about.
fn only_peak(report: &MomentReport) -> bool {
    report.grown.is_none() && report.pools.iter().all(|moment| moment.moment == "peak" && moment.by.is_none())
}

/// The leaks and fluctuations in the words of earlier versions: those of their documents, or those of their logs.
pub fn render_older(answers: &Answers, style: Style) -> String {
    let leaks = answers.leaks.as_ref().map(|report| crate::leaks(report, &answers.unseen_pools, style));
    let fluctuation = answers.fluctuation.as_ref().map(|pools| crate::fluctuation(pools, style));
    joined([leaks, fluctuation].into_iter().flatten()).trim().to_owned()
}

/// Whether something was found that a user must not miss.
pub fn has_alarm(answers: &Answers) -> bool {
    answers.leaks.as_ref().is_some_and(|leaks| leaks.suspects().next().is_some())
        || answers.watch.as_ref().is_some_and(|watch| watch.corruptions().next().is_some())
        || answers.out_of_memory.as_ref().is_some_and(OutOfMemoryReport::is_alarming)
}
