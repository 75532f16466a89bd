//! The half of the trace that runs inside the traced process.
//!
//! [`TraceFile`] hands out chunks; a thread appends records to its [`Chunk`] until it is full. Chunks
//! are fallocated before they are mapped, so that a full disk is an error here and never a SIGBUS in
//! the job. No descriptor is kept: a job that closes all its descriptors must neither break the
//! trace nor find its own files written to.
//!
//! On file systems whose shared mappings cannot be trusted the chunks live in anonymous memory and
//! reach the file when they are sealed or flushed; the header says so ([`layout::FLAG_BUFFERED`]). The same holds
//! from the moment on at which somebody has put a copy in the place of the file: what is mapped is the other one.

use std::cell::Cell;
use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use msmemscope_event::{Fact, LossReason, StackId};
use xxhash_rust::xxh3::xxh3_64;

use crate::chunk_table::ChunkTable;
use crate::codec::{self, CodecState};
use crate::compaction::LARGEST_RESULT;
use crate::layout::{self, CHUNK_BYTES, CHUNK_HEADER_BYTES, ChunkState, FILE_HEADER_BYTES, chunk_offset, file_offset};
use crate::reader::{u32_at, u64_at};

/// One of this many chunks is kept back for compaction, which needs room for the new chunks before the old ones go.
const RESERVED_SHARE: u32 = 4;

/// The part of the header that does not change while the process runs.
const FIXED_HEADER_BYTES: usize = file_offset::CHUNKS_ALLOCATED;

/// What others did to the file while it was being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Incident {
    /// A copy was put in its place.
    Replaced = 1,
    /// It was cut; whatever was behind the cut is gone.
    Cut = 2,
}

/// What the header says about the process.
#[derive(Clone, Copy, Debug)]
pub struct ProcessIdentity {
    /// Process id.
    pub process_id: u32,
    /// Parent process id.
    pub parent_process_id: u32,
    /// Id of the launch.
    pub run_id: u64,
    /// CLOCK_REALTIME minus CLOCK_MONOTONIC of the launch.
    pub wall_offset_ns: i64,
    /// Now.
    pub monotonic_ns: u64,
}

/// Why no chunk can be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkError {
    /// The size limit is reached.
    SizeLimit,
    /// A system call failed with this errno.
    System(i32),
}

/// The trace file of this process.
pub struct TraceFile {
    /// Replaced paths stay where they are: somebody may be opening them.
    path: AtomicPtr<CString>,
    header: *mut u8,
    /// The fields of the header that do not change.
    fixed_header: [u8; FIXED_HEADER_BYTES],
    buffered: AtomicBool,
    device: AtomicU64,
    inode: AtomicU64,
    /// Chunks that the file had room for, counted from its start.
    reserved_chunks: AtomicU32,
    incident: AtomicU8,
    largest_chunk_count: AtomicU32,
    /// When there is no room left, the oldest goes.
    keeps_newest: AtomicBool,
    /// Chunks somebody has asked for; the header only counts those that exist.
    next_chunk: AtomicU32,
    table: ChunkTable,
    /// Compaction has looked at everything before this time, in vain.
    dense_until_ns: AtomicU64,
}

// SAFETY: the header mapping is only touched through atomics after creation and lives as long as the process.
unsafe impl Send for TraceFile {}
// SAFETY: as above.
unsafe impl Sync for TraceFile {}

/// The largest file the process may make.
fn file_size_limit_bytes() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: `limit` outlives the call and stays unlimited if it fails.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) };
    limit.rlim_cur
}

fn last_errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// The file, open for a moment.
pub(crate) struct Descriptor(msmemscope_courtesy::Descriptor);

impl Descriptor {
    fn open(path: &CStr, flags: i32) -> Result<Self, i32> {
        msmemscope_courtesy::Descriptor::open(path, flags | libc::O_NOFOLLOW).map(Self)
    }

    fn number(&self) -> i32 {
        self.0.number()
    }

    /// Makes sure the blocks behind a range exist.
    pub(crate) fn reserve(&self, offset: u64, length: usize) -> Result<(), i32> {
        if offset + length as u64 > file_size_limit_bytes() {
            return Err(libc::EFBIG); // Trying would raise SIGXFSZ.
        }
        loop {
            // SAFETY: plain system call.
            if unsafe { libc::fallocate(self.number(), 0, offset as i64, length as i64) } == 0 {
                return Ok(());
            }
            match last_errno() {
                libc::EINTR => continue,
                libc::EOPNOTSUPP | libc::ENOSYS => return self.write_zeros(offset, length),
                errno => return Err(errno),
            }
        }
    }

