//! Reads any trace file, whole, truncated or torn, and says exactly what is missing.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use msmemscope_event::{Device, Fact, LossReason, ProcessInfoKey};
use xxhash_rust::xxh3::xxh3_64;

use crate::codec::{self, CodecState, Decoded};
use crate::definitions::Definitions;
use crate::layout::{
    self, CHUNK_HEADER_BYTES, ChunkState, FILE_HEADER_BYTES, LOSS_COUNTERS, chunk_offset, file_offset,
};
use crate::merge::RecordStream;
use crate::regular_file::{BYTES_OF_HOLES_READ, hole_bytes, open_regular_file};

/// Why a file cannot be read as a trace at all.
#[derive(Debug)]
pub enum TraceError {
    /// The operating system said no.
    Io(io::Error),
    /// The first bytes are not those of a trace.
    NotATrace,
    /// The file ends inside its header.
    HeaderCut {
        /// Bytes that are there.
        file_bytes: u64,
    },
    /// The file was written by a version with another layout.
    Version {
        /// Major version in the file.
        major: u16,
    },
    /// The header contradicts itself.
    HeaderDamaged {
        /// What is wrong.
        reason: &'static str,
    },
}

impl fmt::Display for TraceError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TraceError::Io(error) => write!(formatter, "cannot read the trace: {error}"),
            TraceError::NotATrace => formatter.write_str("not a msmemscope trace"),
            TraceError::HeaderCut { file_bytes } => {
                write!(formatter, "the trace ends inside its header ({file_bytes} of {FILE_HEADER_BYTES} bytes)")
            }
            TraceError::Version { major } => write!(
                formatter,
                "the trace has format version {major}, this program reads version {}",
                layout::VERSION_MAJOR
            ),
            TraceError::HeaderDamaged { reason } => write!(formatter, "the header of the trace is damaged: {reason}"),
        }
    }
}

impl std::error::Error for TraceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            TraceError::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for TraceError {
    fn from(error: io::Error) -> Self {
        TraceError::Io(error)
    }
}

/// A place where bytes of the trace could not be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Damage {
    /// The file ends before the chunk does.
    ChunkCut {
        /// Which chunk.
        chunk: u32,
        /// Committed bytes that are not in the file.
        missing_bytes: u64,
    },
    /// The file ends before the chunk begins or inside its header.
    ChunkMissing {
        /// Which chunk.
        chunk: u32,
    },
    /// The header of a chunk is not one.
    ChunkHeaderDamaged {
        /// Which chunk.
        chunk: u32,
    },
    /// A record could not be decoded and was skipped.
    RecordDamaged {
        /// Which chunk.
        chunk: u32,
        /// Where in its records.
        offset: u64,
    },
    /// The rest of a chunk could not be decoded.
    RecordTorn {
        /// Which chunk.
        chunk: u32,
        /// Where in its records.
        offset: u64,
        /// Bytes that could not be used.
        lost_bytes: u64,
    },
    /// The bytes of a sealed chunk are not those that were written.
    ChecksumMismatch {
        /// Which chunk.
        chunk: u32,
    },
}

/// How complete a recording is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Completeness {
    /// Size of the file.
    pub file_bytes: u64,
    /// Chunks the process had taken.
    pub chunks_allocated: u32,
    /// Chunks with records.
    pub chunks_read: u32,
    /// Records decoded, without those that only say whose the following ones are.
    pub records: u64,
    /// Bytes of decoded records.
    pub record_bytes: u64,
    /// The first places that could not be used, at most [`MOST_DAMAGE_SHOWN`].
    pub damage: Vec<Damage>,
    /// How many places could not be used.
    pub damaged_places: u64,
    /// Losses the recorder itself counted.
    pub losses: Vec<(LossReason, u64)>,
    /// Whether the process ended in the normal way.
    pub closed: bool,
    /// Whether the recorder could only make the weaker promise of buffered writing.
    pub buffered: bool,
    /// How often the recorder made room by leaving out what came and went before recording began.
    pub compactions: u32,
    /// Records left out that way.
    pub records_left_out: u64,
    /// A flight recorder: since when everything is there, in nanoseconds of CLOCK_MONOTONIC. Of what was before, only what
    /// was alive then is, and what tells where it came from.
    pub complete_since_ns: Option<u64>,
    /// Whether this is a copy of a moment, after which the process went on.
    pub is_moment: bool,
    /// When the latest record was written, in nanoseconds of CLOCK_MONOTONIC.
    pub latest_ns: u64,
}

