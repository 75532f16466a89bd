//! Where each version of CPython keeps what, in builds with the global lock on 64-bit Linux.
//!
//! Until 3.12 the numbers are those of the public headers. From 3.13 on the interpreter carries a
//! table of them at the start of `_PyRuntime`; only the places within that table differ.

use crate::memory::Address;
use crate::status::PythonVersion;

/// How a frame says which instruction it is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InstructionKind {
    /// A 32-bit offset in bytes.
    ByteOffset,
    /// A 32-bit offset in units of two bytes.
    UnitOffset,
    /// An address within the code object.
    Pointer,
}

/// Offsets of the fields that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Interpreter of a thread state.
    pub thread_interpreter: u16,
    /// Innermost frame of a thread state, or the structure that has it.
    pub thread_frame: u16,
    /// Innermost frame of that structure.
    pub indirect_frame: Option<u16>,
    /// Calling frame.
    pub frame_previous: u16,
    /// Code object, with tag bits in the lowest bits.
    pub frame_code: u16,
    /// Current instruction.
    pub frame_instruction: u16,
    /// What that is.
    pub instruction_kind: InstructionKind,
    /// One byte that says what the frame belongs to, if there is one.
    pub frame_owner: Option<u16>,
    /// Source file of a code object.
    pub code_file: u16,
    /// Name.
    pub code_name: u16,
    /// Line table.
    pub code_line_table: u16,
    /// First line.
    pub code_first_line: u16,
    /// First instruction.
    pub code_start: u16,
    /// Index of the first instruction at which a frame counts as complete.
    pub code_first_traceable: Option<u16>,
    /// A serial number that no other code object of the process has, or zero.
    pub code_serial: Option<u16>,
    /// Length and first byte of a bytes object.
    pub bytes_length: u16,
    /// First byte.
    pub bytes_start: u16,
    /// Kind of a text.
    pub text_state: u16,
    /// Length of a text in characters.
    pub text_length: u16,
    /// First character of a text in ASCII.
    pub text_ascii_start: u16,
    /// First character of other texts.
    pub text_compact_start: u16,
}

/// Texts and bytes until 3.11.
const OLD_OBJECTS: Layout = Layout {
    thread_interpreter: 16,
    thread_frame: 24,
    indirect_frame: None,
    frame_previous: 24,
    frame_code: 32,
    frame_instruction: 104,
    instruction_kind: InstructionKind::ByteOffset,
    frame_owner: None,
    code_file: 104,
    code_name: 112,
    code_line_table: 120,
    code_first_line: 40,
    code_start: 0,
    code_first_traceable: None,
    code_serial: None,
    bytes_length: 16,
    bytes_start: 32,
    text_state: 32,
    text_length: 16,
    text_ascii_start: 48,
    text_compact_start: 72,
};

pub(crate) const VERSION_3_9: Layout = OLD_OBJECTS;

pub(crate) const VERSION_3_10: Layout =
    Layout { frame_instruction: 96, instruction_kind: InstructionKind::UnitOffset, ..OLD_OBJECTS };

pub(crate) const VERSION_3_11: Layout = Layout {
    thread_frame: 56,
    indirect_frame: Some(8),
    frame_previous: 48,
    frame_code: 32,
    frame_instruction: 56,
    instruction_kind: InstructionKind::Pointer,
    frame_owner: Some(69),
    code_file: 112,
    code_name: 128,
    code_line_table: 136,
    code_first_line: 72,
    code_start: 184,
    code_first_traceable: Some(168),
    ..OLD_OBJECTS
};

pub(crate) const VERSION_3_12: Layout = Layout {
    indirect_frame: Some(0),
    frame_previous: 8,
    frame_code: 0,
    frame_owner: Some(70),
    code_first_line: 68,
    code_start: 192,
    code_first_traceable: Some(176),
    code_serial: Some(92),
    text_ascii_start: 40,
    text_compact_start: 56,
    ..VERSION_3_11
};

/// What the tables of all builds of 3.13 say.
pub(crate) const VERSION_3_13: Layout =
    Layout { thread_frame: 72, indirect_frame: None, code_start: 200, code_first_traceable: Some(184), ..VERSION_3_12 };

/// What the tables of all builds of 3.14 and 3.15 say.
pub(crate) const VERSION_3_14: Layout =
    Layout { frame_owner: Some(74), code_start: 208, code_first_traceable: Some(192), ..VERSION_3_13 };

