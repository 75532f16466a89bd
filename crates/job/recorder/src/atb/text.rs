//! Strings of the C++ library: of the old ABI, in which a string is a pointer to its bytes with the length before them,
//! and of the new one, in which it is a pointer and a length.

use std::ffi::c_void;
use std::mem::MaybeUninit;

use crate::real::RealFunction;

/// An ABI of the C++ library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abi {
    /// `_GLIBCXX_USE_CXX11_ABI=0`.
    Old,
    /// `_GLIBCXX_USE_CXX11_ABI=1`.
    New,
}

type Destructor = unsafe extern "C-unwind" fn(*mut c_void);

static DESTROY_OLD: RealFunction<Destructor> = RealFunction::new("libstdc++.so.6", &[c"_ZNSsD1Ev"]);
static DESTROY_NEW: RealFunction<Destructor> =
    RealFunction::new("libstdc++.so.6", &[c"_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEED1Ev"]);

/// Bytes before those of an old string: length, capacity, count of references.
const OLD_HEADER_BYTES: usize = 24;

impl Abi {
    /// The function that ends a string.
    pub fn destructor(self) -> Option<Destructor> {
        match self {
            Abi::Old => DESTROY_OLD.function(),
            Abi::New => DESTROY_NEW.function(),
        }
    }
}

/// The bytes of a string.
///
/// # Safety
/// A string of this ABI that outlives them.
pub unsafe fn borrowed<'a>(abi: Abi, string: *const c_void) -> &'a [u8] {
    let words = string.cast::<usize>();
    // SAFETY: promised by the caller; both ABIs begin with a pointer to the bytes.
    unsafe {
        let bytes = *words as *const u8;
        let length = match abi {
            Abi::Old => *bytes.sub(OLD_HEADER_BYTES).cast::<usize>(),
            Abi::New => *words.add(1),
        };
        std::slice::from_raw_parts(bytes, length)
    }
}

/// A string that a function returned. Never moved: a short one of the new ABI points into itself.
pub struct Text<'a> {
    destructor: Destructor,
    place: &'a mut MaybeUninit<[usize; 4]>,
}

impl Text<'_> {
    /// Calls a getter of an object, and `take` with what it returns.
    ///
    /// # Safety
    /// The function takes the object and returns a string of this ABI.
    pub unsafe fn with<R>(
        abi: Abi,
        destructor: Destructor,
        getter: *const c_void,
        object: *const c_void,
        take: impl FnOnce(&[u8]) -> R,
    ) -> R {
        let mut place = MaybeUninit::<[usize; 4]>::uninit();
        // SAFETY: promised by the caller; the place is large enough for both kinds of strings.
        unsafe { call_getter(getter, place.as_mut_ptr().cast(), object) };
        let text = Text { destructor, place: &mut place };
        // SAFETY: the getter has made a string there.
        take(unsafe { borrowed(abi, text.place.as_ptr().cast()) })
    }
}

impl Drop for Text<'_> {
    fn drop(&mut self) {
        // SAFETY: the getter has made a string there, which nobody uses any more.
        unsafe { (self.destructor)(self.place.as_mut_ptr().cast()) }
    }
}

/// Calls a function that returns an object by making it where a hidden argument says.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C-unwind" fn call_getter(getter: *const c_void, result: *mut c_void, object: *const c_void) {
    std::arch::naked_asm!("mov rax, rdi", "mov rdi, rsi", "mov rsi, rdx", "jmp rax")
}

/// Calls a function that returns an object by making it where a hidden argument says.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
unsafe extern "C-unwind" fn call_getter(getter: *const c_void, result: *mut c_void, object: *const c_void) {
    std::arch::naked_asm!("mov x16, x0", "mov x8, x1", "mov x0, x2", "br x16")
}
