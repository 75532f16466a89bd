//! Names behind small numbers: strings and code objects of the recording, and texts that it has only once.

use std::borrow::Cow;

use msmemscope_event::{CodeId, StringId};
use msmemscope_trace::Definitions;
use rustc_hash::FxHashMap;

/// Longest text that is kept; recordings may hold anything.
const LONGEST_TEXT_BYTES: usize = 4096;
const CODE: u32 = 1 << 30;
const OWN: u32 = 1 << 31;

/// Number of a text; zero is the empty one.
pub(crate) type TextId = u32;

/// Texts by number.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    pub(crate) known: FxHashMap<TextId, Box<str>>,
    numbers: FxHashMap<Box<str>, TextId>,
}

/// The number of a string of the recording.
pub(crate) fn of_string(id: StringId) -> TextId {
    id.0 & !(CODE | OWN)
}

/// The number of a code object of the recording.
pub(crate) fn of_code(id: CodeId) -> TextId {
    id.0 & !(CODE | OWN) | CODE
}

impl Texts {
    /// Texts whose numbers are known already.
    pub(crate) fn of_known(known: FxHashMap<TextId, Box<str>>) -> Self {
        Self { known, numbers: FxHashMap::default() }
    }

    /// The number of a text that the recording does not number.
    pub(crate) fn own(&mut self, text: &str) -> TextId {
        if let Some(&id) = self.numbers.get(text) {
            return id;
        }
        let id = OWN | self.numbers.len() as u32;
        self.numbers.insert(text.into(), id);
        self.known.insert(id, shortened(text).into());
        id
    }

    /// The text with a number.
    pub(crate) fn get(&self, id: TextId) -> &str {
        self.known.get(&id).map_or("", |text| text)
    }

    /// Looks up the texts with these numbers in the recording.
    pub(crate) fn learn(&mut self, ids: impl IntoIterator<Item = TextId>, definitions: &Definitions) {
        for id in ids {
            if id == 0 || id & OWN != 0 || self.known.contains_key(&id) {
                continue;
            }
            let text = match id & CODE != 0 {
                true => code_text(CodeId(id & !CODE), definitions),
                false => definitions.string(StringId(id)).into_owned(),
            };
            self.known.insert(id, shortened(&text).into());
        }
    }
}

/// A Python function with its file and line.
fn code_text(id: CodeId, definitions: &Definitions) -> String {
    let Some(code) = definitions.code(id) else { return String::new() };
    let (name, file) = (definitions.string(code.name), definitions.string(code.file));
    if file.is_empty() { name.into_owned() } else { format!("{name} ({file}:{})", code.first_line) }
}

/// A text that is not longer than anybody reads.
pub(crate) fn shortened(text: &str) -> Cow<'_, str> {
    if text.len() <= LONGEST_TEXT_BYTES {
        return text.into();
    }
    let mut end = LONGEST_TEXT_BYTES;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…", &text[..end]).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_text_has_the_same_number() {
        let mut texts = Texts::default();
        let first = texts.own("step start");
        assert_eq!(texts.own("step start"), first);
        assert_ne!(texts.own("other"), first);
        assert_eq!((texts.get(first), texts.get(0)), ("step start", ""));
        let long = "é".repeat(LONGEST_TEXT_BYTES);
        let id = texts.own(&long);
        assert!(texts.get(id).ends_with("é…") && texts.get(id).len() <= LONGEST_TEXT_BYTES + 3);
    }
}
