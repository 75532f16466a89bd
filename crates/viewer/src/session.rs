//! What is open: recordings are read in the background, so that something can be shown at once.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use msmemscope_analysis::situation::Situation;
use msmemscope_analysis::{Questions, RecordingNames, analyze};
use msmemscope_event::ProcessInfoKey;
use msmemscope_import::{Recording, open_several};
use msmemscope_timeline::{FactSource, FactStream, TimelineSettings, detect_step_source};

use crate::ViewSettings;
use crate::findings::Findings;
use crate::model::Model;
use crate::model::builder::Builder;
use crate::model::changes::{Changes, Dimension, Stacking};
use crate::model::coarse::Coarse;
use crate::model::filter::{BlockFilter, Filter};

/// Passes over recordings that run at the same time.
const WORKERS: usize = 2;
/// Filtered views that are kept; those of whole pools are kept always.
const KEPT_VIEWS: usize = 6;
/// Numbers up to this are exact in a browser.
const LARGEST_EXACT: u64 = 1 << 53;
const PARTS: f64 = 10_000.0;

/// Who was recorded, as far as known before reading.
#[derive(Clone, Debug, Default)]
pub(crate) struct Identity {
    pub(crate) name: String,
    pub(crate) path: String,
    pub(crate) is_dump: bool,
    pub(crate) process_id: u32,
    pub(crate) host: Option<String>,
    pub(crate) command: Option<String>,
    pub(crate) first_ns: u64,
    pub(crate) last_ns: u64,
}

/// Bytes in use of the blocks of a pool that pass a filter.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) group: u16,
    pub(crate) filter: Filter,
    pub(crate) changes: Changes,
    stackings: Mutex<Vec<(Dimension, Arc<Stacking>)>>,
}

impl View {
    /// How the bytes divide.
    pub(crate) fn stacking(&self, model: &Model, dimension: Dimension) -> Arc<Stacking> {
        let mut stackings = locked(&self.stackings);
        if let Some((_, known)) = stackings.iter().find(|(known, _)| *known == dimension) {
            return known.clone();
        }
        let stacking = Arc::new(Stacking::new(model, &self.changes, dimension));
        stackings.push((dimension, stacking.clone()));
        stacking
    }
}

/// One recording, read or being read.
pub(crate) struct Entry {
    pub(crate) identity: Identity,
    /// Answers about it count time from here.
    pub(crate) origin_ns: u64,
    /// Until everything is read.
    recording: Mutex<Option<Arc<Recording>>>,
    /// The rough curve so far, and the time of the latest event in it.
    pub(crate) coarse: Mutex<(Coarse, u64)>,
    parts_read: AtomicU32,
    model: OnceLock<Model>,
    findings: OnceLock<Findings>,
    views: Mutex<Vec<Arc<View>>>,
}

impl Entry {
    fn new(recording: Recording, identity: Identity) -> Self {
        let coarse = Coarse::new(identity.first_ns, identity.last_ns);
        Self {
            coarse: Mutex::new((coarse, identity.first_ns)),
            origin_ns: identity.first_ns,
            identity,
            recording: Mutex::new(Some(Arc::new(recording))),
            parts_read: AtomicU32::new(0),
            model: OnceLock::new(),
            findings: OnceLock::new(),
            views: Mutex::default(),
        }
    }

    /// The model, once everything is read.
    pub(crate) fn model(&self) -> Option<&Model> {
        self.model.get()
    }

    /// What the analyses say, once they are done.
    pub(crate) fn findings(&self) -> Option<&Findings> {
        self.findings.get()
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.model.get().is_some() && self.findings.get().is_some()
    }

    /// How much is read, from zero to one.
    pub(crate) fn fraction(&self) -> f64 {
        match self.model.get() {
            Some(_) => 1.0,
            None => f64::from(self.parts_read.load(Ordering::Relaxed)) / PARTS,
        }
    }

    /// How far things are, in one word.
    pub(crate) fn state(&self) -> &'static str {
        match (self.model.get().is_some(), self.findings.get().is_some()) {
            (true, true) => "ready",
            (true, false) => "analysing",
            _ => "reading",
        }
    }

    /// Bytes in use of the blocks of a pool that pass a filter.
    pub(crate) fn view(&self, model: &Model, group: u16, filter: &Filter) -> Arc<View> {
        let known = locked(&self.views).iter().find(|view| view.group == group && view.filter == *filter).cloned();
        if let Some(view) = known {
            return view;
        }
        let changes = Changes::new(model, group, &BlockFilter::new(model, filter));
        let view = Arc::new(View { group, filter: filter.clone(), changes, stackings: Mutex::default() });
        let mut views = locked(&self.views);
        let is_filtered = |view: &Arc<View>| !view.filter.is_empty();
        if views.iter().filter(|view| is_filtered(view)).count() >= KEPT_VIEWS
            && let Some(oldest) = views.iter().position(is_filtered)
        {
            views.remove(oldest);
        }
        views.push(view.clone());
        view
    }

    fn recording(&self) -> Option<Arc<Recording>> {
        locked(&self.recording).clone()
    }

    /// Fills the model.
    fn read(&self) {
        let Some(recording) = self.recording() else { return };
        let names = RecordingNames::new(&recording);
        // As the analyses do it: blocks alive at the end stay alive.
        let settings = TimelineSettings {
            process_ended: false,
            step_source: detect_step_source(&*recording),
            ..TimelineSettings::default()
        };
        let facts = recording.facts().progress().1;
        let coarse = Coarse::new(self.identity.first_ns, self.identity.last_ns);
        let mut report = |coarse: &Coarse, until: u64| *locked(&self.coarse) = (coarse.clone(), until);
        let mut builder =
            Builder::new(&names, Situation::of(&recording), settings.step_source, facts, coarse, &mut report);
        msmemscope_timeline::run(&*recording, &settings, &mut builder, &mut |done, total| {
            let parts = done as f64 / total.max(1) as f64 * PARTS;
            self.parts_read.store(parts as u32, Ordering::Relaxed);
        });
        let model = builder.finish(recording.definitions());
        if let Some(group) = model.main_group() {
            let view = self.view(&model, group, &Filter::default());
            view.stacking(&model, Dimension::Owner);
        }
        drop(self.model.set(model));
        self.forget_recording();
    }

    /// Asks the analyses.
    fn analyse(&self, settings: &ViewSettings) {
        let Some(recording) = self.recording() else { return };
        let answers = analyze(&recording, &Questions::all(), &mut |_, _| {});
        let missing = match &*recording {
            Recording::Trace { trace, .. } => (settings.missing)(trace.completeness(), &answers.summary),
            Recording::Process(_) => Vec::new(),
        };
        drop(self.findings.set(Findings::of(&answers, missing)));
        self.forget_recording();
    }

    fn forget_recording(&self) {
        if self.is_complete() {
            locked(&self.recording).take();
        }
    }
}

