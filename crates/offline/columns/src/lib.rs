//! Columns of numbers that move into a file when they grow large.
//!
//! A recording of 10^8 events takes gigabytes as columns. In memory that the system cannot take back, this would end the
//! program on a machine that has less; in a mapped file the system keeps what is looked at and writes the rest to disk.
//! The files have no names, so that they are gone with the program, however it ends.
//!
//! Small columns are ordinary vectors. Where there is no room for a file, large ones are, too.

use std::env;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use memmap2::{MmapMut, MmapOptions};

/// Columns up to this size stay in memory.
const LARGEST_IN_MEMORY_BYTES: usize = 32 << 20;

/// A number that can be in a column.
///
/// # Safety
///
/// Any bytes of its size must be a value of it.
pub unsafe trait Number: Copy + Default + 'static {}

macro_rules! numbers {
    ($($number:ty),+) => {$(
        // SAFETY: all bytes are a value of an unsigned integer.
        unsafe impl Number for $number {}
    )+};
}

numbers!(u8, u16, u32, u64);

/// Where large columns go: a directory on a disk, which the system's own one for short-lived files often is not.
pub fn directory() -> PathBuf {
    env::var_os("TMPDIR").filter(|place| !place.is_empty()).map_or_else(|| PathBuf::from("/var/tmp"), PathBuf::from)
}

/// Bytes that are free for files in a directory.
pub fn free_bytes(directory: &Path) -> io::Result<u64> {
    let path = CString::new(directory.as_os_str().as_bytes())?;
    // SAFETY: plain old data, for which zero is a valid value.
    let mut facts: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are valid for the call.
    match unsafe { libc::statvfs(path.as_ptr(), &mut facts) } {
        0 => Ok(facts.f_bavail.saturating_mul(facts.f_frsize)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A vector of numbers, used as a slice.
pub struct Column<T> {
    place: Place<T>,
}

enum Place<T> {
    Memory(Vec<T>),
    File(Filed<T>),
}

/// Numbers in a mapped file.
struct Filed<T> {
    file: File,
    /// The whole file, whose blocks on the disk are ours already: writing to it cannot fail.
    map: MmapMut,
    length: usize,
    number: PhantomData<T>,
}

impl<T: Number> Filed<T> {
    fn new(capacity: usize) -> io::Result<Self> {
        let file = tempfile::tempfile_in(directory())?;
        let map = mapped::<T>(&file, capacity)?;
        Ok(Self { file, map, length: 0, number: PhantomData })
    }

    fn capacity(&self) -> usize {
        self.map.len() / size_of::<T>()
    }

    fn grow(&mut self, capacity: usize) -> io::Result<()> {
        self.map = mapped::<T>(&self.file, capacity)?;
        Ok(())
    }

    fn numbers(&self) -> &[T] {
        // SAFETY: a mapping starts at a page, so it is aligned; `length` numbers lie in it, and any bytes are numbers.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().cast(), self.length) }
    }

    fn all_numbers_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, for all that fit the mapping; nobody else has it.
        unsafe { std::slice::from_raw_parts_mut(self.map.as_mut_ptr().cast(), self.capacity()) }
    }
}

/// Makes a file this large and maps it. It takes its room on the disk as well: where a page of a mapping finds none later,
/// the program ends.
fn mapped<T>(file: &File, capacity: usize) -> io::Result<MmapMut> {
    let bytes = capacity.checked_mul(size_of::<T>()).ok_or(io::ErrorKind::OutOfMemory)?;
    let length = libc::off_t::try_from(bytes).map_err(|_| io::ErrorKind::FileTooLarge)?;
    // SAFETY: the descriptor is open as long as the file is borrowed.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, length) } {
        // SAFETY: the file has no name and is kept to its column, so that nobody else changes or shortens it.
        0 => unsafe { MmapOptions::new().len(bytes).map_mut(file) },
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

impl<T> Default for Column<T> {
    fn default() -> Self {
        Self { place: Place::Memory(Vec::new()) }
    }
}

impl<T: Number> Column<T> {
    /// Adds a number at the end.
    #[inline]
    pub fn push(&mut self, number: T) {
        if self.len() == self.capacity() {
            self.grow(self.len() + 1);
        }
        match &mut self.place {
            Place::Memory(numbers) => numbers.push(number),
            Place::File(filed) => {
                let length = filed.length;
                filed.all_numbers_mut()[length] = number;
                filed.length += 1;
            }
        }
    }

    /// Makes room for so many more numbers and no others.
    pub fn reserve_exact(&mut self, more: usize) {
        let wanted = self.len().saturating_add(more);
        if wanted > self.capacity() {
            self.move_to(wanted);
        }
    }

    /// Fills up or cuts off.
    pub fn resize(&mut self, length: usize, number: T) {
        if length > self.capacity() {
            self.grow(length);
        }
        match &mut self.place {
            Place::Memory(numbers) => numbers.resize(length, number),
            Place::File(filed) => {
                let before = filed.length.min(length);
                filed.all_numbers_mut()[before..length].fill(number);
                filed.length = length;
            }
        }
    }

    /// Gives back memory that is not needed; what is in a file stays there as it is.
    pub fn shrink_to_fit(&mut self) {
        if let Place::Memory(numbers) = &mut self.place {
            numbers.shrink_to_fit();
        }
    }

    fn capacity(&self) -> usize {
        match &self.place {
            Place::Memory(numbers) => numbers.capacity(),
            Place::File(filed) => filed.capacity(),
        }
    }

    #[cold]
    fn grow(&mut self, least: usize) {
        self.move_to(least.max(self.capacity().saturating_mul(2)));
    }

    /// To a place with room for so many numbers.
    fn move_to(&mut self, capacity: usize) {
        match &mut self.place {
            Place::Memory(numbers) => {
                let is_large = capacity.saturating_mul(size_of::<T>()) > LARGEST_IN_MEMORY_BYTES;
                let Some(mut filed) = is_large.then(|| Filed::new(capacity).ok()).flatten() else {
                    return numbers.reserve_exact(capacity - numbers.len());
                };
                filed.all_numbers_mut()[..numbers.len()].copy_from_slice(numbers);
                filed.length = numbers.len();
                self.place = Place::File(filed);
            }
            Place::File(filed) => {
                if filed.grow(capacity).is_err() {
                    let mut numbers = Vec::with_capacity(capacity);
                    numbers.extend_from_slice(filed.numbers());
                    self.place = Place::Memory(numbers);
                }
            }
        }
    }
}

impl<T: Number> Deref for Column<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        match &self.place {
            Place::Memory(numbers) => numbers,
            Place::File(filed) => filed.numbers(),
        }
    }
}

impl<T: Number> DerefMut for Column<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        match &mut self.place {
            Place::Memory(numbers) => numbers,
            Place::File(filed) => {
                let length = filed.length;
                &mut filed.all_numbers_mut()[..length]
            }
        }
    }
}

