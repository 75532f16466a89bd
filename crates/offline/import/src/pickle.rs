//! Reads pickles of plain things: dictionaries, lists, tuples, texts, numbers. Nothing is executed: whatever would make an
//! object of some class is refused.
//!
//! All values live in tables, containers by their number, so that neither depth nor cycles of a hostile file matter. An
//! operation adds at most one value, which keeps memory in proportion to the file.

use std::ops::Range;

/// A value; texts and containers are in the tables of [`Pickle`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value {
    Nothing,
    Truth(bool),
    Number(i64),
    /// A number that does not fit, or one with a fraction: nothing that we look for.
    OtherNumber,
    Text(u32),
    /// Bytes, or another plain thing that is only passed over.
    Other,
    List(u32),
    Tuple(u32),
    Dictionary(u32),
    /// Where the elements of a container begin.
    Mark,
}

/// A pickle that was read.
#[derive(Debug)]
pub(crate) struct Pickle<'f> {
    file: &'f [u8],
    texts: Vec<Range<usize>>,
    containers: Vec<Vec<Value>>,
    /// What was pickled.
    pub(crate) root: Value,
}

impl<'f> Pickle<'f> {
    /// Reads a file of any protocol.
    pub(crate) fn read(file: &'f [u8]) -> Result<Self, String> {
        let mut machine = Machine {
            pickle: Pickle { file, texts: Vec::new(), containers: Vec::new(), root: Value::Nothing },
            at: 0,
            stack: Vec::new(),
            memory: Vec::new(),
        };
        while let Some(root) = machine.step()? {
            if root != Value::Mark {
                machine.pickle.root = root;
                return Ok(machine.pickle);
            }
        }
        Err("it ends before the pickle does".to_owned())
    }

    /// The text of a value, if it is one.
    pub(crate) fn text(&self, value: Value) -> Option<&'f [u8]> {
        match value {
            Value::Text(number) => self.file.get(self.texts[number as usize].clone()),
            _ => None,
        }
    }

    /// The elements of a list or tuple; of anything else none.
    pub(crate) fn elements(&self, value: Value) -> &[Value] {
        match value {
            Value::List(number) | Value::Tuple(number) => &self.containers[number as usize],
            _ => &[],
        }
    }

    /// What a dictionary has under a key, the latest if it was put in twice.
    pub(crate) fn get(&self, dictionary: Value, key: &[u8]) -> Option<Value> {
        let Value::Dictionary(number) = dictionary else { return None };
        let pairs = self.containers[number as usize].as_chunks::<2>().0;
        pairs.iter().rev().find(|[found, _]| self.text(*found) == Some(key)).map(|[_, value]| *value)
    }

    /// How many pairs a dictionary has, which is what it takes to look for a key; anything else has none.
    pub(crate) fn pairs(&self, value: Value) -> usize {
        match value {
            Value::Dictionary(number) => self.containers[number as usize].len() / 2,
            _ => 0,
        }
    }

    /// A number that is not negative under a key.
    pub(crate) fn number(&self, dictionary: Value, key: &[u8]) -> Option<u64> {
        match self.get(dictionary, key)? {
            Value::Number(number) => u64::try_from(number).ok(),
            _ => None,
        }
    }
}

/// The machine that a pickle is a program for, without the operations that make objects.
struct Machine<'f> {
    pickle: Pickle<'f>,
    at: usize,
    stack: Vec<Value>,
    memory: Vec<Value>,
}

