//! `export`: recordings in the formats of other tools.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use msmemscope_config::Invocation;
use msmemscope_export::{Format, MemoryKind, export, parquet};
use msmemscope_import::{ImportReport, InputFile, Recording, find_all, open_files};
use msmemscope_report::shell::quoted_path;
use msmemscope_report::units::{bytes, count, counted};
use msmemscope_timeline::FactSource;
use msmemscope_trace::TRACE_FILE_NAME;

use crate::analyzing::{named_or_latest, open_all};
use crate::exit_status::ExitStatus;
use crate::progress::Bar;
use crate::result_file::write_result;
use crate::terminal::Terminal;
use crate::{Outcome, print_text};

/// The word for datasets, which are no files.
const DATASET: &str = "parquet";

/// `export <path>... --to=<format>`
pub fn export_paths(invocation: &Invocation, terminal: &Terminal) -> Outcome {
    if invocation.flag_value("to").is_some_and(|word| word == DATASET) {
        return export_dataset(invocation, terminal);
    }
    let format = wanted_format(invocation)?;
    let kind = wanted_kind(invocation, format)?;
    let process = wanted_process(invocation)?;
    let paths = named_or_latest(&invocation.operands, terminal)?;
    let mut imported = open_all(&paths, terminal)?;
    let recordings = &mut imported.recordings;
    if let Some(process) = process {
        let known: Vec<String> = recordings.iter().map(|recording| recording.process_id().to_string()).collect();
        recordings.retain(|recording| recording.process_id() == process);
        if recordings.is_empty() {
            return Err(format!("there is no process {process}: --process takes one of {}", first_of(&known)));
        }
    }
    if recordings.len() > 1 && !format.holds_several_processes() {
        return Err(one_process_only(format, recordings));
    }
    let named = invocation.change.output.as_deref();
    let mut shows_something = true;
    let written = write_result(named, format.file_name(), |out| {
        shows_something = write(recordings, format, kind, out)?;
        Ok(())
    })?;
    if !shows_something {
        terminal.warning(format!("nothing to show in it: {} needs {}", format.word(), format.needs()));
    }
    let Some((path, size_bytes)) = written else { return Ok(ExitStatus::Success) };
    print_text(&format!("Wrote {} ({})\nOpen with {}\n", quoted_path(&path), bytes(size_bytes), format.opened_by()))
}

fn wanted_format(invocation: &Invocation) -> Result<Format, String> {
    let words = || [&Format::ALL.map(Format::word)[..], &[DATASET]].concat().join(", ");
    let Some(word) = invocation.flag_value("to") else {
        return Err(format!("export needs a format: --to={}", words().replace(", ", "|")));
    };
    let word = word.to_string_lossy();
    Format::from_word(&word).ok_or_else(|| format!("--to must be one of {}, not '{word}'", words()))
}

fn wanted_kind(invocation: &Invocation, format: Format) -> Result<MemoryKind, String> {
    let Some(word) = invocation.flag_value("memory") else { return Ok(MemoryKind::default()) };
    let word = word.to_string_lossy();
    if !format.shows_one_kind() {
        return Err(format!("--memory is for --to=folded; a file for {} has all kinds", format.word()));
    }
    let words = MemoryKind::ALL.map(MemoryKind::word).join(", ");
    MemoryKind::from_word(&word).ok_or_else(|| format!("--memory must be one of {words}, not '{word}'"))
}

/// The process that `--process` asks for.
fn wanted_process(invocation: &Invocation) -> Result<Option<u32>, String> {
    let Some(word) = invocation.flag_value("process") else { return Ok(None) };
    let word = word.to_string_lossy();
    match word.parse() {
        Ok(process) => Ok(Some(process)),
        Err(_) => Err(format!("--process takes the number of a process, not '{word}'")),
    }
}

