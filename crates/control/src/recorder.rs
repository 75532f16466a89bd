//! The caller's side of the door.

use std::fmt;
use std::path::PathBuf;

use msmemscope_event::{LossReason, RecordingState};

use crate::table::{ControlTable, ENTRY_SYMBOL, EntryFunction, Region, TABLE_VERSION};

/// Why a recorder that is there cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectError {
    /// No recorder is loaded in this process.
    Absent,
    /// Its table has another version or is too small.
    Mismatch {
        /// Version text of the loaded recorder.
        recorder_version: String,
    },
}

impl fmt::Display for ConnectError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectError::Absent => formatter.write_str("no recorder is loaded in this process"),
            ConnectError::Mismatch { recorder_version } => write!(
                formatter,
                "the loaded recorder has version {recorder_version}, this program needs {}; install both together",
                env!("CARGO_PKG_VERSION")
            ),
        }
    }
}

impl std::error::Error for ConnectError {}

/// A recorder loaded in this process.
#[derive(Clone, Copy)]
pub struct Recorder {
    table: &'static ControlTable,
}

impl Recorder {
    /// The recorder in the global scope of this process: preloaded, or loaded with RTLD_GLOBAL.
    pub fn find() -> Result<Self, ConnectError> {
        // SAFETY: a plain lookup by name.
        let entry = unsafe { libc::dlsym(libc::RTLD_DEFAULT, ENTRY_SYMBOL.as_ptr()) };
        if entry.is_null() {
            return Err(ConnectError::Absent);
        }
        // SAFETY: only our recorder exports this name, with this type.
        let entry: EntryFunction = unsafe { std::mem::transmute(entry) };
        // SAFETY: the recorder's entry function has no preconditions; its table lives as long as the process.
        unsafe { Self::from_table(entry()) }
    }

    /// Checks a table.
    ///
    /// # Safety
    /// `table` must be null or point to the table of a recorder, valid for the life of the process.
    pub unsafe fn from_table(table: *const ControlTable) -> Result<Self, ConnectError> {
        if table.is_null() {
            return Err(ConnectError::Absent);
        }
        // SAFETY: size, version and version text are at the front of every table there ever was.
        let (size_bytes, version, text) = unsafe { ((*table).size_bytes, (*table).version, (*table).recorder_version) };
        if version != TABLE_VERSION || (size_bytes as usize) < size_of::<ControlTable>() {
            // SAFETY: the text is static.
            let recorder_version = String::from_utf8_lossy(unsafe { text.bytes() }).into_owned();
            return Err(ConnectError::Mismatch { recorder_version });
        }
        // SAFETY: promised by the caller, and large enough.
        Ok(Self { table: unsafe { &*table } })
    }

    /// The raw functions, for callers on a hot path.
    pub fn table(&self) -> &'static ControlTable {
        self.table
    }

    /// What the recorder does now.
    pub fn state(&self) -> RecordingState {
        // SAFETY: no preconditions.
        RecordingState::from_code(u64::from(unsafe { (self.table.state)() }))
    }

    /// Starts, pauses or stops; the errno on failure.
    pub fn set_state(&self, state: RecordingState) -> Result<(), i32> {
        // SAFETY: no preconditions.
        errno_result(unsafe { (self.table.set_state)(state as u32) })
    }

    /// Hands over new settings.
    pub fn configure(&self, settings: &str) -> Result<(), i32> {
        // SAFETY: the region is valid during the call.
        errno_result(unsafe { (self.table.configure)(Region::of(settings.as_bytes())) })
    }

    /// The id of a text, zero if no more texts can be held.
    pub fn intern(&self, text: &[u8]) -> u32 {
        // SAFETY: the region is valid during the call.
        unsafe { (self.table.intern)(Region::of(text)) }
    }

    /// Directory of this process's recording, if there is one yet.
    pub fn process_directory(&self) -> Option<PathBuf> {
        use std::os::unix::ffi::OsStringExt;
        let mut buffer = vec![0; libc::PATH_MAX as usize];
        // SAFETY: the buffer is writable for its length.
        let length = unsafe { (self.table.process_directory)(buffer.as_mut_ptr(), buffer.len()) };
        (1..=buffer.len()).contains(&length).then(|| {
            buffer.truncate(length);
            PathBuf::from(std::ffi::OsString::from_vec(buffer))
        })
    }

    /// Losses counted so far.
    pub fn loss_count(&self, reason: LossReason) -> u64 {
        // SAFETY: no preconditions.
        unsafe { (self.table.loss_count)(reason as u32) }
    }
}

fn errno_result(errno: i32) -> Result<(), i32> {
    if errno == 0 { Ok(()) } else { Err(errno) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_recorder_the_door_is_absent() {
        assert_eq!(Recorder::find().err(), Some(ConnectError::Absent));
        // SAFETY: null is allowed.
        assert_eq!(unsafe { Recorder::from_table(std::ptr::null()) }.err(), Some(ConnectError::Absent));
    }

    #[test]
    fn another_version_is_refused_with_one_line() {
        #[repr(C)]
        struct Front {
            size_bytes: u32,
            version: u32,
            text: Region,
        }
        for (size_bytes, version) in [(24, TABLE_VERSION), (4096, TABLE_VERSION + 1)] {
            let front = Front { size_bytes, version, text: Region::of(b"9.9") };
            // SAFETY: only the front is read before the check fails.
            let error = unsafe { Recorder::from_table((&raw const front).cast()) }.err().expect("refused");
            assert_eq!(error, ConnectError::Mismatch { recorder_version: "9.9".to_owned() });
            assert!(error.to_string().contains("version 9.9"), "{error}");
        }
    }
}
