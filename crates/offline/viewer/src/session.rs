//! What is open: recordings are read in the background, so that something can be shown at once. Those of many ranks
//! wait until somebody asks about them.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use msmemscope_import::{ImportError, ImportReport, Imported, InputFile, Recording, find_all, open_files};
use msmemscope_results::recordings::RecordingDirectory;
use msmemscope_trace::{Fingerprint, TRACE_FILE_NAME};
use rustc_hash::FxHashSet;

use crate::entry::{Entry, Identity, Progress, Source, identify, locked, name_and_path};
use crate::index::Index;
use crate::summarised::Summaries;
use crate::{MissingText, ViewSettings, live, room};

/// Passes over recordings that run at the same time.
const WORKERS: usize = 2;
/// More recordings than this with a summary are read only when somebody asks about them.
const MOST_READ_AT_ONCE: usize = 8;
/// Numbers up to this are exact in a browser.
const LARGEST_EXACT: u64 = 1 << 53;

/// All recordings that are open.
#[derive(Clone)]
pub(crate) struct Opened {
    /// When the first of them began; answers count from there.
    pub(crate) origin_ns: u64,
    pub(crate) entries: Vec<Arc<Entry>>,
    /// What could not be used of dump files.
    pub(crate) notice: Option<String>,
    /// Where they were looked for.
    pub(crate) places: Vec<PathBuf>,
}

impl Opened {
    /// Ranks in their order.
    pub(crate) fn new(mut entries: Vec<Entry>, notice: Option<String>, places: Vec<PathBuf>) -> Self {
        entries.sort_by_key(|entry| (entry.identity.rank.unwrap_or(u32::MAX), entry.identity.process_id));
        let origin_ns = entries.iter().map(|entry| entry.identity.first_ns).min().unwrap_or(0);
        let mut opened = Self { origin_ns, entries: Vec::new(), notice, places };
        entries.into_iter().for_each(|entry| opened.add(entry));
        opened
    }

    /// One more, behind the others.
    pub(crate) fn add(&mut self, entry: Entry) {
        let entry = self.placed(entry);
        self.entries.push(entry);
    }

    /// An entry that counts time as the others do. Clocks may differ by years, more than a browser can count exactly:
    /// such recordings count from their own start.
    pub(crate) fn placed(&self, mut entry: Entry) -> Arc<Entry> {
        let Identity { first_ns, last_ns, .. } = entry.identity;
        if first_ns >= self.origin_ns && last_ns.saturating_sub(self.origin_ns) < LARGEST_EXACT {
            entry.origin_ns = self.origin_ns;
        }
        Arc::new(entry)
    }

    pub(crate) fn progress(&self) -> Progress {
        Progress::of(self.entries.iter().map(|entry| &**entry))
    }
}

/// What is known of the paths: nothing before they are opened, else what they hold or why they cannot be opened.
type Opening = Option<Result<Arc<Opened>, String>>;

/// Something to be done for a recording.
enum Task {
    Open(Arc<Entry>),
    Load(Arc<Entry>, Arc<Index>),
    Read(Arc<Entry>, Arc<Recording>),
    Analyse(Arc<Entry>, Arc<Recording>),
    /// To keep what was learned beside the recording.
    Write(Arc<Entry>),
}

/// What is shown, from the opening of its paths on.
pub struct Session {
    missing: MissingText,
    tasks: Mutex<VecDeque<Task>>,
    is_task: Condvar,
    opening: Mutex<Opening>,
    is_opened: Condvar,
    /// Whether the program ends: nothing is read any more, and no index written.
    ends: AtomicBool,
    /// Held while an index is written.
    writes: Mutex<()>,
}

impl Session {
    /// Starts to open and read in the background.
    pub fn open(settings: ViewSettings) -> Arc<Self> {
        let session = Self::new(settings.missing);
        let own = session.clone();
        std::thread::spawn(move || own.work(&settings));
        session
    }

    /// Starts to follow jobs in the background, until they have ended.
    pub fn follow(recordings: Vec<RecordingDirectory>, missing: MissingText) -> Arc<Self> {
        let session = Self::new(missing);
        let own = session.clone();
        std::thread::spawn(move || live::follow(&own, recordings));
        session
    }

    fn new(missing: MissingText) -> Arc<Self> {
        Arc::new(Self {
            missing,
            tasks: Mutex::default(),
            is_task: Condvar::new(),
            opening: Mutex::default(),
            is_opened: Condvar::new(),
            ends: AtomicBool::new(false),
            writes: Mutex::default(),
        })
    }

