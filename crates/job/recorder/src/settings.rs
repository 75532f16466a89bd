//! The settings of this launch, read from the environment when the library is loaded.

use std::path::PathBuf;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, OnceLock};

use msmemscope_event::RecordingState;
use msmemscope_settings::{CollectMode, RECORDING_VARIABLE, Recording, Settings, Variant};

use crate::{atb, clock, kernels, stacks};

/// The settings in force.
static RECORDING: AtomicPtr<Recording> = AtomicPtr::new(std::ptr::null_mut());
/// All that ever were. They stay where they are, because somebody may be reading them; jobs that go back and forth
/// between a few get the same ones again.
static EARLIER: Mutex<Vec<&'static Recording>> = Mutex::new(Vec::new());
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
    kernels::configure(&recording.settings);
    atb::configure(&recording.settings);
    RECORDING.store(std::ptr::from_ref(kept(recording)).cast_mut(), Ordering::Release);
}

/// Keeps settings for good, once.
fn kept(recording: Recording) -> &'static Recording {
    // Only the thread that has forked goes on in a child: it cannot wait for others.
    let mut earlier = EARLIER.try_lock().ok();
    match earlier.iter().flat_map(|earlier| earlier.iter()).find(|earlier| ***earlier == recording) {
        Some(same) => same,
        None => {
            let recording = &*Box::leak(Box::new(recording));
            if let Some(earlier) = &mut earlier {
                earlier.push(recording);
            }
            recording
        }
    }
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

/// The name of the tool that the user knows.
pub fn tool_name() -> &'static str {
    // SAFETY: null or settings that are never freed.
    let recording = unsafe { RECORDING.load(Ordering::Acquire).as_ref() };
    recording.map_or(Variant::Msmemscope, |recording| recording.settings.variant).program_name()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_settings_are_kept_once() {
        let first = kept(unsupervised());
        let mut other = first.clone();
        other.run_id = 7;
        let other = kept(other);
        assert!(!std::ptr::eq(first, other));
        assert!(std::ptr::eq(first, kept(first.clone())) && std::ptr::eq(other, kept(other.clone())));
    }
}
