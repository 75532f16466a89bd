//! Numbers the way people read them.

/// Bytes with a binary unit, three or four significant digits.
pub fn bytes(number: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if number < 1024 {
        return format!("{number} B");
    }
    let mut value = number as f64 / 1024.0;
    let mut unit = 0;
    // 1023.95 would be printed as 1024.0: that is one of the next unit.
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// A count with its thousands separated.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A duration.
pub fn seconds(nanoseconds: u64) -> String {
    match nanoseconds {
        0..10_000_000 => format!("{:.2} ms", nanoseconds as f64 / 1e6),
        10_000_000..1_000_000_000 => format!("{:.0} ms", nanoseconds as f64 / 1e6),
        1_000_000_000..120_000_000_000 => format!("{:.1} s", nanoseconds as f64 / 1e9),
        _ => format!("{} min {} s", nanoseconds / 60_000_000_000, nanoseconds / 1_000_000_000 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_naturally() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1024), "1.0 KiB");
        assert_eq!(bytes(1_048_575), "1.0 MiB");
        assert_eq!(bytes(20_971_520), "20.0 MiB");
        assert_eq!(bytes(u64::MAX), "16.0 EiB");
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(seconds(1_500_000), "1.50 ms");
        assert_eq!(seconds(250_000_000), "250 ms");
        assert_eq!(seconds(61_000_000_000), "61.0 s");
        assert_eq!(seconds(3_661_000_000_000), "61 min 1 s");
    }
}
