//! What users and environments say, shown in messages: in quotes, on one line.

use std::ffi::OsStr;
use std::fmt::Write as _;

/// Values are shown up to this many characters.
const LONGEST_SHOWN: usize = 120;

/// Text of the operating system made printable, for error messages only.
pub fn printable(text: &OsStr) -> String {
    text.to_string_lossy().into_owned()
}

/// Marks that change the direction of text, and the separators that some terminals and editors take for a line end.
fn reorders(character: char) -> bool {
    matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// `text` in quotes, on one line and of bounded length.
pub fn quoted(text: &str) -> String {
    let mut shown = String::from("'");
    for (index, character) in text.chars().enumerate() {
        if index == LONGEST_SHOWN {
            shown.push_str("...");
            break;
        }
        match character {
            '\n' => shown.push_str("\\n"),
            '\r' => shown.push_str("\\r"),
            '\t' => shown.push_str("\\t"),
            _ if character.is_control() || reorders(character) => {
                let _ = write!(shown, "\\u{{{:x}}}", u32::from(character));
            }
            _ => shown.push(character),
        }
    }
    shown.push('\'');
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_text_is_one_short_line() {
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("a\nb\u{1b}[31m\u{2028}"), "'a\\nb\\u{1b}[31m\\u{2028}'");
        assert_eq!(quoted("\u{9b}1m\u{202e}x"), "'\\u{9b}1m\\u{202e}x'");
        assert_eq!(quoted("内存"), "'内存'");
        assert_eq!(quoted(&"x".repeat(5000)).chars().count(), LONGEST_SHOWN + 5);
    }
}
