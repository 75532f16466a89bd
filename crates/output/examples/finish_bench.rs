//! Measures finishing: `finish_bench <directory> csv|db|both|none`. Prints rows per second and the
//! largest memory use.

use std::path::Path;
use std::time::Instant;

use msmemscope_output::{FinishOptions, Formats, finish};
use msmemscope_timeline::{TimelineEvent, TimelineSettings};
use msmemscope_trace::{TRACE_FILE_NAME, Trace};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, what] = &arguments[..] else { panic!("usage: finish_bench <directory> csv|db|both|none") };
    let begin = Instant::now();
    let rows = match what.as_str() {
        "none" => {
            let trace = Trace::open(&Path::new(directory).join(TRACE_FILE_NAME)).expect("a trace");
            println!("opening: {:.2} s", begin.elapsed().as_secs_f64());
            let mut rows = 0u64;
            let mut sink = |_: TimelineEvent| rows += 1;
            msmemscope_timeline::run(&trace, &TimelineSettings::default(), &mut sink, &mut |_, _| {});
            rows
        }
        formats => {
            let formats = Formats { csv: formats != "db", database: formats != "csv" };
            let options = FinishOptions { formats, ..FinishOptions::default() };
            let report = finish(Path::new(directory), &options, &mut |_, _| {}).expect("finished");
            for file in &report.files {
                println!("{}: {} rows, {} MiB", file.path.display(), file.rows, file.size_bytes >> 20);
            }
            report.rows
        }
    };
    let seconds = begin.elapsed().as_secs_f64();
    println!(
        "{what}: {rows} rows in {seconds:.2} s, {:.0} rows/s, at most {} MiB",
        rows as f64 / seconds,
        peak_mebibytes()
    );
}

fn peak_mebibytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kibibytes| kibibytes.parse::<u64>().ok()).unwrap_or(0) >> 10
}
