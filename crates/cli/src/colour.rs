//! How reports look on a terminal: colours for lines that must not be missed, and long lines folded.
//!
//! Whoever reads a report through a pipe gets its lines as they are.

use std::borrow::Cow;
use std::io::IsTerminal;

use msmemscope_analysis::text::WIDTH;
use unicode_width::UnicodeWidthStr;

const ALARM: &str = "31;1";
const GOOD: &str = "32";
const STRONG: &str = "1";

/// What lines that begin like this look like.
const LINES: [(&str, &str); 8] = [
    ("====== ERROR", ALARM),
    ("====== SUMMARY", ALARM),
    ("====== OUT OF MEMORY", ALARM),
    ("FAILED  ", ALARM),
    ("CANNOT BE JUDGED  ", ALARM),
    ("passed  ", GOOD),
    ("Reason: ", STRONG),
    ("What to do", STRONG),
];

/// Whether a stream shows colours.
pub fn is_shown_on(stream: &impl IsTerminal) -> bool {
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb" || term == "unknown" || term.is_empty());
    stream.is_terminal() && !dumb && std::env::var_os("NO_COLOR").is_none()
}

/// Begin of the second and later parts of a folded line.
const FOLD: &str = "    ";

/// A line broken at spaces where it is too long. What has no spaces, such as a path, stays whole.
fn folded(line: &str) -> String {
    let mut text = String::new();
    let mut width = 0;
    for (index, word) in line.split(' ').enumerate() {
        let needed = word.width();
        if width + 1 + needed > WIDTH && width > FOLD.len() {
            text.push('\n');
            text.push_str(FOLD);
            width = FOLD.len();
        } else if index > 0 {
            text.push(' ');
            width += 1;
        }
        text.push_str(word);
        width += needed;
    }
    text
}

/// A report with colours and folded lines, if they are shown.
pub fn report(text: &str, is_shown: bool) -> Cow<'_, str> {
    if !is_shown {
        return Cow::Borrowed(text);
    }
    let line = |line: &str| match LINES.iter().find(|(begin, _)| line.starts_with(begin)) {
        Some((_, colour)) => format!("\x1b[{colour}m{}\x1b[0m", folded(line)),
        None => folded(line),
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

    #[test]
    fn long_lines_are_folded_at_spaces_and_only_if_shown() {
        let leak =
            "Direct Pytorch Caching memory pool leak of 2.000000 Mb(s) at 0x12c041400000 in kernel_12 at step 2.";
        assert_eq!(report(leak, false), leak);
        let shown = report(leak, true);
        assert_eq!(shown.lines().count(), 2);
        assert!(shown.lines().all(|line| line.width() <= WIDTH), "{shown}");
        assert_eq!(shown.replace("\n   ", ""), leak);
        let path = format!("Results in /{}", "x".repeat(100));
        assert!(report(&path, true).contains(&path[11..]), "a path can still be copied");
        assert_eq!(report("  indented   as it is", true), "  indented   as it is");
    }
}
