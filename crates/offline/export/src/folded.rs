//! Folded stacks: one line per stack, frames from the outermost on with semicolons between them, a space, the bytes.

use std::io::{self, Write};

use msmemscope_analysis::Frame;

use crate::MemoryKind;
use crate::sites::Sites;

pub(crate) fn write(sites: &Sites, kind: MemoryKind, out: &mut dyn Write) -> io::Result<()> {
    for site in &sites.sites {
        let bytes = site.amount(kind).bytes;
        if bytes == 0 {
            continue;
        }
        out.write_all(plain(&sites.pool_text(site.pool)).as_bytes())?;
        for &frame in &site.frames {
            write!(out, ";{}", plain(&text(&sites.frames[frame])))?;
        }
        writeln!(out, " {bytes}")?;
    }
    Ok(())
}

/// `function (file:line)` as far as known.
fn text(frame: &Frame) -> String {
    match (frame.file.is_empty(), frame.line) {
        (true, _) => frame.function.clone(),
        (false, 0) => format!("{} ({})", frame.function, frame.file),
        (false, line) => format!("{} ({}:{line})", frame.function, frame.file),
    }
}

/// Without what has a meaning in this format.
fn plain(text: &str) -> String {
    text.replace(';', ":").replace(|character: char| character.is_control(), " ")
}
