//! Says at once, in one line on stderr, that the driver has refused memory.
//!
//! Whoever asked may give something back and try again, so the line says what happened and not what will come of it.
//! Where a guest tells people about failures of a framework, which knows when it gives up, nothing is said here. A job
//! that is refused again and again hears it now and then only.

use std::fmt::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use msmemscope_event::Device;

use crate::card::CardMemory;
use crate::{clock, message, stack_room};

/// The next line comes no sooner.
const SMALLEST_INTERVAL_NS: u64 = 10_000_000_000;
/// Stack that must be left for formatting and writing.
const SAYING_BYTES: usize = 16 << 10;

static IS_LEFT_TO_GUEST: AtomicBool = AtomicBool::new(false);
static LATEST_NS: AtomicU64 = AtomicU64::new(0);

/// A guest will tell people about failures.
pub fn leave_to_guest() {
    IS_LEFT_TO_GUEST.store(true, Ordering::Relaxed);
}

/// Tells that the driver refused this many bytes on a device, and how full its card was, if that is known.
#[cold]
pub fn tell(device: Device, size_bytes: u64, card: Option<CardMemory>) {
    if IS_LEFT_TO_GUEST.load(Ordering::Relaxed) || !stack_room::has(SAYING_BYTES) {
        return;
    }
    let (now, latest) = (clock::monotonic_ns(), LATEST_NS.load(Ordering::Relaxed));
    let is_due = latest == 0 || now.saturating_sub(latest) >= SMALLEST_INTERVAL_NS;
    // Of several threads that are refused at the same time one says it.
    if is_due && LATEST_NS.compare_exchange(latest, now, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
        let mut line = Line::default();
        if describe(&mut line, device, size_bytes, card).is_ok() {
            message::say(line.text());
        }
    }
}

fn describe(line: &mut Line, device: Device, size_bytes: u64, card: Option<CardMemory>) -> fmt::Result {
    write!(line, "Out of memory on device {device}: the driver refused {}", Size(size_bytes))?;
    if let Some(card) = card.filter(|card| card.total_bytes > 0) {
        write!(line, ", {} of {} free", Size(card.free_bytes), Size(card.total_bytes))?;
    }
    line.write_str("; the report will say why")
}

/// Text without memory of its own.
#[derive(Debug)]
struct Line {
    bytes: [u8; 192],
    length: usize,
}

impl Default for Line {
    fn default() -> Self {
        Self { bytes: [0; 192], length: 0 }
    }
}

impl Line {
    fn text(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.length]).unwrap_or_default()
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.length + text.len();
        self.bytes.get_mut(self.length..end).ok_or(fmt::Error)?.copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}

/// A size as reports write it.
struct Size(u64);

impl fmt::Display for Size {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut size, mut unit) = (self.0 as f64, 0);
        while size >= 1023.5 && unit < 6 {
            (size, unit) = (size / 1024.0, unit + 1);
        }
        let digits = usize::from(unit > 0 && size < 99.95);
        write!(formatter, "{size:.digits$} {}", ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"][unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_what_was_refused_and_what_is_free() {
        let said = |size_bytes, card| {
            let mut line = Line::default();
            describe(&mut line, Device::Npu(3), size_bytes, card).unwrap();
            line.text().to_owned()
        };
        let card = CardMemory { free_bytes: 300 << 20, total_bytes: 64 << 30 };
        assert_eq!(
            said(8 << 30, Some(card)),
            "Out of memory on device 3: the driver refused 8.0 GiB, 300 MiB of 64.0 GiB free; the report will say why"
        );
        assert_eq!(said(512, None), "Out of memory on device 3: the driver refused 512 B; the report will say why");
        assert!(said(u64::MAX, Some(CardMemory { free_bytes: u64::MAX, total_bytes: u64::MAX })).len() < 192);
    }
}
