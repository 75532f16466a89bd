//! Unwind tables of one module, and how a rule is worked out from them.
//!
//! Tables come from a read-only mapping of the module's file, so they stay readable when the module
//! is unloaded while another thread reads them. Only where the file cannot be had (deleted,
//! replaced) they are copied from the loaded image.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::ffi::CString;

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, EndianSlice, FrameDescriptionEntry, LittleEndian, Pointer, Register,
    RegisterRule, UnwindContext, UnwindContextStorage, UnwindSection, UnwindTableRow,
};
use msmemscope_courtesy::Descriptor;

use crate::elf::{ProgramHeaders, Section, find_build_id, find_section};
use crate::expression::{Value, evaluate};
use crate::registers::architecture::{DEFAULT_RETURN_ADDRESS_OFFSET, FRAME_POINTER, STACK_POINTER, VENDOR};
use crate::rule::{IN_REGISTER, Rule, RuleKind, STORED_WHERE_IT_POINTS};

pub(crate) type Bytes = EndianSlice<'static, LittleEndian>;

/// How much may be copied from images whose file is gone, over the life of the process.
const LARGEST_COPIED_BYTES: u64 = 8 << 20;
const PAGE_BYTES: u64 = 4096;

/// Where a table is and which address the linker gave it.
#[derive(Clone, Copy)]
pub(crate) struct Table {
    pub bytes: &'static [u8],
    pub address: u64,
}

/// The tables of one module.
pub(crate) struct Tables {
    index: Option<Table>,
    frames: Table,
}

/// Fixed room for working out one row; nothing is allocated.
struct InlineStorage;

impl UnwindContextStorage<usize> for InlineStorage {
    type Rules = [(Register, RegisterRule<usize>); 40];
    type Stack = [UnwindTableRow<usize, Self>; 3];
}

impl Tables {
    /// Maps the tables of a file, if it is the one that was loaded.
    pub fn from_file(path: &CString, loaded: &ProgramHeaders, build_id: &[u8]) -> Option<Self> {
        let mut file = MappedFile::open(path)?;
        if ProgramHeaders::parse(file.bytes)? != *loaded || file_build_id(file.bytes, loaded) != build_id {
            return None;
        }
        let (index, frames) = find_tables(file.bytes, loaded)?;
        let first = index.map_or(frames.file_offset, |index| index.file_offset.min(frames.file_offset));
        let end_of = |section: Section| section.file_offset.checked_add(section.size_bytes);
        let last = end_of(frames)?.max(index.and_then(end_of).unwrap_or(0));
        let table = |section: Section| {
            let start = usize::try_from(section.file_offset).ok()?;
            let bytes = file.bytes.get(start..start.checked_add(usize::try_from(section.size_bytes).ok()?)?)?;
            Some(Table { bytes, address: section.address })
        };
        let tables = Self {
            index: match index {
                Some(section) => Some(table(section)?),
                None => None,
            },
            frames: table(frames)?,
        };
        file.keep_only(first, last);
        Some(tables)
    }

    /// Uses the tables of a loaded image where they are. For images that are never unloaded.
    ///
    /// # Safety
    /// The image stays mapped as its program headers say.
    pub unsafe fn from_image(headers: &ProgramHeaders, load_bias: u64) -> Option<Self> {
        let index = headers.unwind_index()?;
        // SAFETY: the caller says that the image stays mapped.
        let index = Table { bytes: unsafe { image_bytes(load_bias, &index) }, address: index.address };
        let frames = frames_of_index(headers, index)?;
        // SAFETY: as above; the section ends with its segment.
        let frames = Table { bytes: unsafe { image_bytes(load_bias, &frames) }, address: frames.address };
        Some(Self { index: Some(index), frames })
    }

    /// Copies the tables of a loaded image.
    ///
    /// # Safety
    /// The image is mapped during the call as its program headers say.
    pub unsafe fn copied_from_image(headers: &ProgramHeaders, load_bias: u64) -> Option<Self> {
        static COPIED_BYTES: AtomicU64 = AtomicU64::new(0);
        // SAFETY: the caller says that the image is mapped during this call; only copies outlive it.
        let tables = unsafe { Self::from_image(headers, load_bias) }?;
        let index = tables.index?;
        let size_bytes = (index.bytes.len() + tables.frames.bytes.len()) as u64;
        if COPIED_BYTES.fetch_add(size_bytes, Relaxed) + size_bytes > LARGEST_COPIED_BYTES {
            COPIED_BYTES.fetch_sub(size_bytes, Relaxed);
            return None;
        }
        let copy = |table: Table| Table { bytes: Vec::leak(table.bytes.to_vec()), address: table.address };
        Some(Self { index: Some(copy(index)), frames: copy(tables.frames) })
    }

    /// Address and length of the tables in the file's addresses.
    pub fn frames_range(&self) -> (u64, u64) {
        (self.frames.address, self.frames.bytes.len() as u64)
    }

