//! How values become bytes of an index and come back. Nothing that is read is trusted: every length is held against
//! what the file still has and against a budget of memory, so that a file that lies costs no more than one that is true.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

use msmemscope_columns::Column;
use xxhash_rust::xxh3::Xxh3;

use super::column;

/// Bytes that are read at once; no single part of a value is longer.
const BUFFER_BYTES: usize = 256 * 1024;

/// Why an index is of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unusable(pub(crate) &'static str);

/// Where values are written to.
pub(crate) struct Output<W> {
    writer: W,
    hash: Xxh3,
    written_bytes: u64,
}

impl<W: Write> Output<W> {
    pub(crate) fn new(writer: W) -> Self {
        Self { writer, hash: Xxh3::new(), written_bytes: 0 }
    }

    pub(crate) fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hash.update(bytes);
        self.written_bytes += bytes.len() as u64;
        self.writer.write_all(bytes)
    }

    /// Bytes written since the last section, and their checksum.
    pub(crate) fn end_section(&mut self) -> Section {
        let section = Section { bytes: self.written_bytes, hash: self.hash.digest() };
        self.hash.reset();
        self.written_bytes = 0;
        section
    }

    pub(crate) fn into_writer(self) -> W {
        self.writer
    }
}

/// A part of an index that is read by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Section {
    pub(crate) bytes: u64,
    pub(crate) hash: u64,
}

/// Where values of one section are read from.
pub(crate) struct Input<'f> {
    file: &'f File,
    offset: u64,
    left_bytes: u64,
    buffer: Vec<u8>,
    at: usize,
    hash: Xxh3,
    expected_hash: u64,
    /// Bytes of memory that values may still take.
    budget_bytes: u64,
}

impl<'f> Input<'f> {
    /// A section of a file, whose values may take this much memory.
    pub(crate) fn new(file: &'f File, offset: u64, section: Section, budget_bytes: u64) -> Self {
        Self {
            file,
            offset,
            left_bytes: section.bytes,
            buffer: Vec::new(),
            at: 0,
            hash: Xxh3::new(),
            expected_hash: section.hash,
            budget_bytes,
        }
    }

    /// The next bytes of the section, at most as many as fit the buffer.
    pub(crate) fn take(&mut self, length: usize) -> Result<&[u8], Unusable> {
        if self.buffer.len() - self.at < length {
            self.refill(length)?;
        }
        self.at += length;
        Ok(&self.buffer[self.at - length..self.at])
    }

    fn refill(&mut self, length: usize) -> Result<(), Unusable> {
        self.buffer.drain(..self.at);
        self.at = 0;
        let known = self.buffer.len();
        let fresh = (BUFFER_BYTES - known).min(usize::try_from(self.left_bytes).unwrap_or(usize::MAX));
        if known + fresh < length {
            return Err(Unusable("it ends too early"));
        }
        self.buffer.resize(known + fresh, 0);
        let read = self.file.read_exact_at(&mut self.buffer[known..], self.offset);
        read.map_err(|_| Unusable("it cannot be read"))?;
        self.hash.update(&self.buffer[known..]);
        self.offset += fresh as u64;
        self.left_bytes -= fresh as u64;
        Ok(())
    }

    /// Permission to take memory for this many values of a type.
    pub(crate) fn reserve<T>(&mut self, count: u64) -> Result<usize, Unusable> {
        let bytes = count.checked_mul(size_of::<T>().max(1) as u64).filter(|bytes| *bytes <= self.budget_bytes);
        self.budget_bytes -= bytes.ok_or(Unusable("it claims to hold more than the recording can"))?;
        Ok(count as usize)
    }

    /// To be called at the end of the section.
    pub(crate) fn finish(self) -> Result<(), Unusable> {
        match self.left_bytes == 0 && self.at == self.buffer.len() && self.hash.digest() == self.expected_hash {
            true => Ok(()),
            false => Err(Unusable("its checksum is wrong")),
        }
    }
}

/// A value that an index holds.
pub(crate) trait Stored: Sized {
    fn store<W: Write>(&self, output: &mut Output<W>) -> io::Result<()>;

