//! The self-check: our own walk must see what the interpreter's functions show.

use crate::api::ApiFunctions;
use crate::code::{Text, line_table};
use crate::layout::Layout;
use crate::memory::Address;
use crate::status::FallbackReason;
use crate::walk::{End, Frame, Frames};

/// Frames compared at most.
const COMPARED_FRAMES: usize = 64;
/// Code objects compared at most.
const COMPARED_CODES: usize = 8;

/// What the comparison said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// There were no frames to compare.
    Undecided,
    /// Both see the same.
    Same,
    /// They do not.
    Different(FallbackReason),
}

/// Compares both ways for the calling thread.
///
/// # Safety
/// The calling thread must hold the interpreter's lock; `thread_state` must be its own.
#[cold]
pub(crate) unsafe fn compare(api: &ApiFunctions, layout: &Layout, thread_state: Address) -> Verdict {
    // SAFETY: promised by the caller.
    unsafe { api.undisturbed(|| compare_undisturbed(api, layout, thread_state)) }
}

/// # Safety
/// As for [`compare`], inside [`ApiFunctions::undisturbed`].
unsafe fn compare_undisturbed(api: &ApiFunctions, layout: &Layout, thread_state: Address) -> Verdict {
    // SAFETY: promised by the caller.
    let mut frames = unsafe { Frames::of_thread(layout, thread_state, COMPARED_FRAMES) };
    let own: [Option<Frame>; COMPARED_FRAMES] = std::array::from_fn(|_| frames.next());
    let own_count = own.iter().flatten().count();
    // The end is known only after one step more.
    let own_end = frames.next().map_or(frames.end(), |_| End::Limit);
    let mut shown_count = 0;
    let mut same = true;
    // SAFETY: promised by the caller.
    unsafe {
        api.walk(COMPARED_FRAMES, |code, offset| {
            let found = own.get(shown_count).copied().flatten();
            same &= found.is_some_and(|found| found.code.get() == code && found.instruction_offset(layout) == offset);
            shown_count += 1;
        });
    }
    if !same || shown_count != own_count || own_end == End::Damaged {
        return Verdict::Different(FallbackReason::FramesDiffer);
    }
    // SAFETY: the frames are alive, so are their code objects.
    let codes_agree =
        own.iter().flatten().take(COMPARED_CODES).all(|frame| unsafe { code_agrees(api, layout, frame.code) });
    match own_count {
        0 => Verdict::Undecided,
        _ if codes_agree => Verdict::Same,
        _ => Verdict::Different(FallbackReason::CodeDiffers),
    }
}

/// # Safety
/// As for [`compare_undisturbed`], with a live code object.
unsafe fn code_agrees(api: &ApiFunctions, layout: &Layout, code: Address) -> bool {
    // SAFETY: promised by the caller.
    unsafe {
        let Some(shown) = api.texts_of(code.get()) else { return false };
        let first_line: u32 = code.load(layout.code_first_line);
        first_line == shown.first_line
            && text_agrees(layout, code, layout.code_name, &shown.name)
            && text_agrees(layout, code, layout.code_file, &shown.file)
            && api.with_line_table(code.get(), |table| table == line_table(layout, code))
    }
}

/// # Safety
/// As for [`code_agrees`].
unsafe fn text_agrees(layout: &Layout, code: Address, field: u16, shown: &Text) -> bool {
    let mut own = Text::new();
    // SAFETY: promised by the caller.
    let readable = unsafe { code.follow(field).and_then(|text| own.read(layout, text)) }.is_some();
    // The interpreter cannot show every text as UTF-8.
    readable && (shown.as_bytes().is_empty() || shown.as_bytes() == own.as_bytes())
}
