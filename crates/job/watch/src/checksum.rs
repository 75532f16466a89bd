//! The checksum of `watch_dump_data_check_sum` files.
//!
//! It shifts right with the polynomial of CRC-64/ECMA-182 as it is written for shifting left. That is
//! no CRC-64 anybody else has, but it is what the files hold, so old and new files can be compared.

const POLYNOMIAL: u64 = 0x42F0_E1EB_A9EA_3693;
/// Bytes taken per step.
const STRIDE: usize = 16;

/// For each distance from the end of a step: what a byte contributes.
static TABLES: [[u64; 256]; STRIDE] = tables();

const fn tables() -> [[u64; 256]; STRIDE] {
    let mut tables = [[0; 256]; STRIDE];
    let mut byte = 0;
    while byte < 256 {
        let mut value = byte as u64;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { value >> 1 ^ POLYNOMIAL } else { value >> 1 };
            bit += 1;
        }
        tables[0][byte] = value;
        byte += 1;
    }
    let mut distance = 1;
    while distance < STRIDE {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[distance - 1][byte];
            tables[distance][byte] = before >> 8 ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        distance += 1;
    }
    tables
}

/// A checksum under construction.
#[derive(Clone, Copy, Debug)]
pub struct Checksum(u64);

impl Default for Checksum {
    fn default() -> Self {
        Self(u64::MAX)
    }
}

impl Checksum {
    /// Takes more bytes in.
    pub fn feed(&mut self, bytes: &[u8]) {
        let (steps, rest) = bytes.as_chunks::<STRIDE>();
        for step in steps {
            let mut mixed = *step;
            for (byte, old) in mixed.iter_mut().zip(self.0.to_le_bytes()) {
                *byte ^= old;
            }
            self.0 = mixed.iter().rev().zip(&TABLES).fold(0, |sum, (&byte, table)| sum ^ table[usize::from(byte)]);
        }
        for &byte in rest {
            self.0 = self.0 >> 8 ^ TABLES[0][usize::from(self.0 as u8 ^ byte)];
        }
    }

    /// The checksum of everything fed.
    pub fn value(self) -> u64 {
        !self.0
    }
}

/// The checksum of some bytes.
pub fn checksum(bytes: &[u8]) -> u64 {
    let mut checksum = Checksum::default();
    checksum.feed(bytes);
    checksum.value()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_texts_have_their_known_checksums() {
        for (text, expected) in [
            (&b""[..], 0x0000_0000_0000_0000),
            (b"123456789", 0xb868_83e6_fa71_0a9f),
            (&[0; 8], 0x98b1_2cac_c211_a013),
            (b"a", 0x8561_76de_4cff_4e76),
        ] {
            assert_eq!(checksum(text), expected, "{text:?}");
        }
    }

    #[test]
    fn steps_give_what_single_bytes_give() {
        let bytes: Vec<u8> = (0..1000u32).map(|index| (index * 37 % 251) as u8).collect();
        let mut slow = u64::MAX;
        for &byte in &bytes {
            slow = slow >> 8 ^ TABLES[0][usize::from(slow as u8 ^ byte)];
        }
        assert_eq!(checksum(&bytes), !slow);
        let mut parts = Checksum::default();
        for part in bytes.chunks(7) {
            parts.feed(part);
        }
        assert_eq!(parts.value(), !slow);
    }
}
