//! What a look at a watched block tells besides the hash of its contents.
//!
//! A [`Fact::Watch`](crate::Fact::Watch) carries it as text, `key=value` separated by semicolons, so
//! that recorder and reports need not be of one version: unknown keys are skipped.

use crate::ranges::ByteRange;
use crate::{Coded, Device};

/// Most ranges told about one look; what lies behind them is only counted.
const MOST_RANGES: usize = 32;
/// Longest operator name kept, in bytes.
const LONGEST_NAME: usize = 512;

crate::block::coded_enum! {
    /// What a record about a watched block is about.
    WatchNote {
        /// The contents were looked at around an operator.
        Look = 0,
        /// Watching began; the contents are what later looks are held against.
        Begin = 1,
        /// The block was freed.
        Freed = 2,
        /// The tensor got other memory or another size.
        Resized = 3,
        /// The user ended watching.
        Removed = 4,
        /// The operator was reached at which watching ends.
        EndReached = 5,
        /// It was dumped as often as asked for.
        CountReached = 6,
        /// The contents could not be read.
        Unreadable = 7,
        /// How much an automatic hunt has covered so far.
        Coverage = 8,
        /// A note this version does not know.
        Other = 9,
    } else Other
}

/// How much of what was alive an automatic hunt has looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchCoverage {
    /// Operators seen.
    pub operators: u64,
    /// Looks that full coverage would have taken: live blocks, before and after each operator.
    pub looks_due: u64,
    /// Looks taken.
    pub looks_taken: u64,
    /// Bytes hashed.
    pub hashed_bytes: u64,
    /// Operators around which nothing could be looked at, such as during the capture of a graph.
    pub blind_operators: u64,
    /// Most operators and kernels between two looks at one block.
    pub longest_gap: u64,
    /// Kernels around which looks were taken.
    pub kernels: u64,
}

/// The text of one look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchDetail {
    /// What it is about.
    pub note: WatchNote,
    /// Device of the block, as the framework counts.
    pub device: Device,
    /// Which call of the operator it was, counted from one.
    pub call: u64,
    /// Checksum as documented for `watch_dump_data_check_sum` files, if it was computed.
    pub checksum: Option<u64>,
    /// Operators that ended since the look before, the current one included.
    pub operators_since: u64,
    /// The operator beside which the look before was taken; empty if there was none.
    pub since_operator: String,
    /// Whether that look was taken after it.
    pub since_after: bool,
    /// Granularity of `changed`.
    pub piece_bytes: u64,
    /// What differs from the look before, seen from the start of the block.
    pub changed: Vec<ByteRange>,
    /// What operators since then declared to write, seen from the start of the block.
    pub declared: Vec<ByteRange>,
    /// Whether not all ranges are told.
    pub ranges_cut: bool,
    /// What the current operator declared to write anywhere, as addresses.
    pub writes: Vec<ByteRange>,
    /// Whether launches block (`ASCEND_LAUNCH_BLOCKING=1`), so that what is seen belongs to the operator.
    pub is_blocking: bool,
    /// If the look was taken around a kernel instead of an operator: which operator launched it, empty if none is known.
    pub launched_by: Option<String>,
    /// Coverage of an automatic hunt.
    pub coverage: Option<WatchCoverage>,
    /// The label to whose blocks the hunt keeps, if it does.
    pub owner: Option<String>,
    /// The file the contents were written to.
    pub file: Option<String>,
}

impl Default for WatchDetail {
    fn default() -> Self {
        Self {
            note: WatchNote::Look,
            device: Device::Unknown,
            call: 0,
            checksum: None,
            operators_since: 0,
            since_operator: String::new(),
            since_after: false,
            piece_bytes: 0,
            changed: Vec::new(),
            declared: Vec::new(),
            ranges_cut: false,
            writes: Vec::new(),
            is_blocking: true,
            launched_by: None,
            coverage: None,
            owner: None,
            file: None,
        }
    }
}

/// A name without what would end its field.
fn plain(name: &str) -> String {
    let mut name: String = name.chars().filter(|&letter| letter != ';').collect();
    name.truncate(name.floor_char_boundary(LONGEST_NAME));
    name
}

fn join(ranges: &[ByteRange]) -> String {
    let texts: Vec<String> = ranges.iter().take(MOST_RANGES).map(ToString::to_string).collect();
    texts.join(",")
}

fn split(text: &str) -> Vec<ByteRange> {
    let parse = |part: &str| {
        let (start, end) = part.split_once('-')?;
        Some(ByteRange { start: start.parse().ok()?, end: end.parse().ok()? })
    };
    text.split(',').filter_map(parse).collect()
}

