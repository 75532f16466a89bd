//! Manners of code that runs as a guest in the job.
//!
//! * [`Descriptor`]: files are opened where the job does not look, and never in place of its standard streams.
//! * [`uncancelled`]: a thread that the job cancels is cancelled in the job's code, not in ours.
//! * [`signals_blocked`]: the job's handlers wait while something is half made.

mod cancellation;
mod descriptor;
mod signals;

pub use cancellation::uncancelled;
pub use descriptor::Descriptor;
pub use signals::signals_blocked;
