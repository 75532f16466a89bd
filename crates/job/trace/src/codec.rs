//! How a fact becomes bytes and back. One table serves both directions.
//!
//! A record is `length, kind, fields`. The length counts the bytes after itself; 255 announces a
//! 32-bit length. Bits 0-5 of the kind name the fact, bit 6 says a native stack id follows, bit 7 a
//! Python stack id. The first field is the time since the previous record of the chunk. Numbers are
//! LEB128; addresses and times are differences, so that a typical event takes 10 to 14 bytes.

use msmemscope_event::{
    BlockProperties, CodeId, Coded, Device, Fact, ModuleId, PoolRefusal, PoolSegment, Record, SnapshotNumbers, StackId,
    StringId,
};

/// Room that every record may need besides its text.
pub const LARGEST_FIXED_RECORD_BYTES: usize = 192;

/// Longest text a record may carry; longer ones are cut by the writer.
pub const LARGEST_TEXT_BYTES: usize = 64 * 1024;

const LONG_FORM: u8 = 255;
const LONG_FORM_FROM_TEXT_BYTES: usize = 64;
const KIND_MASK: u8 = 0x3f;
const HAS_NATIVE_STACK: u8 = 0x40;
const HAS_PYTHON_STACK: u8 = 0x80;
const PROPERTY_SLOTS: usize = 4;

/// What the next record of a chunk is encoded relative to. Starts fresh in every chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodecState {
    /// Time of the previous record.
    pub monotonic_ns: u64,
    /// Thread whose records these are.
    pub thread_id: u32,
    address: u64,
    properties: [u32; PROPERTY_SLOTS],
}

impl CodecState {
    /// The state at the start of a chunk.
    pub fn new(base_monotonic_ns: u64, thread_id: u32) -> Self {
        Self { monotonic_ns: base_monotonic_ns, thread_id, address: 0, properties: [u32::MAX; PROPERTY_SLOTS] }
    }
}

/// Where encoded bytes go: a raw window whose room the caller has checked.
struct Output {
    next: *mut u8,
}

impl Output {
    #[inline(always)]
    fn byte(&mut self, value: u8) {
        // SAFETY: `encode` is only called with room for the largest record.
        unsafe {
            self.next.write(value);
            self.next = self.next.add(1);
        }
    }

    #[inline(always)]
    fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.byte(value as u8 | 0x80);
            value >>= 7;
        }
        self.byte(value as u8);
    }

    #[inline(always)]
    fn text(&mut self, text: &[u8]) {
        // SAFETY: as above; the text is part of the checked room and cannot overlap the trace chunk.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr(), self.next, text.len());
            self.next = self.next.add(text.len());
        }
    }
}

/// A record that is read.
struct Input<'a> {
    /// The record and whatever is behind it.
    bytes: &'a [u8],
    /// Where its next field begins.
    at: usize,
    /// Where it ends.
    end: usize,
}

impl<'a> Input<'a> {
    #[inline(always)]
    fn byte(&mut self) -> Option<u8> {
        let byte = self.bytes[..self.end].get(self.at)?;
        self.at += 1;
        Some(*byte)
    }

    /// The bytes that are left.
    #[inline(always)]
    fn rest(&mut self) -> &'a [u8] {
        let rest = &self.bytes[self.at..self.end];
        self.at = self.end;
        rest
    }

    /// A number. Eight bytes are looked at together, also those that are behind the record: nearly all numbers are shorter.
    #[inline(always)]
    fn number(&mut self) -> Option<u64> {
        const LAST_BYTE: u64 = 0x8080_8080_8080_8080;
        let Some(eight) = self.bytes.get(self.at..).and_then(<[u8]>::first_chunk::<8>) else {
            return self.number_by_bytes();
        };
        let word = u64::from_le_bytes(*eight);
        let ends = !word & LAST_BYTE;
        if ends == 0 {
            return self.number_by_bytes();
        }
        self.at += ends.trailing_zeros() as usize / 8 + 1;
        if self.at > self.end {
            return None;
        }
        // Everything up to the first byte that says it is the last, seven bits of each.
        let digits = word & (ends ^ (ends - 1)) & !LAST_BYTE;
        let pairs = digits & 0x007f_007f_007f_007f | (digits & 0x7f00_7f00_7f00_7f00) >> 1;
        let fours = pairs & 0x0000_3fff_0000_3fff | (pairs & 0x3fff_0000_3fff_0000) >> 2;
        Some(fours & 0x0fff_ffff | (fours & 0x0fff_ffff_0000_0000) >> 4)
    }

    #[cold]
    fn number_by_bytes(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            let byte = self.byte()?;
            if shift == 63 && byte > 1 {
                return None;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }
}

