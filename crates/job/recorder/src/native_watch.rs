//! Watches memory in jobs without PyTorch, around the operators of ATB and their kernels.
//!
//! With PyTorch the Python package watches, since only the interpreter sees its operators. A program that runs ATB by
//! itself has nobody for that, so the recorder looks on its own, when the first operator runs. Blocks are those that the
//! settings name by an operator: which ones are alive is not known here, so there is no hunt.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use msmemscope_control::{OperatorFact, Recorder};
use msmemscope_settings::{LevelSet, WatchTarget};
use msmemscope_watch::observers;
use msmemscope_watch::session::Session;
use msmemscope_watch::surroundings::Surroundings;

use crate::atb::{self, say};
use crate::{control, errno, launches, python_half, settings};

/// Whether it was tried.
static IS_SETTLED: AtomicBool = AtomicBool::new(false);

/// An operator of a library is about to run, and somebody wants blocks watched that nobody watches.
#[cold]
pub fn invite() {
    if IS_SETTLED.swap(true, Ordering::Relaxed) || python_half::has_framework() {
        return;
    }
    let _ = errno::aside(|| std::panic::catch_unwind(start));
}

fn start() {
    let recording = settings::recording();
    let Some(watch) = &recording.settings.watch else { return };
    if matches!(watch.target, WatchTarget::Automatic { .. }) {
        return say(
            "blocks are hunted only in jobs with PyTorch; name an operator to watch, as in --watch=<start>,<end>",
        );
    }
    // SAFETY: our own table, which is never freed.
    let Ok(recorder) = (unsafe { Recorder::from_table(control::table()) }) else { return };
    let mut session = Session::new(Some(watch), Some(recorder));
    if !session.process.is_blocking() {
        return say("nothing is watched: without PyTorch nobody knows whether the device may be waited for; set \
                    ASCEND_LAUNCH_BLOCKING=1");
    }
    let level = recording.settings.level;
    session.at_kernels = level.contains(LevelSet::KERNEL);
    // Without any level the operators are what people know.
    session.at_operators = level.contains(LevelSet::OP) || !session.at_kernels;
    if session.at_kernels {
        launches::set_observer(Some(observers::observe_launch));
    }
    let session = Arc::new(Mutex::new(session));
    observers::install(&session);
    atb::set_observer(Some(observe));
}

/// Looks, and says what there is to say.
unsafe extern "C" fn observe(begins: u32, operator: *const OperatorFact) {
    // SAFETY: as the caller promises.
    unsafe { observers::observe_operator(begins, operator) };
    observers::take_said().iter().for_each(|text| say(text));
}
