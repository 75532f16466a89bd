//! The recorder of this process and the settings it works with.

use std::ffi::CString;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use msmemscope_config::{
    AnalysisSet, CollectMode, EventSet, LevelSet, RECORDING_VARIABLE, Recording, Settings, SettingsChange, Variant,
    Watch, apply_python_config, python_keys, takes_list,
};
use msmemscope_control::{ConnectError, Recorder, SOURCE_RUNTIME};
use msmemscope_event::{Device, LossReason, RecordingState};
use pyo3::prelude::*;

use crate::exceptions::{ConfigError, RecorderError};

static RECORDER: OnceLock<Recorder> = OnceLock::new();
static SESSION: Mutex<Option<Session>> = Mutex::new(None);
/// Whether this process was forked from a recorded one.
static IS_FORKED: AtomicBool = AtomicBool::new(false);
/// Whether the recorder invited this package, and the process has not been seen to use a device.
static IS_GUEST: AtomicBool = AtomicBool::new(false);
/// Whether no other device than the host is recorded.
static IS_HOST_ONLY: AtomicBool = AtomicBool::new(false);

/// What this process is set to record.
struct Session {
    recording: Recording,
    /// The settings of the command line, if it started this process.
    launched: Option<Settings>,
    /// Whether results exist or will be written by a launcher, so that their place is settled.
    is_fixed: bool,
}

impl Session {
    /// The settings a launcher passed, or those of a process that nobody launched for us.
    fn begin() -> Session {
        let inherited =
            std::env::var(RECORDING_VARIABLE).ok().and_then(|value| Recording::from_environment(&value).ok());
        match inherited {
            Some(recording) => {
                let launched = recording.is_supervised.then(|| recording.settings.clone());
                Session { is_fixed: recording.is_supervised, launched, recording }
            }
            None => Session { recording: unsupervised(), launched: None, is_fixed: false },
        }
    }

    /// Passes the settings on to the recorder, if there is one.
    fn hand_over(&mut self) -> PyResult<()> {
        if let Ok(current) = std::env::current_dir() {
            self.recording.settings.output = self.recording.settings.absolute_output(&current);
        }
        match RECORDER.get() {
            Some(recorder) => system_result("the recorder refuses the settings", {
                recorder.configure(&self.recording.to_environment())
            }),
            None => Ok(()),
        }
    }
}

fn unsupervised() -> Recording {
    let mut settings = Settings::defaults(Variant::Msmemscope);
    settings.collect_mode = CollectMode::Deferred;
    Recording {
        settings,
        run_id: fresh_run_id(),
        wall_clock_offset_ns: wall_clock_offset_ns(),
        is_supervised: false,
        finisher: None,
        python_package: None,
    }
}

fn session() -> MutexGuard<'static, Option<Session>> {
    SESSION.lock().unwrap_or_else(PoisonError::into_inner)
}

fn with_session<Value>(action: impl FnOnce(&mut Session) -> Value) -> Value {
    action(session().get_or_insert_with(Session::begin))
}

/// CLOCK_REALTIME minus CLOCK_MONOTONIC.
fn wall_clock_offset_ns() -> i64 {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let mut monotonic = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: plain system call into a valid structure.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut monotonic) };
    wall.as_nanos() as i64 - (monotonic.tv_sec * 1_000_000_000 + monotonic.tv_nsec)
}

/// A number no other run has, never zero.
fn fresh_run_id() -> u64 {
    // Hashers start with random numbers, which the standard library gets in a way that old C libraries have.
    let random = RandomState::new().build_hasher().finish();
    (random ^ wall_clock_offset_ns() as u64 ^ u64::from(std::process::id())) | 1
}

/// Which blocks the settings ask to watch.
pub fn watch_setting() -> Option<Watch> {
    with_session(|session| session.recording.settings.watch.clone())
}

/// Whether the settings ask for operators.
pub fn operators_are_recorded() -> bool {
    with_session(|session| session.recording.settings.level.contains(LevelSet::OP))
}

/// Whether the settings ask for kernels.
pub fn kernels_are_recorded() -> bool {
    with_session(|session| {
        let settings = &session.recording.settings;
        settings.level.contains(LevelSet::KERNEL) && settings.events.collected.contains(EventSet::LAUNCH)
    })
}