    /// How to step out of the function at an address of the file. `exact` is false for return
    /// addresses, which belong to the instruction before them.
    pub fn rule(&self, address: u64, exact: bool) -> Rule {
        self.find_rule(address, exact).unwrap_or(Rule::plain(RuleKind::NoInformation))
    }

    fn find_rule(&self, address: u64, exact: bool) -> Option<Rule> {
        let looked_up = if exact { address } else { address.checked_sub(1)? };
        let mut frames = EhFrame::new(self.frames.bytes, LittleEndian);
        frames.set_vendor(VENDOR);
        let bases = BaseAddresses::default()
            .set_eh_frame(self.frames.address)
            .set_eh_frame_hdr(self.index.map_or(0, |index| index.address));
        let Some(entry) = self.find_entry(&frames, &bases, looked_up) else {
            // Nothing can return to the first instruction of a function. Coroutines are started with
            // such a return address made up, so there is no caller.
            let entry = self.find_entry(&frames, &bases, address)?;
            return (!exact && entry.initial_address() == address).then_some(Rule::plain(RuleKind::EndOfStack));
        };
        if entry.is_signal_trampoline() {
            return Some(Rule::plain(RuleKind::SignalFrame));
        }
        let mut context = UnwindContext::<usize, InlineStorage>::new_in();
        let row = entry.unwind_info_for_address(&frames, &bases, &mut context, looked_up).ok()?;
        let return_address = row.register(entry.cie().return_address_register());
        rule_of_row(&frames, row, return_address, address)
    }

    fn find_entry(
        &self,
        frames: &EhFrame<Bytes>,
        bases: &BaseAddresses,
        address: u64,
    ) -> Option<FrameDescriptionEntry<Bytes>> {
        match self.index {
            Some(index) => {
                let header = EhFrameHdr::new(index.bytes, LittleEndian).parse(bases, 8).ok()?;
                header.table()?.fde_for_address(frames, bases, address, EhFrame::cie_from_offset).ok()
            }
            None => frames.fde_for_address(bases, address, EhFrame::cie_from_offset).ok(),
        }
    }
}

/// Translates a row into a rule, if a rule can say it.
fn rule_of_row(
    frames: &EhFrame<Bytes>,
    row: &UnwindTableRow<usize, InlineStorage>,
    return_address: Option<RegisterRule<usize>>,
    address: u64,
) -> Option<Rule> {
    let place = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => Value::Register(register.0, *offset),
        CfaRule::Expression(expression) => evaluate(expression.get(frames).ok()?.0.slice(), address)?,
    };
    let return_address_offset = match return_address {
        Some(RegisterRule::Undefined) => return Some(Rule::plain(RuleKind::EndOfStack)),
        Some(RegisterRule::Offset(offset)) => saved_offset(offset)?,
        None | Some(RegisterRule::SameValue) => DEFAULT_RETURN_ADDRESS_OFFSET,
        Some(_) => return None,
    };
    let (kind, frame_offset) = match place {
        Value::Register(register, offset) if register == STACK_POINTER.0 => (RuleKind::FromStackPointer, offset),
        Value::Register(register, offset) if register == FRAME_POINTER.0 => (RuleKind::FromFramePointer, offset),
        Value::Stored(register, offset) if register == FRAME_POINTER.0 => (RuleKind::Realigned, offset),
        Value::Register(register, offset) if return_address_offset == DEFAULT_RETURN_ADDRESS_OFFSET => {
            let rule = Rule {
                kind: RuleKind::FromInterruptedRegister,
                frame_offset: i32::try_from(offset).ok()?,
                frame_pointer_offset: match row.register(FRAME_POINTER) {
                    Some(RegisterRule::Expression(_)) => STORED_WHERE_IT_POINTS,
                    other => offset_of(other),
                },
                return_address_offset: i32::from(register) * 8,
            };
            return Some(rule);
        }
        _ => return None,
    };
    let frame_pointer_offset = match row.register(FRAME_POINTER) {
        Some(RegisterRule::Expression(expression)) if kind == RuleKind::Realigned => {
            let slot = evaluate(expression.get(frames).ok()?.0.slice(), address)?;
            (slot == Value::Register(FRAME_POINTER.0, 0)).then_some(IN_REGISTER)?
        }
        other => offset_of(other),
    };
    Some(Rule { kind, frame_offset: i32::try_from(frame_offset).ok()?, frame_pointer_offset, return_address_offset })
}

/// Where a register was saved. Outer frames may still be found without one that is lost.
fn offset_of(rule: Option<RegisterRule<usize>>) -> i32 {
    match rule {
        Some(RegisterRule::Offset(offset)) => saved_offset(offset).unwrap_or(IN_REGISTER),
        _ => IN_REGISTER,
    }
}

