//! Two runs or two steps side by side: which operators or kernels take more or less memory, which are
//! new, which are gone.
//!
//! The sequences of operators (or kernels) of each device are aligned by their names. The memory of an
//! operator is what the framework pools really gained or lost between its start and its end, operators
//! inside it apart; that of a kernel is the change since the launch before it. Everything else happened
//! outside, so that all of it together is exactly the change of the pools.

mod align;
mod profile;

use std::collections::BTreeMap;
use std::fmt;

use msmemscope_event::{Device, Pool};
use rustc_hash::FxHashMap;
use serde::Serialize;

pub use profile::{Item, Part, Profile, Profiler, SharedNames, profile};

use crate::device_text::device_text;
use crate::unseen::UnseenPool;

/// Entries per list of the summary.
const LISTED: usize = 50;

/// What is compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Operators.
    #[default]
    Operator,
    /// Kernel launches.
    Kernel,
}

impl Level {
    /// The `Event` cell of its rows.
    pub fn event(self) -> &'static str {
        match self {
            Level::Operator => "OP_LAUNCH",
            Level::Kernel => "KERNEL_LAUNCH",
        }
    }

    /// What is compared, in words.
    pub fn noun(self) -> &'static str {
        match self {
            Level::Operator => "operators",
            Level::Kernel => "kernel launches",
        }
    }
}

/// Why two inputs cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompareError {
    /// The inputs use different frameworks.
    DifferentFrameworks {
        /// Pool of the base.
        base: Pool,
        /// Pool of the other.
        other: Pool,
    },
    /// An input has nothing to align.
    NothingToCompare {
        /// "base" or "other".
        which: &'static str,
        /// What was looked for.
        level: Level,
        /// In which steps, if some were chosen.
        steps: Vec<u64>,
        /// Whether the other level has something.
        other_level_has: bool,
    },
}

impl fmt::Display for CompareError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CompareError::DifferentFrameworks { base, other } => write!(
                formatter,
                "the inputs use different frameworks: {} and {}",
                base.event_type(),
                other.event_type()
            ),
            CompareError::NothingToCompare { which, level, steps, other_level_has } => {
                write!(formatter, "the {which} input has no {}", level.noun())?;
                if !steps.is_empty() {
                    let numbers: Vec<String> = steps.iter().map(u64::to_string).collect();
                    write!(formatter, " in step{} {}", if steps.len() == 1 { "" } else { "s" }, numbers.join(", "))?;
                }
                if *other_level_has {
                    let other = if *level == Level::Operator { "kernel" } else { "op" };
                    write!(formatter, "; try --level={other}")?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for CompareError {}

/// One aligned pair, or an operator that only one side has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Name, in the shared names.
    pub name: u32,
    /// The device.
    pub device: Device,
    /// Change of memory in the base.
    pub base_bytes: Option<i64>,
    /// Change of memory in the other.
    pub other_bytes: Option<i64>,
    /// Memory in use then, in the base and in the other; the last known if a side does not have it.
    pub in_use_bytes: [u64; 2],
}

impl Row {
    /// Other minus base; a missing side counts nothing.
    pub fn difference_bytes(&self) -> i64 {
        self.other_bytes.unwrap_or(0) - self.base_bytes.unwrap_or(0)
    }
}

/// Two numbers, one of each side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Pair {
    /// In the base.
    pub base: i64,
    /// In the other.
    pub other: i64,
}

impl Pair {
    /// Other minus base.
    pub fn difference(&self) -> i64 {
        self.other - self.base
    }
}

/// Numbers of one device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceComparison {
    /// The device.
    #[serde(serialize_with = "device_text")]
    pub device: Device,
    /// Operators or kernels.
    pub items: Pair,
    /// Pairs that were aligned.
    pub aligned: u64,
    /// Those only the base has.
    pub only_base: u64,
    /// Those only the other has.
    pub only_other: u64,
    /// Most bytes in use in framework pools.
    pub peak_bytes: Pair,
    /// Bytes in use at the end.
    pub end_bytes: Pair,
    /// Change of memory inside operators.
    pub inside_bytes: Pair,
    /// Change of memory outside of them.
    pub outside_bytes: Pair,
}

/// What one name, owner or call site contributes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Contribution {
    /// The name.
    pub name: String,
    /// How often it occurs.
    pub count: Pair,
    /// Bytes.
    pub bytes: Pair,
}

