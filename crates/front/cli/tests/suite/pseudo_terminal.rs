//! A terminal of our own, to see what people see and to press their keys.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// A program that believes somebody sits in front of it.
pub struct Session {
    master: File,
    child: Child,
    seen: String,
}

impl Session {
    /// Starts a program as the leader of a session on a new terminal of 80 columns.
    pub fn start(mut command: Command) -> Self {
        // No child may inherit the side of the one who sits in front of it: it would stay open with that child.
        let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
        let size = libc::winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: all pointers are valid; the descriptors were just opened and belong to nobody else.
        let (master, slave) = unsafe {
            let master = libc::posix_openpt(flags);
            let mut name = [0; 64];
            assert!(libc::grantpt(master) == 0 && libc::unlockpt(master) == 0, "a pseudo terminal");
            assert_eq!(libc::ptsname_r(master, name.as_mut_ptr(), name.len()), 0, "its name");
            libc::ioctl(master, libc::TIOCSWINSZ, &size);
            let slave = libc::open(name.as_ptr(), flags);
            assert!(slave >= 0, "its other side");
            (OwnedFd::from_raw_fd(master), OwnedFd::from_raw_fd(slave))
        };
        let end = || Stdio::from(slave.try_clone().expect("a descriptor"));
        command.stdin(end()).stdout(end()).stderr(end()).env("TERM", "xterm");
        // SAFETY: only async-signal-safe system calls.
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                libc::ioctl(0, libc::TIOCSCTTY, 0);
                Ok(())
            });
        }
        let child = command.spawn().expect("the program starts");
        Self { master: File::from(master), child, seen: String::new() }
    }

    /// Presses keys.
    pub fn press(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).expect("the terminal takes keys");
    }

    /// Waits until a text appears after everything waited for before; gives all text up to its end.
    #[track_caller]
    pub fn expect(&mut self, text: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(position) = self.seen.find(text) {
                let rest = self.seen.split_off(position + text.len());
                return std::mem::replace(&mut self.seen, rest);
            }
            assert!(Instant::now() < deadline, "'{text}' did not appear after: {}", self.seen);
            assert!(self.read_more(), "'{text}' did not appear before the end: {}", self.seen);
        }
    }

    /// Waits for the end; gives the rest of the text.
    pub fn finish(mut self) -> (ExitStatus, String) {
        let deadline = Instant::now() + PATIENCE;
        while self.read_more() {
            assert!(Instant::now() < deadline, "no end after: {}", self.seen);
        }
        (self.child.wait().expect("an end"), self.seen)
    }

    /// Closes the terminal, as somebody does who closes the window, and waits for the end.
    pub fn hang_up(mut self) -> ExitStatus {
        drop(std::mem::replace(&mut self.master, File::open("/dev/null").expect("a descriptor")));
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("a state") {
                return status;
            }
            if Instant::now() > deadline {
                self.child.kill().expect("killed");
                panic!("still running although its terminal is gone");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Reads what is there, waiting a little. False when the terminal is closed.
    fn read_more(&mut self) -> bool {
        let mut poll = libc::pollfd { fd: self.master.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid entry.
        if unsafe { libc::poll(&mut poll, 1, 200) } == 0 {
            return true;
        }
        let mut bytes = [0; 4096];
        match self.master.read(&mut bytes) {
            Ok(0) | Err(_) => false,
            Ok(length) => {
                self.seen.push_str(&String::from_utf8_lossy(&bytes[..length]));
                true
            }
        }
    }
}
