//! Protobuf of Perfetto: counters of pools and cards, steps, phases, ranges, operators, modules, Python calls and
//! kernels as slices, marks and failures as moments; per process, thread, device and stream.
//!
//! Streamed: a packet is written as soon as its event is known. Names are written once and referred to by number.

use std::io::{self, Write};

use msmemscope_analysis::situation::{Situation, StepChange};
use msmemscope_analysis::{Names, RecordingNames};
use msmemscope_event::{AutogradPhase, Device, KernelPhase, Pool, ProcessInfoKey, StringId};
use msmemscope_import::Recording;
use msmemscope_timeline::{BlockEvent, EventKind, EventSink, FactSource, TimelineEvent, run};
use rustc_hash::FxHashMap;

use crate::protobuf::Message;
use crate::{Progress, everything};

/// The only field of a trace.
const PACKET: u32 = 1;

/// Fields of a packet.
mod packet {
    pub(super) const TIMESTAMP: u32 = 8;
    pub(super) const SEQUENCE: u32 = 10;
    pub(super) const TRACK_EVENT: u32 = 11;
    pub(super) const INTERNED_DATA: u32 = 12;
    pub(super) const SEQUENCE_FLAGS: u32 = 13;
    pub(super) const TRACK_DESCRIPTOR: u32 = 60;
}

/// Fields of a track's description.
mod descriptor {
    pub(super) const UUID: u32 = 1;
    pub(super) const NAME: u32 = 2;
    pub(super) const PROCESS: u32 = 3;
    pub(super) const THREAD: u32 = 4;
    pub(super) const PARENT: u32 = 5;
    pub(super) const COUNTER: u32 = 8;
}

/// Fields of an event on a track.
mod track_event {
    pub(super) const TYPE: u32 = 9;
    pub(super) const NAME_NUMBER: u32 = 10;
    pub(super) const TRACK: u32 = 11;
    pub(super) const COUNTER_VALUE: u32 = 30;
}

/// Types of events.
#[derive(Clone, Copy)]
enum EventType {
    Begin = 1,
    End = 2,
    Instant = 3,
    Counter = 4,
}

/// Bytes as the unit of a counter.
const UNIT_BYTES: u64 = 3;
/// All packets are of one writer, which never forgets names.
const ONLY_SEQUENCE: u64 = 1;
const FLAG_CLEARED: u64 = 1;
const FLAG_NEEDS_NAMES: u64 = 2;

/// What a track shows.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Shown {
    Process,
    Thread(u32),
    PythonCalls(u32),
    PoolUsed(Pool, Device),
    PoolReserved(Pool, Device),
    CardUsed(Device),
    Steps(Device),
    Phases(Device),
    /// Ranges overlap as they like; each lane has those that do not.
    Ranges(usize),
    Stream(Device, u32),
    Failures,
}

pub(crate) fn write(recordings: &[Recording], out: &mut dyn Write, progress: Progress<'_>) -> io::Result<()> {
    let mut file = File {
        out,
        result: Ok(()),
        header: Message::default(),
        packet: Message::default(),
        event: Message::default(),
        tracks: 0,
        names: FxHashMap::default(),
    };
    file.start();
    for recording in recordings {
        let names = RecordingNames::new(recording);
        let command = recording.definitions().process_information(ProcessInfoKey::CommandLine).unwrap_or_default();
        let command = command.split(|&byte| byte == 0).map(String::from_utf8_lossy).collect::<Vec<_>>().join(" ");
        let mut process = Process {
            file: &mut file,
            names: &names,
            situation: Situation::of(recording),
            process_id: recording.process_id(),
            command: command.trim().to_owned(),
            tracks: FxHashMap::default(),
            values: FxHashMap::default(),
            open: FxHashMap::default(),
            ranges: Vec::new(),
            steps_since: FxHashMap::default(),
            first_ns: 0,
        };
        let summary = run(recording, &everything(recording), &mut process, progress);
        process.close(summary.last_timestamp_ns);
    }
    file.result
}

