//! Reads a block once, and makes of it whatever is wanted: fingerprint, checksum, file.

use std::fs::File;
use std::io::Write;

use msmemscope_event::Device;

use crate::checksum::Checksum;
use crate::fingerprint::{Fingerprint, PIECE_BYTES};
use crate::surroundings::Surroundings;

/// Bytes copied at once: whole pieces, and few enough to stay in the cache while they are hashed.
const CHUNK_BYTES: usize = 2048 * PIECE_BYTES;

/// What a look is to give besides the fingerprint.
pub(crate) struct Wanted {
    pub(crate) checksum: bool,
    pub(crate) file: Option<File>,
}

/// What a look gave.
pub(crate) struct Contents {
    pub(crate) fingerprint: Fingerprint,
    pub(crate) checksum: Option<u64>,
    /// Why the file is not complete, if so.
    pub(crate) file_error: Option<String>,
}

/// Room for what is copied.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    buffer: Vec<u8>,
}

impl Reader {
    pub(crate) fn read(
        &mut self,
        device: Device,
        address: u64,
        size_bytes: u64,
        mut wanted: Wanted,
        surroundings: &mut dyn Surroundings,
    ) -> Result<Contents, String> {
        let mut contents = Contents { fingerprint: Fingerprint::default(), checksum: None, file_error: None };
        let mut checksum = Checksum::default();
        let mut offset = 0;
        while offset < size_bytes {
            let length = (size_bytes - offset).min(CHUNK_BYTES as u64) as usize;
            if self.buffer.len() < length {
                self.buffer.resize(length, 0);
            }
            let chunk = &mut self.buffer[..length];
            surroundings.read(device, address + offset, chunk)?;
            contents.fingerprint.feed(chunk);
            if wanted.checksum {
                checksum.feed(chunk);
            }
            if let Some(file) = &mut wanted.file
                && let Err(error) = file.write_all(chunk)
            {
                contents.file_error = Some(error.to_string());
                wanted.file = None;
            }
            offset += length as u64;
        }
        contents.checksum = wanted.checksum.then(|| checksum.value());
        Ok(contents)
    }
}
