//! `finish` and `recover`, and the end of a run: results of recordings, with a progress bar.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use msmemscope_config::{Invocation, SettingsChange};
use msmemscope_report::shell::quoted_path;
use msmemscope_report::summary::{self, ProcessReport};
use msmemscope_results::finishing::{ANALYSING, Answered, Progress, WRITING};
use msmemscope_results::recordings::{RecordingDirectory, recordings_in, recordings_named, unreadable_in};
use msmemscope_trace::reader::TraceIdentity;
use serde_json::{Value, json};

use crate::analyzing::print_json;
use crate::exit_status::ExitStatus;
use crate::progress::{Bars, SharedBar};
use crate::signals::end_tidily;
use crate::terminal::Terminal;
use crate::{Outcome, print, print_text};

/// Recordings finished at a time, at the most: each of them takes some memory.
const MOST_AT_A_TIME: usize = 16;

/// Finishes recordings, side by side; errors go to the terminal. What was found is known and told long before all files
/// are written.
pub fn finish_all(
    recordings: &[RecordingDirectory],
    change: &SettingsChange,
    terminal: &Terminal,
    tell_found: &mut dyn FnMut(&[ProcessReport]),
) -> Vec<ProcessReport> {
    let all: Vec<&RecordingDirectory> = recordings.iter().collect();
    let answered = for_each(&all, ANALYSING, |index, progress| {
        let mut answered = Answered::of(&recordings[index], change, progress)?;
        if recordings.len() > MOST_AT_A_TIME {
            answered.close();
        }
        Ok(answered)
    });
    let answered: Vec<Answered<'_>> = what_worked(answered, terminal);
    let found: Vec<ProcessReport> = answered.iter().map(|answered| answered.report().clone()).collect();
    tell_found(&found);
    let left: Vec<&RecordingDirectory> = answered.iter().map(Answered::recording).collect();
    let reports = for_each(&left, WRITING, |index, progress| answered[index].write_files(progress));
    what_worked(reports, terminal)
}

/// Results without the errors, which are told.
fn what_worked<Value>(results: Vec<Result<Value, String>>, terminal: &Terminal) -> Vec<Value> {
    results.into_iter().filter_map(|result| result.map_err(|message| terminal.error(message)).ok()).collect()
}

/// Does something with each recording, under one progress bar.
fn for_each<Value: Send>(
    recordings: &[&RecordingDirectory],
    activity: &'static str,
    work: impl Fn(usize, &mut dyn Progress) -> Value + Sync,
) -> Vec<Value> {
    if recordings.len() <= 1 {
        return (0..recordings.len()).map(|index| work(index, &mut Bars::default())).collect();
    }
    let size = |recording: &&RecordingDirectory| recording.trace_path().metadata().map_or(0, |file| file.len());
    let sizes: Vec<u64> = recordings.iter().map(size).collect();
    let bar = SharedBar::new(activity, sizes.iter().sum());
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(MOST_AT_A_TIME);
    side_by_side(recordings.len(), workers, |index| work(index, &mut bar.part(sizes[index])))
}

/// Does so many pieces of work, several at a time, and returns what came of them in their order.
fn side_by_side<Value: Send>(count: usize, workers: usize, work: impl Fn(usize) -> Value + Sync) -> Vec<Value> {
    let next = AtomicUsize::new(0);
    let take = || {
        let indices = std::iter::from_fn(|| Some(next.fetch_add(1, Ordering::Relaxed)).filter(|index| *index < count));
        indices.map(|index| (index, work(index))).collect::<Vec<_>>()
    };
    let mut done: Vec<(usize, Value)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..workers.min(count)).map(|_| scope.spawn(take)).collect();
        let results = threads.into_iter().map(|thread| thread.join());
        results.flat_map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, value)| value).collect()
}

