//! `report`: what was found, in one file to take along.

use std::time::Duration;

use msmemscope_config::Invocation;
use msmemscope_event::ProcessInfoKey;
use msmemscope_import::Recording;
use msmemscope_report::headline::headline;
use msmemscope_report::redaction::Redactor;
use msmemscope_report::shell::quoted_path;
use msmemscope_report::summary::missing;
use msmemscope_report::units::bytes;
use msmemscope_report::{json, layout};
use msmemscope_timeline::FactSource;
use msmemscope_viewer::{HAS_FRONT_END, NO_FRONT_END, Report, Session, ViewSettings};
use serde_json::{Value, json};

use crate::analyzing::{ask, asked_questions, completeness, json_text, named_or_latest, open_all};
use crate::exit_status::ExitStatus;
use crate::progress::Bar;
use crate::result_file::{check_name, write_result};
use crate::terminal::Terminal;
use crate::{Outcome, print_text};

/// How often to look how far reading has got.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// Parts of the progress bar; reading is worth one whatever it counts.
const PROGRESS_PARTS: u64 = 1_000_000;

/// A format of reports.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Html,
    Markdown,
    Json,
}

impl Format {
    const ALL: [(&'static str, Self, &'static str); 3] = [
        ("html", Self::Html, "report.html"),
        ("markdown", Self::Markdown, "report.md"),
        ("json", Self::Json, "report.json"),
    ];

    fn wanted(invocation: &Invocation) -> Result<(Self, &'static str), String> {
        let Some(word) = invocation.flag_value("format") else { return Ok((Self::Html, Self::ALL[0].2)) };
        let word = word.to_string_lossy();
        let found = Self::ALL.iter().find(|(known, ..)| *known == word).map(|(_, format, name)| (*format, *name));
        found.ok_or_else(|| format!("--format must be one of html, markdown, json, not '{word}'"))
    }
}

/// `report <path>...`
pub fn report_paths(invocation: &Invocation, terminal: &Terminal) -> Outcome {
    let (format, usual_name) = Format::wanted(invocation)?;
    if format == Format::Html && !HAS_FRONT_END {
        return Err(format!("there is no page for --format=html: {NO_FRONT_END}; markdown and json are there"));
    }
    let named = invocation.change.output.as_deref();
    check_name(named, usual_name)?;
    let paths = named_or_latest(&invocation.operands, terminal)?;
    // Whoever reads a report is somewhere else.
    layout::use_whole_paths();
    let redactor = invocation.has_flag("redact").then(Redactor::of_this_machine);
    let text = match format {
        Format::Json => for_programs(invocation, &open_all(&paths, terminal)?.recordings, redactor)?,
        Format::Html | Format::Markdown => {
            let session = read(paths, terminal)?;
            let report = Report::of(&session, redactor);
            session.end();
            match format {
                Format::Html => report.html().ok_or("the page of this program is incomplete; build it anew")?,
                _ => report.markdown(),
            }
        }
    };
    let written = write_result(named, usual_name, |out| out.write_all(text.as_bytes()))?;
    let Some((path, size_bytes)) = written else { return Ok(ExitStatus::Success) };
    let how = if format == Format::Html { "\nOpen it in a browser" } else { "" };
    print_text(&format!("Wrote {} ({}){how}\n", quoted_path(&path), bytes(size_bytes)))
}

/// Everything read and analysed, as the viewer has it.
fn read(paths: Vec<std::path::PathBuf>, terminal: &Terminal) -> Result<std::sync::Arc<Session>, String> {
    let session = Session::open(ViewSettings { paths, missing, trusts_summaries: false });
    let mut bar = Bar::new("Reading");
    while !session.is_complete() {
        session.wait_until_opened(LOOK_INTERVAL)?;
        bar.show((session.fraction() * PROGRESS_PARTS as f64) as u64, PROGRESS_PARTS);
        std::thread::sleep(LOOK_INTERVAL);
    }
    drop(bar);
    if let Some(notice) = session.notice() {
        terminal.warning(notice);
    }
    Ok(session)
}

/// All answers, as `analyze --json` gives them, with the sentences that a report begins with.
fn for_programs(
    invocation: &Invocation,
    recordings: &[Recording],
    redactor: Option<Redactor>,
) -> Result<String, String> {
    let questions = asked_questions(invocation)?;
    let described = |recording: &Recording| {
        let answers = ask(recording, &questions);
        let mut value = json::answers(&answers);
        value["missing"] = json!(completeness(recording).map_or(Vec::new(), |known| missing(known, &answers.summary)));
        value["headline"] = json!(headline(&answers));
        value
    };
    let mut report = json!({ "processes": recordings.iter().map(described).collect::<Vec<Value>>() });
    if let Some(mut redactor) = redactor {
        for recording in recordings {
            let information = |key| {
                let text = recording.definitions().process_information(key).unwrap_or_default();
                String::from_utf8_lossy(text).replace('\0', " ")
            };
            redactor.add_host(&information(ProcessInfoKey::HostName));
            redactor.add_command(&information(ProcessInfoKey::CommandLine));
            if let Some(directory) = recording.directory() {
                redactor.add_directory(&directory.to_string_lossy());
            }
        }
        redactor.learn(&report);
        redactor.redact(&mut report);
    }
    Ok(json_text(&report))
}
