//! The file that the ranks of a communicator share: who they are, and a ring of bytes from each rank to each rank.
//!
//! A ring has one writer and one reader, so two counters are enough. Whoever moves one of them rings the bell of the other
//! side, a word that the kernel lets processes wait for.

use crate::Failure;
use std::ffi::CString;
use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// More ranks than one machine has cards.
pub(crate) const MOST_RANKS: u32 = 64;
const RING_BYTES: u64 = 256 << 10;
/// How long to wait before looking whether the others are still alive.
const LOOK_AROUND: Duration = Duration::from_millis(100);

/// A rank, as the others see it.
#[repr(C, align(64))]
struct Member {
    /// Zero until it takes part.
    process_id: AtomicU32,
    bell: AtomicU32,
}

/// A ring from one rank to another; its bytes lie behind all rings.
#[repr(C, align(128))]
struct Ring {
    written: AtomicU64,
    _apart: [u8; 56],
    read: AtomicU64,
}

/// The mapped file.
pub(crate) struct Rings {
    base: *mut u8,
    bytes: usize,
    ranks: u32,
    own_rank: u32,
}

// SAFETY: the mapping is shared memory in which everything is atomic or has one owner at a time.
unsafe impl Send for Rings {}
// SAFETY: as above.
unsafe impl Sync for Rings {}

/// A part of an operation: bytes that go to a rank, or come from one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfer {
    pub(crate) is_send: bool,
    pub(crate) peer: u32,
    pub(crate) address: usize,
    pub(crate) bytes: usize,
}

