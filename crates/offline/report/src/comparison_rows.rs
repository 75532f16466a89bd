//! All rows of a comparison as a csv file.

use std::io::{self, Write};

use msmemscope_analysis::compare::{Comparison, SharedNames};
use msmemscope_event::visible_keeping;

/// Writes all rows: two header lines, then one line per aligned pair or single.
pub fn write_csv(comparison: &Comparison, names: &SharedNames, output: &mut impl Write) -> io::Result<()> {
    output.write_all(b",,,Base,Compare\n")?;
    output.write_all(b"Event,Name,Device Id,Allocated Memory(byte),Allocated Memory(byte),Diff Memory(byte)\n")?;
    let event = comparison.level.event();
    let side = |bytes: Option<i64>| bytes.map_or_else(|| "N/A".to_owned(), |bytes| bytes.to_string());
    for row in &comparison.rows {
        let name = quoted(names.get(row.name));
        let (base, other) = (side(row.base_bytes), side(row.other_bytes));
        writeln!(output, "{event},{name},{},{base},{other},{}", row.device, row.difference_bytes())?;
    }
    output.flush()
}

/// A cell, in quotes if it needs them.
fn quoted(text: &str) -> std::borrow::Cow<'_, str> {
    let text = visible_keeping(text, &['\n', '\r', '\t']);
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")).into(),
        false => text,
    }
}
