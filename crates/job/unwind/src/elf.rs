//! The few parts of an ELF file that unwinding needs: program headers, build id, unwind tables.
//!
//! Input is a byte slice of a file or of a loaded image; every read is checked.

const HEADER_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: usize = 56;
const SECTION_HEADER_BYTES: usize = 64;
const LOAD: u32 = 1;
const NOTE: u32 = 4;
const EH_FRAME_HDR: u32 = 0x6474_e550;
const NOTE_BUILD_ID: u32 = 3;

/// One entry of the program header table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProgramHeader {
    kind: u32,
    pub file_offset: u64,
    pub address: u64,
    pub file_bytes: u64,
    pub memory_bytes: u64,
}

/// A stretch of the file and the address the linker gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Section {
    pub file_offset: u64,
    pub address: u64,
    pub size_bytes: u64,
}

/// The program header table of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProgramHeaders {
    headers: Vec<ProgramHeader>,
    end_offset: u64,
}

impl ProgramHeaders {
    /// Reads the table of a 64-bit little-endian image that starts with its ELF header.
    pub fn parse(image: &[u8]) -> Option<Self> {
        if image.get(..6)? != b"\x7fELF\x02\x01" || image.len() < HEADER_BYTES {
            return None;
        }
        let offset = usize::try_from(read_u64(image, 32)?).ok()?;
        let entry_bytes = usize::from(read_u16(image, 54)?);
        let count = usize::from(read_u16(image, 56)?);
        if entry_bytes != PROGRAM_HEADER_BYTES {
            return None;
        }
        let table = image.get(offset..offset.checked_add(count * entry_bytes)?)?;
        let headers = table.chunks_exact(entry_bytes).map(parse_program_header).collect::<Option<Vec<_>>>()?;
        Some(Self { headers, end_offset: (offset + table.len()) as u64 })
    }

    /// Where the table ends in the image.
    pub fn end_offset(&self) -> u64 {
        self.end_offset
    }

    /// Lowest and highest address of what is loaded, not rounded to pages.
    pub fn loaded_range(&self) -> Option<(u64, u64)> {
        let start = self.loads().map(|header| header.address).min()?;
        let end = self.loads().filter_map(|header| header.address.checked_add(header.memory_bytes)).max()?;
        Some((start, end))
    }

    fn loads(&self) -> impl Iterator<Item = &ProgramHeader> {
        self.headers.iter().filter(|header| header.kind == LOAD)
    }

    /// The loaded segment that covers an address with bytes from the file.
    pub fn segment_of(&self, address: u64) -> Option<&ProgramHeader> {
        self.loads().find(|header| {
            header.address <= address && address - header.address < header.file_bytes.min(header.memory_bytes)
        })
    }

    /// The table that leads from addresses to unwind information.
    pub fn unwind_index(&self) -> Option<Section> {
        self.headers.iter().find(|header| header.kind == EH_FRAME_HDR).map(|header| Section {
            file_offset: header.file_offset,
            address: header.address,
            size_bytes: header.memory_bytes.min(header.file_bytes),
        })
    }

    /// The notes, where a build id may be.
    pub fn notes(&self) -> impl Iterator<Item = &ProgramHeader> {
        self.headers.iter().filter(|header| header.kind == NOTE)
    }
}

fn parse_program_header(bytes: &[u8]) -> Option<ProgramHeader> {
    Some(ProgramHeader {
        kind: read_u32(bytes, 0)?,
        file_offset: read_u64(bytes, 8)?,
        address: read_u64(bytes, 16)?,
        file_bytes: read_u64(bytes, 32)?,
        memory_bytes: read_u64(bytes, 40)?,
    })
}

/// Position and length of a build id within the bytes of a note segment.
pub(crate) fn find_build_id(notes: &[u8]) -> Option<(usize, usize)> {
    let mut position = 0_usize;
    loop {
        let name_bytes = read_u32(notes, position)? as usize;
        let content_bytes = read_u32(notes, position + 4)? as usize;
        let kind = read_u32(notes, position + 8)?;
        let name = position + 12;
        let content = name.checked_add(name_bytes.checked_next_multiple_of(4)?)?;
        if kind == NOTE_BUILD_ID && notes.get(name..name.checked_add(name_bytes)?)? == b"GNU\0" {
            notes.get(content..content.checked_add(content_bytes)?)?;
            return Some((content, content_bytes));
        }
        position = content.checked_add(content_bytes.checked_next_multiple_of(4)?)?;
    }
}

