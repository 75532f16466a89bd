//! What every library of the stand-in device needs: state that belongs to one process even across `fork`, and
//! settings from the environment.

mod process;
mod settings;

pub use process::ProcessCell;
pub use settings::{host_kilohertz, is_older_cann, number_from_environment, size_from_environment};
