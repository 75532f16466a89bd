//! One recording, read or being read: its model, its findings, and the views of it that were asked for.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use msmemscope_analysis::fleet::job::Member;
use msmemscope_analysis::fleet::summary::{Summary, Told};
use msmemscope_analysis::situation::Situation;
use msmemscope_analysis::{Questions, RecordingNames, analyze};
use msmemscope_event::ProcessInfoKey;
use msmemscope_import::{Recording, open_several};
use msmemscope_timeline::{FactSource, FactStream, TimelineSettings, detect_step_source};
use msmemscope_trace::{Completeness, Fingerprint};
use serde_json::Value;

use crate::MissingText;
use crate::findings::Findings;
use crate::index::{self, Index, Learned};
use crate::live::FollowedJob;
use crate::model::Model;
use crate::model::builder::Builder;
use crate::model::changes::{Changes, Dimension, Stacking};
use crate::model::coarse::Coarse;
use crate::model::filter::{BlockFilter, Filter};
use crate::model::step_use::{self, StepUse};
use crate::summarised::Summarised;

/// Filtered views that are kept; those of whole pools are kept always.
const KEPT_VIEWS: usize = 6;
const PARTS: f64 = 10_000.0;

/// Who was recorded, as far as known before reading.
#[derive(Clone, Debug, Default)]
pub(crate) struct Identity {
    pub(crate) name: String,
    pub(crate) path: String,
    pub(crate) is_dump: bool,
    pub(crate) process_id: u32,
    pub(crate) rank: Option<u32>,
    pub(crate) world_size: Option<u32>,
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
    step_uses: OnceLock<Vec<StepUse>>,
}

impl View {
    /// Steps that count on the device of the pool, in the order of their starts.
    pub(crate) fn step_uses(&self, model: &Model) -> &[StepUse] {
        self.step_uses.get_or_init(|| {
            let device = model.groups[usize::from(self.group)].device;
            step_use::measure(&self.changes, &model.steps_of(device), &model.blocks)
        })
    }

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

/// Where a model comes from.
#[derive(Clone)]
pub(crate) enum Source {
    Recording(Arc<Recording>),
    Index(Arc<Index>),
}

/// How far things were when a question was asked. An answer takes it before anything else: one that calls itself
/// complete holds nothing from before that.
#[derive(Clone, Copy)]
pub(crate) struct Progress {
    pub(crate) is_complete: bool,
    pub(crate) fraction: f64,
}

impl Progress {
    /// Of several recordings together.
    pub(crate) fn of<'e>(entries: impl Iterator<Item = &'e Entry>) -> Self {
        let mut together = Self { is_complete: true, fraction: 0.0 };
        let mut count = 0;
        for progress in entries.filter(|entry| !entry.rests()).map(Entry::progress) {
            together.is_complete &= progress.is_complete;
            together.fraction += progress.fraction;
            count += 1;
        }
        together.fraction = if count == 0 { 1.0 } else { together.fraction / f64::from(count) };
        together
    }
}

/// Why a recording is not being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// Nobody has asked about it yet; its summary says enough.
    Waiting,
    /// Only its summary is here.
    SummaryOnly,
    /// It cannot be read.
    Failed,
}

/// One recording, read or being read.
pub(crate) struct Entry {
    pub(crate) identity: Identity,
    /// Answers about it count time from here.
    pub(crate) origin_ns: u64,
    /// The job that goes on writing it, if it is followed.
    pub(crate) job: Option<FollowedJob>,
    /// Where everything comes from, until it is read; none if whoever made the entry has it.
    source: Mutex<Option<Source>>,
    /// The file of the recording, and what it was like before it was read.
    trace: OnceLock<(PathBuf, Fingerprint)>,
    /// What its summary says.
    pub(crate) summarised: Option<Summarised>,
    /// The file of a recording that is opened only when somebody asks about it.
    unopened: Option<PathBuf>,
    /// Whether nobody has asked yet.
    waits: AtomicBool,
    /// Why it cannot be read.
    failure: OnceLock<String>,
    /// The rough curve so far, and the time of the latest event in it.
    pub(crate) coarse: Mutex<(Coarse, u64)>,
    parts_read: AtomicU32,
    model: OnceLock<Model>,
    findings: OnceLock<Findings>,
    views: Mutex<Vec<Arc<View>>>,
    /// What the session says of it, once it is complete.
    pub(crate) described: OnceLock<Value>,
    /// Whether the recording itself was read, for want of an index.
    was_read: AtomicBool,
    /// What it is compared with others by.
    member: OnceLock<Arc<Member>>,
}