#[inline(always)]
fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

#[inline(always)]
fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// How one field type is stored.
trait Field<'a>: Sized {
    fn put(self, state: &mut CodecState, output: &mut Output);
    fn take(state: &mut CodecState, input: &mut Input<'a>) -> Option<Self>;
}

/// Declares how wrapper types around numbers are stored.
macro_rules! number_fields {
    ($($type:ty: |$value:ident| $put:expr, |$number:ident| $take:expr;)+) => {
        $(impl<'a> Field<'a> for $type {
            #[inline(always)]
            fn put(self, _: &mut CodecState, output: &mut Output) {
                let $value = self;
                output.number($put);
            }

            #[inline(always)]
            fn take(_: &mut CodecState, input: &mut Input<'a>) -> Option<Self> {
                let $number = input.number()?;
                $take
            }
        })+
    };
}

number_fields! {
    u64: |value| value, |number| Some(number);
    u32: |value| u64::from(value), |number| u32::try_from(number).ok();
    i64: |value| zigzag(value), |number| Some(unzigzag(number));
    bool: |value| u64::from(value), |number| Some(number != 0);
    StringId: |value| u64::from(value.0), |number| u32::try_from(number).ok().map(StringId);
    StackId: |value| u64::from(value.0), |number| u32::try_from(number).ok().map(StackId);
    CodeId: |value| u64::from(value.0), |number| u32::try_from(number).ok().map(CodeId);
    ModuleId: |value| u64::from(value.0), |number| u32::try_from(number).ok().map(ModuleId);
    Device: |value| u64::from(value.code()), |number| Some(Device::from_code(u32::try_from(number).unwrap_or(u32::MAX)));
}

/// Declares how structs of numbers are stored: one field after the other.
macro_rules! struct_fields {
    ($($type:ident { $($name:ident),+ })+) => {
        $(impl<'a> Field<'a> for $type {
            // Inlined like all others: if the place of the next byte were lent to a function, every record would keep it
            // in memory.
            #[inline(always)]
            fn put(self, state: &mut CodecState, output: &mut Output) {
                // One loop: what is rare must not make the way of every record longer.
                for number in [$(u64::from(self.$name)),+] {
                    number.put(state, output);
                }
            }

            fn take(state: &mut CodecState, input: &mut Input<'a>) -> Option<Self> {
                Some(Self { $($name: Field::take(state, input)?),+ })
            }
        })+
    };
}

struct_fields! {
    SnapshotNumbers {
        reserved_bytes, maximum_reserved_bytes, allocated_bytes, maximum_allocated_bytes, total_bytes, free_bytes
    }
    PoolRefusal { requested_bytes, limit_bytes, reserved_bytes, free_bytes, total_bytes, stream, segments }
    PoolSegment { address, size_bytes, unused_bytes, largest_gap_bytes, stream, traits }
}

/// Text: always the last field, reaching to the end of the record.
impl<'a> Field<'a> for &'a [u8] {
    #[inline(always)]
    fn put(self, _: &mut CodecState, output: &mut Output) {
        output.text(self);
    }

    #[inline(always)]
    fn take(_: &mut CodecState, input: &mut Input<'a>) -> Option<Self> {
        Some(input.rest())
    }
}

/// An address, stored as the difference to the previous address of the chunk.
struct Address(u64);

