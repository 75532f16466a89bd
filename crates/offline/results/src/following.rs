//! Follows the recording of a job that is running, from the outside: only its file is read.
//!
//! A thread reads what was written since its last look and keeps a picture of the job's memory that others can take at
//! any moment. It starts over if the file made room for others, or when it becomes clear what the job's steps are.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use msmemscope_analysis::RecordingNames;
use msmemscope_analysis::live::{LiveMemory, LivePicture};
use msmemscope_event::Place;
use msmemscope_import::Recording;
use msmemscope_timeline::{FactSource, Timeline, TimelineEvent, TimelineSettings, detect_step_source};
use msmemscope_trace::{Completeness, RecordStream, Trace, TraceError};

use crate::recordings::{RecordingDirectory, recordings_of_run};
use crate::runs::command;

/// How long to leave a recording alone that has to be read again, in times that reading it takes.
const RESTS_PER_READING: u32 = 4;

/// What is known of a job.
#[derive(Clone, Debug, Default)]
pub struct Followed {
    /// Its memory.
    pub picture: LivePicture,
    /// What became of it.
    pub condition: Condition,
    /// Its place in a larger job.
    pub place: Place,
    /// What it was called as; empty if nobody knows.
    pub command: String,
    /// What is missing.
    pub completeness: Completeness,
}

/// What became of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Condition {
    /// What it had written before is still being read.
    #[default]
    Opening,
    /// It runs.
    Running,
    /// It ended in the normal way.
    Ended,
    /// It was killed, crashed or left with `_exit`.
    CutOff,
    /// Its recording cannot be read.
    Unreadable(String),
}

impl Condition {
    /// Whether nothing will change any more.
    pub fn is_final(&self) -> bool {
        !matches!(self, Condition::Opening | Condition::Running)
    }
}

/// What both sides know.
#[derive(Debug, Default)]
struct Shared {
    state: Mutex<(Followed, bool)>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, (Followed, bool)> {
        // What a thread that panicked left is a whole picture, only an old one.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish(&self, followed: Followed) {
        self.lock().0 = followed;
        self.changed.notify_all();
    }

    /// False if nobody wants to know any more.
    fn pause(&self, duration: Duration) -> bool {
        let (state, _) = self
            .changed
            .wait_timeout_while(self.lock(), duration, |(_, is_over)| !*is_over)
            .unwrap_or_else(PoisonError::into_inner);
        !state.1
    }
}

/// A recording that is being followed.
#[derive(Debug)]
pub struct Following {
    recording: RecordingDirectory,
    shared: Arc<Shared>,
}

impl Following {
    /// Starts following a recording, with a look at it as often as the interval says.
    pub fn start(recording: RecordingDirectory, interval: Duration) -> Self {
        let shared = Arc::new(Shared::default());
        let (theirs, ours) = (recording.clone(), Arc::clone(&shared));
        std::thread::spawn(move || {
            while let Outcome::Anew { reading_time } = follow(&theirs, &ours, interval).unwrap_or_else(|error| {
                ours.publish(Followed { condition: Condition::Unreadable(error.to_string()), ..Followed::default() });
                Outcome::Over
            }) {
                // A flight recorder makes room again and again: most of the time belongs to others.
                if !ours.pause(reading_time * RESTS_PER_READING) {
                    break;
                }
            }
        });
        Self { recording, shared }
    }

    /// Which recording.
    pub fn recording(&self) -> &RecordingDirectory {
        &self.recording
    }

    /// What is known now.
    pub fn now(&self) -> Followed {
        self.shared.lock().0.clone()
    }

    /// What is known once everything written before has been read, or after so long.
    pub fn opened(&self, patience: Duration) -> Followed {
        let (state, _) = self
            .shared
            .changed
            .wait_timeout_while(self.shared.lock(), patience, |(followed, _)| followed.condition == Condition::Opening)
            .unwrap_or_else(PoisonError::into_inner);
        state.0.clone()
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.shared.lock().1 = true;
        self.shared.changed.notify_all();
    }
}

enum Outcome {
    /// Nothing more will come, or nobody wants to know.
    Over,
    /// Everything has to be read again, which has taken so long.
    Anew {
        /// The time.
        reading_time: Duration,
    },
}

