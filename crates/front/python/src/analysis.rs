//! Offline analyses of result files. Each gives its report as text for people and as JSON for programs.

use std::path::{Path, PathBuf};

use msmemscope_analysis::grouping::Grouping;
use msmemscope_analysis::inefficient::{InefficiencyKinds, InefficientSettings};
use msmemscope_analysis::marks::MarkSettings;
use msmemscope_analysis::moment::{Moment, MomentQuestion};
use msmemscope_analysis::{Answers, QUESTIONS, Questions, analyze};
use msmemscope_dump::annotate::{RowNotes, annotate};
use msmemscope_import::open_several;
use msmemscope_report as text;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::exceptions::AnalysisError;
use crate::panics::as_error;

fn failed(error: impl ToString) -> PyErr {
    AnalysisError::new_err(error.to_string())
}

/// Reads files of whatever origin without holding the interpreter's lock. A panic fails the analysis.
pub(crate) fn reading<T: Send>(py: Python<'_>, read: impl FnOnce() -> PyResult<T> + Send) -> PyResult<T> {
    py.detach(|| as_error(failed, read))
}

/// Asks about every process in a file or directory; what could not be used is told first.
fn ask(paths: &[&Path], questions: &Questions) -> PyResult<(Option<String>, Vec<Answers>, RowNotes)> {
    let imported = open_several(paths).map_err(failed)?;
    let mut notes = RowNotes::default();
    let mut all = Vec::new();
    for recording in &imported.recordings {
        let answers = analyze(recording, questions, &mut |_, _| {});
        answers.notes.add_to_rows(recording, &mut notes);
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
        let (notice, answers, _) = ask(&[&path], &questions)?;
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
        let (notice, answers, notes) = ask(&[&path], &questions)?;
        if annotates {
            annotate(&path, &notes).map_err(failed)?;
        }
        let reports: Vec<_> = answers.iter().filter_map(|answers| answers.inefficient.as_ref()).collect();
        let report: String = reports.iter().map(|report| text::inefficient(report)).collect();
        Ok((notice, report, serde_json::to_string(&reports).map_err(failed)?))
    })
}

/// What holds memory at moments, or what grew between two of them; one kind of question must be asked.
#[pyfunction]
fn analyze_moments(
    py: Python<'_>,
    path: PathBuf,
    at: Vec<String>,
    grown: Option<(String, String)>,
    by: &str,
) -> PyResult<(Option<String>, String, String)> {
    let moment = |word: &String| {
        let wrong = || format!("a moment must be peak, step:<number>, or a time such as 12.3s, not '{word}'");
        Moment::parse(word).ok_or_else(|| PyValueError::new_err(wrong()))
    };
    let wrong = |known| PyValueError::new_err(format!("by must be one of {known}, not '{by}'"));
    let question = MomentQuestion {
        at: at.iter().map(moment).collect::<PyResult<_>>()?,
        grown: grown.as_ref().map(|(from, to)| Ok::<_, PyErr>((moment(from)?, moment(to)?))).transpose()?,
        by: Grouping::parse(by).map_err(wrong)?,
    };
    let questions = Questions { moments: question, ..Questions::default() };
    reading(py, || {
        let (notice, answers, _) = ask(&[&path], &questions)?;
        let reports: Vec<_> = answers.iter().filter_map(|answers| answers.moments.as_ref()).collect();
        let report: Vec<String> = reports.iter().map(|report| text::moments(report)).collect();
        Ok((notice, report.join("\n"), serde_json::to_string(&reports).map_err(failed)?))
    })
}

/// Words of all questions that people can ask, and what they are about.
#[pyfunction]
fn questions() -> Vec<(&'static str, &'static str)> {
    QUESTIONS
        .iter()
        .filter(|question| question.is_for_people)
        .map(|question| (question.word, question.about.trim()))
        .collect()
}

/// Answers questions by their words, or everything: text, and one JSON object per process.
#[pyfunction]
fn analyze_questions(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    words: Option<Vec<String>>,
) -> PyResult<(Option<String>, String, String)> {
    let mut asked = if words.is_none() { Questions::all() } else { Questions::default() };
    for word in words.iter().flatten() {
        let known = QUESTIONS.iter().find(|question| question.is_for_people && question.word == word);
        let question = known.ok_or_else(|| PyValueError::new_err(format!("unknown question '{word}'")))?;
        if !(question.ask)(&mut asked) {
            return Err(PyValueError::new_err(format!("the question '{word}' needs parameters")));
        }
    }
    reading(py, || {
        let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
        let (notice, all, _) = ask(&paths, &asked)?;
        let texts: Vec<String> = all
            .iter()
            .map(|answers| match &words {
                None => text::answers::render(answers, false, text::Style::Full),
                Some(words) => text::RENDERERS
                    .iter()
                    .filter(|(word, _)| words.iter().any(|asked| asked == word))
                    .filter_map(|(_, renderer)| renderer(answers, text::Style::Full))
                    .collect(),
            })
            .collect();
        let reports: Vec<_> = all.iter().map(text::json::answers).collect();
        Ok((notice, texts.join("\n"), serde_json::to_string(&reports).map_err(failed)?))
    })
}

/// Adds the functions of this module to the extension.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(questions, module)?)?;
    module.add_function(wrap_pyfunction!(analyze_questions, module)?)?;
    module.add_function(wrap_pyfunction!(analyze_marks, module)?)?;
    module.add_function(wrap_pyfunction!(analyze_inefficient, module)?)?;
    module.add_function(wrap_pyfunction!(analyze_moments, module)?)
}