/// The recorder, if there is one. Cheap.
#[inline]
pub fn recorder() -> Option<Recorder> {
    RECORDER.get().copied()
}

/// Whether operators are worth a recording of this process. A process that was forked from the recorded
/// one, such as a worker that loads data, is recorded only once it uses memory that counts; one that only
/// imports torch_npu, once it uses a device.
#[inline]
pub fn records_operators(recorder: Recorder) -> bool {
    let is_certain = !IS_FORKED.load(Ordering::Relaxed) && !IS_GUEST.load(Ordering::Relaxed);
    is_certain || is_recorded(recorder)
}

#[cold]
fn is_recorded(recorder: Recorder) -> bool {
    let has_directory = recorder.has_process_directory();
    let uses_device = recorder.sources() & SOURCE_RUNTIME != 0;
    if has_directory || uses_device {
        IS_GUEST.store(false, Ordering::Relaxed);
    }
    has_directory || (uses_device && !IS_FORKED.load(Ordering::Relaxed))
}

/// Whether what this process does is worth a recording.
#[pyfunction]
fn is_at_work() -> bool {
    recorder().is_some_and(records_operators)
}

/// The recorder invited this package into a process that may never use a device; or the process itself has asked for a
/// recording, and is no guest any more.
#[pyfunction]
fn note_guest(is_guest: bool) {
    IS_GUEST.store(is_guest, Ordering::Relaxed);
}

/// The settings of devices may have changed, which decides where operators belong.
pub fn note_devices() {
    let devices = with_session(|session| session.recording.settings.devices);
    let is_host_only = devices.cpu && !devices.all_npus && devices.npu_slots == 0;
    IS_HOST_ONLY.store(is_host_only, Ordering::Relaxed);
}

/// Where an operator that runs now belongs: to the device that the recorder sees it work on, unless only the host counts.
#[inline]
pub fn operator_device() -> u32 {
    let device = if IS_HOST_ONLY.load(Ordering::Relaxed) { Device::Host } else { Device::Unknown };
    device.code()
}

/// This process was just forked.
#[pyfunction]
fn note_fork() {
    IS_FORKED.store(true, Ordering::Relaxed);
}

fn required_recorder() -> PyResult<Recorder> {
    recorder().ok_or_else(|| RecorderError::new_err("no recorder is loaded in this process"))
}

fn system_result(what: &str, result: Result<(), i32>) -> PyResult<()> {
    result.map_err(|errno| RecorderError::new_err(format!("{what}: {}", std::io::Error::from_raw_os_error(errno))))
}

/// Finds the recorder of this process, or loads it from `library`, and tells it who finishes.
///
/// Returns whether it was there already: preloaded by a launcher or by hand.
#[pyfunction]
fn attach(library: PathBuf, finisher: Option<PathBuf>) -> PyResult<bool> {
    if RECORDER.get().is_some() {
        return Ok(true);
    }
    let mut was_there = true;
    let found = match Recorder::find() {
        Err(ConnectError::Absent) => {
            was_there = false;
            load(&library)?;
            Recorder::find()
        }
        found => found,
    };
    let recorder = found.map_err(|error| RecorderError::new_err(error.to_string()))?;
    let _ = RECORDER.set(recorder);
    with_session(|session| {
        if !session.recording.is_supervised {
            session.recording.finisher = finisher;
            session.hand_over()?;
        }
        Ok::<_, PyErr>(())
    })?;
    if !was_there && recorder.state() == RecordingState::Off {
        system_result("the recorder cannot begin", recorder.set_state(RecordingState::Shadow))?;
    }
    Ok(was_there)
}

/// Loads the recorder so that libraries loaded later find its functions first.
fn load(library: &std::path::Path) -> PyResult<()> {
    let path = CString::new(library.as_os_str().as_bytes())?;
    // SAFETY: the recorder's constructor only reads the environment.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    if !handle.is_null() {
        return Ok(());
    }
    // SAFETY: after a failed dlopen there is a text, valid until the next call on this thread.
    let reason = unsafe { std::ffi::CStr::from_ptr(libc::dlerror()) };
    Err(RecorderError::new_err(format!("cannot load the recorder: {}", reason.to_string_lossy())))
}

/// Whether a recorder is there.
#[pyfunction]
fn is_attached() -> bool {
    RECORDER.get().is_some()
}

