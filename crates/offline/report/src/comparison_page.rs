//! The comparison as one page that needs nothing else: no scripts, no other files.

use std::io::{self, Write};

use msmemscope_analysis::compare::{Comparison, Contribution, ContributionList, DeviceComparison, Row, SharedNames};

use crate::comparison::{bytes_text, times};
use crate::escaping::html as escaped;
use crate::units::{bytes, signed_bytes};

/// Rows listed.
const LISTED_ROWS: usize = 500;
/// Points of a curve.
const CURVE_POINTS: usize = 600;
const CURVE_WIDTH: f64 = 900.0;
const CURVE_HEIGHT: f64 = 180.0;

const STYLE: &str = "
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5b6675; --line: #d9dee6; --page: #ffffff; --panel: #f5f7fa;
  --base: #3b73c4; --other: #d9822b; --more: #c0392b; --less: #2e8b57; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaf0; --soft: #9aa6b5; --line: #384252; --page: #151a21;
  --panel: #1d242e; --base: #6fa3ec; --other: #f0a55b; --more: #ff7b6b; --less: #63c78f; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 24px; max-width: 1000px; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 22px; margin: 0 0 4px; } h2 { font-size: 17px; margin: 32px 0 8px; }
p { margin: 4px 0; color: var(--soft); }
code { font: 13px/1.4 ui-monospace, monospace; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th { text-align: left; font-weight: 600; color: var(--soft); border-bottom: 1px solid var(--line); padding: 4px 8px; }
td { padding: 4px 8px; border-bottom: 1px solid var(--line); vertical-align: top; }
.list th:last-child { width: 48%; }
.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.more { color: var(--more); } .less { color: var(--less); }
.bar { width: 140px; } .bar i { display: block; height: 10px; margin-top: 6px; border-radius: 2px; }
.bar .more { background: var(--more); } .bar .less { background: var(--less); margin-left: auto; }
.verdict { background: var(--panel); border-left: 4px solid var(--less); padding: 10px 14px; margin: 16px 0;
  color: var(--ink); } .verdict.differs { border-color: var(--more); }
figure { margin: 12px 0; } figcaption { color: var(--soft); font-size: 13px; }
svg { width: 100%; height: auto; background: var(--panel); border-radius: 4px; }
svg path { fill: none; stroke-width: 1.5; } .base { stroke: var(--base); } .other { stroke: var(--other); }
.key { display: inline-block; width: 18px; height: 3px; vertical-align: middle; margin: 0 4px 0 10px; }
.key.base { background: var(--base); } .key.other { background: var(--other); }
";

/// Writes the page. The sides are what the user calls base and other.
pub fn write_html(
    comparison: &Comparison,
    names: &SharedNames,
    sides: [&str; 2],
    output: &mut impl Write,
) -> io::Result<()> {
    let noun = comparison.level.noun();
    writeln!(output, "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">")?;
    writeln!(output, "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">")?;
    writeln!(output, "<title>Memory comparison</title>\n<style>{STYLE}</style>\n</head>\n<body>")?;
    writeln!(output, "<h1>Memory comparison</h1>")?;
    writeln!(output, "<p>Base <code>{}</code></p>", escaped(sides[0]))?;
    writeln!(output, "<p>Other <code>{}</code></p>", escaped(sides[1]))?;
    verdict(comparison, noun, output)?;
    for device in &comparison.devices {
        device_section(device, noun, output)?;
        curves(comparison.rows.iter().filter(|row| row.device == device.device), noun, output)?;
    }
    for entries in comparison.lists() {
        list(&entries, output)?;
    }
    rows(comparison, names, noun, output)?;
    writeln!(output, "</body>\n</html>")?;
    output.flush()
}

/// The class that colours a difference.
fn direction(difference: i64) -> &'static str {
    match difference {
        0 => "",
        1.. => " more",
        _ => " less",
    }
}

fn verdict(comparison: &Comparison, noun: &str, output: &mut impl Write) -> io::Result<()> {
    if comparison.is_equal() {
        return writeln!(output, "<p class=\"verdict\">No differences.</p>");
    }
    let peak: i64 = comparison.devices.iter().map(|device| device.peak_bytes.difference()).sum();
    let end: i64 = comparison.devices.iter().map(|device| device.end_bytes.difference()).sum();
    let (gone, new) = comparison
        .devices
        .iter()
        .fold((0, 0), |(gone, new), device| (gone + device.only_base, new + device.only_other));
    writeln!(
        output,
        "<p class=\"verdict differs\">Peak {}, at the end {}; {new} {noun} are new, {gone} are gone.</p>",
        signed_bytes(peak),
        signed_bytes(end)
    )
}

fn device_section(device: &DeviceComparison, noun: &str, output: &mut impl Write) -> io::Result<()> {
    writeln!(output, "<h2>Device {}</h2>", device.device)?;
    writeln!(
        output,
        "<p>{} and {} {noun}: {} aligned, {} only in base, {} only in other.</p>",
        device.items.base, device.items.other, device.aligned, device.only_base, device.only_other
    )?;
    writeln!(
        output,
        "<table>\n<tr><th></th><th class=\"number\">base</th><th class=\"number\">other</th>\
         <th class=\"number\">change</th></tr>"
    )?;
    let lines = [
        ("Peak in use", device.peak_bytes, false),
        ("In use at the end", device.end_bytes, false),
        (&format!("Change inside {noun}"), device.inside_bytes, true),
        ("Change outside", device.outside_bytes, true),
    ];
    for (title, pair, is_change) in lines {
        let show = |value: i64| if is_change { signed_bytes(value) } else { bytes(value.unsigned_abs()) };
        let difference = pair.difference();
        writeln!(
            output,
            "<tr><td>{title}</td><td class=\"number\">{}</td><td class=\"number\">{}</td>\
             <td class=\"number{}\">{}</td></tr>",
            show(pair.base),
            show(pair.other),
            direction(difference),
            signed_bytes(difference)
        )?;
    }
    writeln!(output, "</table>")
}

/// Memory in use along the aligned sequence, one curve per side.
fn curves<'a>(rows: impl Iterator<Item = &'a Row>, noun: &str, output: &mut impl Write) -> io::Result<()> {
    let points: Vec<[u64; 2]> = rows.map(|row| row.in_use_bytes).collect();
    let highest = points.iter().flatten().copied().max().unwrap_or(0);
    if points.len() < 2 || highest == 0 {
        return Ok(());
    }
    let across = CURVE_WIDTH / (points.len() - 1) as f64;
    let down = (CURVE_HEIGHT - 10.0) / highest as f64;
    let stride = points.len().div_ceil(CURVE_POINTS);
    writeln!(output, "<figure><svg viewBox=\"0 0 {CURVE_WIDTH} {CURVE_HEIGHT}\" role=\"img\">")?;
    for (side, class) in ["base", "other"].iter().enumerate() {
        write!(output, "<path class=\"{class}\" d=\"")?;
        for (chunk, part) in points.chunks(stride).enumerate() {
            // The extreme of the part, so that peaks are not lost.
            let (offset, value) = part
                .iter()
                .enumerate()
                .map(|(offset, point)| (offset, point[side]))
                .max_by_key(|(_, value)| *value)
                .unwrap_or_default();
            let x = (chunk * stride + offset) as f64 * across;
            let y = CURVE_HEIGHT - 5.0 - value as f64 * down;
            write!(output, "{}{x:.1} {y:.1}", if chunk == 0 { "M" } else { "L" })?;
        }
        writeln!(output, "\"/>")?;
    }
    writeln!(
        output,
        "</svg><figcaption>Memory in use after each of the aligned {noun}, up to {}\
         <span class=\"key base\"></span>base<span class=\"key other\"></span>other</figcaption></figure>",
        bytes(highest)
    )
}

fn list(list: &ContributionList<'_>, output: &mut impl Write) -> io::Result<()> {
    writeln!(output, "<h2>{}</h2>", list.title)?;
    writeln!(
        output,
        "<table class=\"list\">\n<tr><th class=\"number\">change</th><th></th><th class=\"number\">base</th>\
         <th class=\"number\">other</th><th class=\"number\">times</th><th>{}</th></tr>",
        list.column
    )?;
    let size = |entry: &Contribution| entry.bytes.difference().unsigned_abs();
    let largest = list.entries.iter().map(size).max().unwrap_or(0).max(1);
    for entry in list.entries {
        let difference = entry.bytes.difference();
        let width = size(entry) as f64 * 100.0 / largest as f64;
        writeln!(
            output,
            "<tr><td class=\"number{0}\">{1}</td><td class=\"bar\"><i class=\"{2}\" style=\"width:{width:.1}%\"></i></td>\
             <td class=\"number\">{3}</td><td class=\"number\">{4}</td><td class=\"number\">{5}</td>\
             <td><code>{6}</code></td></tr>",
            direction(difference),
            signed_bytes(difference),
            direction(difference).trim(),
            bytes_text(list, entry.bytes.base),
            bytes_text(list, entry.bytes.other),
            times(entry),
            escaped(&entry.name)
        )?;
    }
    writeln!(output, "</table>")
}

/// Rows that differ, in sequence order.
fn rows(comparison: &Comparison, names: &SharedNames, noun: &str, output: &mut impl Write) -> io::Result<()> {
    let differs = |row: &&(usize, &Row)| {
        row.1.difference_bytes() != 0 || row.1.base_bytes.is_none() || row.1.other_bytes.is_none()
    };
    let numbered: Vec<(usize, &Row)> = comparison.rows.iter().enumerate().collect();
    let different: Vec<&(usize, &Row)> = numbered.iter().filter(differs).collect();
    if different.is_empty() {
        return Ok(());
    }
    writeln!(output, "<h2>Single {noun} that differ</h2>")?;
    if different.len() > LISTED_ROWS {
        writeln!(output, "<p>The first {LISTED_ROWS} of {}; all of them are in the csv file.</p>", different.len())?;
    }
    writeln!(
        output,
        "<table class=\"list\">\n<tr><th class=\"number\">row</th><th class=\"number\">device</th><th class=\"number\">base</th>\
         <th class=\"number\">other</th><th class=\"number\">change</th><th>name</th></tr>"
    )?;
    let side = |value: Option<i64>| value.map_or_else(|| "-".to_owned(), signed_bytes);
    for (index, row) in different.into_iter().take(LISTED_ROWS) {
        let difference = row.difference_bytes();
        writeln!(
            output,
            "<tr><td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td>\
             <td class=\"number\">{}</td><td class=\"number{}\">{}</td><td><code>{}</code></td></tr>",
            index + 1,
            row.device,
            side(row.base_bytes),
            side(row.other_bytes),
            direction(difference),
            signed_bytes(difference),
            escaped(names.get(row.name))
        )?;
    }
    writeln!(output, "</table>")
}
