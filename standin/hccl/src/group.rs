//! Operations that a thread asks for between `HcclGroupStart` and `HcclGroupEnd`: they are kept until the outermost group
//! ends, and then go to their streams in the order in which they were asked for.
//!
//! Sending and receiving next to each other becomes one exchange, as in a batch: one after the other, two ranks that both
//! send first would wait for each other.

use crate::Failure;
use crate::communicator::{Communicator, Operation};
use crate::rings::Transfer;
use std::cell::RefCell;
use std::ffi::c_void;
use std::sync::Arc;

thread_local! {
    static OPEN: RefCell<Open> = const { RefCell::new(Open { depth: 0, requests: Vec::new() }) };
}

/// The groups that a thread has open.
struct Open {
    depth: u32,
    requests: Vec<Request>,
}

/// What is asked of a communicator.
struct Request {
    communicator: Arc<Communicator>,
    stream: *mut c_void,
    work: Asked,
}

enum Asked {
    Collective(Operation),
    Transfers(Vec<Transfer>),
}

impl Request {
    fn submit(self) -> Result<(), Failure> {
        match self.work {
            Asked::Collective(operation) => self.communicator.submit(self.stream, operation),
            Asked::Transfers(transfers) => {
                self.communicator.submit(self.stream, Box::new(move |group| group.exchange(&transfers)))
            }
        }
    }

    /// Adds the transfers of the next request if they go the same way; gives back what has to stay on its own.
    fn take_in(&mut self, other: Request) -> Option<Request> {
        let is_same_place = Arc::ptr_eq(&self.communicator, &other.communicator) && self.stream == other.stream;
        match (&mut self.work, other.work) {
            (Asked::Transfers(own), Asked::Transfers(more)) if is_same_place => {
                own.extend(more);
                None
            }
            (_, work) => Some(Request { work, ..other }),
        }
    }
}

/// Opens a group of the calling thread.
pub(crate) fn start() {
    OPEN.with_borrow_mut(|open| open.depth += 1);
}

/// Ends a group of the calling thread. With the outermost one its requests go to their streams.
pub(crate) fn end() -> Result<(), Failure> {
    let requests = OPEN.with_borrow_mut(|open| {
        open.depth = open.depth.checked_sub(1).ok_or(Failure::Parameter)?;
        Ok(if open.depth == 0 { std::mem::take(&mut open.requests) } else { Vec::new() })
    })?;
    requests.into_iter().try_for_each(Request::submit)
}

/// An operation for a stream: at once, or with the end of the group.
pub(crate) fn collective(
    communicator: Arc<Communicator>,
    stream: *mut c_void,
    operation: Operation,
) -> Result<(), Failure> {
    ask(Request { communicator, stream, work: Asked::Collective(operation) })
}

/// Sending and receiving that goes side by side.
pub(crate) fn transfers(
    communicator: Arc<Communicator>,
    stream: *mut c_void,
    transfers: Vec<Transfer>,
) -> Result<(), Failure> {
    ask(Request { communicator, stream, work: Asked::Transfers(transfers) })
}

fn ask(request: Request) -> Result<(), Failure> {
    let at_once = OPEN.with_borrow_mut(|open| {
        if open.depth == 0 {
            return Some(request);
        }
        let apart = match open.requests.last_mut() {
            Some(last) => last.take_in(request),
            None => Some(request),
        };
        open.requests.extend(apart);
        None
    });
    at_once.map_or(Ok(()), Request::submit)
}
