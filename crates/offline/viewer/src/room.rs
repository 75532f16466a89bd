//! Whether there is memory for what is opened. A recording is kept as columns, and nothing bounds what they take: who has
//! less of it should know before the system ends the viewer without a word.

use msmemscope_report::units::bytes;

/// Bytes of memory for each byte of a trace: those of a training take 11 bytes for an event, and 43 as columns.
const BYTES_PER_TRACE_BYTE: u64 = 4;

/// What there is to say before large traces are read.
pub(crate) fn notice(trace_bytes: u64) -> Option<String> {
    lacks(trace_bytes, available(&std::fs::read_to_string("/proc/meminfo").ok()?)?)
}

fn lacks(trace_bytes: u64, available_bytes: u64) -> Option<String> {
    let needed_bytes = trace_bytes.saturating_mul(BYTES_PER_TRACE_BYTE);
    (needed_bytes > available_bytes).then(|| {
        format!(
            "To show this takes about {} of memory, and only {} are free: the system may end the viewer.",
            bytes(needed_bytes),
            bytes(available_bytes)
        )
    })
}

/// Memory that the system could give, in its own words.
fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_said_before_it_is_read() {
        let available_bytes = available("MemTotal:  9 kB\nMemAvailable:    2097152 kB\nBuffers: 1 kB\n").unwrap();
        assert_eq!(available_bytes, 2 << 30);
        assert_eq!(lacks(500 << 20, available_bytes), None);
        assert_eq!(
            lacks(1 << 30, available_bytes).unwrap(),
            "To show this takes about 4.0 GiB of memory, and only 2.0 GiB are free: the system may end the viewer."
        );
        assert_eq!(available("MemFree: 5 kB\n"), None);
        assert_eq!(notice(0), None, "on this machine, too");
        assert!(notice(u64::MAX / 4).is_some());
    }
}
