//! Where things are in the file: one header page, then chunks of equal size.
//!
//! All numbers are little-endian. The header page and the chunk headers are mapped while the process
//! lives; the fields marked "live" change under the reader's eyes.

use msmemscope_event::LossReason;

/// First bytes of every trace file.
pub const FILE_MAGIC: [u8; 8] = *b"MSMSCOPE";
/// Readers refuse a file whose major version is not theirs.
pub const VERSION_MAJOR: u16 = 1;
/// Raised when facts or fields are added that older readers can skip.
pub const VERSION_MINOR: u16 = 3;
/// Size of the header page; the first chunk follows.
pub const FILE_HEADER_BYTES: usize = 4096;
/// Size of a chunk including its header.
pub const CHUNK_BYTES: usize = 256 * 1024;
/// Size of a chunk's header; its records follow.
pub const CHUNK_HEADER_BYTES: usize = 64;
/// First bytes of every chunk.
pub const CHUNK_MAGIC: [u8; 4] = *b"CHNK";
/// How many loss counters the header has.
pub const LOSS_COUNTERS: usize = 16;
/// How many times the header has counters of [`FREQUENT_LOSSES`], each for some of the threads.
pub const LOSS_STRIPES: usize = 8;
/// Size of each of them: a line of the processor's cache, so that threads do not wait for each other.
pub const LOSS_STRIPE_BYTES: usize = 64;
/// What may be lost with every event of every thread, in the order of the counters in a stripe.
pub const FREQUENT_LOSSES: [LossReason; 6] = [
    LossReason::SizeLimit,
    LossReason::StackCut,
    LossReason::StackMissing,
    LossReason::StackTableFull,
    LossReason::DiskFull,
    LossReason::TraceUnavailable,
];

/// Offsets in the header page.
pub mod file_offset {
    /// `FILE_MAGIC`, 8 bytes.
    pub const MAGIC: usize = 0;
    /// Major version, u16.
    pub const VERSION_MAJOR: usize = 8;
    /// Minor version, u16.
    pub const VERSION_MINOR: usize = 10;
    /// Size of the header page, u32.
    pub const HEADER_BYTES: usize = 12;
    /// Size of a chunk, u32.
    pub const CHUNK_BYTES: usize = 16;
    /// Process id, u32.
    pub const PROCESS_ID: usize = 20;
    /// Parent process id, u32.
    pub const PARENT_PROCESS_ID: usize = 24;
    /// Bit 0: buffered mode, the weaker promise (see the writer); bit 1: a copy of a moment; bit 2: the process keeps only
    /// the newest, u32.
    pub const FLAGS: usize = 28;
    /// CLOCK_MONOTONIC nanoseconds when the file was created, u64.
    pub const START_MONOTONIC_NS: usize = 32;
    /// CLOCK_REALTIME minus CLOCK_MONOTONIC of the launch, i64.
    pub const WALL_OFFSET_NS: usize = 40;
    /// Id of the launch, shared by all its processes, u64.
    pub const RUN_ID: usize = 48;
    /// Live: chunks handed out so far, u32.
    pub const CHUNKS_ALLOCATED: usize = 64;
    /// Live: 1 once the process has ended in the normal way, u32.
    pub const CLOSED: usize = 68;
    /// Live: CLOCK_MONOTONIC nanoseconds of that end, u64.
    pub const CLOSED_MONOTONIC_NS: usize = 72;
    /// Live: rounds of compaction completed, u32. The rounds are numbered from one.
    pub const COMPACTIONS: usize = 80;
    /// Live: records that compaction left out, u64.
    pub const RECORDS_LEFT_OUT: usize = 88;
    /// Live: CLOCK_MONOTONIC nanoseconds since which everything is there; of what was before, only what was alive then and
    /// what tells where it came from. Zero if nothing was left out that way, u64.
    pub const COMPLETE_SINCE_NS: usize = 96;
    /// Live: counters of losses by reason, 16 times u64.
    pub const LOSSES: usize = 128;
    /// Live, written from outside: number of a request that the process has not taken yet, zero if there is none, u32.
    /// See `requests`.
    pub const REQUEST_NUMBER: usize = 256;
    /// Written from outside: what is asked for, u32.
    pub const REQUEST_COMMAND: usize = 260;
    /// Written from outside: length of its text, u32.
    pub const REQUEST_TEXT_BYTES: usize = 264;
    /// Written from outside: XXH3 of number, command and text, u64.
    pub const REQUEST_CHECKSUM: usize = 272;
    /// Live: number of the request that was answered last, u32.
    pub const ANSWER_NUMBER: usize = 320;
    /// Live: zero, or the errno that says why it could not be met, i32.
    pub const ANSWER_RESULT: usize = 324;
    /// Whether the process takes requests, 1 if so, u32.
    pub const TAKES_REQUESTS: usize = 328;
    /// Live: what is recorded, code of the recording state plus one, zero if not known, u32.
    pub const RECORDING_STATE: usize = 332;
    /// Live: steps told by the job or from outside, u64.
    pub const STEPS: usize = 336;
    /// Live: further counters of frequent losses, 8 stripes of 64 bytes with a u64 for each reason. Add to those above.
    pub const LOSS_STRIPES: usize = 384;
    /// Written from outside: the text of a request, to the end of the page.
    pub const REQUEST_TEXT: usize = 1024;
}

