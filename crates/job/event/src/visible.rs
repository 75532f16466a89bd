//! Text of others made safe to show: characters that would steer a terminal, reorder a line or end it are spelled out.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Whether a character does something instead of being seen: controls (also the second set, U+0080 to U+009F), marks that
/// change the direction of text, and separators that some programs take for the end of a line.
pub fn is_steering(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}'
        )
}

/// A text on one line, with every steering character spelled out: `\n`, `\x1b`, `\u{202e}`.
pub fn visible(text: &str) -> Cow<'_, str> {
    visible_keeping(text, &[])
}

/// Like [`visible`]; the characters in `kept` stay as they are.
pub fn visible_keeping<'t>(text: &'t str, kept: &[char]) -> Cow<'t, str> {
    let is_spelled = |character: char| is_steering(character) && !kept.contains(&character);
    let Some(first) = text.find(is_spelled) else { return Cow::Borrowed(text) };
    let mut spelled = String::with_capacity(text.len() + 16);
    spelled.push_str(&text[..first]);
    for character in text[first..].chars() {
        // Writing to a String cannot fail.
        match character {
            _ if !is_spelled(character) => spelled.push(character),
            '\n' => spelled.push_str("\\n"),
            '\r' => spelled.push_str("\\r"),
            '\t' => spelled.push_str("\\t"),
            '\0'..='\u{ff}' => drop(write!(spelled, "\\x{:02x}", u32::from(character))),
            _ => drop(write!(spelled, "\\u{{{:x}}}", u32::from(character))),
        }
    }
    Cow::Owned(spelled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steering_characters_are_spelled_out() {
        assert!(matches!(visible("plain 训练 ünïcode \\"), Cow::Borrowed(_)));
        assert_eq!(visible("a\x1b]0;PWN\x07\nb"), "a\\x1b]0;PWN\\x07\\nb");
        assert_eq!(visible("\u{9b}31m\u{202e}evil\u{2066}\u{7f}\0"), "\\x9b31m\\u{202e}evil\\u{2066}\\x7f\\x00");
        assert_eq!(visible_keeping("a\tb\nc\r", &['\n', '\t']), "a\tb\nc\\r");
    }
}
