//! Measures how fast contents are hashed: `watch_speed [mebibytes]` prints gigabytes per second of one
//! thread's processor time as JSON.

use msmemscope_watch::checksum::checksum;
use msmemscope_watch::fingerprint::Fingerprint;

const ROUNDS: usize = 5;

fn processor_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: plain system call into a valid structure.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The best of several rounds.
fn rate(contents: &[u8], work: impl Fn(&[u8]) -> u64) -> f64 {
    let mut best: f64 = 0.0;
    for _ in 0..ROUNDS {
        let begin = processor_seconds();
        std::hint::black_box(work(std::hint::black_box(contents)));
        best = best.max(contents.len() as f64 / (processor_seconds() - begin) / 1e9);
    }
    best
}

fn main() {
    let mebibytes: usize = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(512);
    let mut contents = vec![0u8; mebibytes << 20];
    for (index, byte) in contents.iter_mut().enumerate() {
        *byte = (index as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes()[7];
    }
    let fingerprint = rate(&contents, |bytes| Fingerprint::of(bytes).hash());
    let documented = rate(&contents, checksum);
    println!("{{\"fingerprint\": {fingerprint:.2}, \"checksum\": {documented:.2}}}");
}
