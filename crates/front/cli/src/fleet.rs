//! `fleet`: the summaries of many ranks put together.

use std::path::PathBuf;

use msmemscope_config::Invocation;
use msmemscope_report::{fleet, layout};
use msmemscope_results::fleet::merge;

use crate::Outcome;
use crate::analyzing::{print_json, print_report};
use crate::exit_status::ExitStatus;
use crate::progress::Bars;

/// `fleet <dir>...`
pub fn merge_summaries(invocation: &Invocation) -> Outcome {
    if invocation.has_flag("ascii") {
        layout::use_plain();
    }
    let paths: Vec<PathBuf> = invocation.operands.iter().map(PathBuf::from).collect();
    let report = merge(&paths, &mut Bars::default())?;
    match invocation.has_flag("json") {
        true => print_json(&fleet::json(&report))?,
        false => print_report(&fleet::fleet(&report))?,
    };
    Ok(if report.summaries > 0 { ExitStatus::Success } else { ExitStatus::Failure })
}