fn follow(directory: &RecordingDirectory, shared: &Shared, interval: Duration) -> Result<Outcome, TraceError> {
    let started = Instant::now();
    let mut growing = GrowingRecording::open(directory)?;
    let mut settings = TimelineSettings { process_ended: false, ..TimelineSettings::default() };
    let anew = |reading_time| Ok(Outcome::Anew { reading_time });
    let Some(mut look) = growing.look()? else { return anew(Duration::ZERO) };
    settings.step_source = detect_step_source(growing.recording());
    let mut records_when_detected = completeness(growing.recording()).records;
    let mut timeline = Timeline::new(growing.recording(), &settings);
    let mut memory = LiveMemory::new(settings.step_source);
    let mut reading_time = None;
    loop {
        {
            let recording = growing.recording();
            let names = RecordingNames::new(recording);
            timeline.learn(recording.definitions());
            let mut sink = |event: TimelineEvent| memory.event(&event, &names);
            while let Some(record) = look.stream.next() {
                timeline.record(&record, &mut sink);
            }
            let reading_time = *reading_time.get_or_insert_with(|| started.elapsed());
            if growing.has_made_room()? {
                return anew(reading_time); // What was read is of two times.
            }
            let wall_ns = look.now_monotonic_ns.wrapping_add(recording.wall_offset_ns() as u64);
            let now_ns = if look.is_running { wall_ns } else { 0 };
            let picture = memory.picture(now_ns, &names);
            shared.publish(followed(recording, picture, look.is_running));
        }
        if !look.is_running || !shared.pause(interval) {
            return Ok(Outcome::Over);
        }
        let reading_time = reading_time.unwrap_or_default();
        let Some(next) = growing.look()? else { return anew(reading_time) };
        look = next;
        // Less and less often: it takes a pass over everything.
        let records = completeness(growing.recording()).records;
        if records > 2 * records_when_detected {
            records_when_detected = records;
            if detect_step_source(growing.recording()) != settings.step_source {
                return anew(reading_time);
            }
        }
    }
}

/// The recording of a job that may still be running. It is what it was at the latest look, whatever is written since.
#[derive(Debug)]
pub struct GrowingRecording {
    directory: RecordingDirectory,
    recording: Recording,
}

/// What was written since the last look.
pub struct Look {
    /// The records.
    pub stream: RecordStream,
    /// Whether more may come.
    pub is_running: bool,
    /// The moment of the look, in nanoseconds of `CLOCK_MONOTONIC`.
    pub now_monotonic_ns: u64,
}

impl GrowingRecording {
    /// Opens a recording, of which nothing is known before the first look.
    pub fn open(directory: &RecordingDirectory) -> Result<Self, TraceError> {
        let path = directory.trace_path();
        let recording = Recording::Trace { trace: Box::new(Trace::open_unread(&path)?), path };
        Ok(Self { directory: directory.clone(), recording })
    }

    /// Everything up to the latest look.
    pub fn recording(&self) -> &Recording {
        &self.recording
    }

    /// What is missing of it.
    pub fn completeness(&self) -> Completeness {
        completeness(&self.recording)
    }

    /// Whether the file has made room for new records since it was opened.
    fn has_made_room(&self) -> Result<bool, TraceError> {
        match &self.recording {
            Recording::Trace { trace, .. } => trace.has_made_room(),
            Recording::Process(_) => Ok(false),
        }
    }

    /// Takes a look. None if the file has made room for new records meanwhile: then it has to be opened again.
    pub fn look(&mut self) -> Result<Option<Look>, TraceError> {
        let Recording::Trace { trace, .. } = &mut self.recording else { return Ok(None) };
        // In this order: what a process that runs no longer has written is all there.
        let is_running = self.directory.is_running();
        let now_monotonic_ns = monotonic_ns();
        let until_monotonic_ns = if is_running { now_monotonic_ns } else { u64::MAX };
        let stream = trace.catch_up(until_monotonic_ns)?;
        Ok(stream.map(|stream| Look { stream, is_running, now_monotonic_ns }))
    }
}

/// Recordings of processes that the launches of known ones have started since.
pub fn newcomers<'k>(known: impl Iterator<Item = &'k RecordingDirectory>) -> Vec<RecordingDirectory> {
    let mut paths = HashSet::new();
    let mut launches: HashSet<(PathBuf, u64)> = HashSet::new();
    for recording in known {
        paths.insert(recording.path.clone());
        if let Some(parent) = recording.path.parent().filter(|_| recording.identity.run_id != 0) {
            launches.insert((parent.to_owned(), recording.identity.run_id));
        }
    }
    let found = launches.into_iter().flat_map(|(directory, run_id)| recordings_of_run(&directory, run_id));
    found.filter(|recording| !paths.contains(&recording.path)).collect()
}

fn completeness(recording: &Recording) -> Completeness {
    match recording {
        Recording::Trace { trace, .. } => trace.completeness().clone(),
        Recording::Process(_) => Completeness::default(),
    }
}

fn followed(recording: &Recording, picture: LivePicture, is_running: bool) -> Followed {
    let completeness = completeness(recording);
    let definitions = recording.definitions();
    Followed {
        picture,
        condition: match (is_running, completeness.closed) {
            (true, _) => Condition::Running,
            (false, true) => Condition::Ended,
            (false, false) => Condition::CutOff,
        },
        place: definitions.place(),
        command: command(definitions),
        completeness,
    }
}

/// Now, in nanoseconds of `CLOCK_MONOTONIC`.
pub(crate) fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills the time it is given.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
