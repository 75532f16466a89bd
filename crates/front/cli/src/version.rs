//! `--version`: what exactly this program is, for reports of defects and for installations that do not fit together.

use msmemscope_config::Variant;
use msmemscope_trace::layout::{VERSION_MAJOR, VERSION_MINOR};

/// The version in the first line, as earlier releases print it; then commit, architecture and trace format.
pub(crate) fn text(variant: Variant) -> String {
    format!(
        "{} version {}\ncommit: {}\narchitecture: {}\ntrace format: {VERSION_MAJOR}.{VERSION_MINOR}\n",
        variant.program_name(),
        env!("CARGO_PKG_VERSION"),
        env!("MSMEMSCOPE_COMMIT"),
        std::env::consts::ARCH,
    )
}
