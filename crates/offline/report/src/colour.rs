//! How reports look on a terminal: colours for lines that must not be missed, and long lines folded.
//!
//! Whoever reads a report through a pipe gets its lines as they are.

use std::borrow::Cow;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicU8, Ordering};

use unicode_width::UnicodeWidthStr;

use crate::layout;

const ALARM: &str = "31;1";
const GOOD: &str = "32";
const STRONG: &str = "1";

/// What lines that begin like this look like.
const LINES: [(&str, &str); 11] = [
    ("Leak: ", ALARM),
    ("Out of memory ", ALARM),
    ("No leaks found", GOOD),
    ("====== ERROR", ALARM),
    ("====== SUMMARY", ALARM),
    ("====== OUT OF MEMORY", ALARM),
    ("FAILED  ", ALARM),
    ("CANNOT BE JUDGED  ", ALARM),
    ("passed  ", GOOD),
    ("Reason: ", STRONG),
    ("What to do", STRONG),
];

/// What the user said about colours: 0 nothing, 1 always, 2 never.
static CHOICE: AtomicU8 = AtomicU8::new(0);

/// Shows colours everywhere, or nowhere, from now on.
pub fn choose(is_shown: bool) {
    CHOICE.store(if is_shown { 1 } else { 2 }, Ordering::Relaxed);
}

/// Whether a stream shows colours.
pub fn is_shown_on(stream: &impl IsTerminal) -> bool {
    match CHOICE.load(Ordering::Relaxed) {
        1 => return true,
        2 => return false,
        _ => {}
    }
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb" || term == "unknown" || term.is_empty());
    let is_forced = ["FORCE_COLOR", "CLICOLOR_FORCE"]
        .iter()
        .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0"));
    std::env::var_os("NO_COLOR").is_none() && (is_forced || (stream.is_terminal() && !dumb))
}

/// Begin of the second and later parts of a folded line.
const FOLD: &str = "    ";

/// A line broken at spaces where it is too long. What has no spaces, such as a path, stays whole.
fn folded(line: &str) -> String {
    let mut text = String::new();
    let mut width = 0;
    for (index, word) in line.split(' ').enumerate() {
        let needed = word.width();
        if width + 1 + needed > layout::width() && width > FOLD.len() {
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
    use crate::layout::WIDTH;

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