impl<'a> Field<'a> for Address {
    #[inline(always)]
    fn put(self, state: &mut CodecState, output: &mut Output) {
        output.number(zigzag(self.0.wrapping_sub(state.address) as i64));
        state.address = self.0;
    }

    #[inline(always)]
    fn take(state: &mut CodecState, input: &mut Input<'a>) -> Option<Self> {
        state.address = state.address.wrapping_add(unzigzag(input.number()?) as u64);
        Some(Address(state.address))
    }
}

/// Block properties: zero if they equal those of the previous record with the same slot.
struct Properties<const SLOT: usize>(BlockProperties);

impl<'a, const SLOT: usize> Field<'a> for Properties<SLOT> {
    #[inline(always)]
    fn put(self, state: &mut CodecState, output: &mut Output) {
        let packed = self.0.pack();
        if state.properties[SLOT] == packed {
            output.byte(0);
        } else {
            state.properties[SLOT] = packed;
            output.number(u64::from(packed) + 1);
        }
    }

    #[inline(always)]
    fn take(state: &mut CodecState, input: &mut Input<'a>) -> Option<Self> {
        let number = input.number()?;
        if number != 0 {
            state.properties[SLOT] = u32::try_from(number - 1).ok()?;
        }
        Some(Properties(BlockProperties::unpack(state.properties[SLOT])))
    }
}

/// A small vocabulary, stored by its code.
struct Code<T>(T);

impl<'a, T: Coded> Field<'a> for Code<T> {
    #[inline(always)]
    fn put(self, _: &mut CodecState, output: &mut Output) {
        output.number(self.0.code());
    }

    #[inline(always)]
    fn take(_: &mut CodecState, input: &mut Input<'a>) -> Option<Self> {
        Some(Code(T::from_code(input.number()?)))
    }
}

/// Puts or takes one field, through a wrapper if one is named.
macro_rules! field {
    (put $state:ident $output:ident $value:ident) => { $value.put($state, $output) };
    (put $state:ident $output:ident $value:ident $wrapper:ident $($slot:literal)?) => {
        $wrapper$(::<$slot>)?($value).put($state, $output)
    };
    (take $state:ident $input:ident) => { Field::take($state, $input)? };
    (take $state:ident $input:ident Code) => { <Code<_> as Field>::take($state, $input)?.0 };
    (take $state:ident $input:ident $wrapper:ident $($slot:literal)?) => {
        <$wrapper$(::<$slot>)? as Field>::take($state, $input)?.0
    };
}

/// The table of facts: `code Variant { field [as Wrapper [slot]], ... }`, fields in stored order.
macro_rules! fact_table {
    ($($code:literal $variant:ident { $($name:ident $(as $wrapper:ident $($slot:literal)?)?),* })+) => {
        #[inline(always)]
        fn kind_of(fact: &Fact<'_>) -> u8 {
            match fact {
                $(Fact::$variant { .. } => $code,)+
                Fact::Unknown { kind, .. } => *kind & KIND_MASK,
            }
        }

        #[inline(always)]
        fn put_fields<'a>(fact: &Fact<'a>, state: &mut CodecState, output: &mut Output) {
            match *fact {
                $(Fact::$variant { $($name),* } => {
                    $(field!(put state output $name $($wrapper $($slot)?)?);)*
                })+
                Fact::Unknown { payload, .. } => output.text(payload),
            }
        }

        #[inline(always)]
        fn take_fields<'a>(kind: u8, state: &mut CodecState, input: &mut Input<'a>) -> Option<Fact<'a>> {
            Some(match kind {
                $($code => Fact::$variant { $($name: field!(take state input $($wrapper $($slot)?)?)),* },)+
                kind => Fact::Unknown { kind, payload: input.rest() },
            })
        }
    };
}

