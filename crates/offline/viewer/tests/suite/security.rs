//! Only the user's own browser gets an answer, and nobody can keep the server busy.

use std::io::{Read, Write};
use std::net::TcpStream;
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
fn strangers_do_not_keep_the_owner_away_however_many_they_are() {
    let (_directory, viewer) = viewer();
    let question = format!("{}/api/session", viewer.path());
    let request = format!("GET {question} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let mut strangers: Vec<_> = (0..60).map(|_| viewer.connect()).collect();
    for slow in strangers.iter_mut().skip(20) {
        // Some have given way already.
        let _ = slow.write_all(b"GET /api/session HT");
    }
    assert_eq!(viewer.get(&question, "").0, 200, "nobody waits for those who were there before");
    let mut owner = viewer.connect();
    for _ in 0..3 {
        owner.write_all(request.as_bytes()).unwrap();
        assert_eq!(status_of_answer(&mut owner), 200);
        // A connection that has shown the token stays.
        strangers.extend((0..60).map(|_| viewer.connect()));
        assert_eq!(viewer.get(&question, "").0, 200);
    }
}

/// Reads one answer to its end.
fn status_of_answer(stream: &mut TcpStream) -> u16 {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let length = head.split("Content-Length: ").nth(1).and_then(|rest| rest.lines().next()).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut body).unwrap();
    head.split(' ').nth(1).unwrap().parse().unwrap()
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