/// A section of a file by name.
pub(crate) fn find_section(file: &[u8], name: &[u8]) -> Option<Section> {
    let table_offset = usize::try_from(read_u64(file, 40)?).ok()?;
    let entry_bytes = usize::from(read_u16(file, 58)?);
    let count = usize::from(read_u16(file, 60)?);
    let names_index = usize::from(read_u16(file, 62)?);
    if entry_bytes != SECTION_HEADER_BYTES {
        return None;
    }
    let table = file.get(table_offset..table_offset.checked_add(count * entry_bytes)?)?;
    let names_header = table.chunks_exact(entry_bytes).nth(names_index)?;
    let names_offset = usize::try_from(read_u64(names_header, 24)?).ok()?;
    let names_bytes = usize::try_from(read_u64(names_header, 32)?).ok()?;
    let names = file.get(names_offset..names_offset.checked_add(names_bytes)?)?;
    for header in table.chunks_exact(entry_bytes) {
        let start = read_u32(header, 0)? as usize;
        let text = names.get(start..).unwrap_or(&[]);
        if text.starts_with(name) && text.get(name.len()) == Some(&0) {
            return Some(Section {
                address: read_u64(header, 16)?,
                file_offset: read_u64(header, 24)?,
                size_bytes: read_u64(header, 32)?,
            });
        }
    }
    None
}

fn read_u16(bytes: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(offset..)?.first_chunk()?))
}

fn read_u32(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(offset..)?.first_chunk()?))
}

fn read_u64(bytes: &[u8], offset: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(offset..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_running_program_can_be_read() {
        let file = std::fs::read("/proc/self/exe").expect("readable");
        let headers = ProgramHeaders::parse(&file).expect("an ELF file");
        let (start, end) = headers.loaded_range().expect("segments");
        assert!(start < end);
        let index = headers.unwind_index().expect("an unwind index");
        assert!(headers.segment_of(index.address).is_some());
        let frames = find_section(&file, b".eh_frame").expect("unwind tables");
        assert!(frames.size_bytes > 1000);
        assert_eq!(find_section(&file, b".eh_fram"), None);
        let notes = headers.notes().filter_map(|header| {
            file.get(header.file_offset as usize..(header.file_offset + header.file_bytes) as usize)
        });
        assert!(notes.count() > 0);
    }

    #[test]
    fn any_prefix_or_damaged_file_is_refused_without_harm() {
        let file = std::fs::read("/proc/self/exe").expect("readable");
        let start = &file[..file.len().min(4096)];
        for length in 0..start.len() {
            let _ = ProgramHeaders::parse(&start[..length]);
            let _ = find_section(&start[..length], b".eh_frame");
            let _ = find_build_id(&start[..length]);
        }
        let mut damaged = start.to_vec();
        for position in 0..HEADER_BYTES {
            for value in [0, 0x7f, 0xff] {
                let old = std::mem::replace(&mut damaged[position], value);
                let _ = ProgramHeaders::parse(&damaged).map(|headers| headers.loaded_range());
                let _ = find_section(&damaged, b".eh_frame");
                damaged[position] = old;
            }
        }
    }

    #[test]
    fn a_build_id_is_found_behind_other_notes() {
        let mut notes = Vec::new();
        for (kind, name, content) in [(5_u32, &b"GNU\0"[..], &[1_u8; 16][..]), (3, b"GNU\0", &[9; 20])] {
            notes.extend((name.len() as u32).to_le_bytes());
            notes.extend((content.len() as u32).to_le_bytes());
            notes.extend(kind.to_le_bytes());
            notes.extend(name);
            notes.extend(content);
        }
        let (position, length) = find_build_id(&notes).expect("there is one");
        assert_eq!(&notes[position..position + length], &[9; 20]);
        assert_eq!(find_build_id(&notes[..notes.len() - 1]), None);
    }
}