fact_table! {
    1 Allocation { properties as Properties 0, address as Address, size_bytes }
    2 AllocationWithHandle { properties as Properties 0, address as Address, size_bytes, handle }
    3 Free { properties as Properties 1, address as Address }
    4 FreeByHandle { properties as Properties 1, handle }
    5 HeapRegistered { properties as Properties 2, address as Address, size_bytes }
    6 HeapUnregistered { properties as Properties 2, address as Address }
    7 AllocationFailed { properties as Properties 3, size_bytes, flag, error }
    8 FreeFailed { properties as Properties 1, address as Address, error }
    9 OperatorBegin { framework as Code, device, name, detail }
    10 OperatorEnd { framework as Code, device, name, detail }
    11 Access { kind as Code, framework as Code, device, operator, address as Address, size_bytes,
                element_type, shape, format, output_position }
    12 Kernel { phase as Code, device, name, stream_id, task_id, detail }
    13 Mark { domain, device, message }
    14 RangeBegin { domain, device, range_id, message }
    15 RangeEnd { domain, device, range_id }
    16 System { event as Code, device, result }
    17 Step { device, number }
    18 Autograd { phase as Code, device }
    19 Snapshot { device, name, numbers }
    20 CardSample { device, used_bytes, process_bytes, total_bytes }
    21 LabelPush { level, label }
    22 LabelPop { level, label }
    23 LabelAddress { address as Address, level, label }
    24 Watch { name, operator, output_position, after, address as Address, size_bytes, content_hash, detail }
    25 Recording { state as Code }
    26 Loss { reason as Code, count }
    27 PythonCall { phase as Code, code, name }
    28 LoopTurn { kind as Code, device, loop_id }
    29 ModuleBegin { name }
    30 ModuleEnd { name }
    31 Holder { address as Address, path }
    32 DefineString { id, text }
    33 DefineNativeStack { id, frames }
    34 DefinePythonStack { id, frames }
    35 DefineCode { id, name, file, first_line, python_version, line_table }
    36 DefineModule { id, start_address, end_address, load_bias, path, build_id }
    37 ModuleGone { id }
    38 DeviceMap { text }
    39 ProcessInfo { key as Code, text }
    40 Message { severity as Code, text }
    41 ClockAnchor { wall_offset_ns }
    42 Thread { thread_id }
    43 PlacedOperatorBegin { framework as Code, device, name, workspace_address as Address, workspace_bytes, path }
    44 PlacedKernel { phase as Code, device, name, path }
    45 AllocationOnStream { properties as Properties 0, address as Address, size_bytes, stream }
    46 PreparedWork { phase as Code, address as Address }
    47 KernelCaptured { device, name, stream_id, task_id }
    48 PoolRefusal { device, refusal }
    49 PoolSegment { device, segment }
}

/// Kinds of records that free a block.
const FREE_KINDS: [u8; 2] = [3, 4];

/// Bytes of text the fact carries.
#[inline(always)]
fn text_length(fact: &Fact<'_>) -> usize {
    match fact {
        Fact::Mark { message, .. } | Fact::RangeBegin { message, .. } => message.len(),
        Fact::Watch { detail, .. } => detail.len(),
        Fact::PlacedOperatorBegin { path, .. } | Fact::PlacedKernel { path, .. } => path.len(),
        Fact::DefineString { text, .. }
        | Fact::DeviceMap { text }
        | Fact::ProcessInfo { text, .. }
        | Fact::Message { text, .. } => text.len(),
        Fact::DefineNativeStack { frames, .. } | Fact::DefinePythonStack { frames, .. } => frames.len(),
        Fact::DefineCode { line_table, .. } => line_table.len(),
        Fact::DefineModule { build_id, .. } => build_id.len(),
        Fact::Unknown { payload, .. } => payload.len(),
        _ => 0,
    }
}

/// Room that must be free before [`encode`] may be called for this fact.
#[inline(always)]
pub fn largest_encoded_bytes(fact: &Fact<'_>) -> usize {
    LARGEST_FIXED_RECORD_BYTES + text_length(fact)
}

