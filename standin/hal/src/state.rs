//! The driver's state in this process.

use crate::allocation::Allocations;
use crate::card::Cards;
use crate::channel::Channels;
use crate::device_clock::DeviceClock;
use crate::virtual_memory::VirtualMemory;
use standin_support::ProcessCell;
use standin_truth::{Kind, Record, Stamp, TruthWriter};
use std::sync::{Mutex, MutexGuard};

/// Everything the driver knows in this process.
pub struct State {
    /// The cards and who uses them.
    pub cards: Cards,
    /// Blocks of `halMemAlloc`.
    pub allocations: Mutex<Allocations>,
    /// Physical memory, reserved addresses and mappings.
    pub virtual_memory: Mutex<VirtualMemory>,
    /// The counters of the cards.
    pub clock: DeviceClock,
    /// What cards tell about tasks.
    pub channels: Channels,
    log: Option<TruthWriter>,
}

static STATE: ProcessCell<State> = ProcessCell::new();

/// The state of this process; a forked child starts with none of its parent's memory.
pub fn state() -> &'static State {
    STATE.get(|| {
        let cards = Cards::open();
        State {
            allocations: Mutex::new(Allocations::default()),
            virtual_memory: Mutex::new(VirtualMemory::default()),
            clock: DeviceClock::from_environment(),
            channels: Channels::from_environment(cards.device_count()),
            log: TruthWriter::from_environment("ascend_hal"),
            cards,
        }
    })
}

impl State {
    /// Takes a place in the order of calls; to be called under the lock that decides the outcome.
    pub fn stamp(&self) -> Stamp {
        self.log.as_ref().map(TruthWriter::stamp).unwrap_or_default()
    }

    /// Writes a call to the ground-truth log.
    pub fn log(&self, call: &Call) {
        if let Some(log) = &self.log {
            log.append(
                Record {
                    kind: call.kind,
                    text_bytes: 0,
                    sequence: call.stamp.sequence,
                    time_ns: call.stamp.time_ns,
                    address: call.address,
                    size_bytes: call.size_bytes,
                    flags: call.flags,
                    device: call.device,
                    result: call.result,
                    thread: 0,
                },
                None,
            );
        }
    }
}

/// A call with its outcome, for the log.
pub struct Call {
    /// Which function.
    pub kind: Kind,
    /// When.
    pub stamp: Stamp,
    /// Address or handle.
    pub address: u64,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Flags.
    pub flags: u64,
    /// Physical device, or the host.
    pub device: i32,
    /// What the call returns.
    pub result: i32,
}

/// Locks, ignoring that another thread may have panicked: the data is changed only by single statements.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
