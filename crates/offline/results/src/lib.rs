//! Recordings on disk: finding them, knowing their settings, and turning them into results.
//!
//! What the programs, the Python package, a viewer and exporters have in common, without a terminal.

pub mod finishing;
pub mod fleet;
pub mod flight;
pub mod following;
pub mod notes;
pub mod questions;
pub mod recordings;
pub mod removal;
pub mod runs;
pub mod scopes;
pub mod unmatched;
pub mod unwatched;

mod log_file;
mod report_file;
mod summary_file;