impl Entry {
    pub(crate) fn new(source: Option<Source>, identity: Identity, trace: Option<(PathBuf, Fingerprint)>) -> Self {
        let coarse = Coarse::new(identity.first_ns, identity.last_ns);
        Self {
            coarse: Mutex::new((coarse, identity.first_ns)),
            origin_ns: identity.first_ns,
            identity,
            job: None,
            source: Mutex::new(source),
            trace: trace.map_or_else(OnceLock::new, OnceLock::from),
            summarised: None,
            unopened: None,
            waits: AtomicBool::new(false),
            failure: OnceLock::new(),
            member: OnceLock::new(),
            parts_read: AtomicU32::new(0),
            model: OnceLock::new(),
            findings: OnceLock::new(),
            views: Mutex::default(),
            described: OnceLock::new(),
            was_read: AtomicBool::new(false),
        }
    }

    /// Of a summary, and of the recording beside it if there is one.
    pub(crate) fn summarised(summarised: Summarised, unopened: Option<PathBuf>) -> Self {
        let mut entry = Self::new(None, summarised.identity.clone(), None);
        entry.waits = AtomicBool::new(unopened.is_some());
        entry.unopened = unopened;
        entry.summarised = Some(summarised);
        entry
    }

    /// Why it is not being read; none if it is, or was.
    pub(crate) fn rest(&self) -> Option<Rest> {
        let is_summary_only = self.summarised.is_some() && self.unopened.is_none();
        match (self.failure.get(), self.waits.load(Ordering::Acquire)) {
            (Some(_), _) => Some(Rest::Failed),
            (None, true) => Some(Rest::Waiting),
            (None, false) => is_summary_only.then_some(Rest::SummaryOnly),
        }
    }

    pub(crate) fn rests(&self) -> bool {
        self.rest().is_some()
    }

    /// Why it cannot be read.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    /// Whether it is to be opened now; true once, for the first who asks.
    pub(crate) fn stops_waiting(&self) -> bool {
        self.waits.swap(false, Ordering::AcqRel)
    }

    /// Opens the recording that nobody had asked about before.
    pub(crate) fn open_late(&self) -> Option<Source> {
        let path = self.unopened.as_ref()?;
        let fingerprint = Fingerprint::of(path).ok();
        if let Some(fingerprint) = fingerprint {
            drop(self.trace.set((path.clone(), fingerprint)));
        }
        let index = fingerprint.and_then(|fingerprint| Index::open(path, &fingerprint));
        let opened = match index {
            Some(index) => Ok(Source::Index(Arc::new(index))),
            None => match open_several(&[path]).map(|mut imported| imported.recordings.pop()) {
                Ok(Some(recording)) => Ok(Source::Recording(Arc::new(recording))),
                Ok(None) => Err("there is no recording in this file".to_owned()),
                Err(error) => Err(error.to_string()),
            },
        };
        match opened {
            Ok(source) => {
                *locked(&self.source) = Some(source.clone());
                Some(source)
            }
            Err(reason) => {
                drop(self.failure.set(reason));
                None
            }
        }
    }

