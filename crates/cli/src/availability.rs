//! Options that are understood but cannot be served, one line each: their feature is not in this
//! version yet, or it needs the Python package.
//!
//! Remove a line here when its feature lands.

use msmemscope_config::{AnalysisSet, EventSet, LevelSet, Settings};

/// Whether anything was asked for that only the Python half can see. Jobs that do not need it are
/// spared the import.
pub fn needs_python_half(settings: &Settings) -> bool {
    let events = settings.events.collected;
    let operators = events.contains(EventSet::LAUNCH) && settings.level.contains(LevelSet::OP);
    let inside = events.contains(EventSet::TRACEBACK) || events.contains(EventSet::ACCESS);
    let decompose = settings.analysis.contains(AnalysisSet::DECOMPOSE);
    // Snapshots at a lack of memory are taken from inside the interpreter.
    let memory = events.contains(EventSet::ALLOC);
    memory || operators || inside || decompose || settings.devices.cpu || settings.watch.is_some()
}

/// What the user asked for and will not get.
pub fn missing_features(settings: &Settings, has_python_package: bool) -> Vec<&'static str> {
    let written = settings.events.written;
    let without_package = |asked: bool| asked && !has_python_package;
    let wanted = [
        (without_package(settings.watch.is_some()), "--watch: needs the Python package, which is not installed here"),
        (settings.level.contains(LevelSet::KERNEL), "--level=kernel: kernels are not recorded in this version"),
        (
            without_package(written.contains(EventSet::TRACEBACK)),
            "--events=traceback: needs the Python package, which is not installed here",
        ),
        (
            without_package(written.contains(EventSet::ACCESS)),
            "--events=access: needs the Python package, which is not installed here",
        ),
        (
            without_package(settings.devices.cpu),
            "--device=cpu: CPU tensors need the Python package, which is not installed here",
        ),
    ];
    wanted.into_iter().filter(|(asked, _)| *asked).map(|(_, text)| text).collect()
}