/// Appends one record at `destination` and returns how many bytes it took.
///
/// # Safety
/// At least [`largest_encoded_bytes`] of the fact must be writable at `destination`.
#[inline(always)]
pub unsafe fn encode(
    state: &mut CodecState,
    monotonic_ns: u64,
    native_stack: StackId,
    python_stack: StackId,
    fact: &Fact<'_>,
    destination: *mut u8,
) -> usize {
    let long_form = text_length(fact) >= LONG_FORM_FROM_TEXT_BYTES;
    let prefix_bytes = if long_form { 5 } else { 1 };
    // SAFETY: the prefix is part of the room the caller promised.
    let mut output = Output { next: unsafe { destination.add(prefix_bytes) } };
    let mut kind = kind_of(fact);
    if native_stack.is_some() {
        kind |= HAS_NATIVE_STACK;
    }
    if python_stack.is_some() {
        kind |= HAS_PYTHON_STACK;
    }
    output.byte(kind);
    output.number(zigzag(monotonic_ns.wrapping_sub(state.monotonic_ns) as i64));
    state.monotonic_ns = monotonic_ns;
    if native_stack.is_some() {
        output.number(u64::from(native_stack.0));
    }
    if python_stack.is_some() {
        output.number(u64::from(python_stack.0));
    }
    put_fields(fact, state, &mut output);
    if let Fact::Thread { thread_id } = fact {
        state.thread_id = *thread_id;
    }
    let total_bytes = output.next as usize - destination as usize;
    let body_bytes = total_bytes - prefix_bytes;
    // SAFETY: as above.
    unsafe {
        if long_form {
            destination.write(LONG_FORM);
            destination.add(1).cast::<[u8; 4]>().write((body_bytes as u32).to_le_bytes());
        } else {
            destination.write(body_bytes as u8);
        }
    }
    total_bytes
}

/// Appends a record to bytes that grow as needed, in front of it the thread if that is another one than before.
pub(crate) fn append_to(bytes: &mut Vec<u8>, state: &mut CodecState, record: &Record<'_>) {
    let Record { monotonic_ns, native_stack, python_stack, thread_id, .. } = *record;
    if thread_id != state.thread_id {
        append_fact_to(bytes, state, monotonic_ns, (StackId::NONE, StackId::NONE), &Fact::Thread { thread_id });
    }
    append_fact_to(bytes, state, monotonic_ns, (native_stack, python_stack), &record.fact);
}

fn append_fact_to(
    bytes: &mut Vec<u8>,
    state: &mut CodecState,
    monotonic_ns: u64,
    (native_stack, python_stack): (StackId, StackId),
    fact: &Fact<'_>,
) {
    bytes.reserve(largest_encoded_bytes(fact));
    // SAFETY: the room was reserved, and as many bytes are initialised as encoding says.
    unsafe {
        let destination = bytes.as_mut_ptr().add(bytes.len());
        let taken_bytes = encode(state, monotonic_ns, native_stack, python_stack, fact, destination);
        bytes.set_len(bytes.len() + taken_bytes);
    }
}

/// What [`decode`] found at the start of some bytes.
#[derive(Debug, PartialEq)]
pub enum Decoded<'a> {
    /// A record and how many bytes it took.
    Record(Record<'a>, usize),
    /// A record that cannot be understood, and how many bytes to skip.
    Damaged(usize),
    /// The bytes end inside a record.
    Torn,
}

/// Time and [tie rank](Record::tie_rank) of the record at the start of some bytes, without looking at
/// the rest of it. Only for bytes that [`decode`] has understood before.
#[inline]
pub(crate) fn peek(state: &CodecState, bytes: &[u8]) -> Option<(u64, u8)> {
    let prefix_bytes = match bytes.first()? {
        0 => return None,
        &LONG_FORM => 5,
        _ => 1,
    };
    let mut input = Input { bytes, at: prefix_bytes, end: bytes.len() };
    let kind = input.byte()? & KIND_MASK;
    let monotonic_ns = state.monotonic_ns.wrapping_add(unzigzag(input.number()?) as u64);
    Some((monotonic_ns, u8::from(!FREE_KINDS.contains(&kind))))
}