/// Contributions of one kind.
#[derive(Clone, Debug)]
pub struct ContributionList<'a> {
    /// What they are.
    pub title: String,
    /// What their names are.
    pub column: &'static str,
    /// Whether bytes are changes; else they are amounts.
    pub is_change: bool,
    /// The largest difference first.
    pub entries: &'a [Contribution],
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// What was compared.
    pub level: Level,
    /// Steps that were chosen when the base and the other were recorded; an empty list means all.
    pub recorded_steps: [Vec<u64>; 2],
    /// Pools that the base and the other know nothing of.
    pub unseen_pools: [Vec<UnseenPool>; 2],
    /// By device.
    pub devices: Vec<DeviceComparison>,
    /// Names whose memory or number differs, the largest difference first.
    pub names: Vec<Contribution>,
    /// Owners of memory at the peak that differ.
    pub owners: Vec<Contribution>,
    /// Call sites of memory in use at the peak that differ.
    pub peak_sites: Vec<Contribution>,
    /// Call sites of memory alive at the end that differ.
    pub sites: Vec<Contribution>,
    /// All rows in sequence order, device by device.
    #[serde(skip)]
    pub rows: Vec<Row>,
}

impl Comparison {
    /// Everything that accounts for the difference, without lists that are empty.
    pub fn lists(&self) -> Vec<ContributionList<'_>> {
        let noun = self.level.noun();
        let mut capital = noun.to_owned();
        capital[..1].make_ascii_uppercase();
        let all = [
            (format!("{capital} that differ, by change of memory"), "name", true, &self.names),
            ("Owners at the peak that differ".to_owned(), "owner", false, &self.owners),
            ("Call sites of memory at the peak that differ".to_owned(), "allocated at", false, &self.peak_sites),
            ("Call sites of memory alive at the end that differ".to_owned(), "allocated at", false, &self.sites),
        ];
        all.into_iter()
            .filter(|(.., entries)| !entries.is_empty())
            .map(|(title, column, is_change, entries)| ContributionList { title, column, is_change, entries })
            .collect()
    }

    /// Whether a side has nothing that could be lined up, so that only what they hold was compared.
    pub fn is_of_memory_only(&self) -> bool {
        self.rows.is_empty()
    }

    /// Whether both sides are the same in everything that was compared.
    pub fn is_equal(&self) -> bool {
        let same = |device: &DeviceComparison| {
            device.only_base == 0
                && device.only_other == 0
                && device.peak_bytes.difference() == 0
                && device.end_bytes.difference() == 0
        };
        let same_lists = !self.is_of_memory_only() || self.lists().is_empty();
        same_lists && self.devices.iter().all(same) && self.rows.iter().all(|row| row.difference_bytes() == 0)
    }
}

/// Compares two profiles made with the same names.
pub fn compare(base: &Profile, other: &Profile, names: &SharedNames) -> Result<Comparison, CompareError> {
    if let (Some(base), Some(other)) = (base.framework(), other.framework())
        && base != other
    {
        return Err(CompareError::DifferentFrameworks { base, other });
    }
    // What a side has none of, such as snapshots of a framework, cannot be lined up, but what both hold can be compared.
    let sides = || [base, other].into_iter();
    let lacks_items = |profile: &Profile| profile.is_empty() && !profile.other_level_has_items();
    // Of a step that was chosen, somebody expects operators if the other side has them.
    let has_memory_only = (sides().all(lacks_items)
        || sides().any(|profile| lacks_items(profile) && profile.recorded_steps().is_empty()))
        && sides().all(|profile| profile.step().is_none() && profile.has_memory());
    for (which, profile) in [("base", base), ("other", other)] {
        if profile.is_empty() && !has_memory_only {
            return Err(CompareError::NothingToCompare {
                which,
                level: profile.level(),
                steps: profile.step().map_or_else(|| profile.recorded_steps().to_vec(), |step| vec![step]),
                other_level_has: profile.other_level_has_items(),
            });
        }
    }
    let mut devices: Vec<Device> = base.devices().chain(other.devices()).collect();
    devices.sort_unstable();
    devices.dedup();
    let mut comparison = Comparison {
        level: base.level(),
        unseen_pools: [base, other].map(|profile| profile.unseen_pools().to_vec()),
        recorded_steps: [base, other].map(|profile| profile.recorded_steps().to_vec()),
        devices: Vec::new(),
        names: Vec::new(),
        owners: contributions(base.owners(), other.owners()),
        peak_sites: contributions(&base.peak_sites(), &other.peak_sites()),
        sites: contributions(base.sites(), other.sites()),
        rows: Vec::new(),
    };
    for device in devices {
        let (left, right) = (base.device(device), other.device(device));
        let first_row = comparison.rows.len();
        if !has_memory_only {
            align_items(&left.items, &right.items, device, &mut comparison.rows);
        }
        let rows = &comparison.rows[first_row..];
        let count = |wanted: fn(&Row) -> bool| rows.iter().filter(|row| wanted(row)).count() as u64;
        let sum = |items: &[Item]| items.iter().map(|item| item.change_bytes).sum();
        comparison.devices.push(DeviceComparison {
            device,
            items: Pair { base: left.items.len() as i64, other: right.items.len() as i64 },
            aligned: count(|row| row.base_bytes.is_some() && row.other_bytes.is_some()),
            only_base: count(|row| row.other_bytes.is_none()),
            only_other: count(|row| row.base_bytes.is_none()),
            peak_bytes: Pair { base: left.peak_bytes as i64, other: right.peak_bytes as i64 },
            end_bytes: Pair { base: left.end_bytes as i64, other: right.end_bytes as i64 },
            inside_bytes: Pair { base: sum(&left.items), other: sum(&right.items) },
            outside_bytes: Pair { base: left.outside_bytes, other: right.outside_bytes },
        });
    }
    comparison.names = name_contributions(&comparison.rows, names);
    Ok(comparison)
}

