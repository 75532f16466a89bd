//! Writes pickles of plain things: dictionaries, lists, texts, numbers and truth values. Protocol 2, which every Python 3 reads.

use std::io::{self, Write};

/// Elements that are appended to a list, or put into a dictionary, at once.
const BATCH: usize = 1000;

/// A pickle that is being written. What is written is left on the reader's stack, so containers are written as their
/// beginning, their elements and their end.
pub(crate) struct Pickle<'w> {
    out: &'w mut dyn Write,
    /// For each container that is open, how many things were written since the latest batch.
    pending: Vec<usize>,
    remembered: u32,
}

/// Something that was written and can be written again as a reference to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Remembered(u32);

impl<'w> Pickle<'w> {
    /// A pickle at its beginning.
    pub(crate) fn new(out: &'w mut dyn Write) -> io::Result<Self> {
        out.write_all(&[0x80, 2])?;
        Ok(Self { out, pending: Vec::new(), remembered: 0 })
    }

    /// The end: what was written last is what the reader gets.
    pub(crate) fn finish(self) -> io::Result<()> {
        self.out.write_all(b".")
    }

    /// A text.
    pub(crate) fn text(&mut self, text: &str) -> io::Result<()> {
        self.out.write_all(b"X")?;
        self.out.write_all(&(text.len() as u32).to_le_bytes())?;
        self.out.write_all(text.as_bytes())
    }

    /// A number.
    pub(crate) fn number(&mut self, number: u64) -> io::Result<()> {
        if let Ok(small) = i32::try_from(number) {
            self.out.write_all(b"J")?;
            return self.out.write_all(&small.to_le_bytes());
        }
        // Nine bytes, so that the highest bit is no sign.
        self.out.write_all(&[0x8a, 9])?;
        self.out.write_all(&number.to_le_bytes())?;
        self.out.write_all(&[0])
    }

    /// True or false.
    pub(crate) fn truth(&mut self, truth: bool) -> io::Result<()> {
        self.out.write_all(&[if truth { 0x88 } else { 0x89 }])
    }

    /// Remembers what was written last.
    pub(crate) fn remember(&mut self) -> io::Result<Remembered> {
        let number = self.remembered;
        self.remembered += 1;
        self.out.write_all(b"r")?;
        self.out.write_all(&number.to_le_bytes())?;
        Ok(Remembered(number))
    }

    /// The same thing again.
    pub(crate) fn recall(&mut self, what: Remembered) -> io::Result<()> {
        self.out.write_all(b"j")?;
        self.out.write_all(&what.0.to_le_bytes())
    }

    /// A list, whose elements `write` writes, each followed by [`Pickle::next`].
    pub(crate) fn list(&mut self, write: impl FnOnce(&mut Self) -> io::Result<()>) -> io::Result<()> {
        self.container(*b"](", b"e", write)
    }

    /// A dictionary, whose keys and values `write` writes, each value followed by [`Pickle::next_pair`].
    pub(crate) fn dictionary(&mut self, write: impl FnOnce(&mut Self) -> io::Result<()>) -> io::Result<()> {
        self.container(*b"}(", b"u", write)
    }

    fn container(
        &mut self,
        beginning: [u8; 2],
        end: &[u8],
        write: impl FnOnce(&mut Self) -> io::Result<()>,
    ) -> io::Result<()> {
        self.out.write_all(&beginning)?;
        self.pending.push(0);
        write(self)?;
        self.pending.pop();
        self.out.write_all(end)
    }

    /// An element of a list is written.
    pub(crate) fn next(&mut self) -> io::Result<()> {
        self.next_of(b"e(")
    }

    /// A key and a value of a dictionary are written.
    pub(crate) fn next_pair(&mut self) -> io::Result<()> {
        self.next_of(b"u(")
    }

    /// The reader's stack stays short.
    fn next_of(&mut self, batch: &[u8]) -> io::Result<()> {
        let Some(pending) = self.pending.last_mut() else { return Ok(()) };
        *pending += 1;
        if *pending < BATCH {
            return Ok(());
        }
        *pending = 0;
        self.out.write_all(batch)
    }

    /// A key with a text.
    pub(crate) fn text_pair(&mut self, key: &str, text: &str) -> io::Result<()> {
        self.text(key)?;
        self.text(text)?;
        self.next_pair()
    }

    /// A key with a number.
    pub(crate) fn number_pair(&mut self, key: &str, number: u64) -> io::Result<()> {
        self.text(key)?;
        self.number(number)?;
        self.next_pair()
    }
}