    fn write_zeros(&self, offset: u64, length: usize) -> Result<(), i32> {
        const ZEROS: [u8; 4096] = [0; 4096];
        let mut done = 0;
        while done < length {
            let part = (length - done).min(ZEROS.len());
            self.write_at(&ZEROS[..part], offset + done as u64)?;
            done += part;
        }
        Ok(())
    }

    pub(crate) fn write_at(&self, mut bytes: &[u8], mut offset: u64) -> Result<(), i32> {
        while !bytes.is_empty() {
            // SAFETY: the slice is valid for its length.
            let written = unsafe { libc::pwrite(self.number(), bytes.as_ptr().cast(), bytes.len(), offset as i64) };
            match written {
                -1 if last_errno() == libc::EINTR => continue,
                -1 => return Err(last_errno()),
                0 => return Err(libc::ENOSPC),
                written => {
                    bytes = &bytes[written as usize..];
                    offset += written as u64;
                }
            }
        }
        Ok(())
    }

    /// Fills the buffer; a file that ends before is an error.
    pub(crate) fn read_at(&self, mut bytes: &mut [u8], mut offset: u64) -> Result<(), i32> {
        while !bytes.is_empty() {
            // SAFETY: the slice is valid for its length.
            let read = unsafe { libc::pread(self.number(), bytes.as_mut_ptr().cast(), bytes.len(), offset as i64) };
            match read {
                -1 if last_errno() == libc::EINTR => continue,
                -1 => return Err(last_errno()),
                0 => return Err(libc::EIO),
                read => {
                    bytes = &mut bytes[read as usize..];
                    offset += read as u64;
                }
            }
        }
        Ok(())
    }

    fn map(&self, offset: u64, length: usize) -> Result<*mut u8, i32> {
        map_memory(length, libc::MAP_SHARED | libc::MAP_POPULATE, self.number(), offset)
    }

    /// Whether stores through a shared mapping are known to reach this file system.
    fn mapping_can_be_trusted(&self) -> bool {
        // SAFETY: statfs is plain old data, for which zero is a valid value.
        let mut facts: libc::statfs = unsafe { std::mem::zeroed() };
        // SAFETY: `facts` outlives the call.
        let known = unsafe { libc::fstatfs(self.number(), &mut facts) } == 0;
        known && is_trusted(&facts)
    }
}

/// Whether stores through a shared mapping reach the file on this file system: none of network or user space.
fn is_trusted(facts: &libc::statfs) -> bool {
    const DISTRUSTED: [i64; 7] = [0x6969, 0x517b, 0xff53_4d42, 0xfe53_4d42, 0x6573_5546, 0x0102_1997, 0x5346_414f];
    // Glibc has it as a long number, on x86_64 and aarch64 alike.
    !DISTRUSTED.contains(&(facts.f_type & 0xffff_ffff))
}

/// Whether traces in a directory are mapped into the job; elsewhere they are buffered.
pub fn maps_files_in(directory: &Path) -> bool {
    let Ok(path) = CString::new(directory.as_os_str().as_bytes()) else { return false };
    // SAFETY: statfs is plain old data, for which zero is a valid value.
    let mut facts: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path ends with a zero, `facts` outlives the call.
    let known = unsafe { libc::statfs(path.as_ptr(), &mut facts) } == 0;
    known && is_trusted(&facts)
}

/// What identifies a file, and its size.
struct FileFacts {
    device: u64,
    inode: u64,
    size_bytes: u64,
}

impl Descriptor {
    fn facts(&self) -> Result<FileFacts, i32> {
        // SAFETY: plain old data, for which zero is a valid value.
        let mut facts: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: `facts` outlives the call.
        if unsafe { libc::fstat(self.number(), &mut facts) } != 0 {
            return Err(last_errno());
        }
        Ok(FileFacts { device: facts.st_dev, inode: facts.st_ino, size_bytes: facts.st_size as u64 })
    }
}

fn map_memory(length: usize, flags: i32, descriptor: i32, offset: u64) -> Result<*mut u8, i32> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    let address = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, descriptor, offset as i64) };
    if address == libc::MAP_FAILED { Err(last_errno()) } else { Ok(address.cast()) }
}

fn map_anonymous(length: usize) -> Result<*mut u8, i32> {
    map_memory(length, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
}

/// Chunks that a file of this size has room for, at least one.
fn chunks_in(limit_bytes: u64) -> u32 {
    let room_bytes = limit_bytes.saturating_sub(FILE_HEADER_BYTES as u64);
    u32::try_from(room_bytes / CHUNK_BYTES as u64).unwrap_or(u32::MAX).max(1)
}

/// Writes plain bytes into a mapping of ours.
///
/// # Safety
/// `base + offset` must be writable for `bytes.len()`.
unsafe fn store(base: *mut u8, offset: usize, bytes: &[u8]) {
    // SAFETY: promised by the caller.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), base.add(offset), bytes.len()) };
}

/// The stripe of counters that the calling thread uses.
fn own_stripe() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    const NONE: usize = usize::MAX;
    thread_local! {
        static OWN: Cell<usize> = const { Cell::new(NONE) };
    }
    if OWN.get() == NONE {
        OWN.set(NEXT.fetch_add(1, Ordering::Relaxed) % layout::LOSS_STRIPES);
    }
    OWN.get()
}

