//! The native half of the Python package, imported as `msmemscope._internal`.
//!
//! It holds what must be shared with the command line (the options table), what must be fast (facts of
//! operators, the call tracer) and what Python cannot reach (the recorder, the allocator of PyTorch).
//! Everything users see is in `python/msmemscope`.
//!
//! * [`session`] finds the recorder and keeps the settings of this process.
//! * [`facts`] hands single facts over; [`launches`] and [`operators`] those of PyTorch's operators.
//! * [`references`] finds out which Python objects keep tensors alive.
//! * [`watch`] looks at memory blocks around operators, [`labels`] says whose they are.
//! * [`tracer`] reports Python calls, [`host_tensors`] the host memory of PyTorch.
//! * [`analysis`] answers questions about result files, [`window`] about a part of a recording.
//! * [`panics`] keeps our own mistakes from the job.

mod analysis;
mod facts;
mod host_tensors;
mod labels;
mod launches;
mod operators;
mod panics;
mod references;
mod session;
mod tracer;
mod watch;
mod window;

use pyo3::prelude::*;

/// Native half of the package.
#[pymodule]
#[pyo3(name = "_internal")]
fn internal(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("VERSION", env!("CARGO_PKG_VERSION"))?;
    panics::register(module)?;
    session::register(module)?;
    facts::register(module)?;
    labels::register(module)?;
    launches::register(module)?;
    operators::register(module)?;
    references::register(module)?;
    tracer::register(module)?;
    watch::register(module)?;
    host_tensors::register(module)?;
    analysis::register(module)?;
    window::register(module)
}

mod exceptions {
    //! The exception types, which are written in Python.

    pyo3::import_exception!(msmemscope.exceptions, AddressError);
    pyo3::import_exception!(msmemscope.exceptions, AnalysisError);
    pyo3::import_exception!(msmemscope.exceptions, ConfigError);
    pyo3::import_exception!(msmemscope.exceptions, RecorderError);
}
