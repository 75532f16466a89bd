//! What tests share.
//!
//! * [`golden!`]: texts compared with those that were reviewed.
//! * [`built`]: programs and libraries of the release build, refused if they are older than their sources.

pub mod built;
pub mod golden;