impl<T: Number> Extend<T> for Column<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, numbers: I) {
        let numbers = numbers.into_iter();
        let wanted = self.len() + numbers.size_hint().0;
        if wanted > self.capacity() {
            self.grow(wanted);
        }
        match &mut self.place {
            Place::Memory(known) if known.capacity() >= wanted => known.extend(numbers),
            _ => numbers.for_each(|number| self.push(number)),
        }
    }
}

impl<T: Number> FromIterator<T> for Column<T> {
    fn from_iter<I: IntoIterator<Item = T>>(numbers: I) -> Self {
        let numbers = numbers.into_iter();
        let mut column = Self::default();
        column.reserve_exact(numbers.size_hint().0);
        column.extend(numbers);
        column
    }
}

impl<T: Number> From<Vec<T>> for Column<T> {
    fn from(numbers: Vec<T>) -> Self {
        Self { place: Place::Memory(numbers) }
    }
}

impl<'c, T: Number> IntoIterator for &'c Column<T> {
    type Item = &'c T;
    type IntoIter = std::slice::Iter<'c, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<T: Number + std::fmt::Debug> std::fmt::Debug for Column<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.deref().fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANY: usize = LARGEST_IN_MEMORY_BYTES / size_of::<u64>() + 1;

    fn is_in_file<T>(column: &Column<T>) -> bool {
        matches!(column.place, Place::File(_))
    }

    #[test]
    fn a_column_that_grows_moves_into_a_file_and_stays_the_same() {
        let mut column = Column::default();
        for number in 0..2 * MANY as u64 + 3 {
            column.push(number * 7);
        }
        assert!(is_in_file(&column));
        assert_eq!(column.len(), 2 * MANY + 3);
        assert!(column.iter().zip(0..).all(|(&number, at)| number == at * 7));
        column[MANY] = 1;
        column.resize(MANY + 5, 9);
        column.resize(MANY + 7, 9);
        assert_eq!(
            column[MANY..],
            [1, 7 * (MANY as u64 + 1), 7 * (MANY as u64 + 2), 7 * (MANY as u64 + 3), 7 * (MANY as u64 + 4), 9, 9]
        );
    }

    #[test]
    fn a_column_of_which_the_size_is_known_is_in_its_file_at_once() {
        let mut column: Column<u64> = (0..MANY as u64).collect();
        assert!(is_in_file(&column) && column.last() == Some(&(MANY as u64 - 1)));
        column.extend([5, 6]);
        assert_eq!(column[MANY..], [5, 6]);
        let mut reserved = Column::<u8>::default();
        reserved.reserve_exact(LARGEST_IN_MEMORY_BYTES + 1);
        assert!(is_in_file(&reserved) && reserved.is_empty());
    }

    #[test]
    fn small_columns_stay_in_memory() {
        let mut column: Column<u16> = vec![1, 2].into();
        column.extend(3..1000);
        column.resize(1001, 7);
        assert!(!is_in_file(&column));
        assert_eq!((column[2], column[999], column[1000]), (3, 7, 7));
        assert_eq!(format!("{:?}", Column::from(vec![1u8, 2])), "[1, 2]");
    }
}
