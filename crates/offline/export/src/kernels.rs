//! Every launch of a kernel as a row of a csv file: when it was launched, started and ended, which operator launched it,
//! and by how much memory in use on its card had changed since the launch before. Kernels of graphs have a row for the
//! launch, when the graph was captured, and one for each of its runs.

use std::io::{self, Write};

use msmemscope_analysis::kernels::{KernelFollower, LaunchedKernel, Part};
use msmemscope_analysis::names::{Names, RecordingNames};
use msmemscope_analysis::situation::{BlockChange, Situation};
use msmemscope_event::StringId;
use msmemscope_import::Recording;
use msmemscope_timeline::{EventKind, EventSink, FactSource, TimelineEvent};

use crate::{Progress, everything};

const HEADER: &str = "Kernel,Operator,Process Id,Thread Id,Device Id,Stream Id,Task Id,Launched(ns),Started(ns),Ended(ns),\
                      Waited(ns),Ran(ns),Memory change(bytes),Memory in use(bytes)";

/// Returns whether any kernel was launched.
pub(crate) fn write(recordings: &[Recording], out: &mut dyn Write, progress: Progress<'_>) -> io::Result<bool> {
    writeln!(out, "{HEADER}")?;
    let mut has_launches = false;
    for recording in recordings {
        let names = RecordingNames::new(recording);
        let situation = Situation::of(recording);
        let process_id = recording.process_id();
        let rows = Rows { names: &names, process_id, out, is_empty: true, result: Ok(()) };
        let mut table = Launches { situation, follower: KernelFollower::default(), rows };
        msmemscope_timeline::run(recording, &everything(recording), &mut table, progress);
        let Launches { follower, mut rows, .. } = table;
        follower.finish(&mut |kernel| rows.add(&kernel));
        rows.result?;
        has_launches |= !rows.is_empty;
    }
    Ok(has_launches)
}

struct Launches<'a> {
    situation: Situation,
    follower: KernelFollower,
    rows: Rows<'a>,
}

struct Rows<'a> {
    names: &'a dyn Names,
    process_id: u32,
    out: &'a mut dyn Write,
    is_empty: bool,
    result: io::Result<()>,
}

impl EventSink for Launches<'_> {
    fn take(&mut self, event: TimelineEvent) {
        let (ended, _) = self.situation.update(&event, self.rows.names);
        match &event.kind {
            EventKind::Malloc(block) => {
                if let Some(live) = self.situation.block(block.slot) {
                    self.follower.block(&BlockChange::Begins(live, block));
                }
            }
            EventKind::Free(block) => {
                if let Some(live) = &ended {
                    self.follower.block(&BlockChange::Ends(live, block));
                }
            }
            EventKind::Kernel { .. } => {
                let rows = &mut self.rows;
                self.follower.event(&event, &self.situation, &mut |kernel| rows.add(&kernel));
            }
            _ => {}
        }
    }
}

impl Rows<'_> {
    fn add(&mut self, kernel: &LaunchedKernel) {
        self.is_empty = false;
        if self.result.is_ok() {
            self.result = self.row(kernel);
        }
    }

    fn row(&mut self, kernel: &LaunchedKernel) -> io::Result<()> {
        let text = |id: StringId| if id.is_some() { cell(&self.names.text(id)) } else { String::new() };
        let number = |number: Option<u64>| number.map_or_else(String::new, |number| number.to_string());
        let launched_ns = Some(kernel.launched_ns).filter(|_| kernel.part != Part::GraphRun);
        writeln!(
            self.out,
            "{},{},{},{},{},{},{},{},{},{},{},{},{},{}",
            text(kernel.name),
            text(kernel.operator),
            self.process_id,
            kernel.thread_id,
            kernel.device,
            kernel.stream_id,
            kernel.task_id,
            number(launched_ns),
            number(kernel.started_ns),
            number(kernel.ended_ns),
            number(kernel.waited_ns()),
            number(kernel.ran_ns()),
            kernel.change_bytes,
            kernel.used_bytes
        )
    }
}

/// A text as a cell.
fn cell(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}
