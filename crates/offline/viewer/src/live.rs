//! Follows running jobs: what they have written is read again from time to time, and the newer picture takes the place
//! of the older one.
//!
//! Only files are read; the jobs notice nothing. A reading starts at the beginning, so the longer it takes, the rarer
//! it is. What a job holds at this very moment comes from [`Following`], which reads on where it stopped.

use std::sync::Arc;
use std::time::{Duration, Instant};

use msmemscope_results::following::{Condition, Following, GrowingRecording, newcomers};
use msmemscope_results::recordings::RecordingDirectory;
use msmemscope_trace::{Fingerprint, TraceError};
use serde_json::{Value, json};

use crate::entry::{Entry, identify};
use crate::session::{Opened, Session};

/// Time between two looks at a job.
const INTERVAL: Duration = Duration::from_secs(1);
/// Between two readings passes at least this many times what one takes.
const PAUSE_FACTOR: u32 = 4;
/// How often to see whether there is something to do.
const TICK: Duration = Duration::from_millis(100);

/// The job that writes a recording.
pub(crate) struct FollowedJob {
    following: Arc<Following>,
    /// How often the recording has been read before.
    pub(crate) revision: u64,
    /// Whether the job had ended when it was read.
    pub(crate) is_last: bool,
}

impl FollowedJob {
    /// How the job is, and what it holds at this very moment.
    pub(crate) fn describe(&self) -> Value {
        let now = self.following.now();
        let (condition, reason) = match &now.condition {
            Condition::Opening => ("opening", None),
            Condition::Running => ("running", None),
            Condition::Ended => ("ended", None),
            Condition::CutOff => ("cut_off", None),
            Condition::Unreadable(reason) => ("unreadable", Some(reason)),
        };
        json!({
            "condition": condition,
            "reason": reason,
            "revision": self.revision,
            "is_last": self.is_last,
            "events": now.picture.events,
            "recorded_ns": now.picture.since_start_ns,
            "pools": now.picture.pools,
            "step": now.picture.steps.last().map(|step| step.number),
        })
    }
}

/// A job, and how far it has been read.
struct Reader {
    following: Arc<Following>,
    growing: Option<GrowingRecording>,
    /// Records in the latest reading.
    records: u64,
    readings: u64,
    is_over: bool,
    next_reading: Instant,
}

impl Reader {
    fn new(directory: RecordingDirectory) -> Self {
        Self {
            following: Arc::new(Following::start(directory, INTERVAL)),
            growing: None,
            records: 0,
            readings: 0,
            is_over: false,
            next_reading: Instant::now(),
        }
    }

    /// Whether there is something new, and time for it.
    fn is_due(&self) -> bool {
        if self.is_over || Instant::now() < self.next_reading {
            return false;
        }
        let now = self.following.now();
        let has_more = now.condition != Condition::Opening && now.completeness.records != self.records;
        has_more || now.condition.is_final()
    }

    /// The recording as it is now, not read yet.
    fn look(&mut self) -> Result<Entry, TraceError> {
        let directory = self.following.recording();
        let path = directory.trace_path();
        let fingerprint = Fingerprint::of(&path).ok();
        loop {
            let growing = match &mut self.growing {
                Some(growing) => growing,
                none => none.insert(GrowingRecording::open(directory)?),
            };
            let Some(look) = growing.look()? else {
                self.growing = None;
                continue;
            };
            self.is_over = !look.is_running;
            self.records = growing.completeness().records;
            // What goes on being written has no index.
            let trace = fingerprint.filter(|_| self.is_over).map(|fingerprint| (path, fingerprint));
            let mut entry = Entry::new(None, identify(growing.recording()), trace);
            let following = self.following.clone();
            entry.job = Some(FollowedJob { following, revision: self.readings, is_last: self.is_over });
            self.readings += 1;
            return Ok(entry);
        }
    }

    /// Reads and analyses what the latest look found.
    fn read(&mut self, entry: &Entry, session: &Session) {
        let Some(growing) = &self.growing else { return };
        let started = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| entry.read(growing.recording()));
            entry.analyse(growing.recording(), session.missing());
        });
        self.next_reading = Instant::now() + INTERVAL.max(PAUSE_FACTOR * started.elapsed());
    }
}

/// Follows jobs and those that their launches start besides, until all have ended.
pub(crate) fn follow(session: &Session, recordings: Vec<RecordingDirectory>) {
    let mut readers: Vec<Reader> = Vec::new();
    let mut entries = Vec::new();
    for recording in recordings {
        let mut reader = Reader::new(recording);
        match reader.look() {
            Ok(entry) => entries.push(entry),
            Err(error) => return session.set_opened(Err(error.to_string())),
        }
        readers.push(reader);
    }
    let opened = Opened::new(entries, None, Vec::new());
    // In the order in which they are shown.
    let place = |reader: &Reader| {
        let is_of =
            |entry: &Arc<Entry>| entry.job.as_ref().is_some_and(|job| Arc::ptr_eq(&job.following, &reader.following));
        opened.entries.iter().position(is_of)
    };
    readers.sort_by_key(place);
    session.set_opened(Ok(opened.clone()));
    for (reader, entry) in readers.iter_mut().zip(&opened.entries) {
        reader.read(entry, session);
    }
    let mut latest_search = Instant::now();
    while !session.ends() && !readers.iter().all(|reader| reader.is_over) {
        std::thread::sleep(TICK);
        for (number, reader) in readers.iter_mut().enumerate().filter(|(_, reader)| reader.is_due()) {
            read_again(session, number, reader);
        }
        if latest_search.elapsed() >= INTERVAL {
            latest_search = Instant::now();
            let known = readers.iter().map(|reader| reader.following.recording());
            for recording in newcomers(known) {
                readers.extend(join(session, recording));
            }
        }
    }
    if let Some(opened) = session.opened() {
        session.write_indexes(&opened);
    }
}

/// Puts a newer picture of a job in the place of the older one.
fn read_again(session: &Session, number: usize, reader: &mut Reader) {
    let (Ok(entry), Some(opened)) = (reader.look(), session.opened()) else {
        // `Following` says why.
        reader.is_over = true;
        return;
    };
    let entry = opened.placed(entry);
    reader.read(&entry, session);
    let mut newer = (*opened).clone();
    newer.entries[number] = entry;
    session.set_opened(Ok(newer));
}

/// Shows a process that was started after the others; none if its recording cannot be read (yet).
fn join(session: &Session, recording: RecordingDirectory) -> Option<Reader> {
    let mut reader = Reader::new(recording);
    let entry = reader.look().ok()?;
    let mut opened = (*session.opened()?).clone();
    opened.add(entry);
    let added = opened.entries.last()?.clone();
    session.set_opened(Ok(opened));
    reader.read(&added, session);
    Some(reader)
}
