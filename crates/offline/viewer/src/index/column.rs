//! Columns of numbers. Neighbours in a column are alike: each piece of it is stored as the least of its numbers and
//! what each of them adds to that, in as few bytes as hold it.

use std::io::{self, Write};

use super::stored::{Input, Output, Stored, Unusable};

/// Numbers per piece.
const PIECE: usize = 4096;

/// A number of a column.
pub(crate) trait Number: Copy {
    fn wide(self) -> u64;

    fn narrow(wide: u64) -> Self;
}

macro_rules! numbers {
    ($($number:ty),+) => {$(
        impl Number for $number {
            #[inline]
            fn wide(self) -> u64 {
                u64::from(self)
            }

            #[inline]
            fn narrow(wide: u64) -> Self {
                wide as Self
            }
        }
    )+};
}

numbers!(u8, u16, u32, u64);

/// Bytes that hold every number up to this one.
fn width(most: u64) -> usize {
    match most {
        0 => 0,
        1..=0xff => 1,
        0x100..=0xffff => 2,
        0x1_0000..=0xffff_ffff => 4,
        _ => 8,
    }
}

pub(super) fn store<T: Number, W: Write>(values: &[T], output: &mut Output<W>) -> io::Result<()> {
    (values.len() as u64).store(output)?;
    let mut bytes = Vec::with_capacity(PIECE * 8);
    for piece in values.chunks(PIECE) {
        let wide = || piece.iter().map(|value| value.wide());
        let (least, most) = (wide().min().unwrap_or(0), wide().max().unwrap_or(0));
        let width = width(most - least);
        bytes.clear();
        for value in wide() {
            bytes.extend_from_slice(&(value - least).to_le_bytes()[..width]);
        }
        (width as u8).store(output)?;
        least.store(output)?;
        output.put(&bytes)?;
    }
    Ok(())
}

/// Loads numbers into something that has room for as many.
pub(super) fn load<T: Number, C: Extend<T>>(
    input: &mut Input<'_>,
    with_room_for: impl FnOnce(usize) -> C,
) -> Result<C, Unusable> {
    let count = u64::load(input)?;
    let mut left = input.reserve::<T>(count)?;
    let mut values = with_room_for(left);
    while left > 0 {
        let piece = left.min(PIECE);
        left -= piece;
        let width = u8::load(input)? as usize;
        let least = u64::load(input)?;
        let added = |value: u64| T::narrow(least.wrapping_add(value));
        match width {
            0 => values.extend(std::iter::repeat_n(added(0), piece)),
            1 => values.extend(input.take(piece)?.iter().map(|&byte| added(u64::from(byte)))),
            2 => values.extend(arrays(input.take(piece * 2)?).map(|bytes| added(u64::from(u16::from_le_bytes(bytes))))),
            4 => values.extend(arrays(input.take(piece * 4)?).map(|bytes| added(u64::from(u32::from_le_bytes(bytes))))),
            8 => values.extend(arrays(input.take(piece * 8)?).map(|bytes| added(u64::from_le_bytes(bytes)))),
            _ => return Err(Unusable("a column has numbers of no known width")),
        }
    }
    Ok(values)
}

/// Bytes in groups of equal size.
fn arrays<const N: usize>(bytes: &[u8]) -> impl ExactSizeIterator<Item = [u8; N]> {
    bytes.as_chunks::<N>().0.iter().copied()
}

#[cfg(test)]
mod tests {
    use super::super::stored::tests::round_trip;

    #[test]
    fn columns_come_back_and_are_small_where_neighbours_are_alike() {
        let times: Vec<u64> = (0..10_000).map(|index| (1 << 60) + index * 700).collect();
        let (again, bytes) = round_trip(&times);
        assert_eq!(again, times);
        assert!(bytes < 10_000 * 4 + 100, "{bytes}");
        for column in [vec![], vec![0], vec![7; 5000], vec![u64::MAX, 0, 1], (0..9000).map(|at| at * at).collect()] {
            assert_eq!(round_trip(&column).0, column);
        }
        let small: Vec<u16> = (0..70_000u32).map(|at| (at % 300) as u16).collect();
        assert_eq!(round_trip(&small).0, small);
        assert_eq!(round_trip(&vec![255u8, 0, 3]).0, [255, 0, 3]);
    }
}
