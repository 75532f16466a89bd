//! The report of a process as a file beside its recording: what was shown on the terminal is gone with it.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use msmemscope_event::visible_keeping;
use msmemscope_output::directory::Directory;
use msmemscope_output::files::PendingFile;

use msmemscope_report::layout::LAYOUT;
use msmemscope_report::summary::{ProcessReport, render_process};

/// Name inside the directory of a process.
const REPORT_NAME: &str = "report.txt";

/// Writes the report, replacing an older one; a note of the process says if that is not possible.
pub fn write(process: &mut ProcessReport, program: &str) {
    let mut text = render_process(process, program);
    if !process.classic_findings.is_empty() && process.findings.trim() != process.classic_findings {
        text.push_str(&format!("\nIn the words of earlier versions:\n\n{}\n", process.classic_findings));
    }
    if let Err(error) = replace(&process.directory, REPORT_NAME, visible_keeping(&text, &LAYOUT).as_bytes()) {
        process.notes.push(format!("cannot write {REPORT_NAME}: {error}"));
    }
}

/// Writes a file of a recording, replacing an older one; it is there whole or not at all.
pub(crate) fn replace(directory: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let directory = Arc::new(Directory::open(directory)?);
    let (pending, mut file) = PendingFile::create(&directory, name)?;
    file.write_all(bytes)?;
    pending.commit_replacing(Path::new(name))
}