impl<'f> Machine<'f> {
    fn take(&mut self, length: usize) -> Result<&'f [u8], String> {
        let end = self.at.checked_add(length).filter(|end| *end <= self.pickle.file.len());
        let end = end.ok_or("it ends before the pickle does")?;
        let bytes = &self.pickle.file[self.at..end];
        self.at = end;
        Ok(bytes)
    }

    /// A number without sign, lowest byte first.
    fn length(&mut self, bytes: usize) -> Result<usize, String> {
        let mut value = 0u64;
        for (place, &byte) in self.take(bytes)?.iter().enumerate() {
            value |= u64::from(byte) << (8 * place);
        }
        usize::try_from(value).map_err(|_| "a length is too large".to_owned())
    }

    /// A line of the text protocol.
    fn line(&mut self) -> Result<&'f [u8], String> {
        let rest = &self.pickle.file[self.at..];
        let length = rest.iter().position(|&byte| byte == b'\n').ok_or("it ends before the pickle does")?;
        self.at += length + 1;
        Ok(&rest[..length])
    }

    fn pop(&mut self) -> Result<Value, String> {
        self.stack.pop().ok_or_else(|| "it takes more than there is".to_owned())
    }

    /// What was put on the stack since the latest mark.
    fn pop_to_mark(&mut self) -> Result<Vec<Value>, String> {
        let mark = self.stack.iter().rposition(|value| *value == Value::Mark).ok_or("a mark is missing")?;
        let elements = self.stack.split_off(mark + 1);
        self.stack.pop();
        Ok(elements)
    }

    fn push_text(&mut self, length: usize) -> Result<(), String> {
        let start = self.at;
        self.take(length)?;
        self.pickle.texts.push(start..self.at);
        self.stack.push(Value::Text(self.pickle.texts.len() as u32 - 1));
        Ok(())
    }

    fn container(&mut self, elements: Vec<Value>, kind: fn(u32) -> Value) {
        self.pickle.containers.push(elements);
        self.stack.push(kind(self.pickle.containers.len() as u32 - 1));
    }

    fn tuple_of(&mut self, count: usize) -> Result<(), String> {
        let from = self.stack.len().checked_sub(count).ok_or("it takes more than there is")?;
        let elements = self.stack.split_off(from);
        self.container(elements, Value::Tuple);
        Ok(())
    }

    /// Adds elements to the container that is on top of the stack.
    fn extend(&mut self, elements: &[Value]) -> Result<(), String> {
        match self.stack.last() {
            Some(Value::List(number) | Value::Dictionary(number)) => {
                self.pickle.containers[*number as usize].extend_from_slice(elements);
                Ok(())
            }
            _ => Err("something is added to what is no container".to_owned()),
        }
    }

    fn remember(&mut self, place: usize) -> Result<(), String> {
        let value = *self.stack.last().ok_or("it takes more than there is")?;
        // Places are given in order, but for a few; a file is longer than the memory it needs.
        if place > self.pickle.file.len() {
            return Err("a place to remember is too large".to_owned());
        }
        if place >= self.memory.len() {
            self.memory.resize(place + 1, Value::Nothing);
        }
        self.memory[place] = value;
        Ok(())
    }

    fn recall(&mut self, place: usize) -> Result<(), String> {
        let value = *self.memory.get(place).ok_or("it recalls what was never remembered")?;
        self.stack.push(value);
        Ok(())
    }

    /// A number of any length in two's complement, lowest byte first.
    fn push_long(&mut self, length: usize) -> Result<(), String> {
        let bytes = self.take(length)?;
        let is_negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
        let filler = if is_negative { 0xff } else { 0 };
        let mut low = [filler; 8];
        let in_low = bytes.len().min(8);
        low[..in_low].copy_from_slice(&bytes[..in_low]);
        let value = i64::from_le_bytes(low);
        let fits = bytes.iter().skip(8).all(|&byte| byte == filler) && (value < 0) == is_negative;
        self.stack.push(if fits { Value::Number(value) } else { Value::OtherNumber });
        Ok(())
    }

    fn push_decimal(&mut self) -> Result<(), String> {
        let line = self.line()?;
        let digits = line.strip_suffix(b"L").unwrap_or(line);
        self.stack.push(match (line, std::str::from_utf8(digits).ok().and_then(|text| text.trim().parse().ok())) {
            (b"00", _) => Value::Truth(false),
            (b"01", _) => Value::Truth(true),
            (_, Some(number)) => Value::Number(number),
            (_, None) => Value::OtherNumber,
        });
        Ok(())
    }

    /// A text in the notation of the text protocol: it is kept as it stands, which is right for plain names.
    fn push_line(&mut self) -> Result<(), String> {
        let start = self.at;
        let mut range = start..start + self.line()?.len();
        let bytes = &self.pickle.file[range.clone()];
        if let [b'\'' | b'"', .., last] = bytes
            && bytes.len() >= 2
            && *last == bytes[0]
        {
            range = range.start + 1..range.end - 1;
        }
        self.pickle.texts.push(range);
        self.stack.push(Value::Text(self.pickle.texts.len() as u32 - 1));
        Ok(())
    }

    /// One operation. Gives what was pickled when it is complete, a mark while it is not, nothing at the end of the file.
    fn step(&mut self) -> Result<Option<Value>, String> {
        let Some(&operation) = self.pickle.file.get(self.at) else { return Ok(None) };
        let place = self.at;
        self.at += 1;
        match operation {
            b'.' => return self.pop().map(Some),
            0x80 => {
                self.take(1)?;
            }
            0x95 => {
                self.take(8)?; // The length of a frame says nothing new.
            }
            b'(' => self.stack.push(Value::Mark),
            b'0' => {
                self.pop()?;
            }
            b'1' => {
                self.pop_to_mark()?;
            }
            b'2' => {
                let top = *self.stack.last().ok_or("it takes more than there is")?;
                self.stack.push(top);
            }
            b'N' => self.stack.push(Value::Nothing),
            0x88 => self.stack.push(Value::Truth(true)),
            0x89 => self.stack.push(Value::Truth(false)),
            b'I' | b'L' => self.push_decimal()?,
            b'J' => {
                let bytes = self.take(4)?;
                self.stack.push(Value::Number(i64::from(i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))));
            }
            b'K' | b'M' => {
                let number = self.length(if operation == b'K' { 1 } else { 2 })?;
                self.stack.push(Value::Number(number as i64));
            }
            0x8a => {
                let length = self.length(1)?;
                self.push_long(length)?;
            }
            0x8b => {
                let length = self.length(4)?;
                self.push_long(length)?;
            }
            b'F' => {
                self.line()?;
                self.stack.push(Value::OtherNumber);
            }
            b'G' => {
                self.take(8)?;
                self.stack.push(Value::OtherNumber);
            }
            b'X' | 0x8c | 0x8d => {
                let length = self.length(match operation {
                    0x8c => 1,
                    0x8d => 8,
                    _ => 4,
                })?;
                self.push_text(length)?;
            }
            b'U' | b'T' => {
                let length = self.length(if operation == b'U' { 1 } else { 4 })?;
                self.push_text(length)?;
            }
            b'V' | b'S' => self.push_line()?,
            b'B' | b'C' | 0x8e | 0x96 => {
                let length = self.length(match operation {
                    b'C' => 1,
                    b'B' => 4,
                    _ => 8,
                })?;
                self.take(length)?;
                self.stack.push(Value::Other);
            }
            b']' => self.container(Vec::new(), Value::List),
            b'}' => self.container(Vec::new(), Value::Dictionary),
            b')' => self.container(Vec::new(), Value::Tuple),
            0x85..=0x87 => self.tuple_of(usize::from(operation - 0x84))?,
            b't' | b'l' | b'd' => {
                let elements = self.pop_to_mark()?;
                let kind = match operation {
                    b't' => Value::Tuple,
                    b'l' => Value::List,
                    _ => Value::Dictionary,
                };
                self.container(elements, kind);
            }
            b'a' => {
                let element = self.pop()?;
                self.extend(&[element])?;
            }
            b's' => {
                let (value, key) = (self.pop()?, self.pop()?);
                self.extend(&[key, value])?;
            }
            b'e' | b'u' => {
                let elements = self.pop_to_mark()?;
                self.extend(&elements)?;
            }
            b'p' | b'g' => {
                let text = std::str::from_utf8(self.line()?).ok().and_then(|text| text.parse().ok());
                let number: usize = text.ok_or("a place to remember is no number")?;
                if operation == b'p' { self.remember(number)? } else { self.recall(number)? }
            }
            b'q' | b'r' => {
                let number = self.length(if operation == b'q' { 1 } else { 4 })?;
                self.remember(number)?;
            }
            0x94 => self.remember(self.memory.len())?,
            b'h' | b'j' => {
                let number = self.length(if operation == b'h' { 1 } else { 4 })?;
                self.recall(number)?;
            }
            operation => {
                return Err(format!(
                    "operation {operation:#04x} at byte {place} makes something that is no plain data"
                ));
            }
        }
        Ok(Some(Value::Mark))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number_under(file: &[u8], key: &[u8]) -> Option<u64> {
        let pickle = Pickle::read(file).expect("a pickle");
        pickle.number(pickle.root, key)
    }

    /// `{"a": 1, "b": [2, 70000, 1 << 40]}` as Python writes it.
    #[test]
    fn every_protocol_is_read() {
        let files: [&[u8]; 4] = [
            b"(dp0\nVa\np1\nI1\nsVb\np2\n(lp3\nI2\naI70000\naL1099511627776L\nas.",
            b"}q\x00(X\x01\x00\x00\x00aq\x01K\x01X\x01\x00\x00\x00bq\x02]q\x03(K\x02Jp\x11\x01\x00L1099511627776L\neu.",
            b"\x80\x02}q\x00(X\x01\x00\x00\x00aq\x01K\x01X\x01\x00\x00\x00bq\x02]q\x03(K\x02Jp\x11\x01\x00\x8a\x06\x00\x00\x00\x00\x00\x01eu.",
            b"\x80\x04\x95\x1d\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x01a\x94K\x01\x8c\x01b\x94]\x94(K\x02Jp\x11\x01\x00\x8a\x06\x00\x00\x00\x00\x00\x01eu.",
        ];
        for file in files {
            let pickle = Pickle::read(file).expect("a pickle");
            assert_eq!(pickle.number(pickle.root, b"a"), Some(1));
            let list = pickle.get(pickle.root, b"b").expect("a list");
            let expected = [Value::Number(2), Value::Number(70_000), Value::Number(1 << 40)];
            assert_eq!(pickle.elements(list), expected);
            assert_eq!(pickle.get(pickle.root, b"c"), None);
        }
    }

    #[test]
    fn numbers_have_their_sign_and_size() {
        assert_eq!(
            number_under(b"\x80\x02}(X\x01\x00\x00\x00a\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00u.", b"a"),
            None
        );
        let pickle = Pickle::read(b"\x80\x02\x8a\x01\xff.").expect("a pickle");
        assert_eq!(pickle.root, Value::Number(-1));
        let pickle = Pickle::read(b"\x80\x02\x8a\x09\x01\x00\x00\x00\x00\x00\x00\x00\x00.").expect("a pickle");
        assert_eq!(pickle.root, Value::Number(1));
    }

    /// Classes, calls, persistent ids, extensions and buffers, each where it would do harm.
    #[test]
    fn nothing_is_executed() {
        let hostile: [&[u8]; 10] = [
            b"cos\nsystem\n(S'true'\ntR.",
            b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
            b"(S'true'\nios\nsystem\n.",
            b"(I1\noxx.",
            b"P1\n.",
            b"\x80\x02NQ.",
            b"\x80\x02\x82\x01.",
            b"\x80\x02)\x81.",
            b"\x80\x02}}b.",
            b"\x80\x05\x97.",
        ];
        for file in hostile {
            let error = Pickle::read(file).map(|pickle| pickle.root).expect_err("refused");
            assert!(error.contains("no plain data"), "{file:?}: {error}");
        }
    }

    /// Operations that only move plain things: all of them, of all protocols.
    const PLAIN: &[u8] =
        b".(012NIJKMLFGXVSUTBC]}atldesupgqrhj)\x80\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8d\x8e\x94\x95\x96";

    #[test]
    fn every_operation_is_plain_or_refused_in_one_line() {
        let stacks: [&[u8]; 7] = [b"", b"]N", b"Nq\x00", b"(K\x01K\x02", b"](K\x01", b"}(K\x01K\x02", b"}K\x01K\x02"];
        let zeros = [0; 8];
        let arguments: [&[u8]; 8] = [b"", b"0\n", b"a\nb\n", &[0xff; 9], &zeros[..1], &zeros[..2], &zeros[..4], &zeros];
        for operation in 0..=u8::MAX {
            let (mut read, mut refused) = (0, 0);
            for stack in stacks {
                for argument in arguments {
                    let file = [stack, &[operation], argument, b"N."].concat();
                    let Err(error) = Pickle::read(&file) else {
                        read += 1;
                        continue;
                    };
                    assert_eq!(error.lines().count(), 1, "{operation:#04x}: {error}");
                    refused += usize::from(error.starts_with(&format!("operation {operation:#04x} at byte")));
                }
            }
            match PLAIN.contains(&operation) {
                true => assert!(read > 0 && refused == 0, "{operation:#04x}: {read} read, {refused} refused"),
                false => assert_eq!((read, refused), (0, stacks.len() * arguments.len()), "{operation:#04x}"),
            }
        }
    }

    /// What is remembered is one thing however often it is recalled, and takes no more room than the file has.
    #[test]
    fn what_is_remembered_does_not_multiply() {
        let mut bomb = b"(K\x07l\x94".to_vec();
        for level in 0..=199 {
            bomb.extend_from_slice(b"(");
            bomb.extend_from_slice(&[b'h', level].repeat(100));
            bomb.extend_from_slice(b"l\x94");
        }
        bomb.push(b'.');
        let pickle = Pickle::read(&bomb).expect("100 to the power of 200 numbers");
        let elements: usize = pickle.containers.iter().map(Vec::len).sum();
        assert!(elements <= bomb.len() && pickle.containers.len() == 201, "{elements}");
        let far = |place: u32| [b"Nr", &place.to_le_bytes()[..], b"."].concat();
        assert!(Pickle::read(&far(7)).is_ok());
        for place in [8, 1 << 20, u32::MAX] {
            let error = Pickle::read(&far(place)).map(|pickle| pickle.root).expect_err("refused");
            assert_eq!(error, "a place to remember is too large");
        }
    }

    #[test]
    fn what_is_cut_or_wrong_is_refused() {
        let whole = b"\x80\x04\x95\x1d\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x01a\x94K\x01\x8c\x01b\x94]\x94(K\x02eu.";
        for length in 0..whole.len() {
            assert!(Pickle::read(&whole[..length]).is_err(), "{length}");
        }
        let wrong: [&[u8]; 8] =
            [b".", b"a.", b"e.", b"s.", b"\x80\x02\x85.", b"g9\n.", b"Nr\xff\xff\xff\xff.", b"X\xff\xff\xff\xffa."];
        for file in wrong {
            assert!(Pickle::read(file).is_err(), "{file:?}");
        }
    }

    #[test]
    fn depth_and_cycles_do_no_harm() {
        let mut deep = b"]".repeat(1_000_000);
        deep.extend(b"a".repeat(999_999));
        deep.push(b'.');
        assert!(Pickle::read(&deep).is_ok());
        let cycle = Pickle::read(b"]q\x00h\x00a.").expect("a list in itself");
        assert_eq!(cycle.elements(cycle.root), [cycle.root]);
    }
}
