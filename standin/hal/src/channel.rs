//! The channel through which cards tell when they start and finish tasks: a ring of records for each card.
//!
//! Nobody waits for a reader: when a ring is full new records are dropped. Records have 64 bytes, or 32 on the chips
//! whose name says 950 or 960; stream and task ids are packed in the ways that cards pack them, all of them in turn.

use crate::device_clock::monotonic_ns;
use crate::error::DriverError;
use crate::state::{lock, state};
use standin_support::{host_kilohertz, is_older_cann, number_from_environment, size_from_environment};
use std::collections::VecDeque;
use std::ffi::c_char;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The channel of task records.
pub const TASK_CHANNEL: u32 = 50;
const DEFAULT_RING_BYTES: u64 = 2 << 20;
/// What a driver returns for a function it has not got.
const NOT_SUPPORTED: i32 = 0xfffe;
const FAILED: i32 = -1;
/// Words of the configuration: older and newer drivers.
const CONFIGURATION_BYTES: [u32; 2] = [36, 44];
const CHANNEL_ROOM: usize = 160;
const RECORD_MAGIC: u32 = 0x6bd3;

/// What became of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Fate {
    /// It is in the ring.
    Written = 0,
    /// The ring was full.
    Dropped = 1,
    /// Nobody has started the channel.
    NotStarted = 2,
}

/// The ring of one card.
#[derive(Default)]
struct Ring {
    is_running: bool,
    started: Option<Instant>,
    wants_tasks: bool,
    bytes: VecDeque<u8>,
    written: u64,
    dropped: u64,
}

/// The rings of all cards.
pub struct Channels {
    rings: Mutex<Vec<Ring>>,
    changed: Condvar,
    capacity_bytes: usize,
    /// Most bytes that one read gives.
    piece_bytes: usize,
    /// Time after the start of a channel in which reads give nothing.
    silence: Duration,
    has_short_records: bool,
}

impl Channels {
    /// Rings of the size `STANDIN_CHANNEL_BYTES`, none of them started, that are read as `STANDIN_CHANNEL_PIECE_BYTES` and
    /// `STANDIN_CHANNEL_SILENCE_MS` say.
    pub fn from_environment(device_count: u32) -> Self {
        let chip = std::env::var("STANDIN_SOC").unwrap_or_default();
        Self {
            rings: Mutex::new((0..device_count).map(|_| Ring::default()).collect()),
            changed: Condvar::new(),
            capacity_bytes: size_from_environment("STANDIN_CHANNEL_BYTES", DEFAULT_RING_BYTES) as usize,
            piece_bytes: size_from_environment("STANDIN_CHANNEL_PIECE_BYTES", u64::MAX) as usize,
            silence: Duration::from_millis(number_from_environment("STANDIN_CHANNEL_SILENCE_MS", 0)),
            has_short_records: chip.contains("950") || chip.contains("960"),
        }
    }

    fn write(&self, device: u32, record: &TaskRecord, ticks: u64) -> Fate {
        let mut rings = lock(&self.rings);
        let Some(ring) = rings.get_mut(device as usize).filter(|ring| ring.is_running && ring.wants_tasks) else {
            return Fate::NotStarted;
        };
        let line = record.encode(ticks, ring.written);
        let length = if self.has_short_records { line.len() / 2 } else { line.len() };
        if ring.bytes.len() + length > self.capacity_bytes {
            ring.dropped += 1;
            return Fate::Dropped;
        }
        match self.has_short_records {
            true => ring.bytes.extend(record.encode_short(ticks)),
            false => ring.bytes.extend(line),
        }
        ring.written += 1;
        drop(rings);
        self.changed.notify_all();
        Fate::Written
    }
}

/// A task that starts or is done.
#[derive(Clone, Copy)]
struct TaskRecord {
    /// 0 start, 1 end.
    function: u32,
    /// Kind of entry in the submission queue; 0 for kernels.
    queue_entry_type: u32,
    stream: u32,
    /// Low half: the id; high half: how often it wrapped around.
    task: u32,
    has_expanded_ids: bool,
}