/// Whether a launcher waits for this process and finishes its recording.
#[pyfunction]
fn is_supervised() -> bool {
    with_session(|session| session.recording.is_supervised)
}

/// File and directory names of the earlier program name are used from now on.
#[pyfunction]
fn use_older_names() -> PyResult<()> {
    with_session(|session| {
        let settings = &mut session.recording.settings;
        if session.is_fixed || settings.variant == Variant::Msleaks {
            return Ok(());
        }
        let has_default_output = settings.output.ends_with(settings.variant.default_output_directory());
        settings.variant = Variant::Msleaks;
        if has_default_output {
            settings.output = PathBuf::from(Variant::Msleaks.default_output_directory());
        }
        session.hand_over()
    })
}

/// Applies the keyword arguments of one `config()` call, all or none; returns remarks for the user.
#[pyfunction]
fn configure(arguments: Vec<(String, String)>) -> PyResult<Vec<String>> {
    let arguments: Vec<(&str, &str)> = arguments.iter().map(|(key, value)| (&key[..], &value[..])).collect();
    let change: SettingsChange =
        apply_python_config(&arguments).map_err(|error| ConfigError::new_err(error.to_string()))?;
    with_session(|session| {
        let (settings, notes) =
            change.apply_in_python(&session.recording.settings, session.launched.as_ref(), session.is_fixed);
        let before = std::mem::replace(&mut session.recording.settings, settings);
        if let Err(error) = session.hand_over() {
            session.recording.settings = before;
            return Err(error);
        }
        Ok(notes.iter().map(ToString::to_string).collect())
    })
}

/// The name of the tool that the user knows: the command, the module, the beginning of messages.
#[pyfunction]
fn tool_name() -> &'static str {
    with_session(|session| session.recording.settings.variant.program_name())
}

/// Whether the value of a key of `config()` is a list, written with commas.
#[pyfunction]
fn is_list(key: &str) -> bool {
    takes_list(key)
}

/// All keys of `config()`.
#[pyfunction]
fn keys() -> Vec<&'static str> {
    python_keys().collect()
}

/// The settings in the form in which they are handed over.
#[pyfunction]
fn settings_text() -> String {
    with_session(|session| session.recording.to_environment())
}

/// Takes over the settings of the recorder, which somebody may have changed from outside.
#[pyfunction]
fn follow_settings() {
    let Some(recorder) = recorder() else { return };
    if let Ok(recording) = Recording::from_environment(&recorder.settings_text()) {
        with_session(|session| session.recording.settings = recording.settings);
    }
}

/// A request from outside that was left to this package is met: zero, or an errno.
#[pyfunction]
fn answer_request(number: u32, result: i32) {
    if let Some(recorder) = recorder() {
        recorder.answer_request(number, result);
    }
}

/// How many Python frames allocations have when nobody asks for stacks. Only for measurements.
#[pyfunction]
fn set_default_frames(count: u16) -> PyResult<()> {
    with_session(|session| {
        session.recording.settings.python_frames = count;
        session.hand_over()
    })
}

/// Whether the settings ask for the memory decomposition.
#[pyfunction]
fn wants_decompose() -> bool {
    with_session(|session| session.recording.settings.analysis.contains(AnalysisSet::DECOMPOSE))
}

/// Whether the settings let us look for who holds memory.
#[pyfunction]
fn wants_holders() -> bool {
    with_session(|session| {
        let settings = &session.recording.settings;
        settings.holders && settings.events.collected.contains(EventSet::MEMORY)
    })
}

/// Whether the settings ask for host memory of CPU tensors.
#[pyfunction]
fn wants_host_tensors() -> bool {
    with_session(|session| session.recording.settings.devices.cpu)
}

/// What is worth saying at all: 0 debug, 1 information, 2 warning, 3 error.
#[pyfunction]
fn log_level() -> u8 {
    with_session(|session| session.recording.settings.log_level as u8)
}

/// From now on results have their place, which later settings cannot change.
#[pyfunction]
fn settle() {
    with_session(|session| session.is_fixed = true);
}

/// What the recorder does now.
#[pyfunction]
fn state() -> u32 {
    recorder().map_or(RecordingState::Off, Recorder::state) as u32
}

/// Starts, pauses or stops.
#[pyfunction]
fn set_state(py: Python<'_>, state: u64) -> PyResult<()> {
    let recorder = required_recorder()?;
    let state = RecordingState::from_code(state);
    system_result("the recorder cannot change its state", py.detach(|| recorder.set_state(state)))
}