/// This many damaged places are described one by one; of more, only their number is known.
pub const MOST_DAMAGE_SHOWN: usize = 1000;

impl Completeness {
    fn add_damage(&mut self, damage: Damage) {
        self.damaged_places += 1;
        if self.damage.len() < MOST_DAMAGE_SHOWN {
            self.damage.push(damage);
        }
    }

    fn add_loss(&mut self, reason: LossReason, count: u64) {
        match self.losses.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, total)) => *total = total.saturating_add(count),
            None => self.losses.push((reason, count)),
        }
    }

    /// Whether every event that the process completed is here.
    pub fn is_complete(&self) -> bool {
        self.damage.is_empty() && !self.losses.iter().any(|(reason, count)| reason.loses_events() && *count > 0)
    }
}

/// Where the bytes come from.
pub(crate) enum Source {
    File(File),
    Memory(Vec<u8>),
}

impl Source {
    /// Where the next bytes are that take room on disk, from `offset` on; nothing if only a hole follows.
    fn next_data(&self, offset: u64) -> Option<u64> {
        match self {
            Source::Memory(_) => Some(offset),
            Source::File(file) => {
                // SAFETY: plain system call on a descriptor we own; reading does not use the position it sets.
                let found = unsafe { libc::lseek(file.as_raw_fd(), offset as libc::off_t, libc::SEEK_DATA) };
                match u64::try_from(found) {
                    Ok(found) => Some(found),
                    Err(_) if io::Error::last_os_error().raw_os_error() == Some(libc::ENXIO) => None,
                    // A file system that knows nothing of holes.
                    Err(_) => Some(offset),
                }
            }
        }
    }

    /// Reads as much of the range as exists.
    pub(crate) fn read(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        match self {
            Source::Memory(bytes) => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
                Ok(bytes[start..start.saturating_add(length).min(bytes.len())].to_vec())
            }
            Source::File(file) => {
                let mut buffer = vec![0; length];
                let mut filled = 0;
                while filled < length {
                    match file.read_at(&mut buffer[filled..], offset + filled as u64) {
                        Ok(0) => break,
                        Ok(count) => filled += count,
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        Err(error) => return Err(error),
                    }
                }
                buffer.truncate(filled);
                Ok(buffer)
            }
        }
    }
}

/// What the first pass learned about a chunk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChunkSummary {
    pub(crate) index: u32,
    pub(crate) file_offset: u64,
    pub(crate) usable_bytes: usize,
    pub(crate) base_monotonic_ns: u64,
    pub(crate) thread_id: u32,
    /// Bytes of records in front of those that are meant, what the first of them is encoded relative to, and what the
    /// next one behind them will be.
    pub(crate) skipped_bytes: usize,
    pub(crate) start: CodecState,
    pub(crate) end: CodecState,
    /// Nothing will be added.
    pub(crate) is_sealed: bool,
    pub(crate) earliest_monotonic_ns: u64,
    /// Every record is whole and none is earlier than the one before it.
    pub(crate) is_orderly: bool,
}

impl ChunkSummary {
    /// Of a chunk nothing is known of but its header.
    pub(crate) fn new(index: u32, file_offset: u64, header: &[u8]) -> Self {
        let base_monotonic_ns = u64_at(header, chunk_offset::BASE_MONOTONIC_NS);
        let thread_id = u32_at(header, chunk_offset::THREAD_ID);
        let start = CodecState::new(base_monotonic_ns, thread_id);
        Self {
            index,
            file_offset,
            usable_bytes: 0,
            base_monotonic_ns,
            thread_id,
            skipped_bytes: 0,
            start,
            end: start,
            is_sealed: u32_at(header, chunk_offset::STATE) == ChunkState::Sealed as u32,
            earliest_monotonic_ns: u64::MAX,
            is_orderly: true,
        }
    }
}

/// No writer makes chunks as large as this; with larger ones, files of a few pages would cost gigabytes to read.
const LARGEST_CHUNK_BYTES: usize = 1 << 20;

