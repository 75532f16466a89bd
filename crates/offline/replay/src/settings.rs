//! The settings of torch_npu's caching allocator that decide what it asks of the driver, in the words of
//! `PYTORCH_NPU_ALLOC_CONF`, with the same limits.

use std::fmt;

/// Bytes of a mebibyte.
pub const MIB: u64 = 1 << 20;
/// What large requests share unless another size is set: 20 MiB.
pub const LARGE_SEGMENT_BYTES: u64 = 20 * MIB;
/// Largest request that is small.
pub(crate) const SMALL_BYTES: u64 = MIB;
/// What small requests share.
pub(crate) const SMALL_SEGMENT_BYTES: u64 = 2 * MIB;
/// Requests from here on have segments of their own.
const OWN_SEGMENT_BYTES: u64 = 10 * MIB;
/// Multiples of which segments are asked for.
const SEGMENT_MULTIPLE_BYTES: u64 = 2 * MIB;
/// The largest pages of a card.
pub(crate) const HUGE_PAGE_BYTES: u64 = 1 << 30;
/// How many ranges of sizes may be rounded differently, from 1 MiB to 64 GiB.
const ROUNDING_RANGES: usize = 16;
/// Largest alignment of large blocks, which is also what applies if nobody sets one.
const LARGEST_ALIGNMENT_KB: u64 = 16;

/// What settings are called if nobody made any.
pub const AS_DELIVERED: &str = "as delivered";

/// The word that stands for no settings at all.
const DEFAULT: &str = "default";

/// Options that change nothing about memory of a device, or nothing that a replay could show.
const WITHOUT_EFFECT: [&str; 9] = [
    "pin_memory_expandable_segments",
    "pinned_mem_register",
    "pinned_reserve_segment_size_mb",
    "pinned_use_background_threads",
    "pinned_max_round_threshold_mb",
    "pinned_max_cached_size_mb",
    "multi_stream_lazy_reclaim",
    "release_lock_on_npumalloc",
    "throw_on_npumalloc_oom",
];

/// How the allocator is told to behave.
#[derive(Clone, Debug, PartialEq)]
pub struct AllocatorSettings {
    /// Blocks from this size on are never split.
    pub max_split_bytes: Option<u64>,
    /// How much larger than a request such a block may be.
    pub max_non_split_rounding_bytes: u64,
    /// Part of the allowed memory above which unused blocks are given back; zero: never.
    pub garbage_collection_threshold: f64,
    /// Memory is mapped piecewise into large ranges of addresses.
    pub expandable_segments: bool,
    /// What requests of 1 to 10 MiB share, and the size of mapped pieces.
    pub large_segment_bytes: u64,
    /// Size of mapped pieces by its older name.
    pub segment_bytes: Option<u64>,
    /// Part of the card that the process may use.
    pub memory_fraction: f64,
    /// Steps between two powers of two to which sizes are rounded, by range of sizes; zero: none.
    pub power_of_two_divisions: [u64; ROUNDING_RANGES],
    /// Alignment of large blocks in expandable segments.
    pub base_alignment_bytes: u64,
    /// Large requests get pages of 1 GiB.
    pub huge_pages: bool,
}

impl Default for AllocatorSettings {
    fn default() -> Self {
        Self {
            max_split_bytes: None,
            max_non_split_rounding_bytes: LARGE_SEGMENT_BYTES,
            garbage_collection_threshold: 0.0,
            expandable_segments: false,
            large_segment_bytes: LARGE_SEGMENT_BYTES,
            segment_bytes: None,
            memory_fraction: 1.0,
            power_of_two_divisions: [0; ROUNDING_RANGES],
            base_alignment_bytes: LARGEST_ALIGNMENT_KB << 10,
            huge_pages: false,
        }
    }
}

/// Options that a replay takes into account.
const KEYS: [&str; 10] = [
    "expandable_segments",
    "max_split_size_mb",
    "max_non_split_rounding_mb",
    "garbage_collection_threshold",
    "per_process_memory_fraction",
    "large_segment_size_mb",
    "segment_size_mb",
    "roundup_power2_divisions",
    "base_addr_aligned_kb",
    "page_size",
];

impl AllocatorSettings {
    /// Reads `key:value,...` as the variable has it, or `key=value,...`.
    ///
    /// # Errors
    /// One line that says what is not understood or not allowed.
    pub fn parse(text: &str) -> Result<Self, String> {
        Self::default().changed_by(text)
    }

