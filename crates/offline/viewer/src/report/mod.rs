//! Reports: what the page shows of recordings, taken along in one file.
//!
//! A report asks the same questions as the page, once, for a bounded level of detail, and keeps the answers. The page
//! of a report is the page of the server with these answers inside it (`web/src/source/embedded.ts`).
//!
//! * `collection`: which questions are asked, and how much detail fits.
//! * `document`: what a report says in words and tables, for readers without a browser or without scripts.
//! * `page`, `markdown`: the two ways to write it down.

mod collection;
mod document;
mod markdown;
mod page;

use std::sync::Arc;

use msmemscope_report::redaction::Redactor;
use serde_json::{Map, Value, json};

use crate::answers::Answers;
use crate::session::Session;

use document::Document;

/// Answers about a session that is complete.
#[derive(Debug)]
pub struct Report {
    /// Answers by the address under which the page asks for them.
    answers: Map<String, Value>,
    document: Document,
}

impl Report {
    /// Asks all questions. With a redactor nothing comes out that it knows how to hide.
    pub fn of(session: &Arc<Session>, redactor: Option<Redactor>) -> Self {
        let asked = Answers::new(session.clone());
        let mut answers = collection::collect(&asked);
        if let Some(mut redactor) = redactor {
            redact(&mut answers, &mut redactor);
        }
        let document = Document::of(&answers);
        Self { answers, document }
    }

    /// The report as a page that needs nothing else; none if this program was built without the page.
    pub fn html(&self) -> Option<String> {
        page::render(&self.answers, &self.document)
    }

    /// The report for issue trackers.
    pub fn markdown(&self) -> String {
        markdown::render(&self.document)
    }
}

/// What a recording is called that must not be called by its directory.
fn placeholder(number: usize) -> Value {
    json!(format!("recording-{}", number + 1))
}

/// Hides where recordings lie and were made, and whatever the redactor finds besides.
fn redact(answers: &mut Map<String, Value>, redactor: &mut Redactor) {
    if let Some(recordings) = answers.get_mut("session").and_then(|session| session["recordings"].as_array_mut()) {
        for (number, recording) in recordings.iter_mut().enumerate() {
            redactor.add_directory(recording["path"].as_str().unwrap_or_default());
            (recording["name"], recording["path"]) = (placeholder(number), placeholder(number));
        }
    }
    // All names first: whatever comes before a file is named as such may speak of it, too.
    answers.values().for_each(|answer| redactor.learn(answer));
    answers.iter_mut().for_each(|(_, answer)| redactor.redact(answer));
}
