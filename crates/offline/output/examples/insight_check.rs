//! Checks databases: `cargo run -p msmemscope-output --example insight_check -- <file.db>...`

use std::path::Path;

fn main() {
    let mut is_clean = true;
    for argument in std::env::args_os().skip(1) {
        let report = msmemscope_dump::insight::check(Path::new(&argument));
        println!("{}: {} rows, {} violations", argument.to_string_lossy(), report.rows, report.violation_count);
        for violation in &report.violations {
            println!("  {violation}");
        }
        is_clean &= report.is_clean();
    }
    std::process::exit(i32::from(!is_clean));
}
