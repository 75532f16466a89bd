//! What every process holds of every card. When `STANDIN_RUN_DIR` names a directory the table is a file there,
//! shared by all processes of a run; otherwise it belongs to this process alone.
//!
//! A process only ever changes its own row, so a kill leaves nothing half done: the row of a dead process is
//! emptied by whoever next needs the truth. Two processes that race for the last bytes of a card may both be
//! refused; neither can exceed the card.

use standin_support::{number_from_environment, size_from_environment};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Most cards one machine can have.
pub const DEVICE_LIMIT: usize = 32;
const PROCESS_LIMIT: usize = 512;
const DEFAULT_DEVICES: u64 = 8;
const DEFAULT_MEMORY_BYTES: u64 = 64 << 30;

/// A process and what it holds. All zero when free.
#[repr(C)]
struct Row {
    process: AtomicU32,
    reserved: AtomicU32,
    start_ticks: AtomicU64,
    used_bytes: [AtomicU64; DEVICE_LIMIT],
}

/// The table of all processes, in shared memory.
#[repr(C)]
struct Table {
    rows_in_use: AtomicU64,
    rows: [Row; PROCESS_LIMIT],
}

/// The cards of this machine as this process sees them.
pub struct Cards {
    table: &'static Table,
    row: &'static Row,
    device_count: u32,
    memory_bytes: u64,
}

impl Cards {
    /// Opens the table and takes a row for this process.
    pub fn open() -> Self {
        let device_count = number_from_environment("STANDIN_DEVICES", DEFAULT_DEVICES).clamp(1, DEVICE_LIMIT as u64);
        let memory_bytes = size_from_environment("STANDIN_MEMORY_BYTES", DEFAULT_MEMORY_BYTES);
        let directory = std::env::var_os("STANDIN_RUN_DIR").filter(|value| !value.is_empty());
        let shared = directory.as_ref().and_then(|directory| map_table(Some(Path::new(directory))));
        if directory.is_some() && shared.is_none() {
            eprintln!("stand-in device: STANDIN_RUN_DIR cannot be used, memory is counted per process");
        }
        let table = shared.or_else(|| map_table(None)).expect("stand-in device: no memory for the card table");
        Self { table, row: take_row(table), device_count: device_count as u32, memory_bytes }
    }

    /// Number of cards.
    pub fn device_count(&self) -> u32 {
        self.device_count
    }

    /// Memory of one card.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// Counts `size` bytes of `device` for this process, unless the card has not got them.
    pub fn take(&self, device: u32, size: u64) -> bool {
        let Some(own) = self.row.used_bytes.get(device as usize) else { return false };
        if size > self.memory_bytes {
            return false;
        }
        own.fetch_add(size, Ordering::AcqRel);
        if self.sum(device) <= self.memory_bytes {
            return true;
        }
        self.forget_dead_processes();
        if self.sum(device) <= self.memory_bytes {
            return true;
        }
        own.fetch_sub(size, Ordering::AcqRel);
        false
    }

    /// Gives back what `take` counted.
    pub fn give_back(&self, device: u32, size: u64) {
        if let Some(own) = self.row.used_bytes.get(device as usize) {
            own.fetch_sub(size, Ordering::AcqRel);
        }
    }

    /// Bytes in use on `device` by all living processes.
    pub fn used_bytes(&self, device: u32) -> u64 {
        self.forget_dead_processes();
        self.sum(device)
    }

    /// Living processes that hold memory of `device`, with what they hold.
    pub fn processes(&self, device: u32) -> Vec<(u32, u64)> {
        self.forget_dead_processes();
        self.rows()
            .filter_map(|row| {
                let process = row.process.load(Ordering::Acquire);
                let used = row.used_bytes.get(device as usize)?.load(Ordering::Acquire);
                (process != 0 && used != 0).then_some((process, used))
            })
            .collect()
    }

