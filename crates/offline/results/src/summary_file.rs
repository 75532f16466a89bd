//! The summary of a process as a file beside its recording: what there is to know of it among thousands.

use std::io;

use msmemscope_analysis::Answers;
use msmemscope_analysis::fleet::summary::{SUMMARY_NAME, Summary, Told};
use msmemscope_report::summary::missing;
use msmemscope_trace::Trace;

use crate::recordings::RecordingDirectory;
use crate::report_file::replace;

/// Writes the summary, replacing an older one.
pub fn write(recording: &RecordingDirectory, trace: &Trace, answers: &Answers) -> io::Result<()> {
    let completeness = trace.completeness();
    let summary = Summary::of(Told {
        answers,
        definitions: trace.definitions(),
        completeness,
        losses: missing(completeness, &answers.summary),
        is_running: recording.is_running(),
    });
    let mut text = serde_json::to_vec(&summary)?;
    text.push(b'\n');
    replace(&recording.path, SUMMARY_NAME, &text)
}