    /// Waits until the paths are opened, as long as that takes less than `patience`. An error says why they cannot be.
    pub fn wait_until_opened(&self, patience: Duration) -> Result<(), String> {
        let opening = locked(&self.opening);
        let waited = self.is_opened.wait_timeout_while(opening, patience, |opening| opening.is_none());
        match &*waited.unwrap_or_else(PoisonError::into_inner).0 {
            Some(Err(reason)) => Err(reason.clone()),
            _ => Ok(()),
        }
    }

    /// What could not be used of the files, once they are opened.
    pub fn notice(&self) -> Option<String> {
        self.opened()?.notice.clone()
    }

    /// Whether everything is read and analysed.
    pub fn is_complete(&self) -> bool {
        self.opened().is_some_and(|opened| opened.progress().is_complete)
    }

    /// How much is read, from zero to one.
    pub fn fraction(&self) -> f64 {
        self.opened().map_or(0.0, |opened| opened.progress().fraction)
    }

    /// To be called when the program ends: an index that is being written is given up.
    pub fn end(&self) {
        self.ends.store(true, Ordering::Relaxed);
        drop(locked(&self.tasks));
        self.is_task.notify_all();
        drop(locked(&self.writes));
    }

    /// Whether the program ends.
    pub(crate) fn ends(&self) -> bool {
        self.ends.load(Ordering::Relaxed)
    }

    /// In words, what recordings lack.
    pub(crate) fn missing(&self) -> MissingText {
        self.missing
    }

    /// What is open now. Jobs that are followed may make something newer of it at any time.
    pub(crate) fn opened(&self) -> Option<Arc<Opened>> {
        locked(&self.opening).as_ref().and_then(|opened| opened.as_ref().ok().cloned())
    }

    /// The paths are opened, or something newer is known of them.
    pub(crate) fn set_opened(&self, opened: Result<Opened, String>) {
        *locked(&self.opening) = Some(opened.map(Arc::new));
        self.is_opened.notify_all();
    }

    /// Somebody asks about a recording: it is opened if it was waiting for that.
    pub(crate) fn want(&self, entry: &Arc<Entry>) {
        if entry.stops_waiting() {
            self.add_tasks([Task::Open(entry.clone())]);
        }
    }

    /// What is to be done before anything else.
    fn add_tasks<const N: usize>(&self, tasks: [Task; N]) {
        let mut waiting = locked(&self.tasks);
        tasks.into_iter().rev().for_each(|task| waiting.push_front(task));
        self.is_task.notify_all();
    }

    fn work(&self, settings: &ViewSettings) {
        self.set_opened(open(settings));
        let Some(opened) = self.opened() else { return };
        let tasks = opened.entries.iter().flat_map(|entry| entry.source().map(|source| tasks_of(entry, source)));
        locked(&self.tasks).extend(tasks.flatten());
        let may_be_asked = opened.entries.iter().any(|entry| entry.rests());
        drop(opened);
        std::thread::scope(|scope| {
            for _ in 0..WORKERS {
                scope.spawn(|| {
                    while let Some(task) = self.next_task(may_be_asked) {
                        self.run(task);
                    }
                });
            }
        });
    }

    /// None if there is nothing to do any more.
    fn next_task(&self, may_be_asked: bool) -> Option<Task> {
        let mut tasks = locked(&self.tasks);
        loop {
            if self.ends() {
                return None;
            }
            match tasks.pop_front() {
                None if may_be_asked => tasks = self.is_task.wait(tasks).unwrap_or_else(PoisonError::into_inner),
                task => return task,
            }
        }
    }

    fn run(&self, task: Task) {
        let entry = match task {
            Task::Open(entry) => {
                if let Some(source) = entry.open_late() {
                    let mut waiting = locked(&self.tasks);
                    tasks_of(&entry, source).into_iter().rev().for_each(|task| waiting.push_front(task));
                    self.is_task.notify_all();
                }
                return;
            }
            Task::Write(entry) => {
                let _guard = locked(&self.writes);
                if !self.ends() {
                    entry.write_index(&self.ends);
                }
                return;
            }
            Task::Load(entry, index) => {
                entry.load(&index, self.missing);
                entry
            }
            Task::Read(entry, recording) => {
                entry.read(&recording);
                entry
            }
            Task::Analyse(entry, recording) => {
                entry.analyse(&recording, self.missing);
                entry
            }
        };
        // Behind everything that somebody waits for.
        if entry.is_complete() {
            locked(&self.tasks).push_back(Task::Write(entry));
            self.is_task.notify_all();
        }
    }

    /// Keeps what was learned beside the recordings.
    pub(crate) fn write_indexes(&self, opened: &Opened) {
        opened.entries.iter().for_each(|entry| self.run(Task::Write(entry.clone())));
    }
}

