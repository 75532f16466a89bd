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
    // Snapshots at an out of memory are taken from inside the interpreter.
    let memory = events.contains(EventSet::ALLOC);
    memory || operators || inside || decompose || settings.devices.cpu || settings.watch.is_some()
}

/// How to get the Python package, which comes with a wheel and not with a build of the program.
const HOW_TO_GET_THE_PACKAGE: &str = "make wheel, then pip install dist/*.whl";

/// What the user asked for and will not get, one line each.
pub fn missing_features(settings: &Settings, has_python_package: bool) -> Vec<String> {
    let mut missing = Vec::new();
    if !has_python_package {
        missing.extend(without_package(settings));
    }
    missing
}

/// Names everything that needs the package in one line.
fn without_package(settings: &Settings) -> Option<String> {
    let written = settings.events.written;
    let analysis = settings.analysis;
    let inefficient = analysis.contains(AnalysisSet::INEFFICIENT);
    let wanted = [
        (analysis.contains(AnalysisSet::DECOMPOSE), "--analysis=decompose (owners inside PyTorch)"),
        (inefficient, "--analysis=inefficient (in PyTorch)"),
        (written.contains(EventSet::ACCESS) && !inefficient, "--events=access (of PyTorch)"),
        (written.contains(EventSet::TRACEBACK), "--events=traceback"),
        (settings.devices.cpu, "--device=cpu"),
        (settings.watch.is_some(), "--watch"),
    ];
    let wanted: Vec<&str> = wanted.into_iter().filter(|(asked, _)| *asked).map(|(_, name)| name).collect();
    (!wanted.is_empty()).then(|| {
        let names = wanted.join(", ");
        format!(
            "the Python package is not installed beside this program; without it nothing is seen for {names}. To get \
             it: {HOW_TO_GET_THE_PACKAGE}"
        )
    })
}

#[cfg(test)]
mod tests {
    use msmemscope_config::Variant;

    use super::*;

    #[test]
    fn a_missing_package_is_said_once_with_the_way_to_get_it() {
        let mut settings = Settings::defaults(Variant::Msmemscope);
        assert_eq!(missing_features(&settings, false), [""; 0]);
        settings.analysis = AnalysisSet::DECOMPOSE.union(AnalysisSet::INEFFICIENT);
        settings.events.written = EventSet::ACCESS;
        let said = missing_features(&settings, false);
        assert_eq!(said.len(), 1);
        assert!(said[0].contains("--analysis=decompose") && said[0].contains("--analysis=inefficient"), "{said:?}");
        assert!(!said[0].contains("--events=access") && said[0].ends_with("pip install dist/*.whl"), "{said:?}");
        assert_eq!(missing_features(&settings, true), [""; 0]);
    }
}
