//! The report as one page: the front end with its data inside, and everything that matters as text for browsers that
//! run no scripts.

use std::fmt::Write;

use msmemscope_event::is_steering;
use msmemscope_report::escaping::html;
use serde_json::{Map, Value, json};

use crate::server::assets::REPORT_PAGE;

use super::document::{Cell, Document, Part, trimmed};

/// Version of the data, for the page.
const VERSION: u32 = 1;

pub(super) fn render(answers: &Map<String, Value>, document: &Document) -> Option<String> {
    let mut page = String::new();
    let mut rest = REPORT_PAGE?;
    let data = data(answers);
    let parts = [("<!--title-->", html(&document.title)), ("<!--text-->", text(document)), ("<!--data-->", data)];
    for (place, part) in parts {
        let (before, behind) = rest.split_once(place)?;
        page.push_str(before);
        page.push_str(&part);
        rest = behind;
    }
    page.push_str(rest);
    Some(page)
}

/// The answers as JSON that ends no script and steers nothing.
fn data(answers: &Map<String, Value>) -> String {
    let json = json!({ "version": VERSION, "answers": answers }).to_string();
    let mut safe = String::with_capacity(json.len());
    for letter in json.chars() {
        match letter {
            // In JSON these stand in strings only, where they may be spelled out.
            '<' | '>' | '&' => drop(write!(safe, "\\u{:04x}", u32::from(letter))),
            letter if is_steering(letter) => drop(write!(safe, "\\u{:04x}", u32::from(letter))),
            letter => safe.push(letter),
        }
    }
    safe
}

fn text(document: &Document) -> String {
    let mut text = format!("<main class=\"document\">\n<h1>{}</h1>\n", html(&document.title));
    for part in &document.parts {
        push_part(&mut text, part);
    }
    text.push_str("<p class=\"muted\">With JavaScript this page also draws timelines and flame graphs.</p>\n</main>");
    text
}

fn push_part(text: &mut String, part: &Part) {
    match part {
        Part::Heading(title) => push_element(text, "h2", title),
        Part::Sentence(sentence) => push_element(text, "p", sentence),
        Part::Verdict(sentence) => text.push_str(&format!("<p class=\"verdict\">{}</p>\n", html(sentence))),
        Part::Findings(findings) => {
            text.push_str("<ol class=\"findings\">\n");
            for finding in findings {
                let severity = html(&finding.severity);
                text.push_str(&format!(
                    "<li class=\"finding {severity}\">\n<p class=\"tag\">{}</p>\n",
                    html(&finding.tag)
                ));
                text.push_str(&format!("<p class=\"sentence\">{}</p>\n", html(&finding.sentence)));
                if let Some(place) = &finding.place {
                    text.push_str(&format!("<p class=\"where mono\">{}</p>\n", html(place)));
                }
                if !finding.details.is_empty() {
                    let items: Vec<String> =
                        finding.details.iter().map(|detail| format!("<li>{}</li>\n", html(detail))).collect();
                    text.push_str(&format!("<ul>\n{}</ul>\n", items.concat()));
                }
                text.push_str("</li>\n");
            }
            text.push_str("</ol>\n");
        }
        Part::Curve(lines) => text.push_str(&format!("<pre class=\"curve\">{}</pre>\n", trimmed(lines))),
        Part::Table { columns, rows } => {
            text.push_str("<table>\n<thead><tr>");
            let is_number = |index: usize| matches!(rows.first().and_then(|row| row.get(index)), Some(Cell::Number(_)));
            for (index, column) in columns.iter().enumerate() {
                let class = if is_number(index) { " class=\"number\"" } else { "" };
                text.push_str(&format!("<th scope=\"col\"{class}>{}</th>", html(column)));
            }
            text.push_str("</tr></thead>\n<tbody>\n");
            for row in rows {
                text.push_str("<tr>");
                for cell in row {
                    text.push_str(&match cell {
                        Cell::Number(number) => format!("<td class=\"number\">{}</td>", html(number)),
                        Cell::Code(code) => format!("<td><code>{}</code></td>", html(code)),
                        Cell::Text(words) => format!("<td>{}</td>", html(words)),
                    });
                }
                text.push_str("</tr>\n");
            }
            text.push_str("</tbody>\n</table>\n");
        }
    }
}

fn push_element(text: &mut String, name: &str, content: &str) {
    text.push_str(&format!("<{name}>{}</{name}>\n", html(content)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_end_no_script_and_steer_nothing() {
        let mut answers = Map::new();
        let hostile = "</script><!-- \u{202e}\u{2028}\u{1b}[31m & \"";
        answers.insert("session".to_owned(), json!({ "name": hostile }));
        let text = data(&answers);
        assert!(!text.contains(['<', '>', '&']) && !text.contains(is_steering), "{text}");
        let read: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(read["answers"]["session"]["name"], hostile);
    }
}
