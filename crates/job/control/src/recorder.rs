//! The caller's side of the door.

use std::ffi::{CStr, c_void};
use std::fmt;
use std::path::PathBuf;

use msmemscope_event::{
    AutogradPhase, Device, Framework, LoopKind, LossReason, Pool, PythonCallPhase, RecordingState, Severity,
};

use crate::table::{
    AccessFact, AllocationFact, BlockObserver, CollectionPlan, ControlTable, ENTRY_SYMBOL, EntryFunction,
    LaunchObserver, OperatorObserver, PoolRefusalFact, Region, SnapshotFact, TABLE_VERSION, WatchFact,
};

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

    /// The raw functions, for tests of the table itself.
    pub fn table(&self) -> &'static ControlTable {
        self.table
    }
}

/// Makes a safe method of every function of the table. They are all callable at any time from any thread, and read what
/// they are lent only during the call, so that references are all it takes.
macro_rules! methods {
    ($(
        $(#[$documentation:meta])*
        fn $name:ident($($argument:ident: $kind:ty),*) $(-> $result:ty)?
            = $function:ident($($passed:expr),*) $(=> $finish:expr)?;
    )+) => {
        impl Recorder {
            $(
                $(#[$documentation])*
                #[inline]
                pub fn $name(self, $($argument: $kind),*) $(-> $result)? {
                    // SAFETY: the table is that of a loaded recorder, and what is lent outlives the call.
                    $(($finish))?(unsafe { (self.table.$function)($($passed),*) })
                }
            )+
        }
    };
}

methods! {
    /// What the recorder does now.
    fn state() -> RecordingState = state() => |code| RecordingState::from_code(u64::from(code));
    /// Starts, pauses or stops; the errno on failure.
    fn set_state(state: RecordingState) -> Result<(), i32> = set_state(state as u32) => errno_result;
    /// Hands over new settings.
    fn configure(settings: &str) -> Result<(), i32> = configure(Region::of(settings.as_bytes())) => errno_result;
    /// Brings buffered records into the file.
    fn flush() -> Result<(), i32> = flush() => errno_result;
    /// Losses counted so far.
    fn loss_count(reason: LossReason) -> u64 = loss_count(reason as u32);
    /// The id of a text, zero if no more texts can be held.
    fn intern(text: &[u8]) -> u32 = intern(Region::of(text));
    /// The calling thread's current device.
    fn current_device() -> Device = current_device() => Device::from_code;
    /// Whether there is a recording of this process yet.
    fn has_process_directory() -> bool = process_directory(std::ptr::null_mut(), 0) => |length| length != 0;

    /// The user ended a step; gives its number, zero while not recording.
    fn step() -> u64 = step();
    /// A point marked by the user.
    fn mark(message: &[u8]) = mark(Region::of(message));
    /// An operator began. The device is a code, because this is a hot path.
    fn begin_operator(framework: Framework, device_code: u32, name: u32)
        = operator(1, framework as u32, device_code, name, 0);
    /// It ended.
    fn end_operator(framework: Framework, device_code: u32, name: u32)
        = operator(0, framework as u32, device_code, name, 0);
    /// An operator touched memory.
    fn access(fact: &AccessFact) = access(fact);
    /// A phase of training started.
    fn autograd(phase: AutogradPhase, device: Device) = autograd(phase as u32, device.code());
    /// A loop of the job went around.
    fn loop_turn(kind: LoopKind, loop_id: u64) = loop_turn(kind as u32, loop_id);
    /// The thread calls a module, or returns from it.
    fn module(begins: bool, name: u32) = module(u32::from(begins), name);
    /// Who keeps the live block at an address alive: an interned path of references.
    fn holder(address: u64, path: u32) = holder(address, path);
    /// Memory the recorder cannot see by itself came into being.
    fn allocation(fact: &AllocationFact) = allocation(fact);
    /// Such memory ended. The address is only noted.
    fn free(pool: Pool, device: Device, address: u64) = free(pool as u32, device.code(), address);
    /// The thread entered a labelled region.
    fn label_push(level: u32, label: u32) = label_push(level, label);
    /// The thread left it.
    fn label_pop(level: u32, label: u32) = label_pop(level, label);
    /// The live block at this address got a label.
    fn label_address(address: u64, level: u32, label: u32) = label_address(address, level, label);
    /// Counters of a framework; recorded in every state.
    fn snapshot(fact: &SnapshotFact) = snapshot(fact);
    /// A Python call began or ended; the name is that of a C function or of a region of the user.
    fn python_call(phase: PythonCallPhase, name: u32) = python_call(phase as u32, std::ptr::null(), name);
    /// A message for the recording's log.
    fn message(severity: Severity, text: &[u8]) = message(severity as u32, Region::of(text));
    /// Redirects the import tables of all loaded libraries to the hooks; gives the number of slots changed.
    fn patch_imports() -> u64 = patch_imports();
    /// Which sources have reported something in this process.
    fn sources() -> u32 = sources();
    /// Pools of frameworks that this process uses and the recorder cannot see: `POOL=reason` each on a line.
    fn unseen_pools(text: &[u8]) = unseen_pools(Region::of(text));
    /// How many marks and ranges the calling thread has sent through the tools interface.
    fn message_count() -> u64 = message_count();
    /// A mark that a framework keeps from the tools interface.
    fn relay_mark(domain: &[u8], message: &[u8]) = relay_mark(Region::of(domain), Region::of(message));
    /// A range that a framework keeps from the tools interface; gives its id, zero if it is not recorded.
    fn relay_range_start(domain: &[u8], message: &[u8]) -> u64
        = relay_range_start(Region::of(domain), Region::of(message));
    /// The end of such a range.
    fn relay_range_end(domain: &[u8], range_id: u64) = relay_range_end(Region::of(domain), range_id);
    /// The place of this process in its job: its rank, and of how many.
    fn place(rank: u32, world_size: u32) = place(rank, world_size);
    /// A guest tells people from now on when a framework has run out of memory.
    fn leave_failures_to_guest() = failures_are_told();
    /// A request from outside that was left to a guest is met: zero, or an errno.
    fn answer_request(number: u32, result: i32) = answer_request(number, result);
    /// The pool of a framework has refused memory without asking the driver; zero bytes if nobody says how many.
    fn pool_refused(pool: Pool, device: Device, size_bytes: u64, is_limited: bool)
        = pool_refused(pool as u32, device.code(), size_bytes, u32::from(is_limited));
    /// The pool of a framework has given up.
    fn pool_gave_up(fact: &PoolRefusalFact) = pool_gave_up(fact);
    /// The job has limited PyTorch's pool on a device to a part of the card's memory.
    fn memory_fraction(device: Device, fraction: f64) = memory_fraction(device.code(), fraction);
}

impl Recorder {
    /// Which kinds of events are wanted now.
    pub fn plan(self) -> CollectionPlan {
        let mut plan = CollectionPlan::default();
        // SAFETY: the plan outlives the call.
        unsafe { (self.table.plan)(&mut plan) };
        plan
    }

    /// A watched block was looked at. `detail` takes the place of the fact's own.
    pub fn watch(self, fact: WatchFact, detail: &[u8]) {
        let fact = WatchFact { detail: Region::of(detail), ..fact };
        // SAFETY: the fact and its detail outlive the call.
        unsafe { (self.table.watch)(&fact) };
    }

    /// The settings in force, in the form in which they are handed over.
    pub fn settings_text(self) -> String {
        // SAFETY: nothing is copied without room.
        let length = unsafe { (self.table.settings_text)(std::ptr::null_mut(), 0) };
        let mut buffer = vec![0; length];
        // SAFETY: the buffer is writable for its length.
        let now = unsafe { (self.table.settings_text)(buffer.as_mut_ptr(), buffer.len()) };
        // They may have changed in between: the next look has them.
        if now > length { String::new() } else { String::from_utf8_lossy(&buffer[..now]).into_owned() }
    }

    /// Directory of this process's recording, if there is one yet.
    pub fn process_directory(self) -> Option<PathBuf> {
        use std::os::unix::ffi::OsStringExt;
        let mut buffer = vec![0; libc::PATH_MAX as usize];
        // SAFETY: the buffer is writable for its length.
        let length = unsafe { (self.table.process_directory)(buffer.as_mut_ptr(), buffer.len()) };
        (1..=buffer.len()).contains(&length).then(|| {
            buffer.truncate(length);
            PathBuf::from(std::ffi::OsString::from_vec(buffer))
        })
    }

    /// Redirects one imported function of all loaded libraries to another; gives the number of slots changed.
    ///
    /// # Safety
    /// The replacement must have the signature of the original and stay loaded.
    pub unsafe fn redirect_import(self, name: &CStr, replacement: *const c_void) -> u64 {
        // SAFETY: promised by the caller; the name outlives the call.
        unsafe { (self.table.redirect_import)(Region::of(name.to_bytes()), replacement) }
    }

    /// Tells a guest about blocks of framework pools from now on.
    ///
    /// # Safety
    /// The function must stay loaded, and do as [`BlockObserver`] says.
    pub unsafe fn observe_blocks(self, observer: BlockObserver) {
        // SAFETY: promised by the caller.
        unsafe { (self.table.observe_blocks)(Some(observer)) };
    }

    /// Calls a guest around every launch of a kernel from now on, or no longer.
    ///
    /// # Safety
    /// The function must stay loaded, and do as [`LaunchObserver`] says.
    pub unsafe fn observe_launches(self, observer: Option<LaunchObserver>) {
        // SAFETY: promised by the caller.
        unsafe { (self.table.observe_launches)(observer) };
    }

    /// Calls a guest around operators that libraries run by themselves from now on, or no longer.
    ///
    /// # Safety
    /// The function must stay loaded, and do as [`OperatorObserver`] says.
    pub unsafe fn observe_operators(self, observer: Option<OperatorObserver>) {
        // SAFETY: promised by the caller.
        unsafe { (self.table.observe_operators)(observer) };
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
