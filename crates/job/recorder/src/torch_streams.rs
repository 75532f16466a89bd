//! Which stream PyTorch's pool hands a block out for: it uses the block again on that stream only, but does not say which
//! one it is. It asks for the current stream of its thread, and so do we.
//!
//! The answer comes from the library of torch_npu itself, out of a variable of the thread: nothing is locked or allocated
//! for it, since the pool has just asked the same. Blocks that a job asks for with a stream of its choice, which only
//! `caching_allocator_alloc` does, count as those of the current one.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::real::RealFunction;

/// The stream that blocks are handed out for if nobody chose another.
pub const DEFAULT_STREAM: u32 = 0;

const LIBRARY: &str = "libtorch_npu.so";

/// `c10_npu::getCurrentNPUStream(c10::DeviceIndex)`.
static CURRENT_STREAM: RealFunction<CurrentStream> =
    RealFunction::of_owner(LIBRARY, &[c"_ZN7c10_npu19getCurrentNPUStreamEa"]);
/// `c10_npu::NPUStream::~NPUStream()`. Where there is one, streams are returned through a pointer, as declared below.
static DESTRUCTOR: RealFunction =
    RealFunction::of_owner(LIBRARY, &[c"_ZN7c10_npu9NPUStreamD1Ev", c"_ZN7c10_npu9NPUStreamD2Ev"]);

type CurrentStream = unsafe extern "C-unwind" fn(i8) -> Stream;

/// `c10_npu::NPUStream`, with room for what may come behind it. Large enough to be returned through a pointer everywhere.
#[repr(C)]
struct Stream {
    _device_type: u8,
    device_index: i8,
    id: u64,
    _room: MaybeUninit<[u64; 6]>,
}

/// Whether the library was looked for and is not there, or is another than the one described here.
static IS_ABSENT: AtomicBool = AtomicBool::new(false);

/// Number of the stream that the pool of a device hands out blocks for on this thread, as PyTorch counts streams. The
/// device must be one that the pool has just named.
#[inline(always)]
pub fn of_this_thread(device_id: u32) -> u32 {
    if IS_ABSENT.load(Ordering::Relaxed) { DEFAULT_STREAM } else { ask(device_id) }
}

#[inline(never)]
fn ask(device_id: u32) -> u32 {
    let Ok(device_index) = i8::try_from(device_id) else { return DEFAULT_STREAM };
    let Some(current_stream) = CURRENT_STREAM.function().filter(|_| DESTRUCTOR.address().is_some()) else {
        IS_ABSENT.store(true, Ordering::Relaxed);
        return DEFAULT_STREAM;
    };
    // SAFETY: torch_npu's function of this name has this signature; the pool has asked it about the same device.
    let stream = unsafe { current_stream(device_index) };
    if stream.device_index == device_index { number(stream.id) } else { DEFAULT_STREAM }
}

/// Those that PyTorch did not make are numbered by their addresses, of which both halves tell them apart.
fn number(id: u64) -> u32 {
    (id ^ id >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_returned_through_a_pointer_and_numbered() {
        assert!(size_of::<Stream>() > 16, "larger than what any calling convention returns in registers");
        assert_eq!((number(0), number(33)), (DEFAULT_STREAM, 33));
        assert_ne!(number(0x7f00_1234_5678), number(0x7f01_1234_5678));
    }
}