impl WatchDetail {
    /// The text.
    pub fn to_text(&self) -> String {
        let mut text = format!("note={};device={};call={}", self.note.code(), self.device.code(), self.call);
        let mut add = |key: &str, value: String| {
            text.push(';');
            text.push_str(key);
            text.push('=');
            text.push_str(&value);
        };
        if let Some(checksum) = self.checksum {
            add("checksum", format!("{checksum:016x}"));
        }
        if !self.since_operator.is_empty() {
            add("since", format!("{}{}", if self.since_after { '+' } else { '-' }, plain(&self.since_operator)));
        }
        for (key, number) in [("operators", self.operators_since), ("piece", self.piece_bytes)] {
            if number > 0 {
                add(key, number.to_string());
            }
        }
        for (key, ranges) in [("changed", &self.changed), ("declared", &self.declared), ("writes", &self.writes)] {
            if !ranges.is_empty() {
                add(key, join(ranges));
            }
        }
        if self.ranges_cut || self.changed.len().max(self.declared.len()) > MOST_RANGES {
            add("cut", "1".to_owned());
        }
        if !self.is_blocking {
            add("async", "1".to_owned());
        }
        if let Some(operator) = &self.launched_by {
            add("launcher", plain(operator));
        }
        if let Some(coverage) = &self.coverage {
            let WatchCoverage {
                operators,
                looks_due,
                looks_taken,
                hashed_bytes,
                blind_operators,
                longest_gap,
                kernels,
            } = coverage;
            add(
                "coverage",
                format!(
                    "{operators},{looks_due},{looks_taken},{hashed_bytes},{blind_operators},{longest_gap},{kernels}"
                ),
            );
        }
        if let Some(owner) = &self.owner {
            add("owner", plain(owner));
        }
        // Last, since a name may hold anything.
        if let Some(file) = &self.file {
            add("file", file.clone());
        }
        text
    }

    /// Reads the text again; what cannot be read is left out.
    pub fn from_text(text: &[u8]) -> Self {
        let text = String::from_utf8_lossy(text);
        let mut detail = Self::default();
        let mut rest = &text[..];
        while !rest.is_empty() {
            if let Some(file) = rest.strip_prefix("file=") {
                detail.file = Some(file.to_owned());
                break;
            }
            let (field, behind) = rest.split_once(';').unwrap_or((rest, ""));
            rest = behind;
            let Some((key, value)) = field.split_once('=') else { continue };
            let number = value.parse::<u64>().unwrap_or(0);
            match key {
                "note" => detail.note = WatchNote::from_code(number),
                "device" => detail.device = Device::from_code(u32::try_from(number).unwrap_or(u32::MAX)),
                "call" => detail.call = number,
                "checksum" => detail.checksum = u64::from_str_radix(value, 16).ok(),
                "since" => {
                    detail.since_after = value.starts_with('+');
                    detail.since_operator = value.get(1..).unwrap_or_default().to_owned();
                }
                "operators" => detail.operators_since = number,
                "piece" => detail.piece_bytes = number,
                "changed" => detail.changed = split(value),
                "declared" => detail.declared = split(value),
                "writes" => detail.writes = split(value),
                "cut" => detail.ranges_cut = number != 0,
                "async" => detail.is_blocking = number == 0,
                "launcher" => detail.launched_by = Some(value.to_owned()),
                "coverage" => detail.coverage = coverage(value),
                "owner" => detail.owner = Some(value.to_owned()),
                _ => {}
            }
        }
        detail
    }
}

fn coverage(text: &str) -> Option<WatchCoverage> {
    let mut numbers = text.split(',').map(|part| part.parse::<u64>().ok());
    let mut next = || numbers.next().flatten();
    Some(WatchCoverage {
        operators: next()?,
        looks_due: next()?,
        looks_taken: next()?,
        hashed_bytes: next()?,
        blind_operators: next()?,
        longest_gap: next()?,
        kernels: next().unwrap_or(0),
    })
}

/// What the row or file of a look is called:
/// `{device}_{thread}_{operator}_{call}-{watched}_{output}_{before|after}.bin`.
///
/// The device is the one the block is on, as the results count devices.
pub fn dump_name(
    device: Device,
    thread_id: u32,
    (operator, call): (&str, u64),
    (watched, output_index): (&str, u32),
    after: bool,
) -> String {
    let moment = if after { "after" } else { "before" };
    format!("{device}_{thread_id}_{operator}_{call}-{watched}_{output_index}_{moment}.bin")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let full = WatchDetail {
            note: WatchNote::Freed,
            device: Device::Npu(3),
            call: 7,
            checksum: Some(0xb868_83e6_fa71_0a9f),
            operators_since: 2,
            since_operator: "torch._ops.aten.add.Tensor".to_owned(),
            since_after: true,
            piece_bytes: 512,
            changed: vec![ByteRange { start: 0, end: 512 }, ByteRange { start: 1024, end: 1100 }],
            declared: vec![ByteRange { start: 0, end: 8 }],
            ranges_cut: false,
            writes: vec![ByteRange { start: 0x1000, end: 0x1200 }],
            is_blocking: false,
            coverage: Some(WatchCoverage {
                operators: 1,
                looks_due: 2,
                looks_taken: 3,
                hashed_bytes: 4,
                blind_operators: 5,
                longest_gap: 6,
                kernels: 7,
            }),
            launched_by: Some("torch._ops.aten.tanh.default".to_owned()),
            owner: Some("my = cache".to_owned()),
            file: Some("a;b=c_0_before.bin".to_owned()),
        };
        for detail in [full, WatchDetail::default()] {
            assert_eq!(WatchDetail::from_text(detail.to_text().as_bytes()), detail);
        }
    }

    #[test]
    fn too_many_ranges_are_cut_and_nonsense_is_skipped() {
        let changed = (0..100).map(|index| ByteRange::sized(index * 10, 5)).collect();
        let detail = WatchDetail { changed, ..WatchDetail::default() };
        let read = WatchDetail::from_text(detail.to_text().as_bytes());
        assert_eq!((read.changed.len(), read.ranges_cut), (MOST_RANGES, true));
        assert_eq!(
            WatchDetail::from_text(b"x;=;note;\xff=1;call=9"),
            WatchDetail { call: 9, ..WatchDetail::default() }
        );
    }
}
