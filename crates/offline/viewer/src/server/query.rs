//! Parameters of a request.

/// Parameters by name; of several with one name the first counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query(Vec<(String, String)>);

/// A parameter that makes no sense, in one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BadParameter(pub(crate) String);

impl Query {
    pub(crate) fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(name), decoded(value))
        });
        Self(pairs.collect())
    }

    /// A parameter that is there and not empty.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    pub(crate) fn number(&self, name: &str) -> Result<Option<u64>, BadParameter> {
        let parse = |text: &str| text.parse().map_err(|_| BadParameter(format!("'{name}' must be a whole number")));
        self.text(name).map(parse).transpose()
    }

    /// A number within limits; beyond them the nearest limit counts.
    pub(crate) fn limited(&self, name: &str, default: u64, limits: (u64, u64)) -> Result<u64, BadParameter> {
        Ok(self.number(name)?.unwrap_or(default).clamp(limits.0, limits.1))
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        self.text(name) == Some("1")
    }

    /// One of several words; the first is the default.
    pub(crate) fn word<'w>(&self, name: &str, words: &[&'w str]) -> Result<&'w str, BadParameter> {
        match self.text(name) {
            None => Ok(words[0]),
            Some(text) => words
                .iter()
                .find(|word| **word == text)
                .copied()
                .ok_or_else(|| BadParameter(format!("'{name}' must be one of {}", words.join(", ")))),
        }
    }
}

/// Undoes percent encoding; what is no text becomes replacement characters.
fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut result = Vec::with_capacity(bytes.len());
    let mut position = 0;
    while position < bytes.len() {
        let digits = bytes.get(position + 1..position + 3).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        match (bytes[position], digits.and_then(|digits| std::str::from_utf8(digits).ok())) {
            (b'%', Some(digits)) => {
                result.push(u8::from_str_radix(digits, 16).unwrap_or(b'?'));
                position += 2;
            }
            (b'+', _) => result.push(b' '),
            (byte, _) => result.push(byte),
        }
        position += 1;
    }
    String::from_utf8_lossy(&result).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded() {
        let query = Query::parse("a=1&text=%E4%BD%A0+b%20c%2&c=&a=2&owner=PTA%40model");
        assert_eq!(query.number("a"), Ok(Some(1)));
        assert_eq!(query.text("text"), Some("你 b c%2"));
        assert_eq!(query.text("c"), None);
        assert_eq!(query.text("owner"), Some("PTA@model"));
        assert!(query.number("text").is_err());
        assert_eq!(query.limited("a", 5, (10, 20)), Ok(10));
        assert_eq!(query.word("by", &["owner", "site"]), Ok("owner"));
        assert!(query.word("text", &["owner"]).is_err());
    }
}