impl TaskRecord {
    fn first_word(&self) -> u32 {
        self.function & 0x3f | (self.queue_entry_type & 0x3f) << 10 | RECORD_MAGIC << 16
    }

    /// 64 bytes; `turn` chooses among the ways to pack the ids.
    fn encode(&self, ticks: u64, turn: u64) -> [u8; 64] {
        let (stream, task) = self.packed_ids(turn);
        let mut line = [0; 64];
        line[0..4].copy_from_slice(&self.first_word().to_le_bytes());
        line[4..6].copy_from_slice(&stream.to_le_bytes());
        line[6..8].copy_from_slice(&task.to_le_bytes());
        line[8..16].copy_from_slice(&ticks.to_le_bytes());
        line
    }

    /// 32 bytes, in which tasks are counted for the whole card.
    fn encode_short(&self, ticks: u64) -> [u8; 32] {
        let mut line = [0; 32];
        line[0..4].copy_from_slice(&self.first_word().to_le_bytes());
        line[4..8].copy_from_slice(&self.task.to_le_bytes());
        line[8..16].copy_from_slice(&ticks.to_le_bytes());
        line
    }

    fn packed_ids(&self, turn: u64) -> (u16, u16) {
        let (stream, task) = (self.stream as u16, self.task as u16);
        if self.has_expanded_ids {
            let stream = stream & 0x7fff;
            let is_plain = turn.is_multiple_of(2) || matches!(self.queue_entry_type, 3 | 4);
            return if is_plain { (stream, task) } else { (0x8000 | task & 0x7fff, task & 0x8000 | stream) };
        }
        let stream = stream % 2048;
        match turn % 3 {
            0 => (stream, task),
            1 => (0x1000 | stream | task & 0xe000, task & 0x1fff),
            _ => (0x2000 | task & 0xfff, task & 0xf000 | stream),
        }
    }
}

/// `struct prof_start_para`.
#[repr(C)]
struct StartParameters {
    channel_type: i32,
    sample_period: u32,
    is_real_time: u32,
    user_data: *const u32,
    user_data_bytes: u32,
}

