//! Settings of the stand-in device come from environment variables, because that is what reaches every process
//! of a job without the job's help.

/// A whole number from the environment variable `name`, or `default` when it is unset. One that is not a number is told
/// and not used.
#[must_use]
pub fn number_from_environment(name: &str, default: u64) -> u64 {
    from_environment(name, |text| text.trim().parse().ok(), "a whole number").unwrap_or(default)
}

/// Frequency of the host's counter, `STANDIN_HOST_KHZ`: zero if the driver does not tell it, as usual.
pub fn host_kilohertz() -> u64 {
    number_from_environment("STANDIN_HOST_KHZ", 0)
}

/// The value of a variable; what cannot be read is told and not used.
fn from_environment<T>(name: &str, read: impl Fn(&str) -> Option<T>, allowed: &str) -> Option<T> {
    let text = std::env::var_os(name).filter(|text| !text.is_empty())?;
    let value = text.to_str().and_then(read);
    if value.is_none() {
        eprintln!("stand-in device: {name}={} is not {allowed}, the default is used", text.to_string_lossy());
    }
    value
}

/// A size in bytes from the environment variable `name`: a number with an optional suffix `K`, `M`, `G` or `T`
/// (powers of 1024). `default` when the variable is unset; what is not a size is told and not used.
#[must_use]
pub fn size_from_environment(name: &str, default: u64) -> u64 {
    from_environment(name, parse_size, "a size such as 64G").unwrap_or(default)
}

/// Whether the device plays a CANN of the 8.0 time (`STANDIN_CANN=8.0`) instead of a current one.
#[must_use]
pub fn is_older_cann() -> bool {
    std::env::var("STANDIN_CANN").is_ok_and(|release| release.trim() == "8.0")
}

fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim().trim_end_matches(['B', 'b']).trim_end_matches('i');
    let (digits, shift) = match text.chars().last()? {
        'K' | 'k' => (&text[..text.len() - 1], 10),
        'M' | 'm' => (&text[..text.len() - 1], 20),
        'G' | 'g' => (&text[..text.len() - 1], 30),
        'T' | 't' => (&text[..text.len() - 1], 40),
        _ => (text, 0),
    };
    digits.trim().parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::parse_size;

    #[test]
    fn sizes_with_and_without_suffix() {
        assert_eq!(parse_size("4096"), Some(4096));
        assert_eq!(parse_size("64G"), Some(64 << 30));
        assert_eq!(parse_size(" 2 MiB"), Some(2 << 20));
        assert_eq!(parse_size("1k"), Some(1024));
        assert_eq!(parse_size("lots"), None);
        assert_eq!(parse_size(""), None);
        assert_eq!(parse_size("99999999T"), None);
    }
}