/// The offset of a register in the stack, which must not be mistaken for one in no place.
fn saved_offset(offset: i64) -> Option<i32> {
    i32::try_from(offset).ok().filter(|offset| *offset != IN_REGISTER)
}

/// Index and tables of a file. The index may be missing.
fn find_tables(file: &'static [u8], headers: &ProgramHeaders) -> Option<(Option<Section>, Section)> {
    let named = find_section(file, b".eh_frame");
    let Some(index) = headers.unwind_index() else { return Some((None, named?)) };
    let start = usize::try_from(index.file_offset).ok()?;
    let bytes = file.get(start..start.checked_add(usize::try_from(index.size_bytes).ok()?)?)?;
    let frames = frames_of_index(headers, Table { bytes, address: index.address })?;
    let frames = named.filter(|named| named.address == frames.address).unwrap_or(frames);
    Some((Some(index), frames))
}

/// The tables an index points to, up to the end of their segment.
fn frames_of_index(headers: &ProgramHeaders, index: Table) -> Option<Section> {
    let bases = BaseAddresses::default().set_eh_frame_hdr(index.address);
    let header = EhFrameHdr::new(index.bytes, LittleEndian).parse(&bases, 8).ok()?;
    let Pointer::Direct(address) = header.eh_frame_ptr() else { return None };
    let segment = headers.segment_of(address)?;
    let skipped = address - segment.address;
    Some(Section {
        file_offset: segment.file_offset.checked_add(skipped)?,
        address,
        size_bytes: segment.file_bytes.checked_sub(skipped)?,
    })
}

/// Bytes of a loaded image.
///
/// # Safety
/// The section is mapped and readable for as long as the result is used.
unsafe fn image_bytes(load_bias: u64, section: &Section) -> &'static [u8] {
    let address = load_bias.wrapping_add(section.address) as *const u8;
    // SAFETY: promised by the caller.
    unsafe { core::slice::from_raw_parts(address, section.size_bytes as usize) }
}

/// The build id of a file; empty if it has none.
pub(crate) fn file_build_id<'a>(file: &'a [u8], headers: &ProgramHeaders) -> &'a [u8] {
    headers
        .notes()
        .find_map(|note| {
            let start = usize::try_from(note.file_offset).ok()?;
            let notes = file.get(start..start.checked_add(usize::try_from(note.file_bytes).ok()?)?)?;
            let (position, length) = find_build_id(notes)?;
            notes.get(position..position + length)
        })
        .unwrap_or(&[])
}

/// A whole file, mapped read-only.
struct MappedFile {
    bytes: &'static [u8],
    kept: bool,
}

impl MappedFile {
    fn open(path: &CString) -> Option<Self> {
        Self::map(&Descriptor::open(path, libc::O_RDONLY).ok()?)
    }

    fn map(file: &Descriptor) -> Option<Self> {
        let descriptor = file.number();
        let mut status = core::mem::MaybeUninit::<libc::stat>::uninit();
        // SAFETY: the descriptor is ours, the status is filled before it is read, the mapping is
        // new and private.
        let (address, size_bytes) = unsafe {
            let known = libc::fstat(descriptor, status.as_mut_ptr()) == 0;
            let size_bytes = if known { usize::try_from(status.assume_init().st_size).unwrap_or(0) } else { 0 };
            let address = if size_bytes == 0 {
                libc::MAP_FAILED
            } else {
                libc::mmap(core::ptr::null_mut(), size_bytes, libc::PROT_READ, libc::MAP_PRIVATE, descriptor, 0)
            };
            (address, size_bytes)
        };
        if address == libc::MAP_FAILED {
            return None;
        }
        // SAFETY: the mapping is `size_bytes` long; it is unmapped only by `drop` and `keep_only`,
        // which leave the parts that are still referred to.
        Some(Self { bytes: unsafe { core::slice::from_raw_parts(address.cast(), size_bytes) }, kept: false })
    }

    /// Keeps the pages of a range of the file mapped for ever and gives the others back.
    fn keep_only(&mut self, first: u64, last: u64) {
        self.kept = true;
        let start = first & !(page_bytes() - 1);
        let end = last.next_multiple_of(page_bytes());
        let mapped = (self.bytes.len() as u64).next_multiple_of(page_bytes());
        let base = self.bytes.as_ptr() as u64;
        for (from, to) in [(0, start), (end, mapped)] {
            if from < to {
                // SAFETY: whole pages of our own mapping outside of the range that is used.
                unsafe { libc::munmap((base + from) as *mut libc::c_void, (to - from) as usize) };
            }
        }
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        if !self.kept {
            // SAFETY: our own mapping; nothing that outlives this value refers to it.
            unsafe { libc::munmap(self.bytes.as_ptr().cast_mut().cast(), self.bytes.len()) };
        }
    }
}

fn page_bytes() -> u64 {
    // SAFETY: asks for a number.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(PAGE_BYTES)
}
