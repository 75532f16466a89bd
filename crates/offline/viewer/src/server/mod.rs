//! The local server: one listener on the loopback address, a limited number of connections, read only.

pub mod assets;
pub mod guard;
pub mod request;

pub(crate) mod connections;
pub(crate) mod query;
pub(crate) mod response;

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use connections::{Connections, Seat};
use guard::Token;
use query::Query;
use request::{NoRequest, Patience, Request};
use response::Response;

/// Answers questions about data.
pub(crate) trait Answerer: Send + Sync + 'static {
    /// The answer to `api/<name>`.
    fn answer(&self, name: &str, query: &Query) -> Response;
}

/// A listener that is bound but not served yet.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    token: Token,
    patience: Patience,
    ends: Arc<AtomicBool>,
}

/// Ends a server from another thread.
#[derive(Clone, Debug)]
pub struct Stop {
    ends: Arc<AtomicBool>,
    address: SocketAddr,
}

impl Stop {
    /// Accepts no more connections.
    pub fn stop(&self) {
        self.ends.store(true, Ordering::Relaxed);
        // Wakes the listener up; if nobody listens any more, all the better.
        drop(TcpStream::connect_timeout(&self.address, Duration::from_secs(1)));
    }
}

impl Server {
    /// Binds a port of the loopback address; 0 takes any.
    pub fn bind(port: u16, patience: Patience) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        Ok(Self { listener, token: Token::fresh()?, patience, ends: Arc::default() })
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.listener.local_addr().map_or(0, |address| address.port())
    }

    /// Where the page is.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/{}/", self.port(), self.token.text())
    }

    /// What ends the server.
    pub fn stop(&self) -> Stop {
        Stop { ends: self.ends.clone(), address: SocketAddr::from((Ipv4Addr::LOCALHOST, self.port())) }
    }

    /// Serves until it is stopped.
    pub(crate) fn serve(self, answerer: Arc<dyn Answerer>) {
        let connections = Arc::new(Connections::default());
        let token = Arc::new(self.token);
        for stream in self.listener.incoming() {
            if self.ends.load(Ordering::Relaxed) {
                return;
            }
            let Ok(stream) = stream else {
                // Out of descriptors, perhaps: others will go away.
                std::thread::sleep(Duration::from_millis(20));
                continue;
            };
            let stream = Arc::new(stream);
            let Some(seat) = connections.take(stream.clone()) else {
                drop(stream.set_write_timeout(Some(Duration::from_millis(100))));
                let reason = "too many pages are open at once: close some of them, then load this one again";
                drop(Response::error(503, reason).write(&mut &*stream, false, false));
                continue;
            };
            let (answerer, token, patience) = (answerer.clone(), token.clone(), self.patience);
            let connection = move || drop(converse(&seat, &token, &*answerer, patience));
            drop(std::thread::Builder::new().name("viewer".to_owned()).spawn(connection));
        }
    }
}

/// Answers the requests of one connection.
fn converse(seat: &Seat, token: &Token, answerer: &dyn Answerer, patience: Patience) -> io::Result<()> {
    let stream = seat.stream();
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(patience.request))?;
    let mut buffer = Vec::new();
    loop {
        let (response, is_head, keep_alive) = match request::read(stream, &mut buffer, patience) {
            Ok(request) => {
                let rest = guard::admit(&request, token);
                if rest.is_ok() {
                    seat.start_answer();
                }
                (respond(rest, &request, token, answerer), request.is_head, request.keep_alive)
            }
            Err(NoRequest::Gone) => return Ok(()),
            Err(NoRequest::Refused(status, reason)) => (Response::error(status, reason), false, false),
        };
        response.write(&mut io::BufWriter::new(stream), is_head, keep_alive)?;
        if !keep_alive {
            return Ok(());
        }
        seat.end_answer();
    }
}

/// What is answered to a request of which it is known what is behind its token, or why it is refused.
fn respond(
    rest: Result<&str, (u16, &'static str)>,
    request: &Request,
    token: &Token,
    answerer: &dyn Answerer,
) -> Response {
    let rest = match rest {
        Ok(rest) => rest,
        Err((308, _)) => {
            let mut response = Response::error(308, "the address lacks a slash at its end");
            response.location = Some(format!("/{}/", token.text()));
            return response;
        }
        Err((status, reason)) => return Response::error(status, reason),
    };
    if let Some(name) = rest.strip_prefix("api/") {
        return answerer.answer(name, &Query::parse(&request.query));
    }
    match assets::find(rest) {
        Some(asset) => Response::new(200, asset.content_type, asset.bytes),
        None => Response::error(404, "there is nothing here"),
    }
}
