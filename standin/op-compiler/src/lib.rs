//! Stand-in for CANN's `libacl_op_compiler.so`: operators launched by name, which the stand-in does not compute.

use std::collections::HashSet;
use std::ffi::{CStr, c_char, c_void};
use std::sync::{Mutex, PoisonError};

static NAMED: Mutex<Option<HashSet<String>>> = Mutex::new(None);

/// What a refused operator returns (`ACL_ERROR_OP_NOT_FOUND`).
const REFUSED: i32 = 100_024;

/// Refuses an operator or lets it do nothing, as `STANDIN_UNKNOWN_OPERATORS` says; unless that is `quiet`, says so once.
unsafe fn execute(name: *const c_char) -> i32 {
    if name.is_null() {
        return REFUSED;
    }
    // SAFETY: a terminated string by the contract of the C functions.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    let setting = std::env::var("STANDIN_UNKNOWN_OPERATORS").unwrap_or_default();
    let mut named = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
    if named.get_or_insert_default().insert(name.to_string()) && setting != "quiet" {
        eprintln!("stand-in device: operator {name} is not computed, its outputs are left as they are");
    }
    if setting == "error" { REFUSED } else { 0 }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclopCompileAndExecute(
    name: *const c_char,
    _input_count: i32,
    _input_descriptions: *const *const c_void,
    _inputs: *const *const c_void,
    _output_count: i32,
    _output_descriptions: *const *const c_void,
    _outputs: *const *mut c_void,
    _attributes: *const c_void,
    _engine: i32,
    _flags: i32,
    _path: *const c_char,
    _stream: *mut c_void,
) -> i32 {
    // SAFETY: as for the function called.
    unsafe { execute(name) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclopCompileAndExecuteV2(
    name: *const c_char,
    _input_count: i32,
    _input_descriptions: *mut *mut c_void,
    _inputs: *mut *mut c_void,
    _output_count: i32,
    _output_descriptions: *mut *mut c_void,
    _outputs: *mut *mut c_void,
    _attributes: *mut c_void,
    _engine: i32,
    _flags: i32,
    _path: *const c_char,
    _stream: *mut c_void,
) -> i32 {
    // SAFETY: as for the function called.
    unsafe { execute(name) }
}

/// Options of the compiler change nothing here, except that whoever asks learns that operators are not compiled at run
/// time.
#[unsafe(no_mangle)]
extern "C" fn aclSetCompileopt(_option: i32, _value: *const c_char) -> i32 {
    0
}

/// `ACL_OP_JIT_COMPILE`.
const COMPILE_AT_RUN_TIME: i32 = 10;
const DISABLED: &CStr = c"disable";
/// `ACL_ERROR_INVALID_PARAM`.
const INVALID_PARAMETER: i32 = 100_000;

#[unsafe(no_mangle)]
extern "C" fn aclGetCompileoptSize(option: i32) -> usize {
    if option == COMPILE_AT_RUN_TIME { DISABLED.count_bytes() + 1 } else { 0 }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclGetCompileopt(option: i32, value: *mut c_char, length: usize) -> i32 {
    let bytes = DISABLED.to_bytes_with_nul();
    if option != COMPILE_AT_RUN_TIME || value.is_null() || length < bytes.len() {
        return INVALID_PARAMETER;
    }
    // SAFETY: checked above; `length` bytes are writable by the contract of the C function.
    unsafe { value.copy_from_nonoverlapping(bytes.as_ptr().cast(), bytes.len()) };
    0
}