    /// These settings with some of them changed; `default` undoes those before it.
    ///
    /// # Errors
    /// As for [`Self::parse`].
    pub fn changed_by(mut self, text: &str) -> Result<Self, String> {
        for part in options(text) {
            if part == DEFAULT {
                self = Self::default();
                continue;
            }
            let (key, value) = part
                .split_once([':', '='])
                .ok_or_else(|| format!("'{part}' is not an option of the allocator: write key=value"))?;
            self.set(key.trim(), value.trim())?;
        }
        if self.expandable_segments && (self.max_split_bytes.is_some() || self.garbage_collection_threshold > 0.0) {
            return Err("torch_npu refuses expandable_segments together with max_split_size_mb or \
                        garbage_collection_threshold"
                .to_owned());
        }
        Ok(self)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "max_split_size_mb" => self.max_split_bytes = Some(megabytes(key, value, 20, u64::MAX / MIB)?),
            "max_non_split_rounding_mb" => {
                self.max_non_split_rounding_bytes = megabytes(key, value, 20, u64::MAX / MIB)?;
            }
            "garbage_collection_threshold" => {
                let threshold = fraction(key, value)?;
                if threshold <= 0.0 || threshold >= 1.0 {
                    return Err(format!("{key} must be between 0 and 1, not {value}"));
                }
                self.garbage_collection_threshold = threshold;
            }
            "expandable_segments" => {
                self.expandable_segments = match value {
                    "True" | "true" => true,
                    "False" | "false" => false,
                    _ => return Err(format!("{key} must be True or False, not '{value}'")),
                };
            }
            "large_segment_size_mb" => self.large_segment_bytes = megabytes(key, value, 20, 1 << 20)?,
            "segment_size_mb" => self.segment_bytes = Some(megabytes(key, value, 20, 512)?),
            "per_process_memory_fraction" => self.memory_fraction = fraction(key, value)?,
            "roundup_power2_divisions" => self.power_of_two_divisions = divisions(key, value)?,
            "base_addr_aligned_kb" => {
                let kilobytes = number(key, value)?;
                if kilobytes > LARGEST_ALIGNMENT_KB {
                    return Err(format!("{key} must be from 0 to {LARGEST_ALIGNMENT_KB}, not {value}"));
                }
                self.base_alignment_bytes = kilobytes << 10;
            }
            "page_size" if value == "1g" => self.huge_pages = true,
            "page_size" => return Err(format!("{key} must be 1g, not '{value}'")),
            key if WITHOUT_EFFECT.contains(&key) => {}
            _ => {
                let known = KEYS.join(", ");
                return Err(format!("torch_npu's allocator has no option '{key}'; those that count here are {known}"));
            }
        }
        Ok(())
    }

    /// A request as the allocator rounds it beyond multiples of 512 bytes.
    #[inline]
    pub(crate) fn rounded(&self, size_bytes: u64) -> u64 {
        match self.rounding_step_bytes(size_bytes) {
            Some(step_bytes) => size_bytes.next_multiple_of(step_bytes),
            None => size_bytes,
        }
    }

    /// The largest size that requests are rounded to and that is not above this one.
    #[inline]
    pub(crate) fn rounded_down(&self, size_bytes: u64) -> u64 {
        match self.rounding_step_bytes(size_bytes) {
            Some(step_bytes) => size_bytes / step_bytes * step_bytes,
            None => size_bytes,
        }
    }

    /// Sizes between two powers of two are rounded to multiples of a part of the lower one, if they are rounded.
    #[inline]
    fn rounding_step_bytes(&self, size_bytes: u64) -> Option<u64> {
        let power = 63 - size_bytes.max(1).leading_zeros() as usize;
        let divisions = self.power_of_two_divisions[power.saturating_sub(20).min(ROUNDING_RANGES - 1)];
        if divisions <= 1 || size_bytes <= 512 * divisions || size_bytes.is_power_of_two() {
            return None;
        }
        Some(((1u64 << power) >> (63 - divisions.leading_zeros())).max(1))
    }

    /// What a new segment for a request is large.
    #[inline]
    pub(crate) fn segment_bytes(&self, size_bytes: u64) -> u64 {
        if size_bytes <= SMALL_BYTES {
            SMALL_SEGMENT_BYTES
        } else if self.huge_pages {
            size_bytes.next_multiple_of(HUGE_PAGE_BYTES)
        } else if size_bytes < OWN_SEGMENT_BYTES {
            self.large_segment_bytes
        } else {
            size_bytes.next_multiple_of(SEGMENT_MULTIPLE_BYTES)
        }
    }

    /// Size of the pieces that are mapped for large requests.
    pub(crate) fn piece_bytes(&self) -> u64 {
        match self.segment_bytes {
            _ if self.huge_pages => HUGE_PAGE_BYTES,
            Some(bytes) if self.large_segment_bytes == LARGE_SEGMENT_BYTES => bytes,
            _ => self.large_segment_bytes,
        }
    }
}

