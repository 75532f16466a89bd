//! Results as text for the terminal: short lines, tables within 80 columns, what matters first.

mod compare;
mod findings;
mod leaks;
mod moments;
mod table;
mod watch;

pub use compare::comparison;
pub use findings::{fragmentation, inefficient, out_of_memory, owners};
pub use leaks::{fluctuation, leaks, marks};
pub use moments::moments;
pub use table::{Align, Table};
pub use watch::watch;

use msmemscope_event::is_steering;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::names::{SiteText, telling_frames};

/// Width that reports keep to.
pub const WIDTH: usize = 80;

/// How leaks are reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    /// With call sites, growth and what to do.
    #[default]
    Full,
    /// Only the lines that earlier versions printed, in their words.
    Classic,
}

/// Bytes for people: `1.50 GiB`.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    match unit {
        0 => format!("{count} B"),
        _ => format!("{value:.2} {}", UNITS[unit]),
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

/// A number with what it counts: `1 block`, `2 blocks`.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Steps by their numbers: `step 2`, `steps 2, 9`.
pub fn step_list(steps: &[u64]) -> String {
    let numbers: Vec<String> = steps.iter().map(u64::to_string).collect();
    format!("step{} {}", if steps.len() == 1 { "" } else { "s" }, numbers.join(", "))
}

/// Bytes in the unit of the leak reports: 1048576 bytes.
pub(crate) fn megabytes(count: u64) -> f64 {
    count as f64 / 1_048_576.0
}

/// A number with six significant digits and no trailing zeros.
pub(crate) fn general_number(value: f64) -> String {
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

/// Columns a text takes on a terminal; Chinese characters take two.
pub(crate) fn columns(text: &str) -> usize {
    text.width()
}

/// As many characters as fit into so many columns.
fn fitting(characters: impl Iterator<Item = char>, mut columns: usize) -> Vec<char> {
    let fits = |character: &char| {
        let needed = character.width().unwrap_or(0);
        let fits = needed <= columns;
        columns = columns.saturating_sub(needed);
        fits
    };
    characters.take_while(fits).collect()
}

/// The text without characters that would steer the terminal.
fn harmless(text: &str) -> String {
    text.replace(is_steering, "\u{fffd}")
}

/// Cuts a text to a number of columns; the end of a path says more than its begin.
pub fn fit(text: &str, width: usize) -> String {
    let text = harmless(text);
    if columns(&text) <= width {
        return text;
    }
    let tail = fitting(text.chars().rev(), width.saturating_sub(2));
    format!("..{}", tail.into_iter().rev().collect::<String>())
}

/// Cuts a name to a number of columns, in its middle.
pub(crate) fn fit_middle(text: &str, width: usize) -> String {
    let text = harmless(text);
    if columns(&text) <= width {
        return text;
    }
    let room = width.saturating_sub(2);
    let front: String = fitting(text.chars(), room - room / 2).into_iter().collect();
    let back: String = fitting(text.chars().rev(), room / 2).into_iter().rev().collect();
    format!("{front}..{back}")
}

/// Frames shown of a stack.
const LISTED_FRAMES: usize = 8;

/// Adds the frames that lead to a site under a title: the user's own, since those of frameworks say
/// little and are many. Adds nothing, and says so, where one line has told everything.
pub(crate) fn push_way(text: &mut String, title: &str, site: &SiteText) -> bool {
    let (python, native) = (telling_frames(&site.python), telling_frames(&site.native));
    let all = site.python.len() + site.native.len();
    if all < 2 {
        return false;
    }
    let shown: Vec<String> = python.iter().chain(&native).take(LISTED_FRAMES).map(|frame| frame.describe()).collect();
    text.push_str(&format!("{title}\n"));
    for frame in &shown {
        text.push_str(&format!("    {}\n", fit(frame, WIDTH - 4)));
    }
    if all > shown.len() {
        let hidden = counted((all - shown.len()) as u64, "frame");
        text.push_str(&format!("    (without {hidden}, mostly of frameworks; --json has all)\n"));
    }
    true
}

/// Adds a text broken into lines that fit. A word that is longer than a line is cut.
pub(crate) fn push_wrapped(text: &mut String, line: &str, indent: &str) {
    let mut length = 0;
    for word in line.split(' ') {
        let word = fit_middle(word, WIDTH - indent.len());
        let needed = columns(&word);
        if length == 0 || length + 1 + needed > WIDTH {
            if length > 0 {
                text.push('\n');
            }
            text.push_str(indent);
            length = indent.len();
        } else {
            text.push(' ');
            length += 1;
        }
        text.push_str(&word);
        length += needed;
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_told_in_fitting_units() {
        assert_eq!((bytes(0), bytes(1023), bytes(1024)), ("0 B".into(), "1023 B".into(), "1.00 KiB".into()));
        assert_eq!(bytes(3 << 30), "3.00 GiB");
        assert_eq!(
            (signed_bytes(-2048), signed_bytes(1), signed_bytes(0)),
            ("-2.00 KiB".into(), "+1 B".into(), "0 B".into())
        );
        assert!(bytes(u64::MAX).ends_with("PiB"));
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

    #[test]
    fn long_texts_keep_their_end() {
        assert_eq!(fit("/data/jobs/train.py:12 step", 12), "..py:12 step");
        assert_eq!(fit("short", 12), "short");
        assert_eq!(fit("/数据/训练.py:12", 9), "...py:12", "a character of two columns that does not fit is left out");
        assert_eq!(fit("\x1b[31mred", 12), "\u{fffd}[31mred", "names do not steer the terminal");
        assert_eq!(fit_middle("a very long name of a mark", 12), "a ver.. mark");
    }

    #[test]
    fn wrapped_lines_fit_whatever_their_words() {
        let mut text = String::new();
        let line =
            format!("some words, {} and 训练训练训练训练训练训练训练训练训练训练 more words after it", "x".repeat(300));
        push_wrapped(&mut text, &line, "  ");
        assert!(text.lines().all(|line| columns(line) <= WIDTH && line.starts_with("  ")), "{text}");
        assert!(text.contains("x..x") && text.ends_with("after it\n"), "{text}");
    }
}
