//! Colours of reports: only for lines that must not be missed, and only where a terminal shows them.

use std::borrow::Cow;
use std::io::IsTerminal;

const ALARM: &str = "31;1";
const GOOD: &str = "32";
const STRONG: &str = "1";

/// What lines that begin like this look like.
const LINES: [(&str, &str); 7] = [
    ("====== ERROR", ALARM),
    ("====== SUMMARY", ALARM),
    ("====== OUT OF MEMORY", ALARM),
    ("FAILED  ", ALARM),
    ("passed  ", GOOD),
    ("Reason: ", STRONG),
    ("What to do", STRONG),
];

/// Whether a stream shows colours.
pub fn is_shown_on(stream: &impl IsTerminal) -> bool {
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb" || term == "unknown" || term.is_empty());
    stream.is_terminal() && !dumb && std::env::var_os("NO_COLOR").is_none()
}

/// A report with colours, if they are shown.
pub fn report(text: &str, is_shown: bool) -> Cow<'_, str> {
    if !is_shown {
        return Cow::Borrowed(text);
    }
    let line = |line: &str| match LINES.iter().find(|(begin, _)| line.starts_with(begin)) {
        Some((_, colour)) => format!("\x1b[{colour}m{line}\x1b[0m"),
        None => line.to_owned(),
    };
    Cow::Owned(text.split('\n').map(line).collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_alarming_lines_are_coloured_and_only_if_shown() {
        let text = "====== ERROR: Detected memory leaks on device 0 ======\nDirect leak\nReason: demand.\n";
        assert_eq!(report(text, false), text);
        let shown = report(text, true);
        assert!(shown.starts_with("\x1b[31;1m====== ERROR: Detected memory leaks on device 0 ======\x1b[0m\nDirect"));
        assert!(shown.ends_with("\n\x1b[1mReason: demand.\x1b[0m\n"));
    }
}