fn start(device: u32, channel: u32, parameters: &StartParameters) -> Result<(), DriverError> {
    let wants_tasks = channel == TASK_CHANNEL
        && CONFIGURATION_BYTES.contains(&parameters.user_data_bytes)
        && !parameters.user_data.is_null();
    if !wants_tasks {
        return Err(DriverError::InvalidValue);
    }
    let mut rings = lock(&state().channels.rings);
    let ring = rings.get_mut(device as usize).ok_or(DriverError::InvalidDevice)?;
    if ring.is_running {
        return Err(DriverError::InvalidHandle);
    }
    // SAFETY: checked above; as long as it says by the contract of the C function.
    let wants_tasks = unsafe { parameters.user_data.read() } == 1;
    *ring = Ring { is_running: true, started: Some(Instant::now()), wants_tasks, ..Ring::default() };
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn prof_drv_start(device: u32, channel: u32, parameters: *const StartParameters) -> i32 {
    // SAFETY: null or valid by the contract of the C function.
    match unsafe { parameters.as_ref() } {
        Some(parameters) => crate::error::code(start(device, channel, parameters)),
        None => DriverError::InvalidValue as i32,
    }
}

/// Bytes copied, whole records only unless pieces were asked for; 0 when there is nothing, and a negative number when the
/// channel is not running.
#[unsafe(no_mangle)]
unsafe extern "C" fn prof_channel_read(device: u32, channel: u32, buffer: *mut c_char, size: u32) -> i32 {
    let channels = &state().channels;
    let record_bytes = if channels.has_short_records { 32 } else { 64 };
    let mut rings = lock(&channels.rings);
    let Some(ring) = rings.get_mut(device as usize).filter(|ring| channel == TASK_CHANNEL && ring.is_running) else {
        return FAILED;
    };
    if buffer.is_null() {
        return FAILED;
    }
    let is_silent = ring.started.is_some_and(|started| started.elapsed() < channels.silence);
    let count = match (size as usize).min(ring.bytes.len()) {
        _ if is_silent => 0,
        most if channels.piece_bytes < usize::MAX => most.min(channels.piece_bytes),
        most => most / record_bytes * record_bytes,
    };
    for (place, byte) in ring.bytes.drain(..count).enumerate() {
        // SAFETY: `count` is at most `size`, which is writable by the contract of the C function.
        unsafe { buffer.add(place).write(byte as c_char) };
    }
    count as i32
}

/// `struct prof_poll_info`.
#[repr(C)]
struct Ready {
    device: u32,
    channel: u32,
}

/// Waits at most `timeout_s` seconds and fills in channels that have something to read; returns how many.
#[unsafe(no_mangle)]
unsafe extern "C" fn prof_channel_poll(ready: *mut Ready, room: i32, timeout_s: i32) -> i32 {
    if is_older_cann() {
        return NOT_SUPPORTED;
    }
    let channels = &state().channels;
    let deadline = Instant::now() + Duration::from_secs(u64::try_from(timeout_s).unwrap_or(0));
    let mut rings = lock(&channels.rings);
    loop {
        let mut count = 0;
        for (device, _) in rings.iter().enumerate().filter(|(_, ring)| ring.is_running && !ring.bytes.is_empty()) {
            if count < room && !ready.is_null() {
                // SAFETY: the array has `room` entries by the contract of the C function.
                unsafe { ready.add(count as usize).write(Ready { device: device as u32, channel: TASK_CHANNEL }) };
                count += 1;
            }
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if count > 0 || left.is_zero() {
            return count;
        }
        rings = channels.changed.wait_timeout(rings, left).unwrap_or_else(PoisonError::into_inner).0;
    }
}

#[unsafe(no_mangle)]
extern "C" fn prof_stop(device: u32, channel: u32) -> i32 {
    let mut rings = lock(&state().channels.rings);
    match rings.get_mut(device as usize).filter(|ring| channel == TASK_CHANNEL && ring.is_running) {
        Some(ring) => {
            *ring = Ring::default();
            0
        }
        None => FAILED,
    }
}

/// Says how many bytes wait in a channel; nothing is on its way between card and ring here.
#[unsafe(no_mangle)]
unsafe extern "C" fn halProfDataFlush(device: u32, channel: u32, length: *mut u32) -> i32 {
    let rings = lock(&state().channels.rings);
    match rings.get(device as usize).filter(|ring| channel == TASK_CHANNEL && ring.is_running && !length.is_null()) {
        Some(ring) => {
            // SAFETY: checked above; writable by the contract of the C function.
            unsafe { length.write(ring.bytes.len() as u32) };
            0
        }
        None => FAILED,
    }
}

/// A channel as `prof_drv_get_channels` lists it.
#[repr(C)]
struct ChannelEntry {
    name: [u8; 32],
    kind: u32,
    id: u32,
}

/// `struct channel_list`.
#[repr(C)]
struct ChannelList {
    chip: u32,
    count: u32,
    entries: [ChannelEntry; CHANNEL_ROOM],
}

#[unsafe(no_mangle)]
unsafe extern "C" fn prof_drv_get_channels(device: u32, list: *mut ChannelList) -> i32 {
    if list.is_null() || device >= state().cards.device_count() {
        return DriverError::InvalidValue as i32;
    }
    let mut name = [0; 32];
    name[..14].copy_from_slice(b"stars_soc_task");
    // SAFETY: checked above; the list has its room by the contract of the C function.
    unsafe {
        (&raw mut (*list).chip).write(0);
        (&raw mut (*list).count).write(1);
        (&raw mut (*list).entries[0]).write(ChannelEntry { name, kind: 0, id: TASK_CHANNEL });
    }
    0
}

/// Our own: a task starts (0) or is done (1) at this moment, which is given on both clocks. Returns what became of the
/// record: 0 it is in the ring, 1 the ring is full, 2 nobody has started the channel.
#[unsafe(no_mangle)]
unsafe extern "C" fn standinTaskRecord(
    device: u32,
    function: u32,
    queue_entry_type: u32,
    stream: u32,
    task: u32,
    has_expanded_ids: u32,
    ticks: *mut u64,
    host_ns: *mut u64,
) -> i32 {
    let record = TaskRecord { function, queue_entry_type, stream, task, has_expanded_ids: has_expanded_ids != 0 };
    let now_ns = monotonic_ns();
    let now_ticks = state().clock.ticks_at(device, now_ns);
    // SAFETY: the callers are our own libraries.
    unsafe {
        ticks.write(now_ticks);
        host_ns.write(now_ns);
    }
    state().channels.write(device, &record, now_ticks) as i32
}

/// Our own: records that found no room in the ring of a card since the channel was started.
#[unsafe(no_mangle)]
extern "C" fn standinDroppedRecords(device: u32) -> u64 {
    lock(&state().channels.rings).get(device as usize).map_or(0, |ring| ring.dropped)
}

/// `halGetDeviceInfo`: what this driver says about a card.
#[unsafe(no_mangle)]
unsafe extern "C" fn halGetDeviceInfo(device: u32, module: i32, information: i32, value: *mut i64) -> i32 {
    const VERSION: i32 = 1;
    const COUNTER: i32 = 13;
    const HOST_KILOHERTZ: i32 = 24;
    const DEVICE_KILOHERTZ: i32 = 25;
    const CHIP: i64 = 5 << 8;
    if value.is_null() || device >= state().cards.device_count() {
        return DriverError::InvalidValue as i32;
    }
    let clock = &state().clock;
    let answer = match (module, information) {
        (0, VERSION) => CHIP,
        (0, COUNTER) => clock.ticks_at(device, monotonic_ns()) as i64,
        (0, HOST_KILOHERTZ) if host_kilohertz() > 0 => host_kilohertz() as i64,
        (0, DEVICE_KILOHERTZ) => clock.nominal_kilohertz(device) as i64,
        _ => return NOT_SUPPORTED,
    };
    // SAFETY: checked above; writable by the contract of the C function.
    unsafe { value.write(answer) };
    0
}

#[cfg(test)]
mod tests {
    use super::TaskRecord;

    /// The rule by which readers unpack ids that are not expanded.
    fn unpack(stream: u16, task: u16) -> (u16, u16) {
        if stream & 0x1000 != 0 {
            (stream % 2048, task & 0x1fff | stream & 0xe000)
        } else if stream & 0x2000 != 0 {
            ((task & 0xfff) % 2048, stream & 0xfff | task & 0xf000)
        } else {
            (stream % 2048, task)
        }
    }

    #[test]
    fn packed_ids_can_be_told_apart() {
        for task in [0, 1, 0xfff, 0x1000, 0x1fff, 0x2000, 0x7fff, 0x8000, 0xfffe, 0xffff] {
            for stream in [0, 1, 2047] {
                let mut record = TaskRecord { function: 0, queue_entry_type: 0, stream, task, has_expanded_ids: false };
                for turn in 0..3 {
                    let (packed_stream, packed_task) = record.packed_ids(turn);
                    assert_eq!(unpack(packed_stream, packed_task), (stream as u16, task as u16), "{turn}");
                }
                record.has_expanded_ids = true;
                let (packed_stream, packed_task) = record.packed_ids(1);
                assert_eq!(packed_stream & 0x8000, 0x8000);
                let unpacked = (packed_task & 0x7fff, packed_task & 0x8000 | packed_stream & 0x7fff);
                assert_eq!(unpacked, (stream as u16, task as u16));
            }
        }
    }
}
