//! Files of ours, open for a moment in a process that is not ours.
//!
//! A fresh descriptor gets the lowest free number. In a job that closed its standard streams that is the number its own
//! prints go to, and they would land in our file. So while a file is opened, numbers 0 to 2 are held by something that
//! nothing can be written to, and the file moves to a high number at once, where no job expects one of its own. Only one
//! thread at a time does that: what one of them lets go of must not be what another relies on.

use core::ffi::CStr;
use core::sync::atomic::{AtomicI32, Ordering};

/// Standard streams have the numbers below.
const FIRST_ORDINARY: i32 = 3;
/// Files move up to the end of the range that every process may use, or at most here: the kernel's table has to reach
/// as far as the largest number.
const LARGEST_START: i32 = 1024;
/// This far from the end: others look for high numbers, too.
const ROOM_ABOVE: i32 = 32;

/// An open file, closed on drop.
#[derive(Debug)]
pub struct Descriptor(i32);

/// What holds the numbers of closed standard streams. Reading and writing fail as if they were closed.
struct Placeholders {
    numbers: [Option<i32>; FIRST_ORDINARY as usize],
    /// Whether this thread has its turn.
    has_turn: bool,
}

/// The process one of whose threads holds numbers now; zero if none does. That of a parent counts for nothing: a fork copies
/// no other thread.
static TURN: AtomicI32 = AtomicI32::new(0);
/// Looks at whose turn it is before one goes on without: nobody is waited for for ever.
const MOST_LOOKS: usize = 100_000;

fn last_errno() -> i32 {
    // SAFETY: always valid for the calling thread.
    unsafe { *libc::__errno_location() }
}

fn flags(number: i32) -> Option<i32> {
    // SAFETY: only asks.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFL) };
    (flags >= 0).then_some(flags)
}

impl Placeholders {
    fn new() -> Self {
        let mut placeholders = Self { numbers: [None; FIRST_ORDINARY as usize], has_turn: false };
        if (0..FIRST_ORDINARY).all(|number| flags(number).is_some_and(|flags| flags & libc::O_PATH == 0)) {
            return placeholders;
        }
        placeholders.has_turn = take_turn();
        for held in &mut placeholders.numbers {
            if (0..FIRST_ORDINARY).all(|number| flags(number).is_some()) {
                break;
            }
            // SAFETY: a path that ends with NUL. It takes the lowest free number, which is a standard stream's.
            let number = unsafe { libc::open(c"/".as_ptr(), libc::O_PATH | libc::O_CLOEXEC) };
            *held = (number >= 0).then_some(number);
        }
        placeholders
    }
}

/// Waits until no other thread of this process holds numbers. False if that takes too long.
fn take_turn() -> bool {
    // SAFETY: always succeeds.
    let process_id = unsafe { libc::getpid() };
    for _ in 0..MOST_LOOKS {
        let holder = TURN.load(Ordering::Relaxed);
        if holder != process_id
            && TURN.compare_exchange(holder, process_id, Ordering::Acquire, Ordering::Relaxed).is_ok()
        {
            return true;
        }
        // SAFETY: always succeeds.
        unsafe { libc::sched_yield() };
    }
    false
}

impl Drop for Placeholders {
    fn drop(&mut self) {
        for number in self.numbers.into_iter().flatten() {
            // The job may have put a stream of its own there meanwhile.
            if flags(number).is_some_and(|flags| flags & libc::O_PATH != 0) {
                // SAFETY: opened by us.
                unsafe { libc::close(number) };
            }
        }
        if self.has_turn {
            TURN.store(0, Ordering::Release);
        }
    }
}

/// The number from which on a free one is looked for.
fn high_start() -> i32 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid place for the answer.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    let end = i32::try_from(limit.rlim_cur).unwrap_or(LARGEST_START).min(LARGEST_START);
    (end - ROOM_ABOVE).max(FIRST_ORDINARY)
}

