//! Lines that fit a terminal: widths of characters, cutting, wrapping, and the way to a line of code.

use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use msmemscope_event::is_steering;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use msmemscope_analysis::names::{Frame, SiteText, telling_frames};

use crate::units::counted;

/// Controls that the layout of our own texts needs.
pub const LAYOUT: [char; 2] = ['\n', '\t'];

/// Width that reports keep to where nobody knows the terminal's.
pub const WIDTH: usize = 80;

/// Wider lines are hard to read, however wide the terminal is.
const LARGEST_WIDTH: usize = 160;

static TERMINAL_WIDTH: AtomicUsize = AtomicUsize::new(WIDTH);

static SHOWS_WHOLE_PATHS: AtomicBool = AtomicBool::new(false);

/// From now on paths are told whole, for readers who are somewhere else.
pub fn use_whole_paths() {
    SHOWS_WHOLE_PATHS.store(true, Ordering::Relaxed);
}

static IS_PLAIN: AtomicBool = AtomicBool::new(false);

/// From now on nothing but ASCII is drawn.
pub fn use_plain() {
    IS_PLAIN.store(true, Ordering::Relaxed);
}

/// Whether only ASCII may be drawn.
pub(crate) fn is_plain() -> bool {
    IS_PLAIN.load(Ordering::Relaxed)
}

/// Lets reports use the whole width of the terminal that they are shown on.
pub fn use_width(columns: usize) {
    TERMINAL_WIDTH.store(columns.clamp(WIDTH, LARGEST_WIDTH), Ordering::Relaxed);
}

/// Columns that lines may take.
pub fn width() -> usize {
    TERMINAL_WIDTH.load(Ordering::Relaxed)
}

/// A path as people see it from where they are.
pub fn near_path(path: &Path) -> &Path {
    path.to_str().map_or(path, |text| Path::new(near(text)))
}

/// A line of code as people see it from where they are: paths below the working directory without it.
pub fn near(line: &str) -> &str {
    static HERE: OnceLock<String> = OnceLock::new();
    let here = HERE.get_or_init(|| match std::env::current_dir() {
        Ok(directory) => format!("{}/", directory.display().to_string().trim_end_matches('/')),
        Err(_) => String::new(),
    });
    if here.len() < 2 || SHOWS_WHOLE_PATHS.load(Ordering::Relaxed) {
        line
    } else {
        line.strip_prefix(here.as_str()).unwrap_or(line)
    }
}

/// Columns a text takes on a terminal; Chinese characters take two.
pub(crate) fn columns(text: &str) -> usize {
    text.width()
}