    fn load(input: &mut Input<'_>) -> Result<Self, Unusable>;

    /// Stores many of them; numbers do it as a column.
    fn store_all<W: Write>(values: &[Self], output: &mut Output<W>) -> io::Result<()> {
        (values.len() as u64).store(output)?;
        values.iter().try_for_each(|value| value.store(output))
    }

    fn load_all(input: &mut Input<'_>) -> Result<Vec<Self>, Unusable> {
        let count = u64::load(input)?;
        let count = input.reserve::<Self>(count)?;
        // Grows with what is really there.
        let mut values = Vec::new();
        for _ in 0..count {
            values.push(Self::load(input)?);
        }
        Ok(values)
    }
}

macro_rules! stored_numbers {
    ($($number:ty),+) => {$(
        impl Stored for $number {
            fn store<W: Write>(&self, output: &mut Output<W>) -> io::Result<()> {
                output.put(&self.to_le_bytes())
            }

            fn load(input: &mut Input<'_>) -> Result<Self, Unusable> {
                let mut bytes = [0; size_of::<Self>()];
                bytes.copy_from_slice(input.take(size_of::<Self>())?);
                Ok(Self::from_le_bytes(bytes))
            }

            fn store_all<W: Write>(values: &[Self], output: &mut Output<W>) -> io::Result<()> {
                column::store(values, output)
            }

            fn load_all(input: &mut Input<'_>) -> Result<Vec<Self>, Unusable> {
                column::load::<Self, _>(input, Vec::with_capacity)
            }
        }
    )+};
}

stored_numbers!(u8, u16, u32, u64);

/// Stores structures field by field; fields behind `besides` are made anew.
macro_rules! stored {
    ($($structure:ident { $($field:ident),+ $(; besides $($besides:ident),+)? })+) => {$(
        impl $crate::index::stored::Stored for $structure {
            fn store<W: std::io::Write>(
                &self,
                output: &mut $crate::index::stored::Output<W>,
            ) -> std::io::Result<()> {
                $($crate::index::stored::Stored::store(&self.$field, output)?;)+
                Ok(())
            }

            fn load(
                input: &mut $crate::index::stored::Input<'_>,
            ) -> Result<Self, $crate::index::stored::Unusable> {
                Ok(Self {
                    $($field: $crate::index::stored::Stored::load(input)?,)+
                    $($($besides: Default::default(),)+)?
                })
            }
        }
    )+};
}
pub(crate) use stored;

impl Stored for bool {
    fn store<W: Write>(&self, output: &mut Output<W>) -> io::Result<()> {
        u8::from(*self).store(output)
    }

    fn load(input: &mut Input<'_>) -> Result<Self, Unusable> {
        Ok(u8::load(input)? != 0)
    }
}

impl Stored for f64 {
    fn store<W: Write>(&self, output: &mut Output<W>) -> io::Result<()> {
        self.to_bits().store(output)
    }

    fn load(input: &mut Input<'_>) -> Result<Self, Unusable> {
        Ok(Self::from_bits(u64::load(input)?))
    }
}

impl Stored for String {
    fn store<W: Write>(&self, output: &mut Output<W>) -> io::Result<()> {
        (self.len() as u64).store(output)?;
        output.put(self.as_bytes())
    }

    fn load(input: &mut Input<'_>) -> Result<Self, Unusable> {
        let length = u64::load(input)?;
        let length = input.reserve::<u8>(length)?;
        let mut bytes = Vec::new();
        while bytes.len() < length {
            let piece = (length - bytes.len()).min(BUFFER_BYTES);
            bytes.extend_from_slice(input.take(piece)?);
        }
        String::from_utf8(bytes).map_err(|_| Unusable("it holds a broken text"))
    }
}

impl Stored for Box<str> {
    fn store<W: Write>(&self, output: &mut Output<W>) -> io::Result<()> {
        (self.len() as u64).store(output)?;
        output.put(self.as_bytes())
    }

