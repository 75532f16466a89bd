//! What is open: recordings are read in the background, so that something can be shown at once.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use msmemscope_import::{Recording, find_files, open_several};
use msmemscope_results::recordings::RecordingDirectory;
use msmemscope_trace::Fingerprint;

use crate::entry::{Entry, Identity, Progress, Source, identify, locked, name_and_path};
use crate::index::Index;
use crate::{MissingText, ViewSettings, live};

/// Passes over recordings that run at the same time.
const WORKERS: usize = 2;
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
}

impl Opened {
    /// Ranks in their order.
    pub(crate) fn new(mut entries: Vec<Entry>, notice: Option<String>) -> Self {
        entries.sort_by_key(|entry| (entry.identity.rank.unwrap_or(u32::MAX), entry.identity.process_id));
        let origin_ns = entries.iter().map(|entry| entry.identity.first_ns).min().unwrap_or(0);
        let mut opened = Self { origin_ns, entries: Vec::new(), notice };
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

/// What is shown, from the opening of its paths on.
pub struct Session {
    missing: MissingText,
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
        std::thread::spawn(move || own.work(&settings.paths));
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

    fn work(&self, paths: &[PathBuf]) {
        let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
        self.set_opened(open(&paths));
        let Some(opened) = self.opened() else { return };
        let next = AtomicUsize::new(0);
        let sources: Vec<(&Entry, Option<Source>)> =
            opened.entries.iter().map(|entry| (&**entry, entry.source())).collect();
        std::thread::scope(|scope| {
            for _ in 0..WORKERS {
                scope.spawn(|| {
                    loop {
                        // Two tasks per recording, one per index.
                        let task = next.fetch_add(1, Ordering::Relaxed);
                        let Some((entry, source)) = sources.get(task / 2) else { return };
                        match (source, task % 2) {
                            (Some(Source::Index(index)), 0) => entry.load(index, self.missing),
                            (Some(Source::Recording(recording)), 0) => entry.read(recording),
                            (Some(Source::Recording(recording)), _) => entry.analyse(recording, self.missing),
                            _ => {}
                        }
                    }
                });
            }
        });
        drop(sources);
        self.write_indexes(&opened);
    }

    /// Keeps what was learned beside the recordings.
    pub(crate) fn write_indexes(&self, opened: &Opened) {
        for entry in &opened.entries {
            let _guard = locked(&self.writes);
            if !self.ends() {
                entry.write_index(&self.ends);
            }
        }
    }
}

fn open(paths: &[&Path]) -> Result<Opened, String> {
    let files = find_files(paths).map_err(|error| error.to_string())?;
    let mut entries = Vec::new();
    let mut fingerprints: Vec<(PathBuf, Fingerprint)> = Vec::new();
    let mut not_indexed = Vec::new();
    for file in files {
        // Whatever is no trace has none.
        let fingerprint = Fingerprint::of(&file).ok();
        let index = fingerprint.and_then(|fingerprint| Index::open(&file, &fingerprint));
        if let (Some(index), Some(fingerprint)) = (index, fingerprint) {
            let (name, path) = name_and_path(file.parent().unwrap_or(&file));
            let identity = Identity { name, path, ..index.identity.clone() };
            entries.push(Entry::new(Some(Source::Index(Arc::new(index))), identity, Some((file, fingerprint))));
            continue;
        }
        fingerprints.extend(fingerprint.map(|fingerprint| (file.clone(), fingerprint)));
        not_indexed.push(file);
    }
    let not_indexed: Vec<&Path> = not_indexed.iter().map(PathBuf::as_path).collect();
    let imported = open_several(&not_indexed).map_err(|error| error.to_string())?;
    let notice = imported.report.notice();
    for recording in imported.recordings {
        let identity = identify(&recording);
        let trace = match &recording {
            Recording::Trace { path, .. } => fingerprints.iter().find(|(known, _)| known == path).cloned(),
            Recording::Process(_) => None,
        };
        entries.push(Entry::new(Some(Source::Recording(Arc::new(recording))), identity, trace));
    }
    Ok(Opened::new(entries, notice))
}
