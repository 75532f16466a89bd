//! Panics. A mistake of ours must not end the job, and whoever calls us must be able to catch it.
//!
//! What Python calls is covered once for all: PyO3 turns a panic into a `PanicException`, which [`register`] makes a
//! `RuntimeError`. What the interpreter, PyTorch and the recorder call through C has its panics [`contained`], and an
//! operator that is being recorded runs all the same ([`as_error`]).

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::exceptions::PyRuntimeError;
use pyo3::panic::PanicException;
use pyo3::prelude::*;

fn text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without a message")
}

/// Does something; a panic becomes the exception that `error` makes of a text.
pub fn as_error<T>(error: impl FnOnce(String) -> PyErr, action: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    catch_unwind(AssertUnwindSafe(action))
        .unwrap_or_else(|panic| Err(error(format!("internal error: {}", text(&*panic)))))
}

/// Does something for a caller that knows no exceptions, and gives `instead` if it panics. The panic has been written to
/// standard error by then.
pub fn contained<T>(instead: T, action: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(action)).unwrap_or(instead)
}

/// Panics, for the tests.
#[pyfunction]
fn panic_on_purpose(py: Python<'_>, is_called_back: bool) -> PyResult<()> {
    if is_called_back {
        return py.detach(|| contained(Ok(()), || panic!("on purpose")));
    }
    panic!("on purpose")
}

/// Makes panics an exception that `except Exception` catches: as PyO3 has it, it would end the job.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    py.get_type::<PanicException>().setattr("__bases__", (py.get_type::<PyRuntimeError>(),))?;
    module.add_function(wrap_pyfunction!(panic_on_purpose, module)?)
}
