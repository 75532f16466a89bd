//! The log beside the results: what the recorder said in the job, and what finishing has to say.

use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use msmemscope_config::{LogLevel, Settings};
use msmemscope_event::{Severity, is_steering};
use msmemscope_output::directory::Directory;
use msmemscope_output::log::{self, RecorderMessage};
use msmemscope_output::{WrittenFile, files};

use msmemscope_report::shell::quoted_path;
use msmemscope_report::summary::{ProcessReport, missing};

/// Writes the log of a process, from the level of the settings on, and adds it to the files of its
/// report. Nothing is written if there is nothing to say.
pub fn write(process: &mut ProcessReport, mut messages: Vec<RecorderMessage>, settings: &Settings) {
    messages.extend(remarks(process));
    let program = settings.variant.program_name();
    let directory = match Directory::open(&process.directory) {
        Ok(directory) => Arc::new(directory),
        Err(error) => {
            process.notes.push(format!("cannot write a log into {}: {error}", quoted_path(&process.directory)));
            return;
        }
    };
    let least = severity(settings.log_level);
    let rows = messages.iter().filter(|message| message.severity >= least).count() as u64;
    let first_second = files::now_seconds();
    for second in first_second..first_second + 60 {
        let name = format!("{program}_{}.log", files::local_timestamp(second));
        let relative = Path::new(&format!("{program}_logs")).join(name);
        let path = process.directory.join(&relative);
        match log::write(&directory, &relative, &messages, least) {
            Ok(true) => {
                let size_bytes = directory.facts(&relative).map_or(0, |found| found.size_bytes);
                remove_earlier(&directory, program, &relative);
                process.files.push(WrittenFile { path, rows, size_bytes });
                return;
            }
            Ok(false) => return,
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                process.notes.push(format!("cannot write {}: {error}", quoted_path(&path)));
                return;
            }
        }
    }
}

/// Removes logs of earlier times when the same recording was finished: the new one repeats their lines.
fn remove_earlier(directory: &Directory, program: &str, written: &Path) {
    let is_log = |name: &str| {
        let time = name.strip_prefix(program).and_then(|rest| rest.strip_prefix('_')?.strip_suffix(".log"));
        time.is_some_and(|time| !time.is_empty() && time.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let logs = written.parent().unwrap_or(Path::new(""));
    for entry in std::fs::read_dir(directory.path().join(logs)).into_iter().flatten().flatten() {
        let relative = logs.join(entry.file_name());
        if entry.file_name().to_str().is_some_and(is_log) && relative != written {
            let _ = directory.remove_file(&relative);
        }
    }
}

fn severity(level: LogLevel) -> Severity {
    match level {
        LogLevel::Debug => Severity::Debug,
        LogLevel::Info => Severity::Information,
        LogLevel::Warn => Severity::Warning,
        LogLevel::Error => Severity::Error,
    }
}

/// What finishing found out, as lines of the log.
fn remarks(process: &ProcessReport) -> Vec<RecorderMessage> {
    let now_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos() as u64);
    let line = |severity, text| RecorderMessage { timestamp_ns: now_ns, severity, text };
    let summary = &process.summary;
    let mut lines = vec![line(
        Severity::Information,
        format!("Recorded process {}: {}", summary.process_id, process.command.replace(is_steering, " ")),
    )];
    for file in &process.files {
        let text = format!("Wrote {} ({} rows)", file.path.display(), file.rows);
        lines.push(line(Severity::Information, text));
    }
    for pool in &summary.pools {
        let text = format!(
            "{} on device {}: {} bytes in use at the peak, {} bytes in {} blocks at the end",
            pool.pool.title(),
            pool.device,
            pool.peak_used_bytes,
            pool.end_used_bytes,
            pool.live_blocks()
        );
        lines.push(line(Severity::Debug, text));
    }
    // Scripts of users look for these lines, whatever the report looks like.
    let severity = if process.has_alarm { Severity::Warning } else { Severity::Information };
    for text in process.log_findings.lines().filter(|text| !text.trim().is_empty()) {
        lines.push(line(severity, text.to_owned()));
    }
    for text in missing(&process.completeness, summary) {
        lines.push(line(Severity::Warning, format!("Missing: {text}")));
    }
    if summary.failed_allocations > 0 {
        lines.push(line(Severity::Warning, format!("The driver refused {} allocations", summary.failed_allocations)));
    }
    if summary.failed_frees > 0 {
        lines.push(line(Severity::Warning, format!("The driver refused {} frees", summary.failed_frees)));
    }
    if summary.nested_steps > 0 {
        let text = format!("{} 'step start' ranges inside an open step do not count", summary.nested_steps);
        lines.push(line(Severity::Warning, text));
    }
    if summary.steps_of_other_source > 0 {
        let text = format!("{} steps of a second source (mstx or API) do not count", summary.steps_of_other_source);
        lines.push(line(Severity::Warning, text));
    }
    lines.extend(process.notes.iter().map(|note| line(Severity::Warning, note.clone())));
    lines
}