/// Aligns two sequences by name; what only the base has comes before what only the other has.
fn align_items(base: &[Item], other: &[Item], device: Device, rows: &mut Vec<Row>) {
    let names = |items: &[Item]| items.iter().map(|item| item.name).collect::<Vec<_>>();
    let alignment = align::align(&names(base), &names(other));
    let (mut left, mut right) = (0, 0);
    let mut in_use_bytes = [0; 2];
    while left < base.len() || right < other.len() {
        let in_base = left < base.len();
        let only_base = in_base && alignment.removed[left];
        let only_other = !only_base && right < other.len() && alignment.added[right];
        let base_bytes = (in_base && !only_other).then(|| base[left].change_bytes);
        let other_bytes = (!only_base).then(|| other[right].change_bytes);
        let name = if only_other { other[right].name } else { base[left].name };
        if base_bytes.is_some() {
            in_use_bytes[0] = base[left].in_use_bytes;
            left += 1;
        }
        if other_bytes.is_some() {
            in_use_bytes[1] = other[right].in_use_bytes;
            right += 1;
        }
        rows.push(Row { name, device, base_bytes, other_bytes, in_use_bytes });
    }
}

fn name_contributions(rows: &[Row], names: &SharedNames) -> Vec<Contribution> {
    let mut found: FxHashMap<u32, (Pair, Pair, bool)> = FxHashMap::default();
    for row in rows {
        let (count, bytes, differs) = found.entry(row.name).or_default();
        count.base += i64::from(row.base_bytes.is_some());
        count.other += i64::from(row.other_bytes.is_some());
        bytes.base += row.base_bytes.unwrap_or(0);
        bytes.other += row.other_bytes.unwrap_or(0);
        *differs |= row.difference_bytes() != 0 || row.base_bytes.is_none() || row.other_bytes.is_none();
    }
    let list = found
        .into_iter()
        .filter(|(_, (_, _, differs))| *differs)
        .map(|(name, (count, bytes, _))| Contribution { name: names.get(name).to_owned(), count, bytes })
        .collect();
    ranked(list)
}

fn contributions(base: &BTreeMap<String, (u64, u64)>, other: &BTreeMap<String, (u64, u64)>) -> Vec<Contribution> {
    let mut merged: BTreeMap<&str, (Pair, Pair)> = BTreeMap::new();
    for (name, &(bytes, count)) in base {
        let (counts, sizes) = merged.entry(name).or_default();
        (counts.base, sizes.base) = (count as i64, bytes as i64);
    }
    for (name, &(bytes, count)) in other {
        let (counts, sizes) = merged.entry(name).or_default();
        (counts.other, sizes.other) = (count as i64, bytes as i64);
    }
    let list = merged
        .into_iter()
        .filter(|(_, (count, bytes))| bytes.difference() != 0 || count.difference() != 0)
        .map(|(name, (count, bytes))| Contribution { name: name.to_owned(), count, bytes })
        .collect();
    ranked(list)
}

fn ranked(mut list: Vec<Contribution>) -> Vec<Contribution> {
    list.sort_by(|left, right| {
        let weight = |entry: &Contribution| (entry.bytes.difference().abs(), entry.count.difference().abs());
        weight(right).cmp(&weight(left)).then_with(|| left.name.cmp(&right.name))
    });
    list.truncate(LISTED);
    list
}