/// The offset of the counter of a reason that is counted once for all threads.
pub fn loss_offset(reason: LossReason) -> usize {
    file_offset::LOSSES + 8 * (reason as usize).min(LOSS_COUNTERS - 1)
}

/// The offset of a counter in a stripe, if losses for this reason are frequent.
pub fn striped_loss_offset(reason: LossReason, stripe: usize) -> Option<usize> {
    let place = FREQUENT_LOSSES.iter().position(|frequent| *frequent == reason)?;
    Some(file_offset::LOSS_STRIPES + stripe % LOSS_STRIPES * LOSS_STRIPE_BYTES + 8 * place)
}

/// The offsets of all counters that add up to the losses for a reason.
pub fn loss_offsets(reason: LossReason) -> impl Iterator<Item = usize> {
    let stripes = (0..LOSS_STRIPES).filter_map(move |stripe| striped_loss_offset(reason, stripe));
    std::iter::once(loss_offset(reason)).chain(stripes)
}

/// Bit of `file_offset::FLAGS`: records reach the file only when a chunk is full or the process ends.
pub const FLAG_BUFFERED: u32 = 1;

/// Bit of `file_offset::FLAGS`: a copy of a moment; the process went on.
pub const FLAG_MOMENT: u32 = 2;

/// Bit of `file_offset::FLAGS`: the process keeps everything only of the newest time.
pub const FLAG_NEWEST: u32 = 4;

/// Offsets in a chunk header.
pub mod chunk_offset {
    /// `CHUNK_MAGIC`, 4 bytes.
    pub const MAGIC: usize = 0;
    /// Position of the chunk in the file, from zero, u32.
    pub const INDEX: usize = 4;
    /// Live: [`super::ChunkState`], u32.
    pub const STATE: usize = 8;
    /// Live: bytes of complete records after the header, u32.
    pub const COMMITTED_BYTES: usize = 12;
    /// CLOCK_MONOTONIC nanoseconds that the first record's time is relative to, u64.
    pub const BASE_MONOTONIC_NS: usize = 16;
    /// Kernel thread id of the first records, u32.
    pub const THREAD_ID: usize = 24;
    /// XXH3 of the committed bytes, valid once sealed, u64.
    pub const CHECKSUM: usize = 32;
    /// Live: the round of compaction that replaces this chunk, zero if none does, u32.
    pub const REPLACED_IN: usize = 40;
    /// The round of compaction that made this chunk, zero if a thread wrote it, u32.
    pub const MADE_IN: usize = 44;
    /// Live, of use to the process alone: committed bytes that have reached the file, in buffered mode, u32.
    pub const FLUSHED_BYTES: usize = 48;
}

/// What happens to a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ChunkState {
    /// A thread writes into it.
    Open = 1,
    /// Full; checksum valid.
    Sealed = 2,
}

/// Offset of a chunk in the file.
pub fn chunk_file_offset(index: u32) -> u64 {
    FILE_HEADER_BYTES as u64 + u64::from(index) * CHUNK_BYTES as u64
}