/// Reads one record. On damage the state may be off until the next chunk; the times of later records
/// are then as wrong as the damaged one was.
#[inline]
pub fn decode<'a>(state: &mut CodecState, bytes: &'a [u8]) -> Decoded<'a> {
    let (prefix_bytes, body_bytes) = match bytes.first() {
        None | Some(0) => return Decoded::Torn,
        Some(&LONG_FORM) => match bytes.get(1..5) {
            Some(length) => (5, u32::from_le_bytes([length[0], length[1], length[2], length[3]]) as usize),
            None => return Decoded::Torn,
        },
        Some(&length) => (1, usize::from(length)),
    };
    let total_bytes = prefix_bytes + body_bytes;
    if total_bytes > bytes.len() {
        return Decoded::Torn;
    }
    match decode_body(state, Input { bytes, at: prefix_bytes, end: total_bytes }) {
        Some(record) => Decoded::Record(record, total_bytes),
        None => Decoded::Damaged(total_bytes),
    }
}

/// How many records some bytes hold, whole ones only.
pub(crate) fn count_records(mut bytes: &[u8]) -> u64 {
    let mut count = 0;
    loop {
        let total_bytes = match *bytes {
            [] | [0, ..] => return count,
            [LONG_FORM, a, b, c, d, ..] => 5 + u32::from_le_bytes([a, b, c, d]) as usize,
            [length, ..] => 1 + usize::from(length),
        };
        let Some(rest) = bytes.get(total_bytes..) else { return count };
        bytes = rest;
        count += 1;
    }
}

#[inline(always)]
fn decode_body<'a>(state: &mut CodecState, mut input: Input<'a>) -> Option<Record<'a>> {
    let kind = input.byte()?;
    let monotonic_ns = state.monotonic_ns.wrapping_add(unzigzag(input.number()?) as u64);
    let mut stack = |flag| if kind & flag != 0 { StackId::take(state, &mut input) } else { Some(StackId::NONE) };
    let native_stack = stack(HAS_NATIVE_STACK)?;
    let python_stack = stack(HAS_PYTHON_STACK)?;
    let fact = take_fields(kind & KIND_MASK, state, &mut input)?;
    state.monotonic_ns = monotonic_ns;
    if let Fact::Thread { thread_id } = fact {
        state.thread_id = thread_id;
    }
    // Bytes left over belong to fields that a newer writer appended; they are skipped.
    Some(Record { monotonic_ns, thread_id: state.thread_id, native_stack, python_stack, fact })
}

#[cfg(test)]
mod tests {
    use msmemscope_event::Pool;

    use super::*;

    #[test]
    fn a_peek_tells_what_the_whole_record_tells() {
        let properties = BlockProperties::framework(Pool::Atb, Device::Npu(3));
        let facts = [
            Fact::Allocation { properties, address: 1 << 40, size_bytes: 7 },
            Fact::Free { properties, address: 1 << 40 },
            Fact::FreeByHandle { properties, handle: 9 },
            Fact::DefineString { id: StringId(1), text: &[b'a'; 300] },
            Fact::RangeEnd { domain: StringId::NONE, device: Device::Host, range_id: 5 },
        ];
        let mut bytes = vec![0; 4096];
        let (mut writing, mut length) = (CodecState::new(1000, 1), 0);
        for (position, fact) in facts.iter().enumerate() {
            let time = 5000 + 300 * position as u64;
            // SAFETY: all of them together are far smaller than the buffer.
            length += unsafe {
                let destination = bytes.as_mut_ptr().add(length);
                encode(&mut writing, time, StackId(2), StackId::NONE, fact, destination)
            };
        }
        let (mut state, mut rest) = (CodecState::new(1000, 1), &bytes[..length]);
        for fact in facts {
            let peeked = peek(&state, rest);
            let Decoded::Record(record, taken) = decode(&mut state, rest) else { panic!("{fact:?} is whole") };
            assert_eq!(record.fact, fact);
            assert_eq!(peeked, Some((record.monotonic_ns, record.tie_rank())), "{fact:?}");
            rest = &rest[taken..];
        }
        assert_eq!(peek(&state, rest), None);
    }
}
