//! A row that is to be written.

use std::borrow::Cow;

use msmemscope_event::Device;

use crate::text::{push_address, push_number, push_signed};
use crate::words::Event;

/// The cells of a row but for its attributes.
pub struct Cells<'a> {
    /// Running number over all files of the process, from zero.
    pub id: u64,
    /// `Event`.
    pub event: Event,
    /// `Event Type`.
    pub event_type: &'static str,
    /// `Name`.
    pub name: Cow<'a, str>,
    /// `Timestamp(ns)`.
    pub timestamp_ns: u64,
    /// `Process Id` and `Thread Id`; device-side events belong to none.
    pub process_and_thread: Option<(u32, u32)>,
    /// `Device Id`.
    pub device: Device,
    /// `Ptr`.
    pub pointer: Option<u64>,
    /// `Call Stack(Python)`, for the format that is written.
    pub python_stack: Prepared<'a>,
    /// `Call Stack(C)`, likewise.
    pub native_stack: Prepared<'a>,
}

/// A cell that was made ready for a format once, to be written many times.
#[derive(Clone, Debug)]
pub struct PreparedCell(Box<str>);

impl PreparedCell {
    pub(crate) fn new(cell: String) -> Self {
        Self(cell.into())
    }

    /// To be put into a row.
    #[inline]
    pub fn as_prepared(&self) -> Prepared<'_> {
        Prepared(&self.0)
    }

    /// Its bytes.
    #[allow(clippy::len_without_is_empty, reason = "nobody asks")]
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

/// A [`PreparedCell`] in a row, or an empty cell.
#[derive(Clone, Copy, Debug, Default)]
pub struct Prepared<'a>(pub(crate) &'a str);

/// What one cell holds, for writers.
#[derive(Clone, Copy)]
pub(crate) enum Cell<'a> {
    /// A number, or nothing to say.
    Number(Option<u64>),
    /// A word that is never quoted.
    Word(&'static str),
    /// Text, and whether readers expect it in quotes in any case, as they do for messages of users.
    Text(&'a str, bool),
    /// What the format can hold as it is.
    Prepared(Prepared<'a>),
    /// A device.
    Device(Device),
    /// An address, or nothing to say.
    Address(Option<u64>),
    /// The attributes, which the row itself knows.
    Attributes,
}

/// A row: its cells, and its attributes in order.
pub trait WrittenRow {
    /// The cells.
    fn cells(&self) -> &Cells<'_>;

    /// Calls `visit` for every attribute, with a key of [`crate::keys`] or one that was recorded.
    fn attributes(&self, visit: &mut impl FnMut(&str, Value<'_>));
}

/// One value of an attribute.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// A number.
    Number(u64),
    /// A number that may be negative.
    Signed(i64),
    /// An address with sixteen digits.
    Address(u64),
    /// A share in percent with six decimals.
    Percent(f64),
    /// Text.
    Text(&'a str),
}

impl Value<'_> {
    /// Appends the text of the value; `escape` turns text into what the format can hold.
    #[inline]
    pub(crate) fn push(&self, out: &mut Vec<u8>, escape: fn(&mut Vec<u8>, &str)) {
        match *self {
            Value::Number(number) => push_number(out, number),
            Value::Signed(number) => push_signed(out, number),
            Value::Address(address) => push_address(out, address),
            Value::Percent(percent) => out.extend_from_slice(format!("{percent:.6}").as_bytes()),
            Value::Text(text) => escape(out, text),
        }
    }
}