/// A layout that is a constant: code that knows it has the offsets in its instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KnownLayout {
    Version3_9,
    Version3_10,
    Version3_11,
    Version3_12,
    Version3_13,
    Version3_14,
}

impl KnownLayout {
    /// The constant that equals a layout.
    pub fn recognise(layout: &Layout) -> Option<Self> {
        let constants = [
            (VERSION_3_9, Self::Version3_9),
            (VERSION_3_10, Self::Version3_10),
            (VERSION_3_11, Self::Version3_11),
            (VERSION_3_12, Self::Version3_12),
            (VERSION_3_13, Self::Version3_13),
            (VERSION_3_14, Self::Version3_14),
        ];
        constants.into_iter().find(|(constant, _)| constant == layout).map(|(_, known)| known)
    }
}

/// First bytes of the interpreter's own table.
const TABLE_MAGIC: [u8; 8] = *b"xdebugpy";
const TABLE_VERSION: u16 = 8;
const TABLE_FREE_THREADED: u16 = 16;
/// No structure of interest is larger.
const LARGEST_OFFSET: u64 = 4096;
/// What follows the characters' count in texts that are not ASCII.
const COMPACT_TEXT_EXTRA_BYTES: u16 = 16;
/// From the first traceable index to the first instruction lie one padded number and one pointer.
const FIRST_TRACEABLE_BEFORE_START: u16 = 16;

/// Places of groups of numbers within the interpreter's table.
struct TablePlaces {
    /// Interpreter, current frame.
    thread: u16,
    /// Previous, executable, instruction, locals, owner.
    frame: u16,
    /// File, name, qualified name, line table, first line, ..., names of locals, ..., first instruction.
    code: u16,
    /// Length, first byte.
    bytes: u16,
    /// State, length, size of the structure before ASCII characters.
    text: u16,
}

const TABLE_3_13: TablePlaces = TablePlaces { thread: 176, frame: 232, code: 280, bytes: 520, text: 544 };
const TABLE_3_14: TablePlaces = TablePlaces { thread: 200, frame: 256, code: 320, bytes: 600, text: 624 };
const TABLE_3_15: TablePlaces = TablePlaces { thread: 200, frame: 320, code: 384, bytes: 696, text: 720 };

impl Layout {
    /// The layout of a version; `runtime` is the address of `_PyRuntime`. Nothing if it is unknown.
    ///
    /// # Safety
    /// `runtime` must be where the interpreter of this version says it is.
    pub unsafe fn of(version: PythonVersion, runtime: Option<usize>) -> Option<Self> {
        let places = match (version.major, version.minor) {
            (3, 9) => return Some(VERSION_3_9),
            (3, 10) => return Some(VERSION_3_10),
            (3, 11) => return Some(VERSION_3_11),
            (3, 12) => return Some(VERSION_3_12),
            (3, 13) => TABLE_3_13,
            (3, 14) => TABLE_3_14,
            (3, 15) => TABLE_3_15,
            _ => return None,
        };
        // SAFETY: promised by the caller; the table is constant.
        unsafe { Self::from_table(version, Address::new(runtime?)?, &places) }
    }

    /// # Safety
    /// `table` must be the interpreter's table of a version with these places.
    unsafe fn from_table(version: PythonVersion, table: Address, places: &TablePlaces) -> Option<Self> {
        // SAFETY: promised by the caller.
        let (magic, hexadecimal_version) = unsafe { (table.load::<[u8; 8]>(0), table.load::<u64>(TABLE_VERSION)) };
        if magic != TABLE_MAGIC || hexadecimal_version >> 16 != u64::from(version.code()) {
            return None;
        }
        let number = |group: u16, index: u16| {
            // SAFETY: promised by the caller.
            let offset: u64 = unsafe { table.load(group + 8 * index) };
            (offset < LARGEST_OFFSET).then_some(offset as u16)
        };
        let word = |group: u16, index: u16| number(group, index).filter(|offset| offset % 8 == 0);
        let half_word = |group: u16, index: u16| number(group, index).filter(|offset| offset % 4 == 0);
        let code_start = word(places.code, 8)?;
        let text_ascii_start = word(places.text, 2)?;
        Some(Self {
            thread_interpreter: word(places.thread, 0)?,
            thread_frame: word(places.thread, 1)?,
            indirect_frame: None,
            frame_previous: word(places.frame, 0)?,
            frame_code: word(places.frame, 1)?,
            frame_instruction: word(places.frame, 2)?,
            instruction_kind: InstructionKind::Pointer,
            frame_owner: Some(number(places.frame, 4)?),
            code_file: word(places.code, 0)?,
            code_name: word(places.code, 2)?,
            code_line_table: word(places.code, 3)?,
            code_first_line: half_word(places.code, 4)?,
            code_start,
            code_first_traceable: Some(code_start.checked_sub(FIRST_TRACEABLE_BEFORE_START)?),
            code_serial: Some(word(places.code, 6)?.checked_sub(4)?),
            bytes_length: word(places.bytes, 0)?,
            bytes_start: number(places.bytes, 1)?,
            text_state: half_word(places.text, 0)?,
            text_length: word(places.text, 1)?,
            text_ascii_start,
            text_compact_start: text_ascii_start + COMPACT_TEXT_EXTRA_BYTES,
        })
    }