impl TraceFile {
    /// Creates the file, which must not exist yet. `limit_bytes` is the largest size it may reach.
    pub fn create(path: CString, identity: &ProcessIdentity, limit_bytes: u64) -> Result<Self, i32> {
        Self::create_with(path, identity, limit_bytes, false)
    }

    /// Like [`TraceFile::create`]; `distrust_mappings` forces the buffered mode.
    pub fn create_with(
        path: CString,
        identity: &ProcessIdentity,
        limit_bytes: u64,
        distrust_mappings: bool,
    ) -> Result<Self, i32> {
        let descriptor = Descriptor::open(&path, libc::O_RDWR | libc::O_CREAT | libc::O_EXCL)?;
        let buffered = distrust_mappings || !descriptor.mapping_can_be_trusted();
        let header = descriptor.reserve(0, FILE_HEADER_BYTES).and_then(|()| {
            if buffered { map_anonymous(FILE_HEADER_BYTES) } else { descriptor.map(0, FILE_HEADER_BYTES) }
        });
        let header = match header {
            Ok(header) => header,
            Err(errno) => {
                // SAFETY: the path is valid; the file is ours and empty.
                unsafe { libc::unlink(path.as_ptr()) };
                return Err(errno);
            }
        };
        let flags = if buffered { layout::FLAG_BUFFERED } else { 0 };
        // SAFETY: the mapping is one header page; all offsets lie inside it.
        unsafe {
            store(header, file_offset::VERSION_MAJOR, &layout::VERSION_MAJOR.to_le_bytes());
            store(header, file_offset::VERSION_MINOR, &layout::VERSION_MINOR.to_le_bytes());
            store(header, file_offset::HEADER_BYTES, &(FILE_HEADER_BYTES as u32).to_le_bytes());
            store(header, file_offset::CHUNK_BYTES, &(CHUNK_BYTES as u32).to_le_bytes());
            store(header, file_offset::PROCESS_ID, &identity.process_id.to_le_bytes());
            store(header, file_offset::PARENT_PROCESS_ID, &identity.parent_process_id.to_le_bytes());
            store(header, file_offset::FLAGS, &flags.to_le_bytes());
            store(header, file_offset::START_MONOTONIC_NS, &identity.monotonic_ns.to_le_bytes());
            store(header, file_offset::WALL_OFFSET_NS, &identity.wall_offset_ns.to_le_bytes());
            store(header, file_offset::RUN_ID, &identity.run_id.to_le_bytes());
            store(header, file_offset::MAGIC, &layout::FILE_MAGIC);
        }
        let largest_chunk_count = chunks_in(limit_bytes);
        let path = AtomicPtr::new(Box::into_raw(Box::new(path)));
        let table = ChunkTable::new(largest_chunk_count, |length| map_anonymous(length).ok());
        let facts = descriptor.facts()?;
        let mut fixed_header = [0; FIXED_HEADER_BYTES];
        // SAFETY: the header page is mapped and larger.
        unsafe { std::ptr::copy_nonoverlapping(header, fixed_header.as_mut_ptr(), FIXED_HEADER_BYTES) };
        let file = Self {
            path,
            header,
            fixed_header,
            buffered: AtomicBool::new(buffered),
            device: AtomicU64::new(facts.device),
            inode: AtomicU64::new(facts.inode),
            reserved_chunks: AtomicU32::new(0),
            incident: AtomicU8::new(0),
            largest_chunk_count: AtomicU32::new(largest_chunk_count),
            keeps_newest: AtomicBool::new(false),
            next_chunk: AtomicU32::new(0),
            table,
            dense_until_ns: AtomicU64::new(0),
        };
        file.write_header_if_buffered(&descriptor)?;
        Ok(file)
    }

    fn path(&self) -> &CStr {
        // SAFETY: always a path, and never freed.
        unsafe { &*self.path.load(Ordering::Acquire) }
    }

