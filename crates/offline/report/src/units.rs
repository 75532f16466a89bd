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

/// A count with what it counts: `1 row`, `1,200 rows`, `2 processes`, `3 summaries`.
pub fn counted(number: u64, noun: &str) -> String {
    let (stem, ending) = match noun.strip_suffix('y') {
        _ if number == 1 => (noun, ""),
        Some(stem) if !stem.ends_with(['a', 'e', 'o', 'u']) => (stem, "ies"),
        _ if noun.ends_with('s') => (noun, "es"),
        _ => (noun, "s"),
    };
    format!("{} {stem}{ending}", count(number))
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

/// A difference of bytes for people: `+1.50 GiB`.
pub fn signed_bytes(difference: i64) -> String {
    let sign = if difference < 0 { "-" } else { "+" };
    match difference {
        0 => "0 B".to_owned(),
        _ => format!("{sign}{}", bytes(difference.unsigned_abs())),
    }
}

/// Steps by their numbers: `step 2`, `steps 2, 9`.
pub fn step_list(steps: &[u64]) -> String {
    let numbers: Vec<String> = steps.iter().map(u64::to_string).collect();
    format!("step{} {}", if steps.len() == 1 { "" } else { "s" }, numbers.join(", "))
}

/// Whole numbers in order, with neighbours drawn together: `0-3, 7`.
pub fn number_ranges(numbers: &[u32]) -> String {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for number in sorted {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let text = |(first, last): &(u32, u32)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    ranges.iter().map(text).collect::<Vec<_>>().join(", ")
}

/// Bytes in the unit of the leak reports: 1048576 bytes.
pub fn megabytes(count: u64) -> f64 {
    count as f64 / 1_048_576.0
}

/// A number with six significant digits and no trailing zeros.
pub fn general_number(value: f64) -> String {
    let exponent = if value == 0.0 { 0 } else { value.abs().log10().floor() as i32 };
    if !(-5..6).contains(&exponent) {
        let text = format!("{value:.5e}");
        let (digits, power) = text.split_once('e').unwrap_or((&text, "0"));
        let digits = digits.trim_end_matches('0').trim_end_matches('.');
        let power: i32 = power.parse().unwrap_or(0);
        return format!("{digits}e{}{:02}", if power < 0 { '-' } else { '+' }, power.abs());
    }
    let decimals = usize::try_from(5 - exponent).unwrap_or(0);
    let text = format!("{value:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
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

    #[test]
    fn neighbours_are_drawn_together() {
        assert_eq!(number_ranges(&[3, 0, 1, 2, 7, 9, 10, 0]), "0-3, 7, 9-10");
        assert_eq!((number_ranges(&[u32::MAX]), number_ranges(&[])), (u32::MAX.to_string(), String::new()));
    }

    #[test]
    fn differences_have_a_sign() {
        assert_eq!(signed_bytes(-2048), "-2.0 KiB");
        assert_eq!((signed_bytes(1), signed_bytes(0)), ("+1 B".into(), "0 B".into()));
    }

    #[test]
    fn general_numbers_look_like_those_of_other_tools() {
        for (value, expected) in [
            (0.0, "0"),
            (1.5, "1.5"),
            (12.3456789, "12.3457"),
            (123456.0, "123456"),
            (1234567.0, "1.23457e+06"),
            (0.00048828125, "0.000488281"),
        ] {
            assert_eq!(general_number(value), expected);
        }
    }
}
