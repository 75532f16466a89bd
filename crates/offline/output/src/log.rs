//! The log file of a recording: messages of the recorder, one line each.

use std::io;
use std::path::Path;
use std::sync::Arc;

use msmemscope_event::{Severity, is_steering};

use crate::directory::Directory;
use crate::files::{local_timestamp, write_new};
pub use crate::pipeline::RecorderMessage;

/// The lines of all messages that are important enough: `YYYY-mm-dd HH:MM:SS [LEVEL] text`.
pub fn lines(messages: &[RecorderMessage], least: Severity) -> String {
    let mut text = String::new();
    for message in messages.iter().filter(|message| message.severity >= least) {
        let moment = local_timestamp((message.timestamp_ns / 1_000_000_000) as i64);
        let (date, time) = moment.split_at(8);
        let tag = match message.severity {
            Severity::Debug => "[DEBUG]",
            Severity::Information => "[INFO] ",
            Severity::Warning => "[WARN] ",
            Severity::Error => "[ERROR]",
        };
        text.push_str(&format!(
            "{}-{}-{} {}:{}:{} {tag} {}\n",
            &date[..4],
            &date[4..6],
            &date[6..],
            &time[..2],
            &time[2..4],
            &time[4..],
            message.text.replace(is_steering, " ")
        ));
    }
    text
}

/// Writes a log file below a directory; nothing is written if there is nothing to say. Returns whether it was.
pub fn write(
    directory: &Arc<Directory>,
    relative: &Path,
    messages: &[RecorderMessage],
    least: Severity,
) -> io::Result<bool> {
    let text = lines(messages, least);
    if text.is_empty() {
        return Ok(false);
    }
    write_new(directory, relative, text.as_bytes())?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_below_the_level_are_left_out() {
        let message = |severity, text: &str| RecorderMessage { timestamp_ns: 0, severity, text: text.into() };
        let messages = [message(Severity::Information, "hello"), message(Severity::Warning, "two\nlines")];
        let text = lines(&messages, Severity::Warning);
        assert!(text.ends_with(" [WARN]  two lines\n"), "{text}");
        assert_eq!(text.lines().count(), 1);
        assert_eq!(lines(&messages, Severity::Information).lines().count(), 2);
    }
}