impl Rings {
    /// Joins the ranks that share a file and waits for the others.
    pub(crate) fn join(path: &Path, ranks: u32, own_rank: u32, patience: Duration) -> Result<Self, Failure> {
        let pairs = ranks as usize * ranks as usize;
        let bytes = ranks as usize * size_of::<Member>() + pairs * (size_of::<Ring>() + RING_BYTES as usize) + 128;
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
        let file = file.map_err(|_| Failure::OpenFile)?;
        file.set_len(bytes as u64).map_err(|_| Failure::SystemCall)?;
        // SAFETY: a fresh shared mapping of a file of that size.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(Failure::SystemCall);
        }
        let rings = Self { base: base.cast(), bytes, ranks, own_rank };
        rings.member(own_rank).process_id.store(std::process::id(), Ordering::Release);
        for rank in 0..ranks {
            rings.ring_bell(rank);
        }
        rings.wait_for_all(patience)?;
        // Everybody has it mapped; whoever comes first removes the name.
        if let Ok(path) = CString::new(path.as_os_str().as_bytes()) {
            // SAFETY: a terminated path.
            unsafe { libc::unlink(path.as_ptr()) };
        }
        Ok(rings)
    }

    fn wait_for_all(&self, patience: Duration) -> Result<(), Failure> {
        let deadline = Instant::now() + patience;
        loop {
            let heard = self.member(self.own_rank).bell.load(Ordering::Acquire);
            let is_there = |rank| self.member(rank).process_id.load(Ordering::Acquire) != 0;
            if (0..self.ranks).all(is_there) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(Failure::Timeout);
            }
            self.wait_for_bell(heard);
        }
    }

    /// The number of ranks.
    pub(crate) fn ranks(&self) -> u32 {
        self.ranks
    }

    /// The rank of this process.
    pub(crate) fn own_rank(&self) -> u32 {
        self.own_rank
    }

    fn member(&self, rank: u32) -> &Member {
        debug_assert!(rank < self.ranks);
        // SAFETY: the mapping starts with one member per rank, zero-filled at first, which is valid.
        unsafe { &*self.base.cast::<Member>().add(rank as usize) }
    }

    fn pair(&self, from: u32, to: u32) -> usize {
        from as usize * self.ranks as usize + to as usize
    }

    fn rings_start(&self) -> usize {
        (self.ranks as usize * size_of::<Member>()).next_multiple_of(align_of::<Ring>())
    }

    fn ring(&self, from: u32, to: u32) -> (&Ring, *mut u8) {
        let pairs = self.ranks as usize * self.ranks as usize;
        let at = self.rings_start() + self.pair(from, to) * size_of::<Ring>();
        let bytes_at = self.rings_start() + pairs * size_of::<Ring>() + self.pair(from, to) * RING_BYTES as usize;
        // SAFETY: both lie within the mapping, whose size was computed from the same numbers; zeros are a valid ring.
        unsafe { (&*self.base.add(at).cast::<Ring>(), self.base.add(bytes_at)) }
    }

    fn ring_bell(&self, rank: u32) {
        let bell = &self.member(rank).bell;
        bell.fetch_add(1, Ordering::AcqRel);
        // SAFETY: a word of a shared mapping; everybody who waits for it is woken.
        unsafe { libc::syscall(libc::SYS_futex, bell.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
    }

    /// Waits until the own bell is no longer as it was heard, or it is time to look around.
    fn wait_for_bell(&self, heard: u32) {
        let bell = &self.member(self.own_rank).bell;
        let time = libc::timespec { tv_sec: 0, tv_nsec: LOOK_AROUND.as_nanos() as libc::c_long };
        // SAFETY: a word of a shared mapping and a time that lives through the call.
        unsafe { libc::syscall(libc::SYS_futex, bell.as_ptr(), libc::FUTEX_WAIT, heard, &raw const time) };
    }

    /// Moves all bytes. Transfers with the same rank in the same direction keep their order; others go side by side.
    pub(crate) fn exchange(&self, transfers: &[Transfer], patience: Duration) -> Result<(), Failure> {
        let mut done = vec![0usize; transfers.len()];
        let mut deadline = Instant::now() + patience;
        loop {
            let heard = self.member(self.own_rank).bell.load(Ordering::Acquire);
            let mut has_moved = false;
            let mut open: Option<u32> = None;
            for (index, transfer) in transfers.iter().enumerate() {
                let is_next = |earlier: usize| {
                    let other = &transfers[earlier];
                    other.is_send != transfer.is_send || other.peer != transfer.peer || done[earlier] == other.bytes
                };
                if done[index] < transfer.bytes && (0..index).all(is_next) {
                    let moved = self.move_some(transfer, done[index]);
                    done[index] += moved;
                    has_moved |= moved > 0;
                }
                if done[index] < transfer.bytes {
                    open.get_or_insert(transfer.peer);
                }
            }
            let Some(peer) = open else { return Ok(()) };
            if has_moved {
                deadline = Instant::now() + patience;
                continue;
            }
            if Instant::now() > deadline {
                return Err(Failure::Timeout);
            }
            if !self.is_alive(peer) {
                return Err(Failure::Remote);
            }
            self.wait_for_bell(heard);
        }
    }

    /// Moves as much of a transfer as its ring has room or bytes for.
    fn move_some(&self, transfer: &Transfer, done: usize) -> usize {
        let (from, to) = match transfer.is_send {
            true => (self.own_rank, transfer.peer),
            false => (transfer.peer, self.own_rank),
        };
        let (ring, bytes) = self.ring(from, to);
        let (written, read) = (ring.written.load(Ordering::Acquire), ring.read.load(Ordering::Acquire));
        let filled = written - read;
        let (position, available) = match transfer.is_send {
            true => (written, RING_BYTES - filled),
            false => (read, filled),
        };
        let until_end = RING_BYTES - position % RING_BYTES;
        let moved = (transfer.bytes - done).min(available.min(until_end) as usize);
        if moved == 0 {
            return 0;
        }
        let user = (transfer.address + done) as *mut u8;
        // SAFETY: the caller of the operation gives memory of that size; this part of the ring belongs to this side until
        // its counter is moved.
        unsafe {
            let ring_bytes = bytes.add((position % RING_BYTES) as usize);
            match transfer.is_send {
                true => ring_bytes.copy_from_nonoverlapping(user, moved),
                false => user.copy_from_nonoverlapping(ring_bytes, moved),
            }
        }
        let counter = if transfer.is_send { &ring.written } else { &ring.read };
        counter.store(position + moved as u64, Ordering::Release);
        self.ring_bell(transfer.peer);
        moved
    }

    /// Whether the process of a rank still runs; what waits for its parent has ended.
    fn is_alive(&self, rank: u32) -> bool {
        let process_id = self.member(rank).process_id.load(Ordering::Acquire);
        let Ok(status) = std::fs::read_to_string(format!("/proc/{process_id}/stat")) else { return false };
        let state = status.rsplit(')').next().and_then(|rest| rest.split_whitespace().next());
        !matches!(state, Some("Z" | "X"))
    }
}

impl Drop for Rings {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `join`; nobody uses it any more.
        unsafe { libc::munmap(self.base.cast(), self.bytes) };
    }
}
