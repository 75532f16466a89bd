//! The ground-truth log of mstx calls. A call takes its place in the order when it enters and is written when the
//! tool has returned.

use standin_support::ProcessCell;
use standin_truth::format::HOST_DEVICE;
use standin_truth::{Kind, Record, Stamp, TruthWriter};
use std::ffi::{CStr, c_char};

static LOG: ProcessCell<Option<TruthWriter>> = ProcessCell::new();

fn writer() -> Option<&'static TruthWriter> {
    LOG.get(|| TruthWriter::from_environment("ms_tools_ext")).as_ref()
}

/// A call on its way to the tool; nothing when no log is kept.
pub struct Call {
    record: Option<Record>,
}

impl Call {
    /// Notes the entry into a call.
    pub fn enter(kind: Kind) -> Self {
        Self { record: writer().map(|writer| record(kind, writer.stamp())) }
    }

    /// Sets address, handle or id.
    pub fn address(mut self, address: u64) -> Self {
        if let Some(record) = &mut self.record {
            record.address = address;
        }
        self
    }

    /// Sets domain or stream.
    pub fn flags(mut self, flags: u64) -> Self {
        if let Some(record) = &mut self.record {
            record.flags = flags;
        }
        self
    }

    /// Sets the memory that the call is about.
    pub fn memory(mut self, device: i32, address: u64, size_bytes: u64) -> Self {
        if let Some(record) = &mut self.record {
            record.device = device;
            record.address = address;
            record.size_bytes = size_bytes;
        }
        self
    }

    /// Sets the result.
    pub fn result(mut self, result: i32) -> Self {
        if let Some(record) = &mut self.record {
            record.result = result;
        }
        self
    }

    /// Writes the call.
    pub fn write(self) {
        self.write_text(None);
    }

    /// Writes the call with its message.
    ///
    /// # Safety
    /// `message` is null or a terminated string.
    pub unsafe fn write_message(self, message: *const c_char) {
        // SAFETY: not null; terminated by the contract of this function.
        let text = (!message.is_null()).then(|| unsafe { CStr::from_ptr(message) }.to_bytes());
        self.write_text(text);
    }

    fn write_text(self, text: Option<&[u8]>) {
        if let (Some(record), Some(writer)) = (self.record, writer()) {
            writer.append(record, text);
        }
    }
}

fn record(kind: Kind, stamp: Stamp) -> Record {
    Record {
        kind,
        text_bytes: 0,
        sequence: stamp.sequence,
        time_ns: stamp.time_ns,
        address: 0,
        size_bytes: 0,
        flags: 0,
        device: HOST_DEVICE,
        result: 0,
        thread: 0,
    }
}
