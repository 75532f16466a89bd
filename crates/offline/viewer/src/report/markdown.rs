//! The report for issue trackers: Markdown with tables, in which names from recordings are only names.

use msmemscope_report::escaping::{markdown, markdown_code};

use super::document::{Cell, Document, Part, trimmed};

pub(super) fn render(document: &Document) -> String {
    let mut text = format!("# {}\n", markdown(&document.title));
    for part in &document.parts {
        text.push('\n');
        push_part(&mut text, part);
    }
    text
}

fn push_part(text: &mut String, part: &Part) {
    match part {
        Part::Heading(title) => text.push_str(&format!("## {}\n", markdown(title))),
        Part::Sentence(sentence) => text.push_str(&format!("{}\n", plain(sentence))),
        Part::Verdict(sentence) => text.push_str(&format!("**{}**\n", markdown(sentence.trim()))),
        Part::Findings(findings) => {
            for (number, finding) in (1..).zip(findings) {
                text.push_str(&format!("{number}. **{}:** {}\n", markdown(&finding.tag), markdown(&finding.sentence)));
                if let Some(place) = &finding.place {
                    text.push_str(&format!("   - {}\n", markdown_code(place)));
                }
                for detail in &finding.details {
                    text.push_str(&format!("   - {}\n", plain(detail)));
                }
            }
        }
        Part::Curve(lines) => text.push_str(&format!("```text\n{}\n```\n", trimmed(lines))),
        Part::Table { columns, rows } => push_table(text, columns, rows),
    }
}

/// A sentence at the start of a line, where more characters mean something than within it.
fn plain(sentence: &str) -> String {
    let escaped = markdown(sentence.trim_start());
    match escaped.chars().next() {
        Some('-' | '+' | '=') => format!("\\{escaped}"),
        Some(first) if first.is_ascii_digit() => escaped.replacen(". ", "\\. ", 1),
        _ => escaped,
    }
}

fn push_table(text: &mut String, columns: &[&str], rows: &[Vec<Cell>]) {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    text.push_str(&line(columns.iter().map(|column| markdown(column)).collect()));
    let is_number = |index: usize| matches!(rows.first().and_then(|row| row.get(index)), Some(Cell::Number(_)));
    let rule = |index: usize| if is_number(index) { "---:" } else { "---" };
    text.push_str(&line((0..columns.len()).map(|index| rule(index).to_owned()).collect()));
    for row in rows {
        let cell = |cell: &Cell| match cell {
            Cell::Number(words) | Cell::Text(words) => markdown(words),
            Cell::Code(code) => markdown_code(code),
        };
        text.push_str(&line(row.iter().map(cell).collect()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::document::FindingText;

    #[test]
    fn tables_and_findings_are_markdown_and_names_are_not() {
        let finding = FindingText {
            severity: "error".to_owned(),
            tag: "Error".to_owned(),
            sentence: "4 leak: <img> @all a|b".to_owned(),
            place: Some("/me/a`b.py:3 f".to_owned()),
            details: vec!["- not a list".to_owned()],
        };
        let document = Document {
            title: "Memory of train.py".to_owned(),
            parts: vec![
                Part::Verdict("Leak: *x*".to_owned()),
                Part::Findings(vec![finding]),
                Part::Curve(vec![" ▁ ".to_owned(), "▃█▂".to_owned()]),
                Part::Table {
                    columns: vec!["bytes", "line"],
                    rows: vec![vec![Cell::Number("5".to_owned()), Cell::Code("a|b".to_owned())]],
                },
            ],
        };
        let text = render(&document);
        assert_eq!(
            text,
            "# Memory of train.py\n\n**Leak: \\*x\\***\n\n1. **Error:** 4 leak: \\<img\\> @<!-- -->all a\\|b\n   - \
             `` /me/a`b.py:3 f ``\n   - \\- not a list\n\n```text\n ▁\n▃█▂\n```\n\n| bytes | line |\n| ---: | --- |\n| 5 | `a\\|b` |\n"
        );
    }
}