impl fmt::Display for AllocatorSettings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let default = Self::default();
        let mut parts = Vec::new();
        if self.expandable_segments {
            parts.push("expandable_segments:True".to_owned());
        }
        if let Some(bytes) = self.max_split_bytes {
            parts.push(format!("max_split_size_mb:{}", bytes / MIB));
        }
        if self.max_non_split_rounding_bytes != default.max_non_split_rounding_bytes {
            parts.push(format!("max_non_split_rounding_mb:{}", self.max_non_split_rounding_bytes / MIB));
        }
        if self.garbage_collection_threshold > 0.0 {
            parts.push(format!("garbage_collection_threshold:{}", self.garbage_collection_threshold));
        }
        if self.memory_fraction < 1.0 {
            parts.push(format!("per_process_memory_fraction:{}", self.memory_fraction));
        }
        if self.large_segment_bytes != default.large_segment_bytes {
            parts.push(format!("large_segment_size_mb:{}", self.large_segment_bytes / MIB));
        }
        if let Some(bytes) = self.segment_bytes {
            parts.push(format!("segment_size_mb:{}", bytes / MIB));
        }
        let [first, rest @ ..] = &self.power_of_two_divisions;
        if rest.iter().all(|other| other == first) {
            if *first > 0 {
                parts.push(format!("roundup_power2_divisions:{first}"));
            }
        } else {
            parts.push(format!("roundup_power2_divisions:[{}]", ranges_of(&self.power_of_two_divisions)));
        }
        if self.base_alignment_bytes != default.base_alignment_bytes {
            parts.push(format!("base_addr_aligned_kb:{}", self.base_alignment_bytes >> 10));
        }
        if self.huge_pages {
            parts.push("page_size:1g".to_owned());
        }
        match parts.is_empty() {
            true => formatter.write_str(AS_DELIVERED),
            false => formatter.write_str(&parts.join(",")),
        }
    }
}