/// Counters of losses in the header of a file.
fn counted_losses(header: &[u8]) -> [u64; LOSS_COUNTERS] {
    let mut counted = std::array::from_fn(|counter| u64_at(header, file_offset::LOSSES + 8 * counter));
    for reason in layout::FREQUENT_LOSSES {
        counted[reason as usize] =
            layout::loss_offsets(reason).fold(0, |sum: u64, offset| sum.saturating_add(u64_at(header, offset)));
    }
    counted
}

/// How many codes a [`Device`] can have.
const DEVICE_CODES: usize = 4096;

/// An opened trace: its header, its definitions and how complete it is. Records are streamed.
pub struct Trace {
    pub(crate) source: Arc<Source>,
    pub(crate) chunks: Vec<ChunkSummary>,
    definitions: Definitions,
    /// One flag per device code.
    devices_seen: Box<[bool; DEVICE_CODES]>,
    mentions_steps: bool,
    pub(crate) completeness: Completeness,
    pub(crate) chunk_bytes: usize,
    /// Losses that are counted in the header.
    pub(crate) counted_losses: [u64; LOSS_COUNTERS],
    process_id: u32,
    parent_process_id: u32,
    run_id: u64,
    wall_offset_ns: i64,
    start_monotonic_ns: u64,
    pub(crate) closed_monotonic_ns: Option<u64>,
    earliest_monotonic_ns: u64,
    latest_monotonic_ns: u64,
}

/// The fixed part of the header: cheap to read when only the identity of a recording matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceIdentity {
    /// Process that was recorded.
    pub process_id: u32,
    /// Its parent.
    pub parent_process_id: u32,
    /// Id of the launch.
    pub run_id: u64,
    /// Whether the process ended in the normal way.
    pub closed: bool,
    /// Whether the process keeps everything only of the newest time.
    pub keeps_newest: bool,
}

/// What is known of a process before its first event.
#[derive(Debug)]
pub struct Introduction {
    /// When it was first recorded, nanoseconds since 1970.
    pub wall_start_ns: u64,
    /// What it said about itself.
    pub definitions: Definitions,
}

fn u16_at(bytes: &[u8], offset: usize) -> u16 {
    u16::from_le_bytes([bytes[offset], bytes[offset + 1]])
}

pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from(u16_at(bytes, offset)) | u32::from(u16_at(bytes, offset + 2)) << 16
}

pub(crate) fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    u64::from(u32_at(bytes, offset)) | u64::from(u32_at(bytes, offset + 4)) << 32
}

pub(crate) fn check_header(header: &[u8]) -> Result<(), TraceError> {
    let magic_bytes = header.len().min(layout::FILE_MAGIC.len());
    if header[..magic_bytes] != layout::FILE_MAGIC[..magic_bytes] || header.is_empty() {
        return Err(TraceError::NotATrace);
    }
    if header.len() < FILE_HEADER_BYTES {
        return Err(TraceError::HeaderCut { file_bytes: header.len() as u64 });
    }
    let major = u16_at(header, file_offset::VERSION_MAJOR);
    if major != layout::VERSION_MAJOR {
        return Err(TraceError::Version { major });
    }
    if u32_at(header, file_offset::HEADER_BYTES) as usize != FILE_HEADER_BYTES {
        return Err(TraceError::HeaderDamaged { reason: "unexpected header size" });
    }
    Ok(())
}

