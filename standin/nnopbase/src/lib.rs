//! Stand-in for CANN's `libnnopbase.so`: what the two phases of all operators have in common.
//!
//! The first phase of an operator makes an executor and has it added to a cache before the caller gets it; the second runs
//! the executor, which launches kernels. All libraries of operators do both through functions of this one. Nothing is kept
//! for later calls here: what `AddCache` is given is used once.

use std::ffi::c_void;

/// `aclOpExecutor`, as far as this library knows it: it says itself how it is launched.
#[repr(C)]
struct Executor {
    launch: unsafe extern "C" fn(executor: *mut Self, stream: *mut c_void) -> i32,
}

/// `ACLNN_ERR_PARAM_NULLPTR`.
const NULL_POINTER: i32 = 161_001;

/// `aclOpExecutor::AddCache()`.
#[unsafe(export_name = "_ZN13aclOpExecutor8AddCacheEv")]
unsafe extern "C" fn add_cache(_executor: *mut Executor) {}

/// `CommonOpExecutorRun(void *, uint64_t, aclOpExecutor *, aclrtStream)`.
#[unsafe(export_name = "_Z19CommonOpExecutorRunPvmP13aclOpExecutorS_")]
unsafe extern "C" fn run(
    _workspace: *mut c_void,
    _workspace_bytes: u64,
    executor: *mut Executor,
    stream: *mut c_void,
) -> i32 {
    if executor.is_null() {
        return NULL_POINTER;
    }
    // SAFETY: an executor of a library of operators, which starts with its function.
    unsafe { ((*executor).launch)(executor, stream) }
}
