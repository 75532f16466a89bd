//! Whether there is room for what is opened. A recording is kept as columns, large ones in files that have no names: who
//! has neither the memory nor the disk for them should know before the system ends the viewer without a word.

use msmemscope_report::units::bytes;

/// Bytes of columns for each byte of a trace: those of a training take 11 bytes for an event, and 43 as columns.
const BYTES_PER_TRACE_BYTE: u64 = 4;

/// What there is to say before large traces are read.
pub(crate) fn notice(trace_bytes: u64) -> Option<String> {
    let available_bytes = available(&std::fs::read_to_string("/proc/meminfo").ok()?)?;
    let place = msmemscope_columns::directory();
    let free_bytes = msmemscope_columns::free_bytes(&place).unwrap_or(0);
    lacks(trace_bytes, available_bytes, free_bytes).map(|lack| format!("{lack} TMPDIR can name a larger disk."))
}

fn lacks(trace_bytes: u64, available_bytes: u64, free_bytes: u64) -> Option<String> {
    let needed_bytes = trace_bytes.saturating_mul(BYTES_PER_TRACE_BYTE);
    (needed_bytes > available_bytes && needed_bytes > free_bytes).then(|| {
        format!(
            "To show this takes about {}, and only {} of memory and {} of disk for short-lived files are free: the system may \
             end the viewer.",
            bytes(needed_bytes),
            bytes(available_bytes),
            bytes(free_bytes)
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
        assert_eq!(lacks(500 << 20, available_bytes, 0), None);
        assert_eq!(lacks(1 << 30, available_bytes, 5 << 30), None, "there is a disk");
        assert_eq!(
            lacks(1 << 30, available_bytes, 3 << 30).unwrap(),
            "To show this takes about 4.0 GiB, and only 2.0 GiB of memory and 3.0 GiB of disk for short-lived files are free: \
             the system may end the viewer."
        );
        assert_eq!(available("MemFree: 5 kB\n"), None);
        assert_eq!(notice(0), None, "on this machine, too");
        assert!(notice(u64::MAX / 4).is_some());
    }
}
