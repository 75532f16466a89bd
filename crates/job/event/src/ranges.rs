//! Half-open ranges of bytes: changed, declared, left over.

use std::fmt;

/// Bytes from `start` up to but not including `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ByteRange {
    /// First byte.
    pub start: u64,
    /// First byte behind it.
    pub end: u64,
}

impl ByteRange {
    /// This many bytes from a start on.
    pub fn sized(start: u64, size_bytes: u64) -> Self {
        Self { start, end: start.saturating_add(size_bytes) }
    }

    /// Number of bytes.
    pub fn size_bytes(self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.end <= self.start
    }

    /// Whether two ranges have bytes in common.
    pub fn overlaps(self, other: Self) -> bool {
        self.start < other.end && other.start < self.end
    }

    /// The common bytes.
    pub fn intersection(self, other: Self) -> Self {
        let start = self.start.max(other.start);
        Self { start, end: self.end.min(other.end).max(start) }
    }

    /// The same bytes seen from `origin`, which is not behind them.
    pub fn relative_to(self, origin: u64) -> Self {
        Self { start: self.start - origin, end: self.end - origin }
    }
}

impl fmt::Display for ByteRange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-{}", self.start, self.end)
    }
}

/// Sorts ranges and joins those that touch; empty ones go.
pub fn merge(ranges: &mut Vec<ByteRange>) {
    ranges.retain(|range| !range.is_empty());
    ranges.sort_unstable();
    ranges.dedup_by(|next, previous| {
        let joins = next.start <= previous.end;
        if joins {
            previous.end = previous.end.max(next.end);
        }
        joins
    });
}

/// What of `ranges` no range of `taken` covers. Both are sorted and apart, as after [`merge`].
pub fn subtract(ranges: &[ByteRange], taken: &[ByteRange]) -> Vec<ByteRange> {
    let mut left = Vec::new();
    for range in ranges {
        let mut start = range.start;
        for gone in taken.iter().filter(|gone| gone.overlaps(*range)) {
            if gone.start > start {
                left.push(ByteRange { start, end: gone.start });
            }
            start = start.max(gone.end);
        }
        if start < range.end {
            left.push(ByteRange { start, end: range.end });
        }
    }
    left
}

/// What of the changed pieces nobody declared to write. A piece that was partly declared counts as
/// declared: its hash cannot tell which part of it changed.
pub fn undeclared(changed: &[ByteRange], declared: &[ByteRange], piece_bytes: u64) -> Vec<ByteRange> {
    let piece = piece_bytes.max(1);
    let mut whole: Vec<ByteRange> = declared
        .iter()
        .filter(|range| !range.is_empty())
        .map(|range| ByteRange { start: range.start / piece * piece, end: range.end.div_ceil(piece) * piece })
        .collect();
    merge(&mut whole);
    subtract(changed, &whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(list: &[(u64, u64)]) -> Vec<ByteRange> {
        list.iter().map(|&(start, end)| ByteRange { start, end }).collect()
    }

    #[test]
    fn touching_ranges_become_one() {
        let mut list = ranges(&[(8, 12), (0, 4), (4, 6), (5, 5), (10, 20)]);
        merge(&mut list);
        assert_eq!(list, ranges(&[(0, 6), (8, 20)]));
    }

    #[test]
    fn declared_pieces_are_no_evidence() {
        let changed = ranges(&[(0, 2048)]);
        assert_eq!(undeclared(&changed, &[], 512), changed);
        assert_eq!(undeclared(&changed, &ranges(&[(0, 1000)]), 512), ranges(&[(1024, 2048)]));
        assert_eq!(undeclared(&changed, &ranges(&[(600, 601), (0, 2048)]), 512), []);
        assert_eq!(undeclared(&changed, &ranges(&[(0, 1000)]), 0), ranges(&[(1000, 2048)]));
    }

    #[test]
    fn what_is_left_is_what_nobody_took() {
        let all = ranges(&[(0, 10), (20, 30)]);
        assert_eq!(subtract(&all, &[]), all);
        assert_eq!(subtract(&all, &ranges(&[(0, 30)])), []);
        assert_eq!(subtract(&all, &ranges(&[(3, 5), (8, 22), (29, 40)])), ranges(&[(0, 3), (5, 8), (22, 29)]));
    }
}