    /// Moves the file to another place of the same file system, while records are being written.
    ///
    /// The file has both names for a moment, so that no thread finds it missing.
    pub fn move_to(&self, path: CString) -> Result<(), i32> {
        let before = self.path();
        // SAFETY: valid paths.
        if unsafe { libc::link(before.as_ptr(), path.as_ptr()) } != 0 {
            return Err(last_errno());
        }
        self.path.store(Box::into_raw(Box::new(path)), Ordering::Release);
        // SAFETY: a valid path.
        unsafe { libc::unlink(before.as_ptr()) };
        Ok(())
    }

    /// Makes a copy of the file, on another file system, that is to be written instead of this one. Chunks keep their
    /// places; new ones go behind them. What is written here meanwhile is left to [`TraceFile::copy_rest`].
    pub fn copy_to(&self, path: CString, limit_bytes: u64, distrust_mappings: bool) -> Result<Self, i32> {
        let identity = ProcessIdentity {
            process_id: u32_at(&self.fixed_header, file_offset::PROCESS_ID),
            parent_process_id: u32_at(&self.fixed_header, file_offset::PARENT_PROCESS_ID),
            run_id: u64_at(&self.fixed_header, file_offset::RUN_ID),
            wall_offset_ns: u64_at(&self.fixed_header, file_offset::WALL_OFFSET_NS) as i64,
            monotonic_ns: u64_at(&self.fixed_header, file_offset::START_MONOTONIC_NS),
        };
        let copy = Self::create_with(path, &identity, limit_bytes, distrust_mappings)?;
        for offset in [file_offset::COMPACTIONS, file_offset::CHUNKS_ALLOCATED] {
            copy.header_u32(offset).store(self.header_u32(offset).load(Ordering::Acquire), Ordering::Relaxed);
        }
        copy.take_over_requests(self);
        for offset in [file_offset::RECORDS_LEFT_OUT, file_offset::COMPLETE_SINCE_NS] {
            copy.header_u64(offset).store(self.header_u64(offset).load(Ordering::Relaxed), Ordering::Relaxed);
        }
        let chunks = self.chunks_handed_out();
        copy.next_chunk.store(chunks, Ordering::Relaxed);
        let (from, to) = (self.open()?, copy.open()?);
        to.reserve(0, layout::chunk_file_offset(chunks) as usize)?; // Some may not be in use yet.
        for index in 0..chunks {
            copy_chunk(&from, index, &to, index)?;
        }
        copy.reserved_chunks.store(chunks, Ordering::Relaxed);
        copy.write_header_if_buffered(&to)?;
        Ok(copy)
    }

    /// Brings what was written into the original while it was copied, and its losses. Nobody may begin or end a chunk
    /// there any more. Returns the new places of the chunks that were not copied before, in order.
    pub fn copy_rest(&self, original: &Self, copied_chunks: u32) -> Result<Vec<u32>, i32> {
        let (from, to) = (original.open()?, self.open()?);
        for index in 0..copied_chunks {
            copy_chunk(&from, index, &to, index)?;
            self.table.take_over(index, &original.table, index);
        }
        let mut targets = Vec::new();
        for index in copied_chunks..original.chunks_handed_out() {
            let target = self.claim_any_index().ok_or(libc::EFBIG)?;
            copy_chunk(&from, index, &to, target)?;
            self.table.take_over(target, &original.table, index);
            self.note_handed_out(target);
            targets.push(target);
        }
        for &reason in LossReason::ALL {
            self.count_loss(reason, original.loss_count(reason));
        }
        self.write_header_if_buffered(&to)?;
        Ok(targets)
    }

    /// Takes over a chunk of the original that was being written when it was copied, once nobody writes to it.
    pub fn take_over(&self, view: &ChunkView, target: u32) -> Result<(), i32> {
        let used_bytes = (CHUNK_HEADER_BYTES + view.committed_bytes()).min(CHUNK_BYTES);
        // SAFETY: the chunk is mapped, and what is committed does not change any more.
        let bytes = unsafe { std::slice::from_raw_parts(view.base, used_bytes) };
        let (header, payload) = bytes.split_at(CHUNK_HEADER_BYTES);
        self.open().and_then(|descriptor| write_copy(&descriptor, target, header, payload))
    }

    /// Chunks that anybody has asked for so far.
    pub fn chunk_count(&self) -> u32 {
        self.chunks_handed_out()
    }

