//! Settings that make no difference on the stand-in: they are accepted, because refusing them would stop programs
//! that run on a card.

use crate::error::INVALID_PARAMETER;
use std::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicI64, Ordering};

/// Defines functions that accept their arguments and do nothing.
macro_rules! accepted {
    ($($name:ident($($type:ty),*);)*) => {
        $(
            #[unsafe(no_mangle)]
            extern "C" fn $name($(_: $type),*) -> i32 {
                0
            }
        )*
    };
}

accepted! {
    aclrtSetDeviceSatMode(i32);
    aclrtSetOpWaitTimeout(u32);
    aclrtSetOpExecuteTimeOut(u32);
    aclrtSetStreamFailureMode(*mut c_void, u64);
    aclrtSetStreamOverflowSwitch(*mut c_void, u32);
    aclmdlInitDump();
    aclmdlSetDump(*const c_char);
    aclmdlFinalizeDump();
}

static SYSTEM_PARAMETERS: [AtomicI64; 8] = [const { AtomicI64::new(0) }; 8];

fn set_parameter(option: i32, value: i64) -> i32 {
    match usize::try_from(option).ok().and_then(|option| SYSTEM_PARAMETERS.get(option)) {
        Some(parameter) => {
            parameter.store(value, Ordering::Release);
            0
        }
        None => INVALID_PARAMETER,
    }
}

unsafe fn get_parameter(option: i32, value: *mut i64) -> i32 {
    match usize::try_from(option).ok().and_then(|option| SYSTEM_PARAMETERS.get(option)) {
        Some(parameter) if !value.is_null() => {
            // SAFETY: checked; writable by the contract of the C functions.
            unsafe { value.write(parameter.load(Ordering::Acquire)) };
            0
        }
        _ => INVALID_PARAMETER,
    }
}

#[unsafe(no_mangle)]
extern "C" fn aclrtSetSysParamOpt(option: i32, value: i64) -> i32 {
    set_parameter(option, value)
}

#[unsafe(no_mangle)]
extern "C" fn aclrtCtxSetSysParamOpt(option: i32, value: i64) -> i32 {
    set_parameter(option, value)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtGetSysParamOpt(option: i32, value: *mut i64) -> i32 {
    // SAFETY: as for the function called.
    unsafe { get_parameter(option, value) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtCtxGetSysParamOpt(option: i32, value: *mut i64) -> i32 {
    // SAFETY: as for the function called.
    unsafe { get_parameter(option, value) }
}

/// What the calls below answer: the function exists, the feature does not.
const UNSUPPORTED: i32 = 200_006;

/// Defines functions that programs link against and that the stand-in cannot serve.
macro_rules! unsupported {
    ($($name:ident($($type:ty),*);)*) => {
        $(
            #[unsafe(no_mangle)]
            extern "C" fn $name($(_: $type),*) -> i32 {
                UNSUPPORTED
            }
        )*
    };
}

unsupported! {
    aclrtBinaryLoadFromData(*const c_void, usize, *const c_void, *mut *mut c_void);
    aclrtBinaryGetFunction(*mut c_void, *const c_char, *mut *mut c_void);
    aclrtGetFunctionAddr(*mut c_void, *mut *mut c_void, *mut *mut c_void);
    aclrtMemExportToShareableHandle(*mut c_void, i32, u64, *mut u64);
    aclrtMemImportFromShareableHandle(u64, i32, *mut *mut c_void);
    aclrtMemSetPidToShareableHandle(u64, *mut i32, usize);
}
