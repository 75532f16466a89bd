//! What happens when the library is loaded and when the process exits in the normal way.

use msmemscope_event::{Device, Fact, RecordingState, SystemEvent};

use crate::{clock, directory, errno, finisher, message, process, real, settings, state, thread};

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = load;

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = exit;

/// Reads the settings and gets ready; makes no file, mapping or thread.
extern "C" fn load() {
    // SAFETY: asks the kernel's auxiliary vector.
    if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
        state::disable();
        return;
    }
    let prepared = errno::aside(|| {
        std::panic::catch_unwind(|| {
            // Our panics are told in our own words.
            std::panic::set_hook(Box::new(|_| {}));
            message::remember_stderr();
            real::note_startup_modules();
            thread::prepare();
            settings::load();
        })
    });
    match prepared {
        Ok(()) => {
            let initial = settings::initial_state();
            state::change(initial);
            if initial == RecordingState::Shadow {
                state::pause_began();
            }
        }
        Err(_) => {
            state::disable();
        }
    }
}

/// Marks the recording of this process, if it has one, as complete.
extern "C" fn exit() {
    let _ = errno::aside(|| std::panic::catch_unwind(close));
}

fn close() {
    let Some(process) = process::existing() else { return };
    if state::records_everything() {
        thread::record_now(&Fact::System { event: SystemEvent::ProcessExit, device: Device::Unknown, result: 0 });
    }
    process.flush_at_end();
    process.trace.close(clock::monotonic_ns());
    let recording = settings::recording();
    if !recording.is_supervised && !state::was_wanted() {
        // Preloaded by hand and never started: only a shadow, of which nobody needs to hear.
        directory::discard(process.directory());
    } else if !recording.is_supervised {
        finisher::finish(recording.finisher.as_deref(), process.directory());
    }
}
