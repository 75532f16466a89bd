//! Numbers the way people read them.

/// Bytes with a binary unit, at most eight characters wide.
pub fn bytes(number: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if number < 1024 {
        return format!("{number} B");
    }
    let mut value = number as f64 / 1024.0;
    let mut unit = 0;
    // 1023.5 would be printed as 1024: that is one of the next unit.
    while value >= 1023.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    // 99.95 would be printed as 100.0, one character more than there is room for.
    if value < 99.95 { format!("{value:.1} {}", UNITS[unit]) } else { format!("{value:.0} {}", UNITS[unit]) }
}

/// A count for a table, at most seven characters wide.
pub fn short_count(number: u64) -> String {
    const UNITS: [&str; 5] = ["M", "G", "T", "P", "E"];
    if number < 1_000_000 {
        return count(number);
    }
    let mut value = number as f64 / 1e6;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1e3;
        unit += 1;
    }
    if value < 99.95 { format!("{value:.1} {}", UNITS[unit]) } else { format!("{value:.0} {}", UNITS[unit]) }
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

/// A count with what it counts: `1 row`, `1,200 rows`, `2 processes`.
pub fn counted(number: u64, noun: &str) -> String {
    let ending = match number {
        1 => "",
        _ if noun.ends_with('s') => "es",
        _ => "s",
    };
    format!("{} {noun}{ending}", count(number))
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
        assert_eq!(bytes(104_806_000), "100 MiB");
        assert_eq!(bytes(1_073_400_000), "1.0 GiB");
        assert_eq!(bytes(u64::MAX), "16.0 EiB");
        assert_eq!(short_count(999_999), "999,999");
        assert_eq!(short_count(1_000_000), "1.0 M");
        assert_eq!(short_count(99_960_000), "100 M");
        assert_eq!(short_count(999_600_000), "1.0 G");
        assert_eq!(short_count(u64::MAX), "18.4 E");
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(seconds(1_500_000), "1.50 ms");
        assert_eq!(seconds(250_000_000), "250 ms");
        assert_eq!(seconds(61_000_000_000), "61.0 s");
        assert_eq!(seconds(3_661_000_000_000), "61 min 1 s");
    }
}