    /// Whether the interpreter's table says that it was built without the global lock.
    ///
    /// # Safety
    /// `runtime` must be the address of `_PyRuntime` of this version.
    pub unsafe fn says_free_threaded(version: PythonVersion, runtime: Option<usize>) -> bool {
        let has_table = version >= PythonVersion { major: 3, minor: 13 };
        runtime.and_then(Address::new).is_some_and(|table| {
            // SAFETY: promised by the caller; the structure is larger than this.
            has_table
                && unsafe { table.load::<[u8; 8]>(0) == TABLE_MAGIC && table.load::<u64>(TABLE_FREE_THREADED) != 0 }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table with the numbers that CPython 3.14 publishes.
    fn table_3_14() -> Box<[u64; 128]> {
        let mut table = Box::new([0; 128]);
        table[0] = u64::from_le_bytes(TABLE_MAGIC);
        table[1] = 0x030e_0af0;
        let mut put = |place: u16, numbers: &[u64]| {
            let start = usize::from(place) / 8;
            table[start..start + numbers.len()].copy_from_slice(numbers);
        };
        put(TABLE_3_14.thread, &[16, 72]);
        put(TABLE_3_14.frame, &[8, 0, 56, 80, 74]);
        put(TABLE_3_14.code, &[112, 120, 128, 136, 68, 52, 96, 104, 208]);
        put(TABLE_3_14.bytes, &[16, 32]);
        put(TABLE_3_14.text, &[32, 16, 40]);
        table
    }

    const PYTHON_3_14: PythonVersion = PythonVersion { major: 3, minor: 14 };

    #[test]
    fn the_interpreters_table_is_understood() {
        let table = table_3_14();
        // SAFETY: a table of this version.
        let layout = unsafe { Layout::of(PYTHON_3_14, Some(table.as_ptr() as usize)) }.expect("layout");
        assert_eq!((layout.thread_frame, layout.indirect_frame), (72, None));
        assert_eq!((layout.frame_previous, layout.frame_code, layout.frame_instruction), (8, 0, 56));
        assert_eq!((layout.code_start, layout.code_first_traceable, layout.code_serial), (208, Some(192), Some(92)));
        assert_eq!((layout.text_ascii_start, layout.text_compact_start), (40, 56));
        assert_eq!(KnownLayout::recognise(&layout), Some(KnownLayout::Version3_14));
        assert_eq!(KnownLayout::recognise(&Layout { thread_frame: 80, ..layout }), None);
    }

    #[test]
    fn a_table_that_cannot_be_right_is_refused() {
        for (index, value) in [(0, 1), (1, 0x030d_00f0), (25, 1 << 40), (26, 9), (48, 4)] {
            let mut table = table_3_14();
            table[index] = value;
            // SAFETY: readable as a table.
            let layout = unsafe { Layout::of(PYTHON_3_14, Some(table.as_ptr() as usize)) };
            assert_eq!(layout, None, "word {index} = {value}");
        }
        // SAFETY: no table is read.
        assert_eq!(unsafe { Layout::of(PYTHON_3_14, None) }, None);
        // SAFETY: no table is read.
        assert_eq!(unsafe { Layout::of(PythonVersion { major: 3, minor: 99 }, None) }, None);
    }

    #[test]
    fn free_threaded_builds_are_recognised() {
        let mut table = table_3_14();
        // SAFETY: a table of this version.
        assert!(!unsafe { Layout::says_free_threaded(PYTHON_3_14, Some(table.as_ptr() as usize)) });
        table[2] = 1;
        // SAFETY: a table of this version.
        assert!(unsafe { Layout::says_free_threaded(PYTHON_3_14, Some(table.as_ptr() as usize)) });
    }
}
