//! How fast dump files are read: `import_speed <dump> ...` opens each and prints rows per second.

use std::time::Instant;

fn main() {
    for path in std::env::args().skip(1) {
        let start = Instant::now();
        match msmemscope_import::open(std::path::Path::new(&path)) {
            Ok(imported) => {
                let seconds = start.elapsed().as_secs_f64();
                let rows = imported.report.rows_used + imported.report.rows_derived + imported.report.rows_skipped();
                println!("{path}: {rows} rows in {seconds:.2} s, {:.2} million rows/s", rows as f64 / seconds / 1e6);
            }
            Err(error) => println!("{error}"),
        }
    }
}
