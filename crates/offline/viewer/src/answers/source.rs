//! `source`: lines of source code around a frame.
//!
//! Only files that a frame of the recording names are read, only around a line that a frame names, and only files that
//! look like source code: a recording made by a stranger must not open anything else.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde_json::json;

use super::scope::Scope;
use super::{Answer, Problem};

const EXTENSIONS: [&str; 12] = ["py", "pyx", "pyi", "c", "cc", "cpp", "cxx", "h", "hh", "hpp", "rs", "cu"];
const LARGEST_FILE_BYTES: u64 = 8 << 20;
const LONGEST_LINE: usize = 400;

pub(super) fn answer(scope: &Scope<'_>) -> Answer {
    let not_there = || Problem::Missing("no frame of this recording is there".to_owned());
    let file = scope.query.text("file").ok_or_else(|| Problem::Bad("'file' is missing".to_owned()))?;
    let line = scope.query.number("line")?.ok_or_else(|| Problem::Bad("'line' is missing".to_owned()))?;
    let context = scope.query.limited("context", 8, (0, 40))?;
    let is_named =
        scope.model.stacks.frames.iter().any(|frame| *frame.file == *file && u64::from(frame.line) == line && line > 0);
    let path = Path::new(file);
    let is_source = path.extension().is_some_and(|found| EXTENSIONS.iter().any(|known| found == *known));
    if !is_named || !is_source || !path.is_absolute() {
        return Err(not_there());
    }
    let text = read(path).ok_or_else(|| Problem::Missing("the file is not on this machine".to_owned()))?;
    let first = line.saturating_sub(context).max(1);
    let lines: Vec<String> = text
        .lines()
        .skip(first as usize - 1)
        .take((line + context + 1 - first) as usize)
        .map(|text| text.chars().take(LONGEST_LINE).collect())
        .collect();
    if lines.len() as u64 <= line - first {
        return Err(Problem::Missing("the file has no such line; it may have changed".to_owned()));
    }
    Ok(json!({ "file": file, "first_line": first, "line": line, "lines": lines }))
}

fn read(path: &Path) -> Option<String> {
    let metadata = std::fs::metadata(path).ok()?;
    if !metadata.is_file() || metadata.len() > LARGEST_FILE_BYTES {
        return None;
    }
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(LARGEST_FILE_BYTES).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
