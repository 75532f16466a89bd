//! Stand-in for CANN's `libacl_op_compiler.so`: operators launched by name. A few are computed, as the work of a stream;
//! the others do nothing and say so once.

mod operand;
mod operators;

use operand::Operands;
use std::collections::HashSet;
use std::ffi::{CStr, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

static NAMED: Mutex<Option<HashSet<String>>> = Mutex::new(None);

/// What a refused operator returns (`ACL_ERROR_OP_NOT_FOUND`).
const REFUSED: i32 = 100_024;

unsafe extern "C" {
    fn standinKernel(name: *const c_char, task_type: u32) -> *mut c_void;
    fn aclrtLaunchKernelWithHostArgs(
        function: *mut c_void,
        blocks: u32,
        stream: *mut c_void,
        configuration: *mut c_void,
        arguments: *mut c_void,
        argument_bytes: usize,
        placeholders: *mut c_void,
        placeholder_count: usize,
    ) -> i32;
}

/// Type of tasks that the card's own processor does.
const TASK_TYPE_AI_CPU: u32 = 1;

/// What a kernel is given: the arguments of a launch.
#[repr(C)]
struct Arguments {
    function: unsafe extern "C" fn(*mut c_void),
    argument: *mut c_void,
}

/// An operator on its way to the worker of a stream.
struct Launch {
    name: String,
    compute: operators::Computation,
    operands: Operands,
}

/// Gives the operator to the stream if it is computed.
unsafe fn execute(name: *const c_char, stream: *mut c_void, operands: impl FnOnce() -> Operands) -> i32 {
    if name.is_null() {
        return REFUSED;
    }
    // SAFETY: a terminated string by the contract of the C functions.
    let kernel = unsafe { standinKernel(name, TASK_TYPE_AI_CPU) };
    // SAFETY: as above.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
    let Some(compute) = operators::computation(&name) else {
        return unknown(name);
    };
    let launch = Box::into_raw(Box::new(Launch { name, compute, operands: operands() }));
    let mut arguments = Arguments { function: run, argument: launch.cast() };
    let (pointer, none) = ((&raw mut arguments).cast(), std::ptr::null_mut());
    // SAFETY: `run` takes the launch over, unless it is not accepted; the arguments are copied during the call.
    unsafe {
        let result = aclrtLaunchKernelWithHostArgs(kernel, 1, stream, none, pointer, size_of::<Arguments>(), none, 0);
        if result != 0 {
            drop(Box::from_raw(launch));
        }
        result
    }
}

/// Runs on the worker of the stream.
unsafe extern "C" fn run(launch: *mut c_void) {
    // SAFETY: `execute` gave up the launch.
    let launch = unsafe { Box::from_raw(launch.cast::<Launch>()) };
    let computed = catch_unwind(AssertUnwindSafe(|| (launch.compute)(&launch.operands)));
    if !matches!(computed, Ok(Some(()))) {
        eprintln!("stand-in device: operator {} failed, its outputs are undefined", launch.name);
    }
}

/// Refuses an operator or lets it do nothing, as `STANDIN_UNKNOWN_OPERATORS` says; unless that is `quiet`, says so once.
fn unknown(name: String) -> i32 {
    let setting = std::env::var("STANDIN_UNKNOWN_OPERATORS").unwrap_or_default();
    let mut named = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
    let is_refused = setting == "error";
    let outcome = if is_refused { "it is refused" } else { "its outputs are left as they are" };
    let line = format!("stand-in device: operator {name} is not computed, {outcome}");
    if named.get_or_insert_default().insert(name) && setting != "quiet" {
        eprintln!("{line}");
    }
    if is_refused { REFUSED } else { 0 }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclopCompileAndExecute(
    name: *const c_char,
    input_count: i32,
    input_descriptions: *const *const c_void,
    inputs: *const *const c_void,
    output_count: i32,
    output_descriptions: *const *const c_void,
    outputs: *const *mut c_void,
    attributes: *const c_void,
    _engine: i32,
    _flags: i32,
    _path: *const c_char,
    stream: *mut c_void,
) -> i32 {
    // SAFETY: callers pass as many descriptions and buffers as they say.
    unsafe {
        execute(name, stream, || {
            let inputs = operand::all(input_count, input_descriptions, inputs);
            let outputs = operand::all(output_count, output_descriptions, outputs.cast());
            Operands::new(inputs, outputs, attributes)
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclopCompileAndExecuteV2(
    name: *const c_char,
    input_count: i32,
    input_descriptions: *mut *mut c_void,
    inputs: *mut *mut c_void,
    output_count: i32,
    output_descriptions: *mut *mut c_void,
    outputs: *mut *mut c_void,
    attributes: *mut c_void,
    engine: i32,
    flags: i32,
    path: *const c_char,
    stream: *mut c_void,
) -> i32 {
    // SAFETY: as for the function called.
    unsafe {
        aclopCompileAndExecute(
            name,
            input_count,
            input_descriptions.cast_const().cast(),
            inputs.cast_const().cast(),
            output_count,
            output_descriptions.cast_const().cast(),
            outputs.cast_const(),
            attributes,
            engine,
            flags,
            path,
            stream,
        )
    }
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
