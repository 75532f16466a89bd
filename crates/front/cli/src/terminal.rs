//! What people see on the terminal: one-line messages, colour only where it is shown.

use std::io::Write;
use std::os::fd::AsRawFd;

use msmemscope_config::{ColorChoice, LogLevel, Variant};
use msmemscope_event::visible_keeping;

use msmemscope_report::colour;
use msmemscope_report::layout::LAYOUT;

/// Columns of the terminal behind a stream, if there is one.
pub fn columns_of(stream: &impl AsRawFd) -> Option<usize> {
    size_of(stream).map(|(columns, _)| columns)
}

/// Columns and rows of the terminal behind a stream, if there is one.
pub fn size_of(stream: &impl AsRawFd) -> Option<(usize, usize)> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the structure is valid and of the kind that this request fills.
    let result = unsafe { libc::ioctl(stream.as_raw_fd(), libc::TIOCGWINSZ, &mut size) };
    (result == 0 && size.ws_col > 0).then_some((usize::from(size.ws_col), usize::from(size.ws_row)))
}

/// Writes messages to standard error, the way the log level asks for.
#[derive(Clone, Copy, Debug)]
pub struct Terminal {
    variant: Variant,
    level: LogLevel,
    colour: bool,
}

impl Terminal {
    /// Messages of at least `level` are shown.
    pub fn new(variant: Variant, level: LogLevel) -> Self {
        Self { variant, level, colour: colour::is_shown_on(&std::io::stderr()) }
    }

    /// The same terminal the way the user asked for it.
    pub fn with(self, level: LogLevel, color: ColorChoice) -> Self {
        match color {
            ColorChoice::Auto => {}
            ColorChoice::Always => colour::choose(true),
            ColorChoice::Never => colour::choose(false),
        }
        Self { level, colour: colour::is_shown_on(&std::io::stderr()), ..self }
    }

    /// The name under which the program runs.
    pub fn variant(&self) -> Variant {
        self.variant
    }

    /// What users call this program.
    pub fn program_name(&self) -> &'static str {
        self.variant.program_name()
    }

    /// Something failed.
    pub fn error(&self, message: impl std::fmt::Display) {
        self.line("31;1", "Error: ", &message);
    }

    /// Something is missing or suspicious.
    pub fn warning(&self, message: impl std::fmt::Display) {
        if self.level <= LogLevel::Warn {
            self.line("33", "Warning: ", &message);
        }
    }

    /// Worth knowing.
    pub fn information(&self, message: impl std::fmt::Display) {
        if self.level <= LogLevel::Info {
            self.line("", "", &message);
        }
    }

    /// What users need to know to go on, shown at every level but `error`.
    pub fn notice(&self, message: impl std::fmt::Display) {
        if self.level <= LogLevel::Warn {
            self.line("", "", &message);
        }
    }

    /// A report of several lines. At the level `error` only what was found is shown, if anything was.
    pub fn report(&self, whole: &str, findings: &str) {
        let text = if self.level <= LogLevel::Warn { whole } else { findings };
        if !text.is_empty() {
            let text = visible_keeping(text, &LAYOUT);
            let text = colour::report(&text, self.colour);
            let _ = std::io::stderr().write_all(format!("\n{text}").as_bytes());
        }
    }

    fn line(&self, colour: &str, kind: &str, message: &dyn std::fmt::Display) {
        let program = self.program_name();
        let message = message.to_string();
        let message = visible_keeping(&message, &LAYOUT);
        let text = if self.colour && !colour.is_empty() {
            format!("[{program}] \x1b[{colour}m{kind}\x1b[0m{message}\n")
        } else {
            format!("[{program}] {kind}{message}\n")
        };
        // Standard error may be closed; there is nobody left to tell.
        let _ = std::io::stderr().write_all(text.as_bytes());
    }
}
