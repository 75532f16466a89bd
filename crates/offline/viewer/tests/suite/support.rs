//! Builds small recordings, serves them, and asks over HTTP.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use msmemscope_viewer::{Patience, Server, Session, Stop, ViewSettings, serve};
use serde_json::Value;

/// Longest wait for anything; the machine may be busy.
pub const PATIENCE: Duration = Duration::from_secs(60);

const HEADER: &str =
    "ID,Event,Event Type,Name,Timestamp(ns),Process Id,Thread Id,Device Id,Ptr,Attr,Call Stack(Python),Call Stack(C)\n";

/// Rows of a dump under construction. Time goes on by ten with every row.
pub struct Dump {
    text: String,
    rows: u64,
    allocations: u64,
    pub process: u32,
}

impl Dump {
    pub fn new() -> Self {
        Self { text: HEADER.to_owned(), rows: 0, allocations: 0, process: 7 }
    }

    pub fn row(&mut self, event: &str, kind: &str, name: &str, device: &str, pointer: &str, rest: &str) -> &mut Self {
        self.rows += 1;
        let (id, time, process) = (self.rows, 1000 + self.rows * 10, self.process);
        writeln!(self.text, "{id},{event},{kind},{name},{time},{process},7,{device},{pointer},{rest}").unwrap();
        self
    }

    pub fn malloc(&mut self, pool: &str, address: u64, size: u64, attributes: &str, stack: &str) -> &mut Self {
        self.allocations += 1;
        let id = self.allocations;
        let stack = stack.replace('"', "\"\"");
        let rest = format!("\"{{allocation_id:{id},size:{size}{attributes}}}\",\"{stack}\",");
        self.row("MALLOC", pool, "N/A", "0", &format!("{address:#018x}"), &rest)
    }

    pub fn free(&mut self, pool: &str, address: u64) -> &mut Self {
        self.row("FREE", pool, "N/A", "0", &format!("{address:#018x}"), "\"{size:1}\",,")
    }

    pub fn access(&mut self, kind: &str, operator: &str, address: u64) -> &mut Self {
        self.row("ACCESS", kind, operator, "0", &format!("{address:#018x}"), "\"{size:1,type:PTA}\",,")
    }

    pub fn operator(&mut self, name: &str, begins: bool) -> &mut Self {
        self.row("OP_LAUNCH", if begins { "ATEN_START" } else { "ATEN_END" }, name, "0", "N/A", ",,")
    }

    pub fn step(&mut self, begins: bool) -> &mut Self {
        let kind = if begins { "Range_start" } else { "Range_end" };
        self.row("MSTX", kind, "\"step start\"", "0", "N/A", ",,")
    }

    pub fn write(&self, directory: &Path, name: &str) -> PathBuf {
        let path = directory.join(name);
        std::fs::write(&path, &self.text).unwrap();
        path
    }
}

/// A training with a leak of one block per step, weights, temporary blocks, and segments of the driver.
pub fn training(steps: u64) -> Dump {
    let mut dump = Dump::new();
    dump.malloc("HAL", 0x100_0000, 0x40_0000, "", "").malloc("HAL", 0x200_0000, 0x40_0000, "", "");
    let total = ",total:8388608";
    dump.malloc("PTA", 0x100_0000, 300_000, &format!("{total},owner:PTA@model@weight"), "/me/model.py(3): build\n");
    dump.malloc("PTA", 0x110_0000, 7000, &format!("{total},owner:PTA@model@weight"), "/me/model.py(4): build\n");
    for step in 0..steps {
        dump.step(true).operator("aten::mm", true);
        let temporary = 0x120_0000 + step % 3 * 0x1_0000;
        dump.malloc(
            "PTA",
            temporary,
            40_000 + step * 100,
            &format!("{total},owner:PTA@ops@aten"),
            "/me/train.py(9): run\n",
        );
        dump.access("READ", "aten::mm", 0x100_0000).access("WRITE", "aten::mm", temporary);
        dump.operator("aten::mm", false).operator("aten::add", true);
        let leaked = 0x200_0000 + step * 0x1000;
        dump.malloc(
            "PTA",
            leaked,
            2048,
            &format!("{total},owner:PTA@ops@aten"),
            "/me/train.py(31): keep\n/me/train.py(50): main\n",
        );
        dump.access("WRITE", "aten::add", leaked).free("PTA", temporary);
        dump.operator("aten::add", false).step(false);
    }
    dump
}

/// A server in this process.
pub struct Viewer {
    pub url: String,
    stop: Stop,
    thread: Option<JoinHandle<()>>,
    pub session: Arc<Session>,
}

impl Viewer {
    pub fn of(paths: &[&Path]) -> Self {
        Self::with_patience(paths, Patience::default())
    }

    pub fn with_patience(paths: &[&Path], patience: Patience) -> Self {
        let paths = paths.iter().map(|path| path.to_path_buf()).collect();
        let session = Session::open(ViewSettings { paths, missing: |_, _| Vec::new(), trusts_summaries: true });
        session.wait_until_opened(PATIENCE).unwrap();
        let server = Server::bind(0, patience).unwrap();
        let (url, stop, shown) = (server.url(), server.stop(), session.clone());
        let thread = Some(std::thread::spawn(move || serve(server, shown)));
        Self { url, stop, thread, session }
    }

    /// Waits until everything is read.
    pub fn ready(self) -> Self {
        let deadline = Instant::now() + PATIENCE;
        while !self.session.is_complete() {
            assert!(Instant::now() < deadline, "the recording is not read");
            std::thread::sleep(Duration::from_millis(10));
        }
        self
    }

    pub fn port(&self) -> u16 {
        self.url.split(':').nth(2).unwrap().split('/').next().unwrap().parse().unwrap()
    }

    /// The path with the token.
    pub fn path(&self) -> String {
        format!("/{}", self.url.split('/').nth(3).unwrap())
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port())).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends bytes and returns everything that comes back.
    pub fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect();
        // The server may have answered and gone before it took everything.
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// A request with these headers besides; returns the status, the head and the body.
    pub fn get(&self, path: &str, headers: &str) -> (u16, String, String) {
        let host =
            if headers.contains("Host:") { String::new() } else { format!("Host: 127.0.0.1:{}\r\n", self.port()) };
        let answer = self.raw(format!("GET {path} HTTP/1.1\r\n{host}Connection: close\r\n{headers}\r\n").as_bytes());
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        (status, head.to_owned(), body.to_owned())
    }

    /// The answer to a question.
    pub fn ask(&self, question: &str) -> Value {
        let (status, _, body) = self.get(&format!("{}/api/{question}", self.path()), "");
        assert_eq!(status, 200, "{question}: {body}");
        serde_json::from_str(&body).unwrap()
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// A column of numbers.
pub fn numbers(value: &Value) -> Vec<u64> {
    value.as_array().unwrap().iter().map(|number| number.as_u64().unwrap()).collect()
}