impl Descriptor {
    /// Opens a file, which programs started by the job do not inherit. The errno on failure. A file that is created
    /// belongs to the user alone.
    pub fn open(path: &CStr, flags: i32) -> Result<Self, i32> {
        let placeholders = Placeholders::new();
        // SAFETY: plain system call on a valid C string.
        let number = unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC, 0o600) };
        if number < 0 {
            return Err(last_errno());
        }
        // SAFETY: the descriptor is ours.
        let high = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, high_start()) };
        let opened = Self(number);
        drop(placeholders);
        // Where no high number is free, the file stays where it is.
        Ok(if high >= 0 { Self(high) } else { opened })
    }

    /// Its number.
    pub fn number(&self) -> i32 {
        self.0
    }

    /// Everything in a file, which may be one of those that do not know their size. Nothing if it cannot be read.
    pub fn read_file(path: &CStr) -> Option<Vec<u8>> {
        const PIECE_BYTES: usize = 4096;
        let file = Self::open(path, libc::O_RDONLY).ok()?;
        let mut content = Vec::new();
        loop {
            let length = content.len();
            content.resize(length + PIECE_BYTES, 0);
            // SAFETY: the room was made; the descriptor is ours.
            let read = unsafe { libc::read(file.0, content.as_mut_ptr().add(length).cast(), PIECE_BYTES) };
            content.truncate(length + usize::try_from(read).unwrap_or(0));
            match read {
                0 => return Some(content),
                -1 if last_errno() == libc::EINTR => {}
                -1 => return None,
                _ => {}
            }
        }
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: we own the descriptor.
        unsafe { libc::close(self.0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_opened_high_up_and_close_on_exec() {
        let file = Descriptor::open(c"/proc/self/exe", libc::O_RDONLY).expect("a file");
        assert!(file.number() >= high_start(), "{file:?}");
        // SAFETY: only asks.
        assert_eq!(unsafe { libc::fcntl(file.number(), libc::F_GETFD) }, libc::FD_CLOEXEC);
        assert_eq!(Descriptor::open(c"/no/such/file", libc::O_RDONLY).err(), Some(libc::ENOENT));
    }

    #[test]
    fn whole_files_are_read() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("file");
        let content: Vec<u8> = (0..10_000u32).map(|number| number as u8).collect();
        std::fs::write(&path, &content).expect("a file");
        let path = std::ffi::CString::new(path.to_str().expect("text")).expect("a path");
        assert_eq!(Descriptor::read_file(&path), Some(content));
        assert!(Descriptor::read_file(c"/proc/self/cmdline").is_some_and(|arguments| !arguments.is_empty()));
        assert_eq!(Descriptor::read_file(c"/proc"), None);
    }

    /// In a process of its own: the streams of a test are not to be closed.
    #[test]
    fn closed_streams_stay_closed_for_others() {
        // SAFETY: the child makes system calls only, and ends.
        let status = unsafe {
            let child = libc::fork();
            if child == 0 {
                (0..FIRST_ORDINARY).for_each(|number| drop(Descriptor(number)));
                let placeholders = Placeholders::new();
                let held = (0..FIRST_ORDINARY).all(|number| flags(number).is_some());
                let refused = libc::write(1, c"x".as_ptr().cast(), 1) == -1 && last_errno() == libc::EBADF;
                // The job opens its standard output meanwhile.
                let log = libc::open(c"/dev/null".as_ptr(), libc::O_WRONLY);
                libc::dup2(log, 1);
                drop(placeholders);
                let left = [flags(0).is_none(), flags(1).is_some(), flags(2).is_none()];
                let file = Descriptor::open(c"/proc/self/exe", libc::O_RDONLY);
                let is_fine = held && refused && left == [true; 3] && file.is_ok_and(|file| file.0 >= FIRST_ORDINARY);
                libc::_exit(i32::from(!is_fine));
            }
            let mut status = -1;
            libc::waitpid(child, &mut status, 0);
            status
        };
        assert_eq!(status, 0);
    }
}
