//! Offline analyses of result files. Each gives its report as text for people and as JSON for programs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use msmemscope_analysis::annotate::{RowNotes, annotate};
use msmemscope_analysis::inefficient::{InefficiencyKinds, InefficientSettings};
use msmemscope_analysis::marks::MarkSettings;
use msmemscope_analysis::{Answers, Questions, analyze, text};
use msmemscope_import::open_several;
use pyo3::prelude::*;

use crate::exceptions::AnalysisError;

fn failed(error: impl ToString) -> PyErr {
    AnalysisError::new_err(error.to_string())
}

/// Reads files of whatever origin without holding the interpreter's lock. A panic would reach Python as an exception
/// that `except Exception` does not catch, so it becomes one that it does.
pub(crate) fn reading<T: Send>(py: Python<'_>, read: impl FnOnce() -> PyResult<T> + Send) -> PyResult<T> {
    py.detach(|| match catch_unwind(AssertUnwindSafe(read)) {
        Ok(result) => result,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
            Err(failed(format!("internal error: {}", text.unwrap_or("a panic without a message"))))
        }
    })
}

/// Asks about every process in a file or directory; what could not be used is told first.
fn ask(path: &Path, questions: &Questions) -> PyResult<(Option<String>, Vec<Answers>, RowNotes)> {
    let imported = open_several(&[path]).map_err(failed)?;
    let mut notes = RowNotes::default();
    let mut all = Vec::new();
    for recording in &imported.recordings {
        let answers = analyze(recording, questions, &mut |_, _| {});
        notes.add(recording, &answers.notes);
        all.push(answers);
    }
    Ok((imported.report.notice().map(|notice| notice.to_string()), all, notes))
}

/// Leaks between three marks of the same text.
#[pyfunction]
fn analyze_marks(
    py: Python<'_>,
    path: PathBuf,
    message: String,
    start_index: u64,
) -> PyResult<(Option<String>, String, String)> {
    let questions = Questions { marks: Some(MarkSettings { message, start_index }), ..Questions::default() };
    reading(py, || {
        let (notice, answers, _) = ask(&path, &questions)?;
        let reports: Vec<_> = answers.iter().filter_map(|answers| answers.marks.as_ref()).collect();
        let report: String = reports.iter().map(|report| text::marks(report)).collect();
        Ok((notice, report, serde_json::to_string(&reports).map_err(failed)?))
    })
}

/// Inefficient memory; with `annotates` the findings are written into the file as well.
#[pyfunction]
fn analyze_inefficient(
    py: Python<'_>,
    path: PathBuf,
    minimum_size_bytes: u64,
    kinds: Vec<String>,
    idle_threshold: u64,
    annotates: bool,
) -> PyResult<(Option<String>, String, String)> {
    let known = kinds.iter().filter_map(|name| InefficiencyKinds::from_name(name));
    let kinds = known.reduce(InefficiencyKinds::with).unwrap_or(InefficiencyKinds::ALL);
    let settings = InefficientSettings { minimum_size_bytes, kinds, idle_threshold };
    let questions = Questions { inefficient: Some(settings), ..Questions::default() };
    reading(py, || {
        let (notice, answers, notes) = ask(&path, &questions)?;
        if annotates {
            annotate(&path, &notes).map_err(failed)?;
        }
        let reports: Vec<_> = answers.iter().filter_map(|answers| answers.inefficient.as_ref()).collect();
        let report: String = reports.iter().map(|report| text::inefficient(report)).collect();
        Ok((notice, report, serde_json::to_string(&reports).map_err(failed)?))
    })
}

/// Adds the functions of this module to the extension.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(analyze_marks, module)?)?;
    module.add_function(wrap_pyfunction!(analyze_inefficient, module)?)
}
