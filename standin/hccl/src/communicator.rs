//! One rank of a group: how it finds the others, its buffers, and its work on streams.

use crate::Failure;
use crate::collective::Collective;
use crate::rings::{MOST_RANKS, Rings};
use standin_support::number_from_environment;
use std::ffi::{CStr, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

unsafe extern "C" {
    fn rtMalloc(pointer: *mut *mut c_void, size: u64, memory_type: u32, module: u16) -> i32;
    fn rtFree(pointer: *mut c_void) -> i32;
    fn standinSubmit(stream: *mut c_void, function: unsafe extern "C" fn(*mut c_void), argument: *mut c_void) -> i32;
}

/// Bytes of `HcclRootInfo`, which one rank makes and all are given.
pub(crate) const ROOT_INFO_BYTES: usize = 4108;
/// Bytes of a communicator's name.
pub(crate) const NAME_BYTES: usize = 128;
/// The module of the driver's accounting.
const MODULE_HCCL: u16 = 3;
const HUGE_PAGES_PREFERRED: u32 = 0x400;
/// A communicator sends from one buffer and receives into the other.
const BUFFERS: usize = 2;
const DEFAULT_BUFFER_MEBIBYTES: u64 = 200;
const DEFAULT_CONNECT_SECONDS: u64 = 120;
const DEFAULT_EXECUTION_SECONDS: u64 = 1836;
/// What a buffer size is that nobody has set.
const NOT_SET: u32 = u32::MAX;

/// `HcclCommConfig`, as far as it matters here. Callers have longer ones.
#[repr(C)]
pub(crate) struct Configuration {
    reserved: [u8; 24],
    buffer_mebibytes: u32,
    deterministic: u32,
    name: [u8; NAME_BYTES],
}

/// A rank of a communicator.
pub(crate) struct Communicator {
    rings: Rings,
    name: Vec<u8>,
    /// Addresses of device memory.
    buffers: Vec<usize>,
    /// Work of several streams goes one after the other.
    work: Mutex<()>,
    /// The first failure; nothing works after it.
    failure: AtomicI32,
    patience: Duration,
}

/// A new rendezvous: the path of a file that does not exist yet, where all ranks find it.
pub(crate) fn new_root_info() -> Vec<u8> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let directory = std::env::var_os("STANDIN_RUN_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    let now_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos());
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let path = directory.join(format!("hccl-{}-{now_ns:x}-{count}", std::process::id()));
    path.as_os_str().as_bytes().iter().copied().take(ROOT_INFO_BYTES - 1).collect()
}

impl Communicator {
    /// Joins a communicator and takes its buffers.
    pub(crate) fn join(
        ranks: u32,
        root_info: &[u8],
        rank: u32,
        configuration: Option<&Configuration>,
    ) -> Result<Self, Failure> {
        let path = root_info.split(|&byte| byte == 0).next().unwrap_or_default();
        if ranks == 0 || ranks > MOST_RANKS || rank >= ranks || path.is_empty() {
            return Err(Failure::Parameter);
        }
        let seconds = |name, default| Duration::from_secs(number_from_environment(name, default));
        let path = PathBuf::from(OsStr::from_bytes(path));
        let default_name = path.file_name().map(|name| name.as_bytes().to_vec()).unwrap_or_default();
        let rings = Rings::join(&path, ranks, rank, seconds("HCCL_CONNECT_TIMEOUT", DEFAULT_CONNECT_SECONDS))?;
        let mebibytes =
            configuration.map(|configuration| configuration.buffer_mebibytes).filter(|&size| size != NOT_SET);
        let mebibytes =
            mebibytes.map_or_else(|| number_from_environment("HCCL_BUFFSIZE", DEFAULT_BUFFER_MEBIBYTES), u64::from);
        let name = configuration.map(|configuration| until_zero(&configuration.name)).filter(|name| !name.is_empty());
        let mut communicator = Self {
            rings,
            name: name.unwrap_or(default_name),
            buffers: Vec::new(),
            work: Mutex::new(()),
            failure: AtomicI32::new(0),
            patience: seconds("HCCL_EXEC_TIMEOUT", DEFAULT_EXECUTION_SECONDS),
        };
        for _ in 0..BUFFERS {
            let mut buffer = std::ptr::null_mut();
            // SAFETY: fills a pointer of ours.
            if unsafe { rtMalloc(&raw mut buffer, mebibytes << 20, HUGE_PAGES_PREFERRED, MODULE_HCCL) } != 0 {
                return Err(Failure::Runtime);
            }
            communicator.buffers.push(buffer as usize);
        }
        Ok(communicator)
    }

    pub(crate) fn ranks(&self) -> u32 {
        self.rings.ranks()
    }

    pub(crate) fn own_rank(&self) -> u32 {
        self.rings.own_rank()
    }

    pub(crate) fn name(&self) -> &[u8] {
        &self.name
    }

    /// The first failure of an operation, by HCCL's numbers; zero if there was none.
    pub(crate) fn failure(&self) -> i32 {
        self.failure.load(Ordering::Acquire)
    }

    /// Gives an operation to a stream.
    pub(crate) fn submit(self: &Arc<Self>, stream: *mut c_void, operation: Operation) -> Result<(), Failure> {
        let work = Box::new(Work { communicator: Arc::clone(self), operation });
        let argument = Box::into_raw(work).cast();
        // SAFETY: `run` takes the work over, unless it is not accepted.
        unsafe {
            if standinSubmit(stream, run, argument) == 0 {
                return Ok(());
            }
            drop(Box::from_raw(argument.cast::<Work>()));
        }
        Err(Failure::Runtime)
    }

    fn perform(&self, operation: Operation) {
        let _turn = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        if self.failure() != 0 {
            return;
        }
        let collective = Collective { rings: &self.rings, patience: self.patience };
        if let Err(failure) = operation(&collective) {
            self.failure.store(failure as i32, Ordering::Release);
            let text = Failure::text(failure as i32).to_string_lossy();
            eprintln!("stand-in device: a collective operation of rank {} failed: {text}", self.own_rank());
        }
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        for &buffer in &self.buffers {
            // SAFETY: allocated when the communicator was made; the driver checks the address.
            unsafe { rtFree(buffer as *mut c_void) };
        }
    }
}

/// What a communicator does when its turn on the stream comes.
pub(crate) type Operation = Box<dyn FnOnce(&Collective<'_>) -> Result<(), Failure> + Send>;

/// An operation on its way to the worker of a stream.
struct Work {
    communicator: Arc<Communicator>,
    operation: Operation,
}

/// Runs on the worker of the stream.
unsafe extern "C" fn run(work: *mut c_void) {
    // SAFETY: `submit` gave up the work.
    let Work { communicator, operation } = *unsafe { Box::from_raw(work.cast::<Work>()) };
    communicator.perform(operation);
}

/// The bytes of a text of the caller.
fn until_zero(bytes: &[u8]) -> Vec<u8> {
    bytes.split(|&byte| byte == 0).next().unwrap_or_default().to_vec()
}

/// Writes a terminated text into memory of the caller.
///
/// # Safety
/// `target` has room for `room` bytes.
pub(crate) unsafe fn write_text(target: *mut c_char, text: &[u8], room: usize) {
    let text: Vec<u8> = text.iter().copied().take(room - 1).chain([0]).collect();
    // SAFETY: shorter than the room that the caller has.
    unsafe { target.copy_from_nonoverlapping(text.as_ptr().cast(), text.len()) };
}

/// The text of an error, for callers in C.
pub(crate) fn error_text(number: i32) -> *const c_char {
    let text: &'static CStr = Failure::text(number);
    text.as_ptr()
}
