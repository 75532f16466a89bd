//! All events as columns, for the table of events.

use msmemscope_columns::Column;
use msmemscope_event::Device;

use super::texts::TextId;

/// No block, no detail.
pub(crate) const NOTHING: u32 = u32::MAX;

macro_rules! event_codes {
    ($($(#[$documentation:meta])* $variant:ident = $code:literal, $kind:literal, $phase:literal;)+) => {
        /// What an event is.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub(crate) enum EventCode { $($(#[$documentation])* $variant = $code,)+ }

        /// Kind and phase by code, in words of the interface.
        const WORDS: &[(&str, &str)] = &[$(($kind, $phase),)+];
    };
}

event_codes! {
    Malloc = 0, "malloc", "";
    Free = 1, "free", "";
    Read = 2, "access", "read";
    Write = 3, "access", "write";
    Access = 4, "access", "";
    OperatorBegin = 5, "operator", "start";
    OperatorEnd = 6, "operator", "end";
    KernelLaunch = 7, "kernel", "launch";
    KernelStart = 8, "kernel", "start";
    KernelEnd = 9, "kernel", "end";
    RangeBegin = 10, "range", "start";
    RangeEnd = 11, "range", "end";
    Mark = 12, "mark", "";
    Step = 13, "step", "end";
    Snapshot = 14, "snapshot", "";
    Card = 15, "card", "";
    OutOfMemory = 16, "out_of_memory", "";
    FreeFailed = 17, "free_failed", "";
    Watch = 18, "watch", "";
    Forward = 19, "autograd", "forward";
    Backward = 20, "autograd", "backward";
    System = 21, "system", "";
    Message = 22, "message", "";
}

/// Kind and phase of an event.
pub(crate) fn words(code: u8) -> (&'static str, &'static str) {
    WORDS.get(code as usize).copied().unwrap_or(("", ""))
}

/// What only few events have.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Detail {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) text: TextId,
}

/// All events of a recording.
#[derive(Debug, Default)]
pub(crate) struct Events {
    pub(crate) time: Column<u64>,
    /// The block, or the place in `details`.
    pub(crate) reference: Column<u32>,
    pub(crate) name: Column<TextId>,
    pub(crate) thread: Column<u16>,
    pub(crate) device: Column<u16>,
    pub(crate) code: Column<u8>,
    pub(crate) details: Vec<Detail>,
}

impl Events {
    pub(crate) fn len(&self) -> usize {
        self.time.len()
    }

    /// Takes address space for this many events; memory is taken only for those that come.
    pub(crate) fn reserve(&mut self, count: usize) {
        self.time.reserve_exact(count);
        self.reference.reserve_exact(count);
        self.name.reserve_exact(count);
        self.thread.reserve_exact(count);
        self.device.reserve_exact(count);
        self.code.reserve_exact(count);
    }

    pub(crate) fn push(
        &mut self,
        code: EventCode,
        time: u64,
        thread: u16,
        device: Device,
        reference: u32,
        name: TextId,
    ) {
        self.time.push(time);
        self.reference.push(reference);
        self.name.push(name);
        self.thread.push(thread);
        self.device.push(device.code() as u16);
        self.code.push(code as u8);
    }

    /// Adds a detail and returns its place.
    pub(crate) fn detail(&mut self, detail: Detail) -> u32 {
        self.details.push(detail);
        self.details.len() as u32 - 1
    }

    pub(crate) fn device(&self, event: usize) -> Device {
        Device::from_code(u32::from(self.device[event]))
    }

    /// Whether the reference of an event is a block.
    pub(crate) fn is_about_block(&self, event: usize) -> bool {
        self.code[event] <= EventCode::Access as u8
    }
}