    fn rows(&self) -> impl Iterator<Item = &'static Row> {
        let count = self.table.rows_in_use.load(Ordering::Acquire) as usize;
        self.table.rows.iter().take(count)
    }

    fn sum(&self, device: u32) -> u64 {
        self.rows().map(|row| row.used_bytes[device as usize].load(Ordering::Acquire)).sum()
    }

    fn forget_dead_processes(&self) {
        for row in self.rows() {
            let process = row.process.load(Ordering::Acquire);
            let start = row.start_ticks.load(Ordering::Acquire);
            if process == 0 || start == 0 || start_ticks(process) == Some(start) {
                continue;
            }
            for used in &row.used_bytes {
                used.store(0, Ordering::Release);
            }
            row.start_ticks.store(0, Ordering::Release);
            row.process.store(0, Ordering::Release);
        }
    }
}

fn take_row(table: &'static Table) -> &'static Row {
    let process = std::process::id();
    let (index, row) = table
        .rows
        .iter()
        .enumerate()
        .find(|(_, row)| row.process.compare_exchange(0, process, Ordering::AcqRel, Ordering::Acquire).is_ok())
        .expect("stand-in device: too many processes share the cards");
    row.start_ticks.store(start_ticks(process).unwrap_or(0), Ordering::Release);
    table.rows_in_use.fetch_max(index as u64 + 1, Ordering::AcqRel);
    row
}

/// When the process started, in clock ticks since boot; `None` when it does not exist or is a zombie.
fn start_ticks(process: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let after_name = &stat[stat.rfind(')')? + 1..];
    let mut fields = after_name.split_ascii_whitespace();
    let state = fields.next()?;
    let start = fields.nth(18)?.parse().ok()?;
    (state != "Z" && state != "X").then_some(start)
}

fn map_table(directory: Option<&Path>) -> Option<&'static Table> {
    let length = std::mem::size_of::<Table>();
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let file = match directory {
        Some(directory) => {
            let path = CString::new(directory.join("cards").as_os_str().as_bytes()).ok()?;
            // SAFETY: a plain system call with a terminated path.
            let file = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CREAT | libc::O_CLOEXEC, 0o600) };
            // SAFETY: grows the file opened above; it is never made shorter.
            if file < 0 || unsafe { libc::ftruncate(file, length as libc::off_t) } != 0 {
                return None;
            }
            file
        }
        None => -1,
    };
    let kind = if file < 0 { libc::MAP_PRIVATE | libc::MAP_ANONYMOUS } else { libc::MAP_SHARED };
    // SAFETY: a new mapping, checked below; the descriptor is closed once and not used again.
    let mapped = unsafe {
        let mapped = libc::mmap(std::ptr::null_mut(), length, access, kind, file, 0);
        if file >= 0 {
            libc::close(file);
        }
        mapped
    };
    // SAFETY: the mapping is zero-filled or holds a table of the same layout; all fields are atomics, for which
    // every bit pattern is valid; it is never unmapped.
    (mapped != libc::MAP_FAILED).then(|| unsafe { &*mapped.cast::<Table>() })
}

#[cfg(test)]
mod tests {
    use super::{Cards, map_table, start_ticks, take_row};

    fn cards(memory_bytes: u64) -> Cards {
        let table = map_table(None).expect("memory");
        Cards { table, row: take_row(table), device_count: 2, memory_bytes }
    }

    #[test]
    fn a_card_is_never_exceeded() {
        let cards = cards(100);
        assert!(cards.take(0, 60));
        assert!(!cards.take(0, 41));
        assert!(cards.take(1, 100));
        assert!(cards.take(0, 40));
        assert_eq!(cards.used_bytes(0), 100);
        cards.give_back(0, 60);
        assert_eq!(cards.used_bytes(0), 40);
        assert_eq!(cards.processes(0), [(std::process::id(), 40)]);
        assert!(!cards.take(0, u64::MAX));
        assert!(!cards.take(99, 1));
    }

    #[test]
    fn memory_of_a_dead_process_is_free_again() {
        let cards = cards(100);
        let dead = take_row(cards.table);
        dead.process.store(u32::MAX - 1, std::sync::atomic::Ordering::Release);
        dead.used_bytes[0].store(90, std::sync::atomic::Ordering::Release);
        assert!(cards.take(0, 50));
        assert_eq!(cards.used_bytes(0), 50);
    }

    #[test]
    fn start_time_tells_processes_apart() {
        assert!(start_ticks(std::process::id()).is_some_and(|ticks| ticks > 0));
        assert_eq!(start_ticks(u32::MAX - 1), None);
    }
}
