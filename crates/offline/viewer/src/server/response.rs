//! Answers, with the headers that keep the page to itself.

use std::borrow::Cow;
use std::io::{self, Write};

/// Nothing but our own files is ever loaded, nothing is sent elsewhere, and nobody frames the page.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    img-src 'self' data: blob:; connect-src 'self'; worker-src 'self'; font-src 'self'; base-uri 'none'; \
    form-action 'none'; frame-ancestors 'none'";

/// An answer to a request.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) content_type: &'static str,
    pub(crate) body: Cow<'static, [u8]>,
    /// Name under which a browser saves the answer.
    pub(crate) download: Option<&'static str>,
    /// Where the browser should look instead.
    pub(crate) location: Option<String>,
}

impl Response {
    pub(crate) fn new(status: u16, content_type: &'static str, body: impl Into<Cow<'static, [u8]>>) -> Self {
        Self { status, content_type, body: body.into(), download: None, location: None }
    }

    pub(crate) fn json(status: u16, value: &serde_json::Value) -> Self {
        Self::new(status, "application/json; charset=utf-8", value.to_string().into_bytes())
    }

    pub(crate) fn error(status: u16, reason: &str) -> Self {
        Self::json(status, &serde_json::json!({ "error": reason }))
    }

    pub(crate) fn write(&self, output: &mut impl Write, is_head: bool, keep_alive: bool) -> io::Result<()> {
        let mut text = format!(
            "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nContent-Security-Policy: {}\r\n\
             X-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\nReferrer-Policy: no-referrer\r\n\
             Cross-Origin-Resource-Policy: same-origin\r\nCross-Origin-Opener-Policy: same-origin\r\n\
             Cache-Control: no-store\r\nConnection: {}\r\n",
            self.status,
            reason_phrase(self.status),
            self.content_type,
            self.body.len(),
            CONTENT_SECURITY_POLICY,
            if keep_alive { "keep-alive" } else { "close" },
        );
        if let Some(name) = self.download {
            text.push_str(&format!("Content-Disposition: attachment; filename=\"{name}\"\r\n"));
        }
        if let Some(location) = &self.location {
            text.push_str(&format!("Location: {location}\r\n"));
        }
        if self.status == 405 {
            text.push_str("Allow: GET, HEAD\r\n");
        }
        text.push_str("\r\n");
        output.write_all(text.as_bytes())?;
        if !is_head {
            output.write_all(&self.body)?;
        }
        output.flush()
    }
}

fn reason_phrase(status: u16) -> &'static str {
    match status {
        200 => "OK",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        413 => "Content Too Large",
        421 => "Misdirected Request",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        _ => "Error",
    }
}
