//! Who may ask: only somebody who knows the token, through a name of this machine itself, and no other page.
//!
//! The page may be reached through a tunnel (`ssh -L`), so any port will do; but the name in Host must be one that no
//! foreign name server gives out, or a page of a stranger could let its own name point here.

use std::fs::File;
use std::io::{self, Read};

use super::request::Request;

const LOOPBACK_NAMES: [&str; 3] = ["127.0.0.1", "localhost", "[::1]"];
const TOKEN_BYTES: usize = 16;

/// A secret for one run of the server: 32 hexadecimal digits.
#[derive(Clone, Debug)]
pub struct Token(String);

impl Token {
    /// A token nobody can guess.
    pub fn fresh() -> io::Result<Self> {
        let mut bytes = [0; TOKEN_BYTES];
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        Ok(Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// Its text.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Compares without telling by the time it takes how much was right.
    fn is(&self, other: &str) -> bool {
        let (own, other) = (self.0.as_bytes(), other.as_bytes());
        own.len() == other.len() && own.iter().zip(other).fold(0, |found, (a, b)| found | (a ^ b)) == 0
    }
}

/// What is behind the token in the path of a permitted request, or why it is refused.
pub(crate) fn admit<'r>(request: &'r Request, token: &Token) -> Result<&'r str, (u16, &'static str)> {
    let host = request.host.as_deref().ok_or((400, "the request names no Host"))?;
    if !is_loopback(host) {
        return Err((421, "this server answers to 127.0.0.1 and localhost only"));
    }
    let path = request.path.strip_prefix('/').unwrap_or(&request.path);
    let (given, rest) = path.split_once('/').map_or((path, None), |(given, rest)| (given, Some(rest)));
    if !token.is(given) {
        return Err((403, "the address has no valid token; use the one that 'msmemscope view' printed"));
    }
    if request.origin.as_deref().is_some_and(|origin| origin.strip_prefix("http://") != Some(host)) {
        return Err((403, "pages of other origins are not answered"));
    }
    let is_own = matches!(request.fetch_site.as_deref(), None | Some("same-origin" | "none"));
    if !is_own && !request.is_navigation {
        return Err((403, "pages of other origins are not answered"));
    }
    rest.ok_or((308, "the address lacks a slash at its end"))
}

/// Whether a Host is a name of this machine for itself, with any port.
fn is_loopback(host: &str) -> bool {
    LOOPBACK_NAMES.iter().any(|name| {
        let Some(prefix) = host.get(..name.len()) else { return false };
        let port = &host[name.len()..];
        let is_port = |digits: &str| digits.parse::<u16>().is_ok() && digits.bytes().all(|byte| byte.is_ascii_digit());
        prefix.eq_ignore_ascii_case(name) && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(path: &str, host: &str) -> Request {
        Request { path: path.to_owned(), host: Some(host.to_owned()), ..Request::default() }
    }

    #[test]
    fn only_names_of_this_machine_are_hosts() {
        for host in ["127.0.0.1", "127.0.0.1:8080", "localhost:1", "LocalHost", "[::1]:9"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in [
            "",
            "127.0.0.1.evil.org",
            "localhost.evil.org:80",
            "evil.org",
            "127.0.0.1:",
            "localhost:80x",
            "127.0.0.1@evil.org",
            "localhost:+1",
            "localhost:99999",
            "[::1",
            "é",
        ] {
            assert!(!is_loopback(host), "{host}");
        }
    }

    #[test]
    fn the_token_opens_the_door_and_nothing_else() {
        let token = Token::fresh().unwrap();
        assert_eq!(token.text().len(), 2 * TOKEN_BYTES);
        assert_ne!(token.text(), Token::fresh().unwrap().text());
        let path = format!("/{}/api/session", token.text());
        assert_eq!(admit(&request(&path, "localhost:5"), &token), Ok("api/session"));
        assert_eq!(admit(&request(&path, "evil.org"), &token).unwrap_err().0, 421);
        assert_eq!(admit(&Request { path: path.clone(), ..Request::default() }, &token).unwrap_err().0, 400);
        assert_eq!(admit(&request("/api/session", "localhost:5"), &token).unwrap_err().0, 403);
        assert_eq!(admit(&request("/", "localhost:5"), &token).unwrap_err().0, 403);
        assert_eq!(admit(&request(&path[..33], "localhost"), &token).unwrap_err().0, 308);
        assert_eq!(admit(&request(&path[..20], "localhost"), &token).unwrap_err().0, 403);
    }

    #[test]
    fn other_pages_are_refused() {
        let token = Token::fresh().unwrap();
        let path = format!("/{}/api/session", token.text());
        let from = |origin: &str, site: &str, is_navigation| {
            let mut request = request(&path, "localhost:5");
            request.origin = (!origin.is_empty()).then(|| origin.to_owned());
            request.fetch_site = (!site.is_empty()).then(|| site.to_owned());
            request.is_navigation = is_navigation;
            admit(&request, &token).is_ok()
        };
        assert!(from("http://localhost:5", "same-origin", false));
        assert!(from("", "none", true));
        assert!(from("", "cross-site", true), "a link of a terminal in a browser");
        assert!(!from("", "cross-site", false));
        assert!(!from("", "same-site", false));
        assert!(!from("null", "", false));
        assert!(!from("http://evil.org", "", false));
        assert!(!from("http://localhost:6", "", false));
        assert!(!from("https://localhost:5", "", false));
    }
}