/// `finish` and `recover`: the results of the recordings in some directories. Recovering leaves out
/// what has results already.
pub fn finish_directories(invocation: &Invocation, terminal: &Terminal) -> Outcome {
    let only_unfinished = invocation.command.name == "recover";
    let as_json = invocation.has_flag("json");
    let mut recordings = Vec::new();
    let mut all_readable = true;
    for directory in &invocation.operands {
        let directory = Path::new(directory);
        let found = recordings_named(directory, terminal.program_name())?;
        let (ours, of_others): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|recording| recording.is_ours_to_finish());
        tell_left_out(directory, &of_others, terminal);
        recordings.extend(ours);
        for (path, error) in unreadable_in(directory) {
            terminal.error(format!("{}: {error}", quoted_path(&path)));
            all_readable = false;
        }
    }
    if only_unfinished {
        recordings.retain(|recording| !recording.is_finished());
    }
    if recordings.is_empty() && all_readable && !as_json {
        return print(b"Nothing to recover: every recording has its results.\n");
    }
    end_tidily(farewell(invocation.command.name, invocation.operands.iter().map(Path::new), terminal));
    let reports = finish_and_print(&recordings, &invocation.change, as_json, terminal)?;
    if as_json {
        print_json(&json!({ "recordings": recordings.iter().map(described).collect::<Vec<_>>() }))?;
    }
    for recording in recordings.iter().filter(|_| !only_unfinished) {
        let is_child = |other: &TraceIdentity| other.parent_process_id == recording.identity.process_id;
        if let Some(output) = recording.path.parent() {
            tell_unfinished(output, is_child, terminal);
        }
    }
    Ok(if all_readable && reports.len() == recordings.len() { ExitStatus::Success } else { ExitStatus::Failure })
}

/// Finishes recordings and prints what was found and what was written, unless it is printed for programs.
pub fn finish_and_print(
    recordings: &[RecordingDirectory],
    change: &SettingsChange,
    as_json: bool,
    terminal: &Terminal,
) -> Result<Vec<ProcessReport>, String> {
    let program = terminal.program_name();
    let (mut printed, mut gap) = (Ok(ExitStatus::Success), "");
    let reports = finish_all(recordings, change, terminal, &mut |reports| {
        let found = summary::render_found(reports, program);
        if !as_json && !found.is_empty() {
            (printed, gap) = (print_text(&found), "\n");
        }
    });
    printed?;
    if !as_json && !reports.is_empty() {
        print_text(&format!("{gap}{}", summary::render_rest(&reports, program)))?;
    }
    Ok(reports)
}

/// What to tell if a signal ends us meanwhile, and that results come from this command then.
pub fn farewell<'a>(command: &str, places: impl Iterator<Item = &'a Path>, terminal: &Terminal) -> String {
    let (program, places) = (terminal.program_name(), places.map(quoted_path).collect::<Vec<_>>().join(" "));
    format!("\n[{program}] stopped; the recording is kept, for its results: {program} {command} {places}\n")
}

/// A recording after finishing, for programs.
fn described(recording: &RecordingDirectory) -> Value {
    let process_id = recording.identity.process_id;
    json!({ "path": recording.path, "process_id": process_id, "has_results": recording.is_finished() })
}

/// Others may have put recordings where we have ours. Whoever wants their results names them one by one.
fn tell_left_out(directory: &Path, of_others: &[RecordingDirectory], terminal: &Terminal) {
    let Some(first) = of_others.first() else { return };
    let (program, shown) = (terminal.program_name(), quoted_path(&first.path));
    let recordings = match of_others.len() {
        1 => "1 recording of another user is".to_owned(),
        count => format!("{count} recordings of other users are"),
    };
    let place = quoted_path(directory);
    terminal.warning(format!("{recordings} left out in {place}; to write results into one: {program} finish {shown}"));
}

/// Tells of recordings that nobody finished: their launcher was killed, or they are of forked processes that ended in
/// a way that leaves no time for results.
pub fn tell_unfinished(output: &Path, is_meant: impl Fn(&TraceIdentity) -> bool, terminal: &Terminal) {
    let recordings = recordings_in(output).unwrap_or_default();
    let is_left = |recording: &&RecordingDirectory| {
        is_meant(&recording.identity)
            && recording.is_ours_to_finish()
            && !recording.is_finished()
            && !recording.is_running()
    };
    let count = recordings.iter().filter(is_left).count();
    if count > 0 {
        let (program, shown) = (terminal.program_name(), quoted_path(output));
        let recordings = if count == 1 { "1 recording has" } else { &format!("{count} recordings have") };
        terminal.warning(format!("{recordings} no results yet: {program} recover {shown}"));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn work_is_done_at_the_same_time_and_comes_back_in_order() {
        // Nobody gets past the barrier alone.
        let meeting = Barrier::new(2);
        let doubled = side_by_side(10, 2, |index| {
            meeting.wait();
            2 * index
        });
        assert_eq!(doubled, (0..10).map(|index| 2 * index).collect::<Vec<_>>());
        assert_eq!(side_by_side(0, 2, |index| index), Vec::<usize>::new());
    }
}