/// What is wanted now: operators, accesses, Python calls, CPU tensors.
#[pyfunction]
fn plan() -> (bool, bool, bool, bool) {
    let plan = recorder().map(Recorder::plan).unwrap_or_default();
    (plan.operators != 0, plan.accesses != 0, plan.python_calls != 0, plan.cpu_tensors != 0)
}

/// Directory of this process's recording, if there is one yet.
#[pyfunction]
fn process_directory() -> Option<PathBuf> {
    recorder()?.process_directory()
}

/// Brings buffered records into the file.
#[pyfunction]
fn flush(py: Python<'_>) -> PyResult<()> {
    let recorder = required_recorder()?;
    system_result("the recording cannot be written", py.detach(|| recorder.flush()))
}

/// Losses counted so far: what, and how many.
#[pyfunction]
fn losses() -> Vec<(&'static str, u64)> {
    let Some(recorder) = RECORDER.get() else { return Vec::new() };
    let counted = LossReason::ALL.iter().map(|reason| (reason.describe(), recorder.loss_count(*reason)));
    counted.filter(|(_, count)| *count > 0).collect()
}

/// Which sources have reported something.
#[pyfunction]
fn sources() -> u32 {
    recorder().map_or(0, Recorder::sources)
}

/// Redirects the import tables of all loaded libraries to the recorder.
#[pyfunction]
fn patch_imports(py: Python<'_>) -> u64 {
    recorder().map_or(0, |recorder| py.detach(|| recorder.patch_imports()))
}

/// Adds the functions of this module to the extension.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("OFF", RecordingState::Off as u32)?;
    module.add("SHADOW", RecordingState::Shadow as u32)?;
    module.add("ON", RecordingState::On as u32)?;
    module.add("SOURCE_RUNTIME", SOURCE_RUNTIME)?;
    module.add("SOURCE_DRIVER", msmemscope_control::SOURCE_DRIVER)?;
    module.add("SOURCE_MSTX", msmemscope_control::SOURCE_MSTX)?;
    module.add("SOURCE_POOL", msmemscope_control::SOURCE_POOL)?;
    module.add_function(wrap_pyfunction!(attach, module)?)?;
    module.add_function(wrap_pyfunction!(note_fork, module)?)?;
    module.add_function(wrap_pyfunction!(note_guest, module)?)?;
    module.add_function(wrap_pyfunction!(is_at_work, module)?)?;
    module.add_function(wrap_pyfunction!(is_attached, module)?)?;
    module.add_function(wrap_pyfunction!(is_supervised, module)?)?;
    module.add_function(wrap_pyfunction!(use_older_names, module)?)?;
    module.add_function(wrap_pyfunction!(configure, module)?)?;
    module.add_function(wrap_pyfunction!(keys, module)?)?;
    module.add_function(wrap_pyfunction!(is_list, module)?)?;
    module.add_function(wrap_pyfunction!(tool_name, module)?)?;
    module.add_function(wrap_pyfunction!(settings_text, module)?)?;
    module.add_function(wrap_pyfunction!(follow_settings, module)?)?;
    module.add_function(wrap_pyfunction!(answer_request, module)?)?;
    module.add_function(wrap_pyfunction!(set_default_frames, module)?)?;
    module.add_function(wrap_pyfunction!(wants_decompose, module)?)?;
    module.add_function(wrap_pyfunction!(wants_holders, module)?)?;
    module.add_function(wrap_pyfunction!(wants_host_tensors, module)?)?;
    module.add_function(wrap_pyfunction!(log_level, module)?)?;
    module.add_function(wrap_pyfunction!(settle, module)?)?;
    module.add_function(wrap_pyfunction!(state, module)?)?;
    module.add_function(wrap_pyfunction!(set_state, module)?)?;
    module.add_function(wrap_pyfunction!(plan, module)?)?;
    module.add_function(wrap_pyfunction!(process_directory, module)?)?;
    module.add_function(wrap_pyfunction!(flush, module)?)?;
    module.add_function(wrap_pyfunction!(losses, module)?)?;
    module.add_function(wrap_pyfunction!(sources, module)?)?;
    module.add_function(wrap_pyfunction!(patch_imports, module)?)
}