/// The file that is being written.
struct File<'w> {
    out: &'w mut dyn Write,
    result: io::Result<()>,
    /// Parts of a packet, whose room is used again.
    header: Message,
    packet: Message,
    event: Message,
    tracks: u64,
    names: FxHashMap<String, u64>,
}

impl File<'_> {
    fn start(&mut self) {
        self.packet.number(packet::SEQUENCE, ONLY_SEQUENCE).number(packet::SEQUENCE_FLAGS, FLAG_CLEARED);
        self.finish_packet();
    }

    fn finish_packet(&mut self) {
        if self.result.is_ok() {
            self.header.clear();
            self.header.start(PACKET, self.packet.bytes().len());
            self.result =
                self.out.write_all(self.header.bytes()).and_then(|()| self.out.write_all(self.packet.bytes()));
        }
        self.packet.clear();
    }

    fn describe_track(&mut self, write: impl FnOnce(&mut Message)) -> u64 {
        self.tracks += 1;
        let uuid = self.tracks;
        self.packet.number(packet::SEQUENCE, ONLY_SEQUENCE).message(packet::TRACK_DESCRIPTOR, |track| {
            track.number(descriptor::UUID, uuid);
            write(track);
        });
        self.finish_packet();
        uuid
    }

    /// Writes an event. A name that is new comes with its number.
    fn event(&mut self, at_ns: u64, track: u64, event_type: EventType, name: Option<&str>, value: Option<u64>) {
        self.event.clear();
        self.event.number(track_event::TYPE, event_type as u64).number(track_event::TRACK, track);
        if let Some(name) = name {
            let known = self.names.get(name).copied();
            let number = known.unwrap_or(self.names.len() as u64 + 1);
            if known.is_none() {
                self.names.insert(name.to_owned(), number);
                self.packet.message(packet::INTERNED_DATA, |data| {
                    data.message(2, |entry| {
                        entry.number(1, number).text(2, name.as_bytes());
                    });
                });
            }
            self.event.number(track_event::NAME_NUMBER, number);
        }
        if let Some(value) = value {
            self.event.number(track_event::COUNTER_VALUE, value);
        }
        self.packet.number(packet::TIMESTAMP, at_ns).number(packet::SEQUENCE, ONLY_SEQUENCE);
        self.packet.number(packet::SEQUENCE_FLAGS, FLAG_NEEDS_NAMES);
        self.packet.text(packet::TRACK_EVENT, self.event.bytes());
        self.finish_packet();
    }
}

/// A process that is being written.
struct Process<'a, 'w> {
    file: &'a mut File<'w>,
    names: &'a dyn Names,
    situation: Situation,
    process_id: u32,
    command: String,
    tracks: FxHashMap<Shown, u64>,
    /// Counters as they were written last.
    values: FxHashMap<Shown, u64>,
    /// Slices that are open on each track.
    open: FxHashMap<Shown, u32>,
    /// Domain and id of the range on each lane.
    ranges: Vec<Option<(StringId, u64)>>,
    /// When the latest step of each device began, or the one before ended.
    steps_since: FxHashMap<Device, u64>,
    /// Time of the first event.
    first_ns: u64,
}

