//! Beginning and end of the use of operators, and memory that a thread may keep between them. Operators here need neither:
//! they take what they need when they run.

use std::ffi::{c_char, c_void};

#[unsafe(no_mangle)]
extern "C" fn aclnnInit(_configuration_path: *const c_char) -> i32 {
    0
}

#[unsafe(no_mangle)]
extern "C" fn aclnnFinalize() -> i32 {
    0
}

/// Defines what callers do around operators with memory of a thread; there is none.
macro_rules! memory_of_threads {
    ($($name:ident;)*) => {
        $(
            #[unsafe(no_mangle)]
            extern "C" fn $name(_argument: *mut c_void, _shared: bool) -> i32 {
                0
            }
        )*
    };
}

memory_of_threads! {
    InitHugeMemThreadLocal;
    UnInitHugeMemThreadLocal;
    ReleaseHugeMem;
}
