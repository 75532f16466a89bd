//! Meets requests of the job's user from outside: start, stop, step, snapshot, other settings.
//!
//! They wait in a word of the trace's header page, which is looked at with every record. The thread whose record it is
//! meets the request right behind it, as if the job itself had called the package there; there is no thread of ours. What
//! needs the interpreter is left to its main thread.

use msmemscope_event::RecordingState;
use msmemscope_settings::{Recording, Settings};
use msmemscope_trace::requests::{Command, Request};

use crate::{acl, card, control, errno, process, python_half, settings, stack_room};

/// Jobs that must not be controlled set this variable to `off`.
const SWITCH: &str = "MSMEMSCOPE_CONTROL";
/// Stack that must be left: settings are read and written down.
const NEEDED_BYTES: usize = 32 << 10;

/// Whether the job lets itself be controlled.
pub fn are_taken() -> bool {
    !std::env::var_os(SWITCH).is_some_and(|value| value == "off" || value == "0")
}

/// Meets the request that waits, if one does and there is room for the work; a thread with more room will have it else.
#[cold]
pub fn serve() {
    let Some(process) = process::existing().filter(|process| process.trace.is_request_waiting()) else { return };
    if !stack_room::is_not_known_to_lack(NEEDED_BYTES) {
        return;
    }
    let work = || {
        if let Some(request) = process.trace.take_request() {
            meet(&request);
        }
    };
    // A mistake of ours costs an answer, and nothing else.
    let _ = errno::aside(|| std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)));
}

fn meet(request: &Request) {
    let result = match request.command {
        Command::Start => control::change_state(RecordingState::On),
        Command::Stop => control::change_state(RecordingState::Shadow),
        Command::Step if control::end_step() == 0 => libc::EAGAIN,
        Command::Step => 0,
        Command::Configure => configure(&request.text),
        Command::Snapshot => {
            card::sample(acl::current_device());
            0
        }
    };
    let wants_snapshot = request.command == Command::Snapshot;
    let is_left_to_guest = result == 0
        && request.command != Command::Step
        && python_half::ask_to_follow(request.number, wants_snapshot)
        && wants_snapshot;
    if !is_left_to_guest {
        answer(request.number, result);
    }
}

/// Tells whoever asked. The recording may have moved meanwhile.
pub fn answer(number: u32, result: i32) {
    if let Some(process) = process::existing() {
        process.trace.answer_request(number, result);
    }
}

/// Other settings, but neither another place nor other programs: those are the launcher's to choose.
fn configure(text: &[u8]) -> i32 {
    let asked = std::str::from_utf8(text).ok().and_then(|text| Recording::from_environment(text).ok());
    let Some(asked) = asked else { return libc::EINVAL };
    let current = settings::recording();
    let settings = Settings {
        variant: current.settings.variant,
        output: current.settings.output.clone(),
        collect_mode: current.settings.collect_mode,
        ..asked.settings
    };
    control::use_settings(Recording { settings, ..current.clone() })
}