impl Process<'_, '_> {
    fn track(&mut self, shown: Shown) -> u64 {
        if let Some(&track) = self.tracks.get(&shown) {
            return track;
        }
        let parent = match shown {
            Shown::Process => None,
            _ => Some(self.track(Shown::Process)),
        };
        let (process_id, command) = (u64::from(self.process_id), &self.command);
        let name = match shown {
            Shown::Process | Shown::Thread(_) => String::new(),
            Shown::PythonCalls(thread) => format!("Python calls of thread {thread}"),
            Shown::PoolUsed(pool, device) => format!("{}: {} in use", device_text(device), pool.title()),
            Shown::PoolReserved(pool, device) => format!("{}: {} reserved", device_text(device), pool.title()),
            Shown::CardUsed(device) => format!("{}: in use by all processes", device_text(device)),
            Shown::Steps(Device::Unknown) => "steps".to_owned(),
            Shown::Steps(device) => format!("{}: steps", device_text(device)),
            Shown::Phases(device) => format!("{}: phases", device_text(device)),
            Shown::Ranges(_) => "mstx ranges".to_owned(),
            Shown::Stream(device, stream) => format!("{}: stream {stream}", device_text(device)),
            Shown::Failures => "out of memory".to_owned(),
        };
        let track = self.file.describe_track(|track| {
            if let Some(parent) = parent.filter(|_| !matches!(shown, Shown::Thread(_))) {
                track.number(descriptor::PARENT, parent);
            }
            if !name.is_empty() {
                track.text(descriptor::NAME, name.as_bytes());
            }
            match shown {
                Shown::Process => {
                    track.message(descriptor::PROCESS, |process| {
                        process.number(1, process_id).text(6, command.as_bytes());
                    });
                }
                Shown::Thread(thread_id) => {
                    track.message(descriptor::THREAD, |thread| {
                        thread.number(1, process_id).number(2, u64::from(thread_id));
                    });
                }
                Shown::PoolUsed(..) | Shown::PoolReserved(..) | Shown::CardUsed(_) => {
                    track.message(descriptor::COUNTER, |counter| {
                        counter.number(3, UNIT_BYTES);
                    });
                }
                _ => {}
            }
        });
        self.tracks.insert(shown, track);
        track
    }

    fn begin(&mut self, at_ns: u64, shown: Shown, name: &str) {
        let track = self.track(shown);
        *self.open.entry(shown).or_default() += 1;
        self.file.event(at_ns, track, EventType::Begin, Some(name), None);
    }

    /// Ends the innermost slice of a track, if there is one: what began before recording has no beginning.
    fn end(&mut self, at_ns: u64, shown: Shown) {
        if let Some(open) = self.open.get_mut(&shown).filter(|open| **open > 0) {
            *open -= 1;
            let track = self.track(shown);
            self.file.event(at_ns, track, EventType::End, None, None);
        }
    }

    fn instant(&mut self, at_ns: u64, shown: Shown, name: &str) {
        let track = self.track(shown);
        self.file.event(at_ns, track, EventType::Instant, Some(name), None);
    }

    fn counter(&mut self, at_ns: u64, shown: Shown, value: u64) {
        if self.values.insert(shown, value) != Some(value) {
            let track = self.track(shown);
            self.file.event(at_ns, track, EventType::Counter, None, Some(value));
        }
    }

    fn block(&mut self, at_ns: u64, block: &BlockEvent) {
        let (pool, device) = (block.properties.pool, block.properties.device);
        self.counter(at_ns, Shown::PoolUsed(pool, device), block.used_bytes);
        if block.total_bytes > 0 || self.values.contains_key(&Shown::PoolReserved(pool, device)) {
            self.counter(at_ns, Shown::PoolReserved(pool, device), block.total_bytes);
        }
    }

    /// A step is written when it ends. Where nobody said when it began, that is when the one before ended.
    fn step(&mut self, at_ns: u64, change: &StepChange) {
        let began_ns = self.steps_since.insert(change.device, at_ns).unwrap_or(self.first_ns);
        if !change.begins {
            let shown = Shown::Steps(change.device);
            self.begin(began_ns, shown, &format!("step {}", change.number));
            self.end(at_ns, shown);
        }
    }

    fn range_begins(&mut self, at_ns: u64, range: (StringId, u64), message: &str) {
        let lane = self.ranges.iter().position(Option::is_none).unwrap_or(self.ranges.len());
        if lane == self.ranges.len() {
            self.ranges.push(None);
        }
        self.ranges[lane] = Some(range);
        self.begin(at_ns, Shown::Ranges(lane), message);
    }

