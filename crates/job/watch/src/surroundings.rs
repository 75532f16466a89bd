//! What watching needs from the process it runs in.

use std::path::PathBuf;

use msmemscope_event::{ByteRange, Device, WatchDetail};

/// One call of an operator.
#[derive(Clone, Copy, Debug)]
pub struct OperatorCall<'a> {
    /// Its name.
    pub name: &'a str,
    /// Which call of this operator it is, counted from one.
    pub number: u64,
    /// Device it works on.
    pub device: Device,
    /// Thread that calls it.
    pub thread_id: u32,
    /// Memory it declares to write, as far as known at this moment.
    pub writes: &'a [ByteRange],
    /// Whether it gives work to the device; views and forms do not.
    pub is_active: bool,
    /// If it is a single kernel: where it was launched.
    pub launch: Option<Launch<'a>>,
}

/// Where a kernel was launched.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// The operator that launched it; empty if none is known.
    pub operator: &'a str,
    /// The generation of the newest block that was alive when that operator began. What was allocated since then is its
    /// own business: results that it has yet to declare, and room that it needs meanwhile.
    pub newest_generation: u64,
}

/// A result of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Output {
    /// Position among the results, counted from zero.
    pub index: u32,
    /// First byte.
    pub address: u64,
    /// Bytes.
    pub size_bytes: u64,
    /// Where it is.
    pub device: Device,
}

/// A fact about a watched block.
#[derive(Clone, Debug)]
pub struct WatchRecord<'a> {
    /// Name of the block.
    pub name: &'a str,
    /// Operator beside which it was looked at; empty if none.
    pub operator: &'a str,
    /// Which output it is.
    pub output_index: u32,
    /// Whether the look was taken after the operator.
    pub after: bool,
    /// First byte.
    pub address: u64,
    /// Bytes.
    pub size_bytes: u64,
    /// Hash of the contents, zero if not looked at.
    pub content_hash: u64,
    /// Everything else.
    pub detail: WatchDetail,
}

/// The process in which blocks are watched.
pub trait Surroundings {
    /// Copies device memory. The error says why not.
    fn read(&mut self, device: Device, address: u64, buffer: &mut [u8]) -> Result<(), String>;

    /// Takes down a fact.
    fn record(&mut self, record: &WatchRecord<'_>);

    /// Tells the user.
    fn say(&mut self, text: String);

    /// The number of a device that the results use; the framework may count otherwise.
    fn physical(&self, device: Device) -> Device;

    /// Where dumps of a device go; none if there is no recording.
    fn dump_directory(&mut self, device: Device) -> Option<PathBuf>;

    /// Whether launches wait for their work.
    fn is_blocking(&self) -> bool;
}
