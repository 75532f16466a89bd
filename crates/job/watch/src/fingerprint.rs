//! What the contents of a block are reduced to: one strong hash per piece, and one over all of them.
//!
//! Pieces tell where a block changed without keeping its contents. Their size is the granularity in
//! which caching allocators hand out memory.

use msmemscope_event::ByteRange;
use xxhash_rust::xxh3::xxh3_64;

/// Bytes per piece.
pub const PIECE_BYTES: usize = 512;

/// Hashes of all pieces of a block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fingerprint {
    pieces: Vec<u64>,
    size_bytes: u64,
}

impl Fingerprint {
    /// The fingerprint of some contents.
    pub fn of(contents: &[u8]) -> Self {
        let mut fingerprint = Self::default();
        fingerprint.feed(contents);
        fingerprint
    }

    /// Takes the next bytes in: whole pieces, except at the end of a block.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.pieces.extend(bytes.chunks(PIECE_BYTES).map(xxh3_64));
        self.size_bytes += bytes.len() as u64;
    }

    /// One hash of everything.
    pub fn hash(&self) -> u64 {
        let bytes: Vec<u8> = self.pieces.iter().flat_map(|piece| piece.to_le_bytes()).collect();
        xxh3_64(&bytes)
    }

    /// Where another fingerprint of the same block differs, in whole pieces.
    pub fn changes(&self, other: &Self) -> Vec<ByteRange> {
        let mut changed: Vec<ByteRange> = Vec::new();
        for (index, (one, two)) in self.pieces.iter().zip(&other.pieces).enumerate() {
            if one == two {
                continue;
            }
            let start = (index * PIECE_BYTES) as u64;
            let end = (start + PIECE_BYTES as u64).min(self.size_bytes);
            match changed.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => changed.push(ByteRange { start, end }),
            }
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64) -> ByteRange {
        ByteRange { start, end }
    }

    #[test]
    fn changes_are_found_where_they_are() {
        let mut contents = vec![7; 5 * PIECE_BYTES + 100];
        let before = Fingerprint::of(&contents);
        contents[600] = 0;
        contents[1024] = 0;
        let end = contents.len();
        contents[end - 1] = 0;
        let after = Fingerprint::of(&contents);
        assert_eq!(before.changes(&after), [range(512, 1536), range(2560, end as u64)]);
        assert_ne!(before.hash(), after.hash());
        assert_eq!(before.changes(&before), []);
    }

    #[test]
    fn feeding_in_parts_gives_the_same() {
        let contents: Vec<u8> = (0..10_000u32).map(|index| index as u8).collect();
        let mut parts = Fingerprint::default();
        contents.chunks(4 * PIECE_BYTES).for_each(|part| parts.feed(part));
        assert_eq!(parts, Fingerprint::of(&contents));
    }
}