    fn load(input: &mut Input<'_>) -> Result<Self, Unusable> {
        Ok(String::load(input)?.into())
    }
}

impl<T: Stored> Stored for Vec<T> {
    fn store<W: Write>(&self, output: &mut Output<W>) -> io::Result<()> {
        T::store_all(self, output)
    }

    fn load(input: &mut Input<'_>) -> Result<Self, Unusable> {
        T::load_all(input)
    }
}

impl<T: Stored + column::Number + msmemscope_columns::Number> Stored for Column<T> {
    fn store<W: Write>(&self, output: &mut Output<W>) -> io::Result<()> {
        T::store_all(self, output)
    }

    fn load(input: &mut Input<'_>) -> Result<Self, Unusable> {
        column::load::<T, _>(input, |count| {
            let mut column = Column::default();
            column.reserve_exact(count);
            column
        })
    }
}

impl<T: Stored> Stored for Box<[T]> {
    fn store<W: Write>(&self, output: &mut Output<W>) -> io::Result<()> {
        T::store_all(self, output)
    }

    fn load(input: &mut Input<'_>) -> Result<Self, Unusable> {
        Ok(T::load_all(input)?.into())
    }
}

impl<T: Stored> Stored for Option<T> {
    fn store<W: Write>(&self, output: &mut Output<W>) -> io::Result<()> {
        self.is_some().store(output)?;
        self.as_ref().map_or(Ok(()), |value| value.store(output))
    }

    fn load(input: &mut Input<'_>) -> Result<Self, Unusable> {
        bool::load(input)?.then(|| T::load(input)).transpose()
    }
}

impl<A: Stored, B: Stored> Stored for (A, B) {
    fn store<W: Write>(&self, output: &mut Output<W>) -> io::Result<()> {
        self.0.store(output)?;
        self.1.store(output)
    }

    fn load(input: &mut Input<'_>) -> Result<Self, Unusable> {
        Ok((A::load(input)?, B::load(input)?))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// What comes back, and the bytes that it took.
    pub(crate) fn round_trip<T: Stored>(value: &T) -> (T, u64) {
        let mut output = Output::new(Vec::new());
        value.store(&mut output).expect("memory is there");
        let section = output.end_section();
        let again = read(&output.into_writer(), section, 1 << 30).expect("what was written");
        (again, section.bytes)
    }

    fn read<T: Stored>(bytes: &[u8], section: Section, budget_bytes: u64) -> Result<T, Unusable> {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(bytes).expect("room");
        let mut input = Input::new(&file, 0, section, budget_bytes);
        let value = T::load(&mut input)?;
        input.finish().map(|()| value)
    }

    #[test]
    fn values_come_back() {
        let long = "é".repeat(300_000);
        let value = (vec![Some(long), None, Some(String::new())], (true, 0.25));
        assert_eq!(round_trip(&value).0, value);
    }

    #[test]
    fn lengths_that_lie_cost_nothing() {
        let section = |bytes: &[u8]| Section { bytes: bytes.len() as u64, hash: xxhash_rust::xxh3::xxh3_64(bytes) };
        let claims = |count: u64, rest: &[u8]| [&count.to_le_bytes()[..], rest].concat();
        let constant = [&[0][..], &7u64.to_le_bytes()].concat();
        for bytes in [claims(u64::MAX, b""), claims(1 << 40, &constant), claims(1000, b"12"), claims(1, &[3; 20])] {
            assert!(read::<Vec<u64>>(&bytes, section(&bytes), 4096).is_err());
            assert!(read::<Vec<Option<String>>>(&bytes, section(&bytes), 4096).is_err());
            assert!(read::<String>(&bytes, section(&bytes), 900).is_err());
        }
        let good = claims(3, &constant);
        assert_eq!(read::<Vec<u32>>(&good, section(&good), 4096), Ok(vec![7, 7, 7]));
        let mut other = section(&good);
        other.hash ^= 1;
        assert_eq!(read::<Vec<u32>>(&good, other, 4096), Err(Unusable("its checksum is wrong")));
    }
}