/// As many characters as fit into this many columns.
pub(crate) fn fitting(characters: impl Iterator<Item = char>, mut columns: usize) -> Vec<char> {
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

/// Cuts a text to a number of columns; the end of a path says more than its start.
pub fn fit(text: &str, width: usize) -> String {
    let text = harmless(text);
    if columns(&text) <= width {
        return text;
    }
    let tail = fitting(text.chars().rev(), width.saturating_sub(2));
    format!("..{}", tail.into_iter().rev().collect::<String>())
}

/// Cuts a name to a number of columns, in its middle.
pub fn fit_middle(text: &str, width: usize) -> String {
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
const LISTED_FRAMES: usize = 6;

/// Most Python frames that a recording can have of a stack.
const MOST_FRAMES: usize = 1000;

/// How to record more frames than this many, if there is a way.
fn deeper(frames: usize) -> String {
    if frames < MOST_FRAMES { format!(": --call-stack=python:{MOST_FRAMES}") } else { String::new() }
}

/// Adds the frames that lead to a site under a title: the user's own, since those of frameworks say
/// little and are many. Adds nothing, and says so, where one line has told everything.
pub(crate) fn push_way(text: &mut String, title: &str, site: &SiteText) -> bool {
    let is_own = |frame: &&Frame| frame.origin.is_program();
    let (python, mut native) = (telling_frames(&site.python), telling_frames(&site.native));
    // Who sees lines of the own program needs none of the libraries below it.
    if python.iter().any(is_own) {
        native.retain(is_own);
    }
    let telling: Vec<_> = python.into_iter().chain(native).collect();
    let all = site.python.len() + site.native.len();
    if telling.is_empty() || (telling.len() < 2 && !site.outer_frames_missing) {
        return false;
    }
    text.push_str(&format!("{title}\n"));
    for frame in telling.iter().take(LISTED_FRAMES) {
        text.push_str(&format!("    {}\n", fit(near(&frame.describe()), width() - 4)));
    }
    let further = telling.len().saturating_sub(LISTED_FRAMES) as u64;
    if further > 0 {
        text.push_str(&format!("    ({} further out: --json)\n", counted(further, "frame")));
    } else if all > telling.len() {
        let folded = counted((all - telling.len()) as u64, "frame");
        text.push_str(&format!("    ({folded} of frameworks and the interpreter left out)\n"));
    }
    if site.outer_frames_missing {
        text.push_str(&format!("    (frames outside of these were not recorded{})\n", deeper(site.python.len())));
    }
    true
}

/// Adds a text broken into lines that fit. A word that is longer than a line is cut.
pub fn push_wrapped(text: &mut String, line: &str, indent: &str) {
    push_words(text, line.split(' ').map(|word| fit_middle(word, width() - indent.len())), indent);
}

/// The same of a text that has something to copy: no word is cut, one that is longer than a line has a line of its own.
pub(crate) fn push_whole_words(text: &mut String, line: &str, indent: &str) {
    push_words(text, line.split(' ').map(str::to_owned), indent);
}

fn push_words(text: &mut String, words: impl Iterator<Item = String>, indent: &str) {
    let mut length = 0;
    for word in words {
        let needed = columns(&word);
        if length == 0 || length + 1 + needed > width() {
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
    use msmemscope_analysis::installation::Origin;

    use super::*;

    #[test]
    fn long_texts_keep_their_end() {
        assert_eq!(fit("/data/jobs/train.py:12 step", 12), "..py:12 step");
        assert_eq!(fit("short", 12), "short");
        assert_eq!(fit("/数据/训练.py:12", 9), "...py:12", "a character of two columns that does not fit is left out");
        assert_eq!(fit("\x1b[31mred", 12), "\u{fffd}[31mred", "names do not steer the terminal");
        assert_eq!(fit_middle("a very long name of a mark", 12), "a ver.. mark");
    }

    #[test]
    fn a_stack_that_was_cut_while_recording_says_so_and_how_to_record_more() {
        let frame = |origin| Frame { function: "call".into(), file: "module.py".into(), line: 7, origin };
        let way = |site: &SiteText| {
            let mut text = String::new();
            (push_way(&mut text, "Way:", site), text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>())
        };
        let mut site = SiteText { python: vec![frame(Origin::Framework); 64], ..SiteText::default() };
        assert_eq!(way(&site).1.last().map(String::as_str), Some("    (58 frames further out: --json)"));
        site.outer_frames_missing = true;
        let cut = "    (frames outside of these were not recorded: --call-stack=python:1000)";
        assert_eq!(way(&site).1[6..], ["    (58 frames further out: --json)", cut]);
        site.python = vec![frame(Origin::Program)];
        assert_eq!(way(&site), (true, vec!["    module.py:7 call".to_owned(), cut.to_owned()]));
        site.python = vec![frame(Origin::Program); MOST_FRAMES];
        let last = "    (frames outside of these were not recorded)";
        assert_eq!(way(&site).1.last().map(String::as_str), Some(last), "there is no deeper");
        site.python = vec![frame(Origin::Program)];
        site.outer_frames_missing = false;
        assert!(!way(&site).0, "one line tells everything");
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