/// What there is to do for a recording that is open: two passes over it, or its index.
fn tasks_of(entry: &Arc<Entry>, source: Source) -> Vec<Task> {
    match source {
        Source::Index(index) => vec![Task::Load(entry.clone(), index)],
        Source::Recording(recording) => {
            vec![Task::Read(entry.clone(), recording.clone()), Task::Analyse(entry.clone(), recording)]
        }
    }
}

/// The files that paths stand for, and how many copies are left out. A directory may hold nothing but summaries.
fn files_of(paths: &[PathBuf], summaries: &Summaries) -> Result<(Vec<InputFile>, u64), String> {
    let (mut files, mut copies_left_out) = (Vec::new(), 0);
    for path in paths {
        match find_all(&[path]) {
            Ok((found, copies)) => {
                files.extend(found);
                copies_left_out += copies;
            }
            Err(ImportError::EmptyDirectory { .. }) if summaries.has_any_below(path) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok((files, copies_left_out))
}

fn open(settings: &ViewSettings) -> Result<Opened, String> {
    let mut summaries = match settings.trusts_summaries {
        true => Summaries::below(&settings.paths),
        false => Summaries::default(),
    };
    let (files, copies_left_out) = files_of(&settings.paths, &summaries)?;
    let is_trace = |file: &Path| file.file_name().is_some_and(|name| name == TRACE_FILE_NAME);
    // The process of each file, if there is a summary of it.
    let process = |file: &InputFile| {
        let directory = file.path.ancestors().skip(1).find(|directory| summaries.usable.contains_key(*directory));
        directory.map(Path::to_owned)
    };
    let processes: Vec<Option<PathBuf>> = files.iter().map(process).collect();
    let of_traces = files.iter().zip(&processes).filter(|(file, process)| is_trace(&file.path) && process.is_some());
    let waits = of_traces.count() > MOST_READ_AT_ONCE;
    let with_files: FxHashSet<&Path> = files.iter().flat_map(|file| file.path.ancestors().skip(1)).collect();
    let lost = summaries.notice(|directory| with_files.contains(directory));
    let mut trace_bytes = 0u64;
    let mut entries = Vec::new();
    let mut fingerprints: Vec<(PathBuf, Fingerprint)> = Vec::new();
    let mut not_indexed = Vec::new();
    for (input, process) in files.iter().zip(processes) {
        let file = input.path.clone();
        // Files of a process say more than its summary, which is enough as long as nobody asks for more.
        let summarised = process.and_then(|process| summaries.usable.remove(&process));
        if let Some(summarised) = summarised.filter(|_| waits && is_trace(&file)) {
            entries.push(Entry::summarised(summarised, Some(file)));
            continue;
        }
        // Whatever is no trace has none.
        let fingerprint = Fingerprint::of(&file).ok();
        trace_bytes = trace_bytes.saturating_add(fingerprint.map_or(0, |fingerprint| fingerprint.file_bytes));
        let index = fingerprint.and_then(|fingerprint| Index::open(&file, &fingerprint));
        if let (Some(index), Some(fingerprint)) = (index, fingerprint) {
            let (name, path) = name_and_path(file.parent().unwrap_or(&file));
            let identity = Identity { name, path, ..index.identity.clone() };
            entries.push(Entry::new(Some(Source::Index(Arc::new(index))), identity, Some((file, fingerprint))));
            continue;
        }
        fingerprints.extend(fingerprint.map(|fingerprint| (file.clone(), fingerprint)));
        not_indexed.push(input.clone());
    }
    let (recordings, unused) = match open_files(&not_indexed) {
        Ok(Imported { recordings, report }) => (recordings, report.notice()),
        // The others have an index or a summary.
        Err(error) if !entries.is_empty() && not_indexed.iter().all(|file| !file.is_named) => {
            (Vec::new(), Some(error.to_string()))
        }
        Err(error) => return Err(error.to_string()),
    };
    let copies = ImportReport::of_copies(copies_left_out).notice();
    let notices: Vec<String> = unused.into_iter().chain(lost).chain(copies).chain(room::notice(trace_bytes)).collect();
    let notice = (!notices.is_empty()).then(|| notices.join(" "));
    for recording in recordings {
        let identity = identify(&recording);
        let trace = match &recording {
            Recording::Trace { path, .. } => fingerprints.iter().find(|(known, _)| known == path).cloned(),
            Recording::Process(_) => None,
        };
        entries.push(Entry::new(Some(Source::Recording(Arc::new(recording))), identity, trace));
    }
    entries.extend(summaries.usable.into_values().map(|alone| Entry::summarised(alone, None)));
    if entries.is_empty() {
        return Err(notice.unwrap_or_else(|| "there is nothing to show".to_owned()));
    }
    Ok(Opened::new(entries, notice, settings.paths.clone()))
}
