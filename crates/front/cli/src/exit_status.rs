//! How the program ends.

use std::process::ExitCode;

/// The exit statuses, of which scripts depend on every one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExitStatus {
    /// Everything was done.
    Success,
    /// A check found a rule broken, or the doctor something that is not fine.
    Broken,
    /// Our own error, or a question that cannot be answered.
    Failure,
    /// A check has a rule that cannot be judged, and none that is broken.
    Unjudged,
    /// That of the job, or what a shell gives for a job that cannot be started.
    OfJob(u8),
}

impl From<ExitStatus> for ExitCode {
    fn from(status: ExitStatus) -> ExitCode {
        ExitCode::from(match status {
            ExitStatus::Success => 0,
            ExitStatus::Broken => 1,
            ExitStatus::Failure => 2,
            ExitStatus::Unjudged => 3,
            ExitStatus::OfJob(status) => status,
        })
    }
}
