//! The connections that are open: a limited number, in which nobody keeps the owner's browser waiting.
//!
//! Anybody on the machine can connect, and say nothing or say it slowly. Who has not shown the token is a stranger, and
//! a stranger gives way to whoever comes next, the one who has been there longest first: a browser sends its request
//! right after it has connected. Next come connections that rest between two requests, which a browser opens again when
//! it needs them. Nothing ends the answer to a request that has shown the token.

use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex};

use crate::entry::locked;

/// Connections served at once. A browser opens six.
pub(crate) const MOST_CONNECTIONS: usize = 48;

/// How a connection stands, the first to give way first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    Stranger,
    Resting,
    Answered,
}

#[derive(Debug)]
struct Open {
    stream: Arc<TcpStream>,
    standing: Standing,
    /// Grows with every change: who stands like this for longest has the least.
    since: u64,
}

#[derive(Debug, Default)]
struct Table {
    open: Vec<Open>,
    changes: u64,
}

/// All connections that are open.
#[derive(Debug, Default)]
pub(crate) struct Connections(Mutex<Table>);

impl Connections {
    /// A place for a new connection, if need be that of another one; none if all of them are being answered.
    pub(crate) fn take(self: &Arc<Self>, stream: Arc<TcpStream>) -> Option<Seat> {
        let mut table = locked(&self.0);
        if table.open.len() >= MOST_CONNECTIONS {
            let first = table.open.iter().enumerate().min_by_key(|(_, open)| (open.standing, open.since));
            let place = first.filter(|(_, open)| open.standing != Standing::Answered).map(|(place, _)| place)?;
            // Whoever waits for its next request sees that it has gone.
            drop(table.open.swap_remove(place).stream.shutdown(Shutdown::Both));
        }
        table.changes += 1;
        let since = table.changes;
        table.open.push(Open { stream: stream.clone(), standing: Standing::Stranger, since });
        Some(Seat { connections: self.clone(), stream })
    }
}

/// The place of a connection, for as long as it is open.
#[derive(Debug)]
pub(crate) struct Seat {
    connections: Arc<Connections>,
    stream: Arc<TcpStream>,
}

impl Seat {
    /// The connection.
    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// It has shown the token, and is being answered.
    pub(crate) fn start_answer(&self) {
        self.stand(Standing::Answered);
    }

    /// It has its answer. A stranger remains one, as old as before.
    pub(crate) fn end_answer(&self) {
        self.stand(Standing::Resting);
    }

    fn stand(&self, standing: Standing) {
        let mut table = locked(&self.connections.0);
        table.changes += 1;
        let since = table.changes;
        let own = table.open.iter_mut().find(|open| Arc::ptr_eq(&open.stream, &self.stream));
        if let Some(open) = own.filter(|open| standing == Standing::Answered || open.standing == Standing::Answered) {
            (open.standing, open.since) = (standing, since);
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        locked(&self.connections.0).open.retain(|open| !Arc::ptr_eq(&open.stream, &self.stream));
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    /// A connection: our end, and that of whoever connected.
    fn connect(listener: &TcpListener) -> (Arc<TcpStream>, TcpStream) {
        let other = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (Arc::new(listener.accept().unwrap().0), other)
    }

    /// Whether our end was closed.
    fn is_gone(other: &mut TcpStream) -> bool {
        other.set_nonblocking(true).unwrap();
        matches!(other.read(&mut [0]), Ok(0))
    }

    #[test]
    fn strangers_give_way_first_and_answers_never() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let connections = Arc::new(Connections::default());
        let take = || {
            let (stream, other) = connect(&listener);
            connections.take(stream).map(|seat| (seat, other))
        };
        let mut seats: Vec<(Seat, TcpStream)> = (0..MOST_CONNECTIONS).map(|_| take().unwrap()).collect();
        seats[..MOST_CONNECTIONS - 2].iter().for_each(|(seat, _)| seat.start_answer());
        seats[1].0.end_answer();
        seats[0].0.end_answer();
        let strangers = [MOST_CONNECTIONS - 2, MOST_CONNECTIONS - 1];
        // A stranger who was refused is no less one.
        seats[strangers[0]].0.end_answer();
        let mut newer = Vec::new();
        for expected in [strangers[0], strangers[1], 1, 0] {
            newer.push(take().unwrap());
            newer.iter().for_each(|(seat, _)| seat.start_answer());
            let gone: Vec<usize> = (0..seats.len()).filter(|&place| is_gone(&mut seats[place].1)).collect();
            assert!(gone.contains(&expected), "{expected} in {gone:?}");
        }
        assert!(take().is_none(), "all of them are being answered");
        drop(seats.pop());
        drop(seats.swap_remove(5));
        assert!(take().is_some(), "one has gone");
        let gone = seats.iter_mut().filter_map(|(_, other)| is_gone(other).then_some(())).count();
        assert_eq!(gone, 3, "only those who gave way");
    }
}