/// All recordings that are open.
pub(crate) struct Opened {
    /// When the first of them began; answers count from there.
    pub(crate) origin_ns: u64,
    pub(crate) entries: Vec<Entry>,
    /// What could not be used of dump files.
    pub(crate) notice: Option<String>,
}

/// What is shown, from the opening of its paths on.
pub struct Session {
    settings: ViewSettings,
    opened: OnceLock<Result<Opened, String>>,
    is_opened: (Mutex<bool>, Condvar),
}

impl Session {
    /// Starts to open and read in the background.
    pub fn open(settings: ViewSettings) -> Arc<Self> {
        let session = Arc::new(Self { settings, opened: OnceLock::new(), is_opened: Default::default() });
        let own = session.clone();
        std::thread::spawn(move || own.work());
        session
    }

    /// Waits until the paths are opened, as long as that takes less than `patience`. An error says why they cannot be.
    pub fn wait_until_opened(&self, patience: Duration) -> Result<(), String> {
        let (is_opened, condition) = &self.is_opened;
        let guard = is_opened.lock().unwrap_or_else(PoisonError::into_inner);
        drop(condition.wait_timeout_while(guard, patience, |is_opened| !*is_opened));
        match self.opened.get() {
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
        self.opened().is_some_and(|opened| opened.entries.iter().all(Entry::is_complete))
    }

    pub(crate) fn opened(&self) -> Option<&Opened> {
        self.opened.get().and_then(|opened| opened.as_ref().ok())
    }

    fn work(self: Arc<Self>) {
        let paths: Vec<&Path> = self.settings.paths.iter().map(PathBuf::as_path).collect();
        drop(self.opened.set(open(&paths)));
        *self.is_opened.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.is_opened.1.notify_all();
        let Some(opened) = self.opened() else { return };
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..WORKERS {
                scope.spawn(|| {
                    loop {
                        // Two tasks per recording.
                        let task = next.fetch_add(1, Ordering::Relaxed);
                        match (opened.entries.get(task / 2), task % 2) {
                            (Some(entry), 0) => entry.read(),
                            (Some(entry), _) => entry.analyse(&self.settings),
                            (None, _) => return,
                        }
                    }
                });
            }
        });
    }
}

fn open(paths: &[&Path]) -> Result<Opened, String> {
    let imported = open_several(paths).map_err(|error| error.to_string())?;
    let notice = imported.report.notice();
    let mut entries: Vec<Entry> = imported
        .recordings
        .into_iter()
        .map(|recording| {
            let identity = identify(&recording, paths);
            Entry::new(recording, identity)
        })
        .collect();
    let origin_ns = entries.iter().map(|entry| entry.identity.first_ns).min().unwrap_or(0);
    // Clocks may differ by years, more than a browser can count exactly: such recordings count from their own begin.
    for entry in &mut entries {
        if entry.identity.last_ns.saturating_sub(origin_ns) < LARGEST_EXACT {
            entry.origin_ns = origin_ns;
        }
    }
    Ok(Opened { origin_ns, entries, notice })
}

fn identify(recording: &Recording, paths: &[&Path]) -> Identity {
    let definitions = recording.definitions();
    let information = |key| {
        let text = definitions.process_information(key).map(|text| String::from_utf8_lossy(text).into_owned());
        text.filter(|text| !text.is_empty())
    };
    let path = match recording {
        Recording::Trace { path, .. } => path.parent().unwrap_or(path).to_owned(),
        Recording::Process(_) => paths.first().map_or_else(PathBuf::new, |path| path.to_path_buf()),
    };
    let wall = |monotonic_ns: u64| monotonic_ns.wrapping_add_signed(recording.wall_offset_ns());
    let first_ns = recording.facts().next().map_or(0, |record| wall(record.monotonic_ns));
    let command = information(ProcessInfoKey::CommandLine);
    Identity {
        name: path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
        path: path.display().to_string(),
        is_dump: matches!(recording, Recording::Process(_)),
        process_id: recording.process_id(),
        host: information(ProcessInfoKey::HostName),
        command: command.map(|text| text.trim_end_matches('\0').replace('\0', " ")),
        first_ns,
        last_ns: wall(recording.end_monotonic_ns()),
    }
}

/// A lock that outlives a panic elsewhere: what it guards is replaced as a whole.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
