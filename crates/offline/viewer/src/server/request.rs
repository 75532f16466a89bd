//! Reads one request. Only the head counts: nobody has a reason to send us a body.
//!
//! Both its size and the time it may take are limited, so that a client that is slow or talks too much costs no more
//! than one of a limited number of threads for a few seconds.

use std::io::{self, Read};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Largest head of a request.
pub(crate) const LARGEST_HEAD_BYTES: usize = 16 << 10;
const MOST_HEADERS: usize = 64;

/// How long a client may take.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Between two requests of one connection.
    pub idle: Duration,
    /// From the first byte of a head to its last, and for taking an answer.
    pub request: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { idle: Duration::from_secs(20), request: Duration::from_secs(10) }
    }
}

/// The head of a request, as far as we look at it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) is_head: bool,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) host: Option<String>,
    pub(crate) origin: Option<String>,
    /// What the browser says about who asks (`Sec-Fetch-Site`).
    pub(crate) fetch_site: Option<String>,
    /// Whether the browser goes to the page, rather than a page asking for data.
    pub(crate) is_navigation: bool,
    pub(crate) keep_alive: bool,
}

/// Why there is no request.
#[derive(Debug)]
pub(crate) enum NoRequest {
    /// The client went away, or said nothing.
    Gone,
    /// It is refused with this status and reason.
    Refused(u16, &'static str),
}

impl From<io::Error> for NoRequest {
    fn from(_: io::Error) -> Self {
        NoRequest::Gone
    }
}

/// Reads the next request of a connection. Bytes behind its head stay in `buffer`.
pub(crate) fn read(mut stream: &TcpStream, buffer: &mut Vec<u8>, patience: Patience) -> Result<Request, NoRequest> {
    let mut deadline = (!buffer.is_empty()).then(|| Instant::now() + patience.request);
    loop {
        if let Some(end) = end_of_head(buffer) {
            let request = parse(&buffer[..end])?;
            buffer.drain(..end);
            return Ok(request);
        }
        if buffer.len() >= LARGEST_HEAD_BYTES {
            return Err(NoRequest::Refused(431, "the request is too long"));
        }
        let left = match deadline {
            None => patience.idle,
            Some(deadline) => deadline.saturating_duration_since(Instant::now()),
        };
        if left.is_zero() {
            return Err(NoRequest::Refused(408, "the request took too long"));
        }
        stream.set_read_timeout(Some(left))?;
        let mut piece = [0; 4096];
        let room = piece.len().min(LARGEST_HEAD_BYTES - buffer.len());
        match stream.read(&mut piece[..room]) {
            Ok(0) => return Err(NoRequest::Gone),
            Ok(count) => {
                buffer.extend_from_slice(&piece[..count]);
                deadline = deadline.or_else(|| Some(Instant::now() + patience.request));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                if deadline.is_none() {
                    return Err(NoRequest::Gone);
                }
            }
            Err(_) => return Err(NoRequest::Gone),
        }
    }
}

/// Length of a head with the empty line behind it.
fn end_of_head(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|window| window == b"\r\n\r\n").map(|position| position + 4)
}

fn parse(head: &[u8]) -> Result<Request, NoRequest> {
    const BAD: NoRequest = NoRequest::Refused(400, "the request cannot be read");
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    match parsed.parse(head) {
        Ok(status) if status.is_complete() => {}
        Err(httparse::Error::TooManyHeaders) => {
            return Err(NoRequest::Refused(431, "the request has too many headers"));
        }
        _ => return Err(BAD),
    }
    let mut request = Request::default();
    match parsed.method {
        Some("GET") => {}
        Some("HEAD") => request.is_head = true,
        _ => return Err(NoRequest::Refused(405, "only GET and HEAD are answered")),
    }
    let target = parsed.path.unwrap_or("");
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    (request.path, request.query) = (path.to_owned(), query.to_owned());
    request.keep_alive = parsed.version == Some(1);
    for header in parsed.headers.iter() {
        let value = std::str::from_utf8(header.value).map_err(|_| BAD)?.trim().to_owned();
        let is = |name: &str| header.name.eq_ignore_ascii_case(name);
        if is("host") && request.host.replace(value.clone()).is_some() {
            return Err(NoRequest::Refused(400, "there is more than one Host"));
        }
        if is("content-length") && value != "0" || is("transfer-encoding") {
            return Err(NoRequest::Refused(413, "requests have no body"));
        }
        if is("connection") && value.eq_ignore_ascii_case("close") {
            request.keep_alive = false;
        }
        if is("origin") {
            request.origin = Some(value);
        } else if is("sec-fetch-site") {
            request.fetch_site = Some(value);
        } else if is("sec-fetch-mode") {
            request.is_navigation = value == "navigate";
        }
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(head: &str) -> u16 {
        match parse(head.as_bytes()) {
            Err(NoRequest::Refused(status, _)) => status,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_head_is_read() {
        let head = "GET /a/b?c=d HTTP/1.1\r\nHost: localhost:1\r\nSec-Fetch-Mode: navigate\r\n\r\n";
        let request = parse(head.as_bytes()).unwrap();
        assert_eq!((request.path.as_str(), request.query.as_str()), ("/a/b", "c=d"));
        assert_eq!(request.host.as_deref(), Some("localhost:1"));
        assert!(request.keep_alive && request.is_navigation && !request.is_head);
        let old = parse(b"HEAD / HTTP/1.0\r\n\r\n").unwrap();
        assert!(!old.keep_alive && old.is_head);
    }

    #[test]
    fn what_no_browser_of_ours_sends_is_refused() {
        assert_eq!(refused("POST / HTTP/1.1\r\n\r\n"), 405);
        assert_eq!(refused("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"), 400);
        assert_eq!(refused("GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\n"), 413);
        assert_eq!(refused("GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"), 413);
        assert_eq!(refused("nonsense\r\n\r\n"), 400);
        let many = "X: y\r\n".repeat(100);
        assert_eq!(refused(&format!("GET / HTTP/1.1\r\n{many}\r\n")), 431);
    }
}
