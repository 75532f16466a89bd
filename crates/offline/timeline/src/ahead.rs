//! The pass in a thread of its own: the next events are made while the latest ones are looked at. Analyses take longer
//! with an event than the pass does, so that whoever waits for both together waits for the analyses alone.

use std::cell::Cell;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;

use crate::event::TimelineEvent;
use crate::pass::{EventSink, run};
use crate::settings::TimelineSettings;
use crate::source::FactSource;
use crate::summary::Summary;

/// Events that travel together.
const BATCH_EVENTS: usize = 1024;
/// Batches that the pass is ahead at most.
const BATCHES_AHEAD: usize = 8;

/// Events, and how many facts of all have been passed when they were made.
type Batch = (Vec<TimelineEvent>, (u64, u64));

/// Like [`run`], with the pass in another thread. Where there can be none, it is made in this one.
pub fn run_ahead<S: FactSource + Sync>(
    source: &S,
    settings: &TimelineSettings,
    sink: &mut impl EventSink,
    progress: &mut dyn FnMut(u64, u64),
) -> Summary {
    let (send, receive) = sync_channel(BATCHES_AHEAD);
    let (give_back, emptied) = channel();
    thread::scope(|scope| {
        let pass = move || make_batches(source, settings, &send, &emptied);
        let Ok(pass) = thread::Builder::new().name("timeline".to_owned()).spawn_scoped(scope, pass) else {
            return run(source, settings, sink, progress);
        };
        take_batches(receive, &give_back, sink, progress);
        match pass.join() {
            Ok(summary) => summary,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

fn make_batches<S: FactSource>(
    source: &S,
    settings: &TimelineSettings,
    send: &SyncSender<Batch>,
    emptied: &Receiver<Vec<TimelineEvent>>,
) -> Summary {
    let done = Cell::new((0, 0));
    let mut events = Vec::with_capacity(BATCH_EVENTS);
    // Nobody takes them any more if the other side has failed, which is told there.
    let send_off = |events: &mut Vec<TimelineEvent>| {
        let next = emptied.try_recv().unwrap_or_else(|_| Vec::with_capacity(BATCH_EVENTS));
        let _ = send.send((std::mem::replace(events, next), done.get()));
    };
    let mut collect = |event| {
        events.push(event);
        if events.len() == BATCH_EVENTS {
            send_off(&mut events);
        }
    };
    let summary = run(source, settings, &mut collect, &mut |facts, all| done.set((facts, all)));
    send_off(&mut events);
    summary
}

/// Hangs up whatever happens, so that the pass does not wait for somebody who has failed.
fn take_batches(
    receive: Receiver<Batch>,
    give_back: &Sender<Vec<TimelineEvent>>,
    sink: &mut impl EventSink,
    progress: &mut dyn FnMut(u64, u64),
) {
    let mut told = (0, 0);
    for (mut events, done) in receive {
        events.drain(..).for_each(|event| sink.take(event));
        if done != told {
            told = done;
            progress(done.0, done.1);
        }
        // At the end, nobody takes it back.
        let _ = give_back.send(events);
    }
}
