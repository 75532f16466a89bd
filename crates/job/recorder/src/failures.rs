//! What happens when nothing can be written: it is counted, told once per reason, and tried again after a while.

use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use msmemscope_event::LossReason;
use msmemscope_trace::TRACE_FILE_NAME;
use msmemscope_trace::writer::ChunkError;

use crate::{clock, message, owner};

pub const PAUSE_BETWEEN_ATTEMPTS_NS: u64 = 1_000_000_000;

const NEVER: u64 = u64::MAX;

/// When the next attempt to write may be made; zero if nothing failed.
static NEXT_ATTEMPT_NS: AtomicU64 = AtomicU64::new(0);

static FAILURE: AtomicU32 = AtomicU32::new(0);

/// The recording that failed. What holds for it says nothing about another one, as that of a forked child.
static FAILED_GENERATION: AtomicU64 = AtomicU64::new(owner::NOBODY);

static REASONS_TOLD: AtomicU32 = AtomicU32::new(0);

/// Why nothing can be written at the moment; nothing if it is worth trying.
pub fn unavailable(now_ns: u64) -> Option<LossReason> {
    let next_attempt_ns = NEXT_ATTEMPT_NS.load(Ordering::Relaxed);
    let is_ours = || FAILED_GENERATION.load(Ordering::Relaxed) == owner::generation();
    (now_ns < next_attempt_ns && is_ours()).then(|| LossReason::from_code(u64::from(FAILURE.load(Ordering::Relaxed))))
}

/// Notes a failure, tells about it once per reason, and says what the loss is called.
pub fn failed(error: ChunkError, directory: &Path, keeps_newest: bool) -> LossReason {
    let (reason, text) = match error {
        ChunkError::SizeLimit if keeps_newest => {
            let text = "what is alive does not fit into the flight recorder (--flight-recorder)";
            (LossReason::SizeLimit, text.to_string())
        }
        ChunkError::SizeLimit => {
            (LossReason::SizeLimit, "the size limit of the trace is reached (--max-trace-size)".to_string())
        }
        ChunkError::System(libc::EFBIG) => {
            (LossReason::SizeLimit, "the limit of file sizes is reached (ulimit -f)".to_string())
        }
        ChunkError::System(errno @ (libc::ENOSPC | libc::EDQUOT)) => {
            (LossReason::DiskFull, std::io::Error::from_raw_os_error(errno).to_string())
        }
        ChunkError::System(libc::ESTALE) => {
            (LossReason::TraceUnavailable, format!("somebody has put another file in the place of {TRACE_FILE_NAME}"))
        }
        ChunkError::System(errno) => {
            (LossReason::TraceUnavailable, std::io::Error::from_raw_os_error(errno).to_string())
        }
    };
    // What is alive may become less.
    let for_good = reason == LossReason::SizeLimit && !keeps_newest;
    let next_attempt_ns = if for_good { NEVER } else { clock::monotonic_ns() + PAUSE_BETWEEN_ATTEMPTS_NS };
    FAILURE.store(reason as u32, Ordering::Relaxed);
    FAILED_GENERATION.store(owner::generation(), Ordering::Relaxed);
    NEXT_ATTEMPT_NS.store(next_attempt_ns, Ordering::Relaxed);
    let bit = 1 << reason as u32;
    if REASONS_TOLD.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
        let place = directory.display();
        message::say(&format!("cannot record in {place}: {text}; events are lost from here on, the job goes on"));
    }
    reason
}

/// Writing has worked, or is worth trying again at once.
pub fn try_again() {
    NEXT_ATTEMPT_NS.store(0, Ordering::Relaxed);
}

/// What failed elsewhere need not fail at another place. The limit of a trace does not change.
pub fn place_changed() {
    if FAILURE.load(Ordering::Relaxed) != LossReason::SizeLimit as u32 {
        try_again();
        REASONS_TOLD.store(0, Ordering::Relaxed);
    }
}