    fn range_ends(&mut self, at_ns: u64, range: (StringId, u64)) {
        if let Some(lane) = self.ranges.iter().position(|open| *open == Some(range)) {
            self.ranges[lane] = None;
            self.end(at_ns, Shown::Ranges(lane));
        }
    }

    fn other(&mut self, event: &TimelineEvent) {
        let (at_ns, thread) = (event.timestamp_ns, Shown::Thread(event.thread_id));
        match &event.kind {
            EventKind::Operator { begins: true, name, .. } | EventKind::Module { begins: true, name } => {
                let name = self.names.text(*name);
                self.begin(at_ns, thread, &name);
            }
            EventKind::Operator { .. } | EventKind::Module { .. } => self.end(at_ns, thread),
            EventKind::Kernel { phase: KernelPhase::Launch, name, .. } => {
                let name = format!("launch {}", self.names.text(*name));
                self.instant(at_ns, thread, &name);
            }
            EventKind::Kernel { phase, at_ns, name, stream_id, .. } => {
                let shown = Shown::Stream(event.device, *stream_id);
                match phase {
                    KernelPhase::ExecuteStart => {
                        let name = self.names.text(*name);
                        self.begin(*at_ns, shown, if name.is_empty() { "kernel" } else { &name });
                    }
                    _ => self.end(*at_ns, shown),
                }
            }
            EventKind::Mark { message, .. } => self.instant(at_ns, thread, message),
            EventKind::RangeBegin { domain, range_id, message, .. } => {
                self.range_begins(at_ns, (*domain, *range_id), message);
            }
            EventKind::RangeEnd { domain, range_id } => self.range_ends(at_ns, (*domain, *range_id)),
            EventKind::Autograd { phase } => {
                let shown = Shown::Phases(event.device);
                self.end(at_ns, shown);
                self.begin(at_ns, shown, phase_text(*phase));
            }
            EventKind::CardSample { used_bytes, .. } => {
                self.counter(at_ns, Shown::CardUsed(event.device), *used_bytes);
            }
            EventKind::AllocationFailed { size_bytes, error, .. } => {
                let name = format!("{size_bytes} bytes refused (driver error {error})");
                self.instant(at_ns, Shown::Failures, &name);
            }
            EventKind::PythonCall(call) => {
                let name = match self.names.definitions().and_then(|definitions| definitions.code(call.code)) {
                    Some(code) => self.names.text(code.name),
                    None => self.names.text(call.name),
                };
                let shown = Shown::PythonCalls(event.thread_id);
                self.begin(call.start_ns, shown, &name);
                self.end(call.end_ns, shown);
            }
            _ => {}
        }
    }

    /// Ends what is open when the recording ends.
    fn close(mut self, at_ns: u64) {
        let open: Vec<(Shown, u32)> = self.open.iter().map(|(shown, count)| (*shown, *count)).collect();
        for (shown, count) in open {
            (0..count).for_each(|_| self.end(at_ns, shown));
        }
    }
}

impl EventSink for Process<'_, '_> {
    fn take(&mut self, event: TimelineEvent) {
        if self.first_ns == 0 {
            self.first_ns = event.timestamp_ns;
        }
        let (_, step) = self.situation.update(&event, self.names);
        match &event.kind {
            EventKind::Malloc(block) | EventKind::Free(block) => self.block(event.timestamp_ns, block),
            _ => self.other(&event),
        }
        if let Some(change) = step {
            self.step(event.timestamp_ns, &change);
        }
    }
}

fn device_text(device: Device) -> String {
    match device {
        Device::Npu(id) => format!("NPU {id}"),
        Device::Host => "host".to_owned(),
        Device::Unknown => "no device".to_owned(),
    }
}

fn phase_text(phase: AutogradPhase) -> &'static str {
    match phase {
        AutogradPhase::Forward => "forward",
        AutogradPhase::Backward => "backward",
        _ => "optimizer",
    }
}
