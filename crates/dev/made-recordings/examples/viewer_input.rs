//! Records a training-like run of any size: `viewer_input <directory> <millions of events> [process id]`. For
//! measurements and for tests in a browser.

use std::path::Path;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, millions, rest @ ..] = &arguments[..] else {
        eprintln!("usage: viewer_input <directory> <millions of events> [process id]");
        std::process::exit(2);
    };
    let millions: f64 = millions.parse().expect("a number of millions");
    let process_id = rest.first().map_or(4711, |text| text.parse().expect("a process id"));
    made_recordings::training(Path::new(directory), (millions * 1e6) as u64, process_id);
}
