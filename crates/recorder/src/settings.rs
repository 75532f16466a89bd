//! The settings of this launch, read from the environment when the library is loaded.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use msmemscope_config::{CollectMode, RECORDING_VARIABLE, Recording, Settings, Variant};
use msmemscope_event::RecordingState;

use crate::{clock, stacks};

/// The settings in force. Replaced ones stay where they are: somebody may be reading them.
static RECORDING: AtomicPtr<Recording> = AtomicPtr::new(std::ptr::null_mut());
static ERROR: OnceLock<String> = OnceLock::new();

/// Reads the settings. Without any, what is alive is noted from the first event on and the rest
/// waits for the API. Settings that cannot be read are an error that shows at the first event, so
/// that programs without events stay silent.
pub fn load() {
    let read = match std::env::var(RECORDING_VARIABLE) {
        Ok(value) => Recording::from_environment(&value).map_err(|error| error.to_string()),
        Err(std::env::VarError::NotPresent) => Ok(unsupervised()),
        Err(std::env::VarError::NotUnicode(_)) => Err(format!("{RECORDING_VARIABLE}: not readable as text")),
    };
    match read {
        Ok(recording) => replace(recording),
        Err(error) => {
            let _ = ERROR.set(error);
        }
    }
}

/// Why the settings cannot be used, if so.
pub fn error() -> Option<&'static str> {
    ERROR.get().map(String::as_str)
}

/// Settings of a process nobody launched for us.
fn unsupervised() -> Recording {
    let mut settings = Settings::defaults(Variant::Msmemscope);
    settings.collect_mode = CollectMode::Deferred;
    Recording {
        settings,
        run_id: 0,
        wall_clock_offset_ns: clock::wall_offset_ns(),
        is_supervised: false,
        finisher: None,
        python_package: None,
    }
}

/// Puts settings in force.
pub fn replace(recording: Recording) {
    stacks::configure(&recording.settings);
    RECORDING.store(Box::into_raw(Box::new(recording)), Ordering::Release);
}

/// The settings.
pub fn recording() -> &'static Recording {
    loop {
        // SAFETY: null or settings that are never freed.
        match unsafe { RECORDING.load(Ordering::Acquire).as_ref() } {
            Some(recording) => return recording,
            None => replace(unsupervised()),
        }
    }
}

/// What to do before anybody says otherwise.
pub fn initial_state() -> RecordingState {
    let settings = &recording().settings;
    if settings.events.collected.is_empty() {
        return RecordingState::Off;
    }
    match settings.collect_mode {
        CollectMode::Immediate => RecordingState::On,
        CollectMode::Deferred => RecordingState::Shadow,
    }
}

/// Whether the user asks for buffered writing: for file systems whose shared mappings lose data
/// without being known for it.
pub fn distrusts_mappings() -> bool {
    std::env::var_os("MSMEMSCOPE_BUFFERED").is_some_and(|value| value == "1")
}

/// The output directory, seen from the current one if it is relative.
pub fn output_directory() -> PathBuf {
    let settings = &recording().settings;
    match std::env::current_dir() {
        Ok(current) => settings.absolute_output(&current),
        Err(_) => settings.output.clone(),
    }
}
