//! Only the user's own browser gets an answer, and nobody can keep the server busy.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use msmemscope_viewer::Patience;

use crate::support::{PATIENCE, Viewer, training};

fn viewer() -> (tempfile::TempDir, Viewer) {
    let directory = tempfile::tempdir().unwrap();
    let path = training(2).write(directory.path(), "memscope_dump_1.csv");
    let viewer = Viewer::of(&[&path]).ready();
    (directory, viewer)
}

#[test]
fn without_the_token_nothing_is_told() {
    let (_directory, viewer) = viewer();
    let token = viewer.path();
    let wrong = format!("/{}", "0".repeat(32));
    for path in [
        "/",
        "/api/session",
        "/index.html",
        "/app.js",
        "//",
        "/favicon.ico",
        &wrong,
        &format!("{wrong}/api/session"),
        &token[..20],
    ] {
        let (status, head, body) = viewer.get(path, "");
        assert_eq!(status, 403, "{path}");
        assert!(!head.contains(&token) && !body.contains("recordings"), "{path}");
    }
    assert_eq!(viewer.get(&format!("{token}/api/session"), "").0, 200);
    let (status, head, _) = viewer.get(&token, "");
    assert!(status == 308 && head.contains(&format!("Location: {token}/")));
}

#[test]
fn foreign_hosts_and_origins_are_refused() {
    let (_directory, viewer) = viewer();
    let path = format!("{}/api/session", viewer.path());
    let port = viewer.port();
    for (headers, expected) in [
        ("Host: evil.example\r\n".to_owned(), 421),
        (format!("Host: 127.0.0.1.evil.example:{port}\r\n"), 421),
        ("Host: localhost:9000\r\n".to_owned(), 200),
        (format!("Origin: http://127.0.0.1:{port}\r\n"), 200),
        ("Origin: http://evil.example\r\n".to_owned(), 403),
        ("Origin: null\r\n".to_owned(), 403),
        ("Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\n".to_owned(), 403),
        ("Sec-Fetch-Site: same-origin\r\n".to_owned(), 200),
    ] {
        assert_eq!(viewer.get(&path, &headers).0, expected, "{headers}");
    }
    let answer = viewer.raw(format!("GET {path} HTTP/1.1\r\nConnection: close\r\n\r\n").as_bytes());
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
}

#[test]
fn answers_carry_what_keeps_the_page_to_itself() {
    let (_directory, viewer) = viewer();
    let (_, head, _) = viewer.get(&format!("{}/api/session", viewer.path()), "");
    for header in [
        "Content-Security-Policy: default-src 'none'; script-src 'self'",
        "X-Content-Type-Options: nosniff",
        "Cache-Control: no-store",
        "Referrer-Policy: no-referrer",
        "Cross-Origin-Resource-Policy: same-origin",
    ] {
        assert!(head.contains(header), "{header} in {head}");
    }
    assert!(!head.contains("Access-Control-Allow-Origin"));
}

#[test]
fn nothing_but_the_named_recording_is_read() {
    let (directory, viewer) = viewer();
    let secret = directory.path().join("secret.py");
    std::fs::write(&secret, "password = 1\n").unwrap();
    let token = viewer.path();
    for path in [
        format!("{token}/../../etc/passwd"),
        format!("{token}/%2e%2e/%2e%2e/etc/passwd"),
        format!("{token}/api/../../../etc/passwd"),
        format!("{token}/api/source?file=/etc/passwd&line=1"),
        format!("{token}/api/source?file={}&line=1", secret.display()),
        format!("{token}/api/source?file=/me/../etc/passwd&line=1"),
        format!("{token}/recording.trace"),
    ] {
        let (status, _, body) = viewer.get(&path, "");
        assert_eq!(status, 404, "{path}");
        assert!(!body.contains("password") && !body.contains("root:"), "{path}");
    }
}

#[test]
fn only_reading_is_possible() {
    let (_directory, viewer) = viewer();
    let path = format!("{}/api/session", viewer.path());
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "TRACE"] {
        let request = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        assert!(viewer.raw(request.as_bytes()).starts_with("HTTP/1.1 405"), "{method}");
    }
    let head = viewer.raw(format!("HEAD {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").as_bytes());
    assert!(head.starts_with("HTTP/1.1 200") && head.ends_with("\r\n\r\n"));
}

#[test]
fn oversized_requests_are_refused() {
    let (_directory, viewer) = viewer();
    let long = "x".repeat(100_000);
    for request in [
        format!("GET /{long} HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {long}\r\n\r\n"),
        format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(500)),
    ] {
        assert!(viewer.raw(request.as_bytes()).starts_with("HTTP/1.1 431"));
    }
    let body = "GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n";
    assert!(viewer.raw(body.as_bytes()).starts_with("HTTP/1.1 413"));
    assert!(viewer.raw(b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n").starts_with("HTTP/1.1 400"));
}

#[test]
fn slow_clients_do_not_keep_others_from_their_answers() {
    let directory = tempfile::tempdir().unwrap();
    let path = training(2).write(directory.path(), "memscope_dump_1.csv");
    let patience = Patience { idle: Duration::from_millis(300), request: Duration::from_millis(600) };
    let viewer = Viewer::with_patience(&[&path], patience).ready();
    let started = Instant::now();
    let mut slow = viewer.connect();
    slow.write_all(b"GET / HT").unwrap();
    let silent: Vec<_> = (0..10).map(|_| viewer.connect()).collect();
    assert_eq!(viewer.ask("session")["complete"], true);
    let mut answer = String::new();
    slow.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    for mut stream in silent {
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
        assert!(rest.is_empty(), "a client that says nothing is left without an answer");
    }
    assert!(started.elapsed() < PATIENCE);
}

#[test]
fn too_many_connections_are_turned_away() {
    let (_directory, viewer) = viewer();
    let many: Vec<_> = (0..60).map(|_| viewer.connect()).collect();
    let deadline = Instant::now() + PATIENCE;
    let refused = loop {
        let (status, _, _) = viewer.get(&format!("{}/api/session", viewer.path()), "");
        if status == 503 || Instant::now() > deadline {
            break status;
        }
    };
    assert_eq!(refused, 503);
    drop(many);
    let answered = loop {
        let (status, _, _) = viewer.get(&format!("{}/api/session", viewer.path()), "");
        if status == 200 || Instant::now() > deadline {
            break status;
        }
    };
    assert_eq!(answered, 200, "they have gone");
}

#[test]
fn one_connection_serves_several_requests() {
    let (_directory, viewer) = viewer();
    let mut stream = viewer.connect();
    let request = format!("GET {}/api/ranks HTTP/1.1\r\nHost: localhost\r\n\r\n", viewer.path());
    stream.write_all(request.repeat(2).as_bytes()).unwrap();
    stream.write_all(b"GET /last HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answers = String::new();
    stream.read_to_string(&mut answers).unwrap();
    assert_eq!(answers.matches("HTTP/1.1 200").count(), 2);
    assert_eq!(answers.matches("HTTP/1.1 403").count(), 1);
}