impl Trace {
    /// Opens a trace file and makes a first pass over it.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        let file = open_regular_file(path)?;
        let metadata = file.metadata()?;
        Self::index(Source::File(file), metadata.len(), hole_bytes(&metadata) > BYTES_OF_HOLES_READ)
    }

    /// Reads a trace from memory.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, TraceError> {
        let file_bytes = bytes.len() as u64;
        Self::index(Source::Memory(bytes), file_bytes, false)
    }

    /// Reads only who was recorded.
    pub fn identify(path: &Path) -> Result<TraceIdentity, TraceError> {
        let header = Source::File(open_regular_file(path)?).read(0, FILE_HEADER_BYTES)?;
        check_header(&header)?;
        Ok(TraceIdentity {
            process_id: u32_at(&header, file_offset::PROCESS_ID),
            parent_process_id: u32_at(&header, file_offset::PARENT_PROCESS_ID),
            run_id: u64_at(&header, file_offset::RUN_ID),
            closed: u32_at(&header, file_offset::CLOSED) == 1,
            keeps_newest: u32_at(&header, file_offset::FLAGS) & layout::FLAG_NEWEST != 0,
        })
    }

    /// What a process said about itself before its first event. Of long traces only the start is read.
    pub fn introduction(path: &Path) -> Result<Introduction, TraceError> {
        let file = open_regular_file(path)?;
        let file_bytes = file.metadata()?.len().min((FILE_HEADER_BYTES + LARGEST_CHUNK_BYTES) as u64);
        let start = Self::index(Source::File(file), file_bytes, true)?;
        // Where room was made for others, it is told again later in the file.
        let is_complete = start.definitions.process_information(ProcessInfoKey::CommandLine).is_some();
        let trace = if is_complete { start } else { Self::open(path)? };
        Ok(Introduction { wall_start_ns: trace.wall_ns(trace.start_monotonic_ns), definitions: trace.definitions })
    }

    pub(crate) fn index(source: Source, file_bytes: u64, is_sparse: bool) -> Result<Self, TraceError> {
        let header = source.read(0, FILE_HEADER_BYTES)?;
        check_header(&header)?;
        let chunk_bytes = u32_at(&header, file_offset::CHUNK_BYTES) as usize;
        if !(CHUNK_HEADER_BYTES * 2..=LARGEST_CHUNK_BYTES).contains(&chunk_bytes) {
            return Err(TraceError::HeaderDamaged { reason: "impossible chunk size" });
        }
        let closed = u32_at(&header, file_offset::CLOSED) == 1;
        let start_monotonic_ns = u64_at(&header, file_offset::START_MONOTONIC_NS);
        let mut trace = Self {
            source: Arc::new(source),
            chunks: Vec::new(),
            definitions: Definitions::default(),
            devices_seen: Box::new([false; DEVICE_CODES]),
            mentions_steps: false,
            completeness: Completeness {
                file_bytes,
                chunks_allocated: u32_at(&header, file_offset::CHUNKS_ALLOCATED),
                closed,
                buffered: u32_at(&header, file_offset::FLAGS) & layout::FLAG_BUFFERED != 0,
                is_moment: u32_at(&header, file_offset::FLAGS) & layout::FLAG_MOMENT != 0,
                compactions: u32_at(&header, file_offset::COMPACTIONS),
                records_left_out: u64_at(&header, file_offset::RECORDS_LEFT_OUT),
                complete_since_ns: Some(u64_at(&header, file_offset::COMPLETE_SINCE_NS))
                    .filter(|since_ns| *since_ns != 0),
                ..Completeness::default()
            },
            chunk_bytes,
            counted_losses: [0; LOSS_COUNTERS],
            process_id: u32_at(&header, file_offset::PROCESS_ID),
            parent_process_id: u32_at(&header, file_offset::PARENT_PROCESS_ID),
            run_id: u64_at(&header, file_offset::RUN_ID),
            wall_offset_ns: u64_at(&header, file_offset::WALL_OFFSET_NS) as i64,
            start_monotonic_ns,
            closed_monotonic_ns: closed.then(|| u64_at(&header, file_offset::CLOSED_MONOTONIC_NS)),
            earliest_monotonic_ns: u64::MAX,
            latest_monotonic_ns: 0,
        };
        trace.learn_losses(&header);
        trace.index_chunks(is_sparse)?;
        if trace.earliest_monotonic_ns == u64::MAX {
            trace.earliest_monotonic_ns = start_monotonic_ns;
            trace.latest_monotonic_ns = start_monotonic_ns;
        }
        Ok(trace)
    }

    /// The first pass: definitions, time ranges, damage. Chunks are counted by what the header says
    /// and by what the file holds, whichever is more: either may be the damaged one.
    fn index_chunks(&mut self, is_sparse: bool) -> Result<(), TraceError> {
        let chunk_bytes = self.chunk_bytes;
        let content_bytes = self.completeness.file_bytes.saturating_sub(FILE_HEADER_BYTES as u64);
        let chunks_in_file = u32::try_from(content_bytes.div_ceil(chunk_bytes as u64)).unwrap_or(u32::MAX);
        let mut index = 0;
        while index < chunks_in_file {
            let file_offset = FILE_HEADER_BYTES as u64 + u64::from(index) * chunk_bytes as u64;
            if is_sparse {
                // A chunk that is all hole reads as one that nobody ever wrote into.
                let Some(data) = self.source.next_data(file_offset) else { break };
                let skipped = (data - file_offset) / chunk_bytes as u64;
                if skipped > 0 {
                    index = u32::try_from(u64::from(index) + skipped).unwrap_or(u32::MAX);
                    continue;
                }
            }
            let bytes = self.source.read(file_offset, chunk_bytes)?;
            self.index_chunk(index, file_offset, &bytes);
            index += 1;
        }
        let missing = chunks_in_file..self.completeness.chunks_allocated;
        let described = missing.clone().take(MOST_DAMAGE_SHOWN);
        let not_described = missing.len().saturating_sub(MOST_DAMAGE_SHOWN) as u64;
        described.for_each(|chunk| self.completeness.add_damage(Damage::ChunkMissing { chunk }));
        self.completeness.damaged_places += not_described;
        Ok(())
    }

    fn index_chunk(&mut self, index: u32, file_offset: u64, bytes: &[u8]) {
        if bytes.len() < CHUNK_HEADER_BYTES {
            if index < self.completeness.chunks_allocated {
                self.completeness.add_damage(Damage::ChunkMissing { chunk: index });
            }
            return;
        }
        let magic = &bytes[chunk_offset::MAGIC..chunk_offset::MAGIC + 4];
        let committed_bytes = u32_at(bytes, chunk_offset::COMMITTED_BYTES) as usize;
        if magic == [0; 4] && committed_bytes == 0 {
            return; // Reserved, but its thread never got to write into it.
        }
        if magic != layout::CHUNK_MAGIC || committed_bytes > self.chunk_bytes - CHUNK_HEADER_BYTES {
            self.completeness.add_damage(Damage::ChunkHeaderDamaged { chunk: index });
            return;
        }
        if !self.counts(bytes) {
            return;
        }
        let available = &bytes[CHUNK_HEADER_BYTES..];
        let payload = &available[..committed_bytes.min(available.len())];
        if payload.len() < committed_bytes {
            let missing_bytes = (committed_bytes - payload.len()) as u64;
            self.completeness.add_damage(Damage::ChunkCut { chunk: index, missing_bytes });
        } else if u32_at(bytes, chunk_offset::STATE) == ChunkState::Sealed as u32
            && xxh3_64(payload) != u64_at(bytes, chunk_offset::CHECKSUM)
        {
            self.completeness.add_damage(Damage::ChecksumMismatch { chunk: index });
        }
        let mut summary = ChunkSummary::new(index, file_offset, bytes);
        if self.index_records(&mut summary, payload, committed_bytes, u64::MAX) {
            self.completeness.chunks_read += 1;
            self.chunks.push(summary);
        }
    }

    /// A round of compaction counts when it is complete: then its chunks do, and those it replaces do not any more.
    pub(crate) fn counts(&self, chunk_header: &[u8]) -> bool {
        let compactions = self.completeness.compactions;
        let replaced_in = u32_at(chunk_header, chunk_offset::REPLACED_IN);
        u32_at(chunk_header, chunk_offset::MADE_IN) <= compactions && !(1..=compactions).contains(&replaced_in)
    }

    /// Adds what the header has counted since it was last looked at.
    pub(crate) fn learn_losses(&mut self, header: &[u8]) {
        let counted = counted_losses(header);
        for &reason in LossReason::ALL {
            let counter = reason as usize;
            let more = counted[counter].saturating_sub(self.counted_losses[counter]);
            if more > 0 {
                self.completeness.add_loss(reason, more);
            }
        }
        self.counted_losses = counted;
    }

    /// Learns from the records of a chunk behind those already known, up to the first one that is later than
    /// `until_monotonic_ns`. The payload starts with the records that are not known yet. False if there is none.
    pub(crate) fn index_records(
        &mut self,
        summary: &mut ChunkSummary,
        payload: &[u8],
        committed_bytes: usize,
        until_monotonic_ns: u64,
    ) -> bool {
        let index = summary.index;
        let already_known = summary.usable_bytes;
        let mut latest_in_chunk_ns = 0;
        let mut has_records = false;
        let mut state = summary.end;
        while summary.usable_bytes - already_known < payload.len() {
            let rest = &payload[summary.usable_bytes - already_known..];
            let is_limited = until_monotonic_ns != u64::MAX;
            if is_limited && codec::peek(&state, rest).is_some_and(|(time_ns, _)| time_ns > until_monotonic_ns) {
                break;
            }
            match codec::decode(&mut state, rest) {
                Decoded::Record(record, taken_bytes) => {
                    has_records = true;
                    summary.usable_bytes += taken_bytes;
                    summary.earliest_monotonic_ns = summary.earliest_monotonic_ns.min(record.monotonic_ns);
                    summary.is_orderly &= record.monotonic_ns >= latest_in_chunk_ns;
                    latest_in_chunk_ns = latest_in_chunk_ns.max(record.monotonic_ns);
                    self.completeness.records += u64::from(!matches!(record.fact, Fact::Thread { .. }));
                    self.completeness.record_bytes += taken_bytes as u64;
                    self.definitions.learn(&record);
                    if let Some(device) = record.fact.device() {
                        self.devices_seen[device.code() as usize] = true;
                    }
                    match record.fact {
                        Fact::Loss { reason, count } => self.completeness.add_loss(reason, count),
                        Fact::Step { .. }
                        | Fact::RangeBegin { .. }
                        | Fact::LoopTurn { .. }
                        | Fact::OperatorBegin { .. } => {
                            self.mentions_steps = true;
                        }
                        _ => {}
                    }
                }
                Decoded::Damaged(taken_bytes) => {
                    let offset = summary.usable_bytes as u64;
                    self.completeness.add_damage(Damage::RecordDamaged { chunk: index, offset });
                    summary.usable_bytes += taken_bytes;
                    summary.is_orderly = false;
                }
                Decoded::Torn => {
                    let offset = summary.usable_bytes as u64;
                    // Bytes beyond the end of the file are reported as the cut itself.
                    if payload.len() == committed_bytes {
                        let lost_bytes = (already_known + payload.len()) as u64 - offset;
                        self.completeness.add_damage(Damage::RecordTorn { chunk: index, offset, lost_bytes });
                    }
                    break;
                }
            }
        }
        summary.end = state;
        self.earliest_monotonic_ns = self.earliest_monotonic_ns.min(summary.earliest_monotonic_ns);
        self.latest_monotonic_ns = self.latest_monotonic_ns.max(latest_in_chunk_ns);
        self.completeness.latest_ns = self.latest_monotonic_ns;
        has_records
    }

    /// All records in time order. Each call starts a new pass over the file.
    pub fn records(&self) -> RecordStream {
        RecordStream::new(&self.source, self.chunks.clone(), self.completeness.records)
    }

    /// Strings, stacks, modules and facts about the process.
    pub fn definitions(&self) -> &Definitions {
        &self.definitions
    }

    /// Whether any record is about a step, a range, a loop or an operator. If not, there are no steps.
    pub fn mentions_steps(&self) -> bool {
        self.mentions_steps
    }

    /// Every device some record names, in id order.
    pub fn devices(&self) -> Vec<Device> {
        (0..DEVICE_CODES as u32).filter(|&code| self.devices_seen[code as usize]).map(Device::from_code).collect()
    }

    /// What is missing.
    pub fn completeness(&self) -> &Completeness {
        &self.completeness
    }

    /// Process that was recorded.
    pub fn process_id(&self) -> u32 {
        self.process_id
    }

    /// Its parent.
    pub fn parent_process_id(&self) -> u32 {
        self.parent_process_id
    }

    /// Id of the launch.
    pub fn run_id(&self) -> u64 {
        self.run_id
    }

    /// When the file was created.
    pub fn start_monotonic_ns(&self) -> u64 {
        self.start_monotonic_ns
    }

    /// When the process ended, if it ended in the normal way.
    pub fn closed_monotonic_ns(&self) -> Option<u64> {
        self.closed_monotonic_ns
    }

    /// Times of the first and the last record.
    pub fn monotonic_range_ns(&self) -> (u64, u64) {
        (self.earliest_monotonic_ns, self.latest_monotonic_ns)
    }

    /// CLOCK_REALTIME minus CLOCK_MONOTONIC of the launch.
    pub fn wall_offset_ns(&self) -> i64 {
        self.wall_offset_ns
    }

    /// Wall clock nanoseconds of a moment, the same offset for all processes of a launch.
    pub fn wall_ns(&self, monotonic_ns: u64) -> u64 {
        monotonic_ns.wrapping_add(self.wall_offset_ns as u64)
    }
}
