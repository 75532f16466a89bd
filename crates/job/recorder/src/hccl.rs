//! Hooks of the collective communication library: which rank this process is, where neither a launcher nor a framework
//! says it.
//!
//! Only whoever makes a communicator comes here, a few times in the life of a job; sending and receiving is not hooked.
//! Jobs make communicators of all ranks and of groups of them: the largest one tells the place in the job.

use std::ffi::c_void;

use crate::hooks::{HcclCommInitRootInfo, HcclCommInitRootInfoConfig};
use crate::introduction;
use crate::real::RealFunction;

/// What the library returns when something inside it is missing.
const INTERNAL_ERROR: i32 = 4;
const SUCCESS: i32 = 0;

/// What the hook of `HcclCommInitRootInfo` does.
///
/// # Safety
/// Arguments as the function itself demands them.
#[inline(always)]
pub unsafe fn join(
    real: &'static RealFunction<HcclCommInitRootInfo::Signature>,
    ranks: u32,
    root: *const c_void,
    rank: u32,
    communicator: *mut *mut c_void,
) -> i32 {
    let Some(real) = real.function() else { return INTERNAL_ERROR };
    // SAFETY: the library's function of this name has this signature; arguments are the caller's.
    noted(unsafe { real(ranks, root, rank, communicator) }, rank, ranks)
}

/// What the hook of `HcclCommInitRootInfoConfig` does.
///
/// # Safety
/// Arguments as the function itself demands them.
#[inline(always)]
pub unsafe fn join_configured(
    real: &'static RealFunction<HcclCommInitRootInfoConfig::Signature>,
    ranks: u32,
    root: *const c_void,
    rank: u32,
    configuration: *const c_void,
    communicator: *mut *mut c_void,
) -> i32 {
    let Some(real) = real.function() else { return INTERNAL_ERROR };
    // SAFETY: the library's function of this name has this signature; arguments are the caller's.
    noted(unsafe { real(ranks, root, rank, configuration, communicator) }, rank, ranks)
}

fn noted(result: i32, rank: u32, ranks: u32) -> i32 {
    if result == SUCCESS && rank < ranks {
        introduction::note_communicator(rank, ranks);
    }
    result
}