/// The number tells processes apart wherever it can; ranks on several hosts may share one, directories do not.
fn one_process_only(format: Format, recordings: &[Recording]) -> String {
    let mut numbers: Vec<u32> = recordings.iter().map(Recording::process_id).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let choice = if numbers.len() == recordings.len() {
        format!("choose one with --process={}", first_of(&numbers))
    } else {
        let directories = recordings.iter().filter_map(Recording::directory);
        format!("name one of {}", first_of(&directories.map(|path| quoted_path(path).to_string()).collect::<Vec<_>>()))
    };
    format!("a file for {} holds one process, and these are {}: {choice}", format.word(), recordings.len())
}

/// The first few of a list, so that a line stays a line.
fn first_of(choices: &[impl ToString]) -> String {
    let first: Vec<String> = choices.iter().take(3).map(ToString::to_string).collect();
    format!("{}{}", first.join(", "), if choices.len() > first.len() { ", ..." } else { "" })
}

/// `export <path>... --to=parquet --output=<dataset>`: one recording after the other, so that thousands fit into memory.
fn export_dataset(invocation: &Invocation, terminal: &Terminal) -> Outcome {
    let dataset = match invocation.change.output.as_deref() {
        Some(path) => path,
        None => return Err("--to=parquet needs a directory for the dataset: --output=dataset".to_owned()),
    };
    if invocation.flag_value("memory").is_some() {
        return Err("--memory is for --to=folded; a dataset has everything".to_owned());
    }
    if invocation.flag_value("process").is_some() {
        return Err(
            "--process is for files; a dataset takes all processes, or the recordings that are named".to_owned()
        );
    }
    if dataset.exists() && !dataset.is_dir() {
        return Err(format!("{} is no directory", quoted_path(dataset)));
    }
    let paths = named_or_latest(&invocation.operands, terminal)?;
    let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
    let (files, copies_left_out) = find_all(&paths).map_err(|error| error.to_string())?;
    ImportReport::of_copies(copies_left_out).notice().iter().for_each(|notice| terminal.warning(notice));
    let (traces, dumps): (Vec<InputFile>, Vec<InputFile>) =
        files.into_iter().partition(|file| file.path.file_name().is_some_and(|name| name == TRACE_FILE_NAME));
    // Dump files of one process belong together; recordings do not.
    let inputs = traces.into_iter().map(|trace| vec![trace]).chain([dumps]);
    let mut bar = Bar::new("Exporting");
    let (mut written, mut recordings, mut unreadable) = (parquet::Written::default(), 0u64, 0u64);
    for input in inputs.filter(|input| !input.is_empty()) {
        let imported = match open_files(&input) {
            Ok(imported) => imported,
            Err(error) => {
                terminal.error(error);
                unreadable += 1;
                continue;
            }
        };
        imported.report.notice().iter().for_each(|notice| terminal.warning(notice));
        for recording in &imported.recordings {
            let one = parquet::write(recording, dataset, &mut |done, total| bar.show(done, total))
                .map_err(|error| format!("cannot write {}: {error}", quoted_path(dataset)))?;
            written = written.with(one);
            recordings += 1 - one.outdated;
        }
    }
    drop(bar);
    if written.outdated > 0 {
        let outdated = counted(written.outdated, "recording");
        terminal.warning(format!("{outdated} left out: the dataset has more of the same process"));
    }
    let (recordings_text, files) = (counted(recordings, "recording"), counted(written.files, "file"));
    print_text(&format!(
        "Wrote {recordings_text} into {}: {} events, {} blocks, {files}, {}\n\
         Ask with 'python -m msmemscope.fleet peak {}', or open it with DuckDB or Spark\n",
        quoted_path(dataset),
        count(written.events),
        count(written.blocks),
        bytes(written.bytes),
        quoted_path(dataset)
    ))?;
    if unreadable > 0 {
        return Err(format!(
            "{} could not be read and {} left out",
            counted(unreadable, "recording"),
            if unreadable == 1 { "is" } else { "are" }
        ));
    }
    Ok(ExitStatus::Success)
}

fn write(recordings: &[Recording], format: Format, kind: MemoryKind, out: &mut dyn Write) -> io::Result<bool> {
    let mut bar = Bar::new("Exporting");
    let shows_something = export(recordings, format, kind, out, &mut |done, total| bar.show(done, total))?;
    out.flush()?;
    Ok(shows_something)
}
