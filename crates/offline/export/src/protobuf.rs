//! Writes messages in the encoding of protocol buffers.

/// A message that is being written. Fields come in any order; those that are not written have their default.
#[derive(Debug, Default)]
pub(crate) struct Message {
    bytes: Vec<u8>,
}

/// How a field is encoded.
const VARINT: u64 = 0;
const LENGTH_DELIMITED: u64 = 2;

impl Message {
    /// The message as it goes into a file or into another message.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Starts anew, keeping the room.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    /// An unsigned number, an enum or a flag.
    pub(crate) fn number(&mut self, field: u32, value: u64) -> &mut Self {
        self.varint(u64::from(field) << 3 | VARINT);
        self.varint(value);
        self
    }

    /// A text, or bytes.
    pub(crate) fn text(&mut self, field: u32, text: &[u8]) -> &mut Self {
        self.start(field, text.len());
        self.bytes.extend_from_slice(text);
        self
    }

    /// What comes before a text or message of a length.
    pub(crate) fn start(&mut self, field: u32, length: usize) {
        self.varint(u64::from(field) << 3 | LENGTH_DELIMITED);
        self.varint(length as u64);
    }

    /// A message in this one.
    pub(crate) fn message(&mut self, field: u32, write: impl FnOnce(&mut Message)) -> &mut Self {
        let mut inner = Message::default();
        write(&mut inner);
        self.text(field, inner.bytes())
    }

    /// Numbers in one field.
    pub(crate) fn packed(&mut self, field: u32, values: impl IntoIterator<Item = u64>) -> &mut Self {
        let mut inner = Message::default();
        values.into_iter().for_each(|value| inner.varint(value));
        self.text(field, inner.bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::Message;

    #[test]
    fn fields_are_encoded_as_the_specification_shows() {
        let mut message = Message::default();
        message.number(1, 150).text(2, b"testing").message(3, |inner| {
            inner.number(1, 150);
        });
        message.packed(6, [3, 270, 86_942]);
        let expected: &[&[u8]] = &[
            &[0x08, 0x96, 0x01],
            &[0x12, 0x07, 0x74, 0x65, 0x73, 0x74, 0x69, 0x6e, 0x67],
            &[0x1a, 0x03, 0x08, 0x96, 0x01],
            &[0x32, 0x06, 0x03, 0x8e, 0x02, 0x9e, 0xa7, 0x05],
        ];
        assert_eq!(message.bytes(), expected.concat());
    }
}