/// Splits at commas that are not inside brackets.
fn options(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    let at_comma = move |letter: char| {
        match letter {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        letter == ',' && depth == 0
    };
    text.split(at_comma).map(str::trim).filter(|part| !part.is_empty())
}

fn number(key: &str, value: &str) -> Result<u64, String> {
    value.parse().map_err(|_| format!("{key} must be a number, not '{value}'"))
}

fn fraction(key: &str, value: &str) -> Result<f64, String> {
    let number: f64 = value.parse().map_err(|_| format!("{key} must be a number, not '{value}'"))?;
    if (0.0..=1.0).contains(&number) { Ok(number) } else { Err(format!("{key} must be from 0 to 1, not {value}")) }
}

fn megabytes(key: &str, value: &str, least: u64, most: u64) -> Result<u64, String> {
    let megabytes = number(key, value)?;
    if megabytes < least {
        return Err(format!("{key} must be at least {least}, not {value}"));
    }
    if megabytes > most {
        return Err(format!("{key} must be at most {most}, not {value}"));
    }
    Ok(megabytes * MIB)
}

/// One number for all sizes, or `[256:1,512:2,>:4]` by size in MiB.
fn divisions(key: &str, value: &str) -> Result<[u64; ROUNDING_RANGES], String> {
    let power = |text: &str, is_zero_allowed: bool| {
        let value = number(key, text.trim())?;
        match value.is_power_of_two() || value == 0 && is_zero_allowed {
            true => Ok(value),
            false => Err(format!("{key} takes powers of two, not {value}")),
        }
    };
    let Some(list) = value.strip_prefix('[').and_then(|value| value.strip_suffix(']')) else {
        return Ok([power(value, false)?; ROUNDING_RANGES]);
    };
    let mut divisions = [0; ROUNDING_RANGES];
    let mut last = 0;
    for (index, part) in list.split(',').enumerate() {
        let (range, count) = part.split_once(':').ok_or_else(|| format!("{key}: '{part}' is not size:divisions"))?;
        let count = power(count, true)?;
        if range.trim() == ">" {
            divisions[last..].fill(count);
            continue;
        }
        last = (power(range, false)?.ilog2() as usize).min(ROUNDING_RANGES - 1);
        if index == 0 {
            divisions[..last].fill(count);
        }
        divisions[last] = count;
    }
    Ok(divisions)
}

/// The shortest list that [`divisions`] reads as these: what is said of the first size holds for all below it, `>` for
/// all from the last one on, and what is not named is not rounded.
fn ranges_of(divisions: &[u64; ROUNDING_RANGES]) -> String {
    let last = divisions[ROUNDING_RANGES - 1];
    let [alike_below, alike_above] = [
        divisions.iter().take_while(|&&count| count == divisions[0]).count(),
        divisions.iter().rev().take_while(|&&count| count == last).count(),
    ];
    let from_last_on = ROUNDING_RANGES - alike_above;
    let ranges = (alike_below - 1..=from_last_on)
        .filter(|&power| power < alike_below || power == from_last_on || divisions[power] > 0)
        .map(|power| format!("{}:{}", 1u64 << power, divisions[power]))
        .chain([format!(">:{last}")]);
    ranges.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_are_read_and_shown_again() {
        let text = "max_split_size_mb:64,garbage_collection_threshold:0.6,per_process_memory_fraction:0.5,\
                    roundup_power2_divisions:4,large_segment_size_mb:32";
        let settings = AllocatorSettings::parse(text).expect("valid");
        assert_eq!(AllocatorSettings::parse(&text.replace(':', "=")), Ok(settings.clone()));
        assert_eq!(AllocatorSettings::parse(&settings.to_string()), Ok(settings));
        assert_eq!(AllocatorSettings::default().to_string(), "as delivered");
        assert_eq!(settings_with_more("default,expandable_segments=True"), "expandable_segments:True");
        assert_eq!(AllocatorSettings::parse(""), Ok(AllocatorSettings::default()));
        for ranges in ["[256:1,512:4,>:4]", "[1:2,2:4,8:16,32768:8,>:8]", "[1:0,2:4,>:4]", "[4:2,8:0,>:0]"] {
            let text = format!("roundup_power2_divisions:{ranges}");
            let settings = AllocatorSettings::parse(&text).expect("valid");
            assert_eq!(settings.to_string(), text, "as short as it was written");
        }
    }

    #[test]
    fn every_option_that_is_named_is_known() {
        for key in KEYS {
            let error = AllocatorSettings::parse(&format!("{key}:x")).expect_err("no value of any of them");
            assert!(error.starts_with(key), "{error}");
        }
    }

    fn settings_with_more(text: &str) -> String {
        let settings = AllocatorSettings::parse("max_split_size_mb:64").expect("valid");
        settings.changed_by(text).expect("valid").to_string()
    }

    #[test]
    fn what_torch_npu_refuses_is_refused() {
        for (text, problem) in [
            ("max_split_size_mb:19", "at least 20"),
            ("garbage_collection_threshold:1.5", "from 0 to 1"),
            ("garbage_collection_threshold:0", "between 0 and 1"),
            ("expandable_segments:maybe", "True or False"),
            ("expandable_segments:True,max_split_size_mb:64", "refuses"),
            ("roundup_power2_divisions:3", "powers of two"),
            ("roundup_power2_divisions:[256]", "size:divisions"),
            ("base_addr_aligned_kb:32", "0 to 16"),
            ("segment_size_mb:1024", "at most 512"),
            ("colour:blue", "no option 'colour'"),
            ("colour", "key=value"),
            ("max_split_size_mb:", "a number"),
        ] {
            let error = AllocatorSettings::parse(text).expect_err(text);
            assert!(error.contains(problem), "{text}: {error}");
        }
    }

    #[test]
    fn sizes_are_rounded_between_powers_of_two() {
        let settings = AllocatorSettings::parse("roundup_power2_divisions:4").expect("valid");
        for (size, rounded) in
            [(512, 512), (2048, 2048), (2560, 2560), (4608, 5120), (8192, 8192), (MIB + 512, MIB + MIB / 4)]
        {
            assert_eq!(settings.rounded(size), rounded, "{size}");
        }
        let by_range = AllocatorSettings::parse("roundup_power2_divisions:[2:1,4:8,>:2]").expect("valid");
        assert_eq!(by_range.rounded(3 * MIB + 512), 3 * MIB + 512, "one division rounds nothing");
        assert_eq!(by_range.rounded(4 * MIB + 512), 6 * MIB, "what is said about the rest includes the last one named");
        assert_eq!(by_range.rounded(9 * MIB), 12 * MIB);
        assert_eq!(AllocatorSettings::default().rounded(5 * MIB + 512), 5 * MIB + 512);
        assert_eq!(
            [5 * MIB + 512, 5 * MIB, 8 * MIB].map(|bytes| settings.rounded_down(bytes)),
            [5 * MIB, 5 * MIB, 8 * MIB]
        );
    }
}