    /// What all ranks are compared by, as its summary says it or as it was read; none while it is read.
    pub(crate) fn member(&self, number: usize) -> Option<Arc<Member>> {
        if let Some(summarised) = &self.summarised {
            return Some(summarised.member.clone());
        }
        let summary = &self.findings()?.summary;
        // Dumps of several processes have one path.
        let path = || PathBuf::from(format!("{}#{number}", self.identity.path));
        Some(self.member.get_or_init(|| Arc::new(Member::of(path(), summary.clone()))).clone())
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

    pub(crate) fn progress(&self) -> Progress {
        Progress { is_complete: self.is_complete(), fraction: self.fraction() }
    }

    /// How far things are, in one word.
    pub(crate) fn state(&self) -> &'static str {
        match (self.rest(), self.model.get().is_some(), self.findings.get().is_some()) {
            (Some(Rest::Waiting), ..) => "waiting",
            (Some(Rest::SummaryOnly), ..) => "summary",
            (Some(Rest::Failed), ..) => "failed",
            (None, true, true) => "ready",
            (None, true, false) => "analysing",
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
        let view = Arc::new(View {
            group,
            filter: filter.clone(),
            changes,
            stackings: Mutex::default(),
            step_uses: OnceLock::new(),
        });
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

    pub(crate) fn source(&self) -> Option<Source> {
        locked(&self.source).clone()
    }

    /// Takes model and findings from the index. If it is of no use after all, the recording is read instead.
    pub(crate) fn load(&self, index: &Index, missing: MissingText) {
        if let Ok((model, findings)) = index.load() {
            self.set_model(model);
            drop(self.findings.set(findings));
            locked(&self.source).take();
            return;
        }
        let Some((path, _)) = self.trace.get() else { return };
        index::remove(path);
        let Some(recording) = open_several(&[path]).ok().and_then(|mut opened| opened.recordings.pop()) else { return };
        let recording = Arc::new(recording);
        *locked(&self.source) = Some(Source::Recording(recording.clone()));
        self.read(&recording);
        self.analyse(&recording, missing);
    }

    fn set_model(&self, model: Model) {
        if let Some(group) = model.main_group() {
            let view = self.view(&model, group, &Filter::default());
            view.stacking(&model, Dimension::Owner);
        }
        drop(self.model.set(model));
    }

    /// Keeps what was learned beside the recording.
    pub(crate) fn write_index(&self, ends: &AtomicBool) {
        let (Some((path, fingerprint)), Some(model), Some(findings)) =
            (self.trace.get(), self.model(), self.findings())
        else {
            return;
        };
        if !self.was_read.swap(false, Ordering::Relaxed) {
            return;
        }
        index::write(path, fingerprint, &Learned { identity: &self.identity, model, findings }, ends);
    }

    /// Fills the model.
    pub(crate) fn read(&self, recording: &Recording) {
        let names = RecordingNames::new(recording);
        // As the analyses do it: blocks alive at the end stay alive.
        let settings = TimelineSettings {
            process_ended: false,
            step_source: detect_step_source(recording),
            ..TimelineSettings::default()
        };
        let facts = recording.facts().progress().1;
        let coarse = Coarse::new(self.identity.first_ns, self.identity.last_ns);
        let mut report = |coarse: &Coarse, until: u64| *locked(&self.coarse) = (coarse.clone(), until);
        let mut builder =
            Builder::new(&names, Situation::of(recording), settings.step_source, facts, coarse, &mut report);
        msmemscope_timeline::run(recording, &settings, &mut builder, &mut |done, total| {
            let parts = done as f64 / total.max(1) as f64 * PARTS;
            self.parts_read.store(parts as u32, Ordering::Relaxed);
        });
        self.set_model(builder.finish(recording.definitions()));
        self.was_read.store(true, Ordering::Relaxed);
        self.forget_source();
    }

    /// Asks the analyses.
    pub(crate) fn analyse(&self, recording: &Recording, missing: MissingText) {
        let answers = analyze(recording, &Questions::all(), &mut |_, _| {});
        let (missing, completeness) = match recording {
            Recording::Trace { trace, .. } => (missing(trace.completeness(), &answers.summary), trace.completeness()),
            Recording::Process(_) => (Vec::new(), &Completeness { closed: true, ..Completeness::default() }),
        };
        // A job that goes on has not been killed.
        let is_running = self.job.as_ref().is_some_and(|job| !job.is_last);
        let completeness = &Completeness { closed: completeness.closed || is_running, ..completeness.clone() };
        let summary = Summary::of(Told {
            answers: &answers,
            definitions: recording.definitions(),
            completeness,
            losses: Vec::new(),
            is_running: false,
        });
        drop(self.findings.set(Findings::of(&answers, missing, summary)));
        self.forget_source();
    }

    fn forget_source(&self) {
        if self.is_complete() {
            locked(&self.source).take();
        }
    }
}

/// Who was recorded, and when.
pub(crate) fn identify(recording: &Recording) -> Identity {
    let definitions = recording.definitions();
    let information = |key| {
        let text = definitions.process_information(key).map(|text| String::from_utf8_lossy(text).into_owned());
        text.filter(|text| !text.is_empty())
    };
    let path = match recording {
        Recording::Trace { path, .. } => path.parent().unwrap_or(path),
        Recording::Process(process) => process.path(),
    };
    let wall = |monotonic_ns: u64| monotonic_ns.wrapping_add_signed(recording.wall_offset_ns());
    // A job may have written nothing yet.
    let start_ns = match recording {
        Recording::Trace { trace, .. } => wall(trace.start_monotonic_ns()),
        Recording::Process(_) => 0,
    };
    let first_ns = recording.facts().next().map_or(start_ns, |record| wall(record.monotonic_ns));
    let command = information(ProcessInfoKey::CommandLine);
    let place = definitions.place();
    let (name, path) = name_and_path(path);
    Identity {
        name,
        path,
        is_dump: matches!(recording, Recording::Process(_)),
        process_id: recording.process_id(),
        rank: place.rank,
        world_size: place.world_size,
        host: information(ProcessInfoKey::HostName),
        command: command.map(|text| text.trim_end_matches('\0').replace('\0', " ")),
        first_ns,
        last_ns: wall(recording.end_monotonic_ns()).max(first_ns),
    }
}

/// What a recording in this directory is called.
pub(crate) fn name_and_path(directory: &Path) -> (String, String) {
    let name = directory.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    (name, directory.display().to_string())
}

/// A lock that outlives a panic elsewhere: what it guards is replaced as a whole.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
