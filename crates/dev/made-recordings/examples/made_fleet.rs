//! Records the ranks of a job for tests and measurements: `made_fleet <directory> <ranks> <steps> <rank that leaks>`.

use std::path::Path;

use made_recordings::Rank;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, ranks, steps, leaking] = &arguments[..] else {
        eprintln!("usage: made_fleet <directory> <ranks> <steps> <rank that leaks>");
        std::process::exit(2);
    };
    let number = |text: &String| text.parse::<u32>().expect("a number");
    let world_size = number(ranks);
    for rank in 0..world_size {
        let one = Rank {
            rank,
            world_size,
            host: &format!("host{}", rank / 8),
            job: "",
            command: "python\0train.py",
            steps: u64::from(number(steps)),
            kept_bytes: if rank == number(leaking) { 1 << 20 } else { 0 },
        };
        one.record(&Path::new(directory).join(format!("rank{rank}")));
    }
}