    /// Lets go of a file that was copied, so that its space is free again.
    pub fn let_go(&self) {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        // SAFETY: replaces our own page by another: whoever still counts something there does it in vain.
        unsafe { libc::mmap(self.header.cast(), FILE_HEADER_BYTES, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    }

    /// Whether records reach the file only when a chunk is full, flushed or the process ends.
    pub fn is_buffered(&self) -> bool {
        self.buffered.load(Ordering::Relaxed)
    }

    pub(crate) fn header_u32(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: the header page is mapped for the life of the process and the offset is aligned.
        unsafe { &*self.header.add(offset).cast::<AtomicU32>() }
    }

    pub(crate) fn header_u64(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: as above.
        unsafe { &*self.header.add(offset).cast::<AtomicU64>() }
    }

    /// The first bytes behind the words of a request, as they are now: they are of others, and may be torn.
    pub(crate) fn request_text(&self, length: usize) -> Vec<u8> {
        let length = length.min(FILE_HEADER_BYTES - file_offset::REQUEST_TEXT);
        let mut text = vec![0; length];
        // SAFETY: the header page is mapped for the life of the process; the text ends with it at the latest.
        unsafe {
            std::ptr::copy_nonoverlapping(self.header.add(file_offset::REQUEST_TEXT), text.as_mut_ptr(), length);
        }
        text
    }

    /// Adds to a loss counter of a reason. Safe to call from anywhere, also from signal handlers.
    pub fn count_loss(&self, reason: LossReason, count: u64) {
        let offset = layout::striped_loss_offset(reason, own_stripe());
        let offset = offset.unwrap_or_else(|| layout::loss_offset(reason));
        self.header_u64(offset).fetch_add(count, Ordering::Relaxed);
    }

    /// Losses counted so far for a reason.
    pub fn loss_count(&self, reason: LossReason) -> u64 {
        layout::loss_offsets(reason).map(|offset| self.header_u64(offset).load(Ordering::Relaxed)).sum()
    }

    /// Notes that the process ends in the normal way.
    pub fn close(&self, monotonic_ns: u64) {
        self.header_u64(file_offset::CLOSED_MONOTONIC_NS).store(monotonic_ns, Ordering::Relaxed);
        self.header_u32(file_offset::CLOSED).store(1, Ordering::Release);
        if self.is_buffered()
            && let Ok(descriptor) = self.open()
        {
            let _ = self.write_header_if_buffered(&descriptor);
        }
    }

    fn write_header_if_buffered(&self, descriptor: &Descriptor) -> Result<(), i32> {
        if !self.is_buffered() {
            return Ok(());
        }
        // SAFETY: the header page is mapped; a torn counter is harmless.
        descriptor.write_at(unsafe { std::slice::from_raw_parts(self.header, FILE_HEADER_BYTES) }, 0)
    }

    /// Opens the file, and finds out whether it is still the one that was made.
    pub(crate) fn open(&self) -> Result<Descriptor, i32> {
        let descriptor = Descriptor::open(self.path(), libc::O_RDWR)?;
        // Where mappings cannot be trusted, numbers of files cannot either; and nothing is mapped.
        if !self.is_buffered() {
            let facts = descriptor.facts()?;
            let known = (self.device.load(Ordering::Relaxed), self.inode.load(Ordering::Relaxed));
            if (facts.device, facts.inode) != known {
                self.go_on_in_copy(&descriptor)?;
            } else if facts.size_bytes < layout::chunk_file_offset(self.reserved_chunks.load(Ordering::Relaxed)) {
                self.restore(&descriptor, facts.size_bytes)?;
            }
        }
        Ok(descriptor)
    }

    /// Somebody has put another file in the place of this one. If it is a copy, it gets what comes from now on, and the
    /// chunks that are being written once they are full.
    fn go_on_in_copy(&self, descriptor: &Descriptor) -> Result<(), i32> {
        let mut fixed_header = [0; FIXED_HEADER_BYTES];
        let is_read = descriptor.read_at(&mut fixed_header, 0).is_ok();
        // Flags may have come since.
        let flags = file_offset::FLAGS..file_offset::FLAGS + 4;
        fixed_header[flags.clone()].copy_from_slice(&self.fixed_header[flags]);
        let is_copy = is_read && fixed_header == self.fixed_header;
        if !is_copy {
            return Err(libc::ESTALE);
        }
        self.header_u32(file_offset::FLAGS).fetch_or(layout::FLAG_BUFFERED, Ordering::Relaxed);
        self.buffered.store(true, Ordering::Release);
        self.incident.store(Incident::Replaced as u8, Ordering::Relaxed);
        Ok(())
    }

    /// Somebody has cut the file. It is made as long as it was at once: threads that write behind its end are killed.
    fn restore(&self, descriptor: &Descriptor, size_bytes: u64) -> Result<(), i32> {
        let chunks = self.reserved_chunks.load(Ordering::Relaxed);
        descriptor.reserve(0, layout::chunk_file_offset(chunks) as usize)?;
        if size_bytes < FILE_HEADER_BYTES as u64 {
            descriptor.write_at(&self.fixed_header, 0)?;
        }
        let is_gone = |index: &u32| layout::chunk_file_offset(*index + 1) > size_bytes;
        self.header_u32(file_offset::CHUNKS_ALLOCATED).fetch_max(chunks, Ordering::Relaxed);
        // How many events were in them nobody knows any more.
        self.count_loss(LossReason::TraceUnavailable, (0..chunks).filter(is_gone).count() as u64);
        self.incident.store(Incident::Cut as u8, Ordering::Relaxed);
        Ok(())
    }

    /// What happened to the file since the last question.
    pub fn take_incident(&self) -> Option<Incident> {
        match self.incident.swap(0, Ordering::Relaxed) {
            1 => Some(Incident::Replaced),
            2 => Some(Incident::Cut),
            _ => None,
        }
    }

    pub(crate) fn table(&self) -> &ChunkTable {
        &self.table
    }

    /// Whether chunks can be replaced while the process runs: it must know them, and have room for the new ones.
    pub(crate) fn can_compact(&self) -> bool {
        !self.is_buffered() && self.table.is_usable() && self.reserved_chunk_count() > 0
    }

    /// Chunks kept back for compaction: one at least, where two more are left to be replaced by it.
    fn reserved_chunk_count(&self) -> u32 {
        let largest = self.largest_chunk_count.load(Ordering::Relaxed);
        if largest <= 2 {
            return 0;
        }
        (largest / RESERVED_SHARE).clamp(1, LARGEST_RESULT)
    }

    /// Keeps only the newest from now on, in a file that does not become larger than this, or than it is: when there is no
    /// room left, [`TraceFile::compact`] replaces the oldest by what is still alive of it.
    pub fn keep_newest(&self, limit_bytes: u64) {
        let chunks = chunks_in(limit_bytes).max(self.chunks_handed_out());
        self.largest_chunk_count.fetch_min(chunks, Ordering::Relaxed);
        self.header_u32(file_offset::FLAGS).fetch_or(layout::FLAG_NEWEST, Ordering::Relaxed);
        self.keeps_newest.store(true, Ordering::Relaxed);
    }

    /// Whether it keeps only the newest.
    pub fn keeps_newest(&self) -> bool {
        self.keeps_newest.load(Ordering::Relaxed)
    }

    pub(crate) fn dense_until_ns(&self) -> u64 {
        self.dense_until_ns.load(Ordering::Relaxed)
    }

    pub(crate) fn note_dense_until(&self, monotonic_ns: u64) {
        self.dense_until_ns.store(monotonic_ns, Ordering::Relaxed);
    }

    /// Chunks that anybody has asked for so far.
    pub(crate) fn chunks_handed_out(&self) -> u32 {
        self.next_chunk.load(Ordering::Relaxed)
    }

    /// The place of a chunk that nobody uses, if more than this many are left.
    fn claim_index(&self, kept_back: u32) -> Option<u32> {
        let largest = self.largest_chunk_count.load(Ordering::Relaxed);
        if self.table.vacant_count().saturating_add(largest.saturating_sub(self.chunks_handed_out())) <= kept_back {
            return None;
        }
        let claim = |count| (count < largest).then_some(count + 1);
        let fresh = || self.next_chunk.fetch_update(Ordering::Relaxed, Ordering::Relaxed, claim).ok();
        self.table.take_vacant().or_else(fresh)
    }

    /// As [`TraceFile::claim_index`], whatever is left.
    pub(crate) fn claim_any_index(&self) -> Option<u32> {
        self.claim_index(0)
    }

    /// Tells readers that the file has this chunk.
    pub(crate) fn note_handed_out(&self, index: u32) {
        self.header_u32(file_offset::CHUNKS_ALLOCATED).fetch_max(index + 1, Ordering::Relaxed);
    }

    /// Hands out a fresh chunk for a thread, as long as there are more than compaction needs.
    pub fn allocate_chunk(&self, thread_id: u32, monotonic_ns: u64) -> Result<Chunk, ChunkError> {
        let index = self.claim_index(self.reserved_chunk_count()).ok_or(ChunkError::SizeLimit)?;
        self.open_chunk(index, thread_id, monotonic_ns)
    }

    /// Hands out a fresh chunk for a thread from those kept back for compaction, when it cannot help any more.
    pub fn allocate_last_chunk(&self, thread_id: u32, monotonic_ns: u64) -> Result<Chunk, ChunkError> {
        let index = self.claim_any_index().ok_or(ChunkError::SizeLimit)?;
        self.open_chunk(index, thread_id, monotonic_ns)
    }

    fn open_chunk(&self, index: u32, thread_id: u32, monotonic_ns: u64) -> Result<Chunk, ChunkError> {
        let offset = layout::chunk_file_offset(index);
        let descriptor = self.open().map_err(ChunkError::System)?;
        descriptor.reserve(offset, CHUNK_BYTES).map_err(ChunkError::System)?;
        self.reserved_chunks.fetch_max(index + 1, Ordering::Relaxed);
        let base = if self.is_buffered() { map_anonymous(CHUNK_BYTES) } else { descriptor.map(offset, CHUNK_BYTES) };
        let base = base.map_err(ChunkError::System)?;
        // SAFETY: the mapping is one chunk; all offsets lie inside its header.
        unsafe {
            store(base, chunk_offset::INDEX, &index.to_le_bytes());
            store(base, chunk_offset::STATE, &(ChunkState::Open as u32).to_le_bytes());
            store(base, chunk_offset::BASE_MONOTONIC_NS, &monotonic_ns.to_le_bytes());
            store(base, chunk_offset::THREAD_ID, &thread_id.to_le_bytes());
            store(base, chunk_offset::MAGIC, &layout::CHUNK_MAGIC);
        }
        self.table.opened(index, monotonic_ns);
        self.note_handed_out(index);
        let request = self.request_word();
        Ok(Chunk { base, request, used_bytes: CHUNK_HEADER_BYTES, state: CodecState::new(monotonic_ns, thread_id) })
    }

    /// Ends a chunk: checksum, state, unmap.
    pub fn seal_chunk(&self, chunk: Chunk) {
        let committed_bytes = chunk.used_bytes - CHUNK_HEADER_BYTES;
        // SAFETY: the chunk owns its mapping of CHUNK_BYTES and nobody writes to it any more.
        unsafe {
            let payload = std::slice::from_raw_parts(chunk.base.add(CHUNK_HEADER_BYTES), committed_bytes);
            store(chunk.base, chunk_offset::CHECKSUM, &xxh3_64(payload).to_le_bytes());
            chunk.live_u32(chunk_offset::STATE).store(ChunkState::Sealed as u32, Ordering::Release);
        }
        self.flush_or_count(&chunk.view());
        let index = chunk.live_u32(chunk_offset::INDEX).load(Ordering::Relaxed);
        self.table.sealed(index, chunk.last_monotonic_ns());
        // SAFETY: the mapping is ours and no longer used.
        unsafe { libc::munmap(chunk.base.cast(), CHUNK_BYTES) };
    }

    /// In buffered mode, brings the records of a chunk into the file.
    pub fn flush_chunk(&self, chunk: &Chunk) -> Result<(), i32> {
        self.flush_view(&chunk.view())
    }

    /// Like [`TraceFile::flush_chunk`], for a chunk that another thread may be writing to. It must
    /// still be mapped.
    pub fn flush_view(&self, view: &ChunkView) -> Result<(), i32> {
        if !self.is_buffered() {
            return Ok(());
        }
        let descriptor = self.open()?;
        let used_bytes =
            CHUNK_HEADER_BYTES + view.live_u32(chunk_offset::COMMITTED_BYTES).load(Ordering::Acquire) as usize;
        // SAFETY: the chunk is mapped; what is committed does not change any more, and a header that
        // is torn here is written again later.
        let bytes = unsafe { std::slice::from_raw_parts(view.base, used_bytes.min(CHUNK_BYTES)) };
        let index = view.live_u32(chunk_offset::INDEX).load(Ordering::Relaxed);
        descriptor.write_at(bytes, layout::chunk_file_offset(index))?;
        self.write_header_if_buffered(&descriptor)?;
        let flushed_bytes = (used_bytes - CHUNK_HEADER_BYTES) as u32;
        view.live_u32(chunk_offset::FLUSHED_BYTES).store(flushed_bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Like [`TraceFile::flush_view`], for the last time: what does not reach the file now is counted as lost.
    pub fn flush_or_count(&self, view: &ChunkView) {
        let Err(errno) = self.flush_view(view) else { return };
        let reason = match errno {
            libc::ENOSPC | libc::EDQUOT => LossReason::DiskFull,
            _ => LossReason::TraceUnavailable,
        };
        self.count_loss(reason, view.unflushed_records());
    }
}

/// Copies a chunk as far as it is written; one that is not used is left out.
fn copy_chunk(from: &Descriptor, index: u32, to: &Descriptor, target: u32) -> Result<(), i32> {
    let mut header = [0; CHUNK_HEADER_BYTES];
    let is_there = from.read_at(&mut header, layout::chunk_file_offset(index)).is_ok();
    if !is_there || header[chunk_offset::MAGIC..][..4] != layout::CHUNK_MAGIC {
        return Ok(());
    }
    let committed_bytes = u32_at(&header, chunk_offset::COMMITTED_BYTES) as usize;
    let mut payload = vec![0; committed_bytes.min(CHUNK_BYTES - CHUNK_HEADER_BYTES)];
    from.read_at(&mut payload, layout::chunk_file_offset(index) + CHUNK_HEADER_BYTES as u64)?;
    write_copy(to, target, &header, &payload)
}

/// Writes a chunk under another number.
fn write_copy(to: &Descriptor, target: u32, header: &[u8], payload: &[u8]) -> Result<(), i32> {
    let offset = layout::chunk_file_offset(target);
    to.reserve(offset, CHUNK_BYTES)?;
    to.write_at(payload, offset + CHUNK_HEADER_BYTES as u64)?;
    let (front, back) = header.split_at(chunk_offset::STATE);
    to.write_at(back, offset + chunk_offset::STATE as u64)?;
    to.write_at(&target.to_le_bytes(), offset + chunk_offset::INDEX as u64)?;
    to.write_at(&front[..chunk_offset::INDEX], offset)
}

/// The window a thread writes its records into.
///
/// There is no `Drop`: a chunk that is forgotten stays open in the file and is read up to its last
/// committed record, which is just what must happen when its thread disappears.
pub struct Chunk {
    base: *mut u8,
    /// The word of the header page that says whether somebody asks for something.
    request: *const AtomicU32,
    used_bytes: usize,
    state: CodecState,
}

// SAFETY: a chunk owns its mapping; whoever owns the chunk may write to it.
unsafe impl Send for Chunk {}

/// A chunk as other threads may see it, while it is mapped.
pub struct ChunkView {
    base: *mut u8,
}

impl ChunkView {
    fn live_u32(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: the chunk is mapped, the offset is aligned and inside the header.
        unsafe { &*self.base.add(offset).cast::<AtomicU32>() }
    }

    fn committed_bytes(&self) -> usize {
        self.live_u32(chunk_offset::COMMITTED_BYTES).load(Ordering::Acquire) as usize
    }

    /// Position of the chunk in its file.
    pub fn index(&self) -> u32 {
        self.live_u32(chunk_offset::INDEX).load(Ordering::Relaxed)
    }

    /// Records that have not reached the file, in buffered mode.
    fn unflushed_records(&self) -> u64 {
        let committed_bytes = self.committed_bytes().min(CHUNK_BYTES - CHUNK_HEADER_BYTES);
        let flushed_bytes = self.live_u32(chunk_offset::FLUSHED_BYTES).load(Ordering::Relaxed) as usize;
        let flushed_bytes = flushed_bytes.min(committed_bytes);
        // SAFETY: the chunk is mapped, and what is committed does not change any more.
        let payload = unsafe { std::slice::from_raw_parts(self.base.add(CHUNK_HEADER_BYTES), committed_bytes) };
        codec::count_records(&payload[flushed_bytes..])
    }
}

impl Chunk {
    fn live_u32(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: the mapping is owned, the offset is aligned and inside the header.
        unsafe { &*self.base.add(offset).cast::<AtomicU32>() }
    }

    /// The chunk as other threads may see it.
    pub fn view(&self) -> ChunkView {
        ChunkView { base: self.base }
    }

    /// Gives up the memory of a chunk whose records are elsewhere, or another process's.
    pub fn unmap(self) {
        // SAFETY: the mapping is ours and no longer used.
        unsafe { libc::munmap(self.base.cast(), CHUNK_BYTES) };
    }

    /// The thread whose records are being written.
    pub fn thread_id(&self) -> u32 {
        self.state.thread_id
    }

    /// Time of the last record.
    pub fn last_monotonic_ns(&self) -> u64 {
        self.state.monotonic_ns
    }

    /// Whether somebody outside asks for something. Read with every record: it costs a load and a comparison.
    #[inline(always)]
    pub fn is_request_waiting(&self) -> bool {
        // SAFETY: a static, or in the header page, which stays mapped for the life of the process.
        unsafe { &*self.request }.load(Ordering::Relaxed) != 0
    }

    /// Appends a record and commits it. Returns false, and does nothing, if it does not fit.
    #[inline(always)]
    pub fn append(&mut self, monotonic_ns: u64, native_stack: StackId, python_stack: StackId, fact: &Fact<'_>) -> bool {
        if CHUNK_BYTES - self.used_bytes < codec::largest_encoded_bytes(fact) {
            return false;
        }
        // SAFETY: the room was checked; `used_bytes` never exceeds the mapping.
        let taken_bytes = unsafe {
            let destination = self.base.add(self.used_bytes);
            codec::encode(&mut self.state, monotonic_ns, native_stack, python_stack, fact, destination)
        };
        self.used_bytes += taken_bytes;
        self.live_u32(chunk_offset::COMMITTED_BYTES)
            .store((self.used_bytes - CHUNK_HEADER_BYTES) as u32, Ordering::Release);
        true
    }
}
